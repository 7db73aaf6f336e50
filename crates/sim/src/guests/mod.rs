//! Guests on a host: what free page hinting changes, at a size that no test machine has.
//!
//! Each guest has a buddy allocator ([`buddy`]), page by page; its host backs a page when the guest first touches it
//! and keeps it until somebody tells it otherwise, and swaps the least recently touched memory out when there is no
//! more ([`host`]). What tells it is nothing, Isotherm's own code ([`isotherm_core::hinter`], the same that runs in a
//! guest; [`agent`]), or free page reporting as Linux does it ([`reporting`]).
//!
//! Time is virtual, and what costs how much is a parameter ([`params`]) with a source.

pub mod agent;
pub mod buddy;
pub mod experiments;
pub mod guest;

pub mod host;
pub mod params;
pub mod reporting;
pub mod world;
