//! Simulation: workloads as plain data, the same for real and for simulated memory, and a machine with a page table
//! that a monitor can watch in virtual time.
//!
//! [`workload`] says which pages are touched when; [`machine`] answers a monitor's questions about them without any
//! memory being there, so that terabytes can be watched on a laptop, exactly and repeatably. [`accuracy`] compares what
//! a monitor says with the truth; [`experiment`] lets schemes act on the machine.
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod experiment;
pub mod fuzz;
pub mod guests;
pub mod machine;
pub mod policy;
pub mod predict;
pub mod random;
pub mod replay;
pub mod trace;
pub mod workload;
