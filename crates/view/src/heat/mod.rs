//! Heatmaps: access rate over time and address.
//!
//! * [`gapless`]: which addresses exist, with names, laid end to end without the gaps between them;
//! * [`profile`]: where in that space accesses were seen at all;
//! * [`axis`]: how many rows of a picture each part of the space gets;
//! * [`grid`]: the mean rate of each cell, weighted by the area that was observed, or the share of its pages accessed;
//! * [`scale`] and [`palette`]: from rates to colours;
//! * [`map`]: all of it together; [`terminal`] draws it as text, [`json`]
//!   writes it for programs.

pub mod axis;
pub mod gapless;
pub mod grid;
pub mod json;
pub mod map;
pub mod palette;
pub mod profile;
pub mod scale;
mod tables;
pub mod terminal;
