//! The Linux side of Isotherm: access sources, processes, meters. The only crate with unsafe code.

pub mod probe;
