//! The Linux side of Isotherm: access sources, actions, processes and targets, clocks and signals, meters.
//!
//! This is the only crate with `unsafe` code; every block says why it is sound. Readers of `/proc` and of control
//! groups take a root folder, so that parsing is tested on captured trees without privilege.

pub mod action;
pub mod arena;
pub mod beside;
pub mod bpf;
pub mod cgroup;
pub mod clock;
pub mod confine;
pub mod doctor;
pub mod facts;
pub mod folder_lock;
pub mod fork;
pub mod guard;
pub mod guestmem;
pub mod hostmem;
pub mod keepalive;
pub mod knob;
pub mod limits;
pub mod lru;
pub mod meter;
pub mod mm;
pub mod namespace;
pub mod notify;
pub mod number_locks;
mod perf_ring;
pub mod priority;
pub mod proc;
mod ptrace;
pub mod random;
pub mod ready;
pub mod roots;
pub mod run_command;
pub mod screen_signals;
pub mod signals;
pub mod source;
pub mod targets;
#[cfg(test)]
mod test_process;
#[cfg(test)]
mod test_tree;
mod tracefs;
pub mod unix_socket;
pub mod usdt;
pub mod vsock;
