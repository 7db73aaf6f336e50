//! DAMON's tracepoints as static probes of user space (USDT): perf, bpftrace, and who else reads the notes of an ELF
//! file can listen to a running Isotherm with them; so can [`Listener`].
//!
//! A probe is a `nop` with a note that names it and says which registers hold its fields, and a semaphore, a counter
//! of listeners that the kernel keeps. While it is 0, the probe is a load and a branch.

mod listener;
mod note;
mod probes;

pub use listener::{Heard, ListenError, Listener};
pub use note::{Argument, Note, NoteError, notes};
pub use probes::{PROVIDER, Probes};
