//! What the benchmarks share: running the `isotherm` binary, figures of a run, medians, tables.
#![forbid(unsafe_code)]

pub mod figures;
pub mod monitors;
pub mod programs;
pub mod table;
pub mod walks;
