//! The Linux side of Isotherm: access sources, processes, meters. The only crate with unsafe code.

pub mod arena;
pub mod monotonic;
pub mod probe;
