//! What a record or a live run shows: tables, distributions, heatmaps and pages for people, JSON for programs.
//!
//! Every report reads [`Event`](isotherm_core::event::Event)s through [`Replay`](replay::Replay), in a few passes and
//! with memory that does not grow with the number of regions in a record. Nothing here opens files or asks for the
//! terminal's size: callers hand in events, a width and a colour mode, and get text or bytes.
#![forbid(unsafe_code)]

pub mod access;
pub mod ascii;
pub mod basis;
pub mod draw;
pub mod error;
pub mod exact;
pub mod heat;
pub mod html;
mod keyed;
pub mod machine;
pub mod names;
pub mod overview;
pub mod picture;
pub mod plot;
pub mod raw;
pub mod replay;
pub mod schemes;
pub mod series;
pub mod summary;
pub mod temperature;
pub mod ticks;
pub mod tui;
pub mod units;

#[cfg(test)]
mod testdata;
