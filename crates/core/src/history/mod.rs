//! The page history: for each present page, between which two moments it was last accessed. Every figure and every
//! decision that says "cold", "idle", "working set" or "age" comes from it.
//!
//! * [`epoch`]: such an interval as one byte; [`table`]: the pages below one page table; [`pages`]: those of an address
//!   space.
//! * [`tracked`]: an access source with the histories of its targets, which it walks, each in slices ([`pass`]).
//! * [`together`]: several targets, whose common pages count once; [`once`]: how a sample of frames tells that; [`together_frame`]:
//!   what then counts for each.
//! * [`rest`]: targets that have not run, whose pages need not be looked at again.
//! * [`stored`]: a history kept for the next run.
//! * [`ages`]: figures from them; [`usage`]: what to expect of pages in use; [`reaccessed`]: what came back after how long; [`frame`]: the figures, as they are recorded;
//!   [`times`]: the ages that they are for.

pub mod ages;
pub mod epoch;
pub mod frame;
pub mod known;
mod once;
pub mod pages;
mod pass;
pub mod reaccessed;
mod rest;
pub mod stored;
pub mod table;
pub mod times;
pub mod to_clear;
pub mod together;
pub mod together_frame;
pub mod tracked;
mod usage;

#[cfg(test)]
mod pages_tests;
#[cfg(test)]
mod tests;
