//! The host's side: takes reports from many guests and gives the memory back to the machine.
//!
//! A guest can only ever harm itself. Whatever it sends is checked against what the host knows of its memory by itself
//! ([`layout`]), it can reach no file but its own ([`memory`]), it is slowed down ([`allowance`]) and what is kept of
//! it is bounded ([`session`]). Each guest has a thread of its own; what one does makes no other wait.

pub mod allowance;
pub mod bucket;
pub mod connection;
pub mod door;
pub mod guest;
pub mod layout;
pub mod memory;
pub mod mtree;
mod pending;
pub mod pinned;
pub mod qmp;
pub mod ranges;
pub mod rate;
pub mod scan;
pub mod server;
pub mod session;
pub mod slot;
mod standstill;
pub mod status;
#[cfg(test)]
mod test_vmm;
mod trouble;
