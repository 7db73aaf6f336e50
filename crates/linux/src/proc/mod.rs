//! What `/proc` tells about processes: their mappings, footprint, state and family.

pub mod children;
pub mod dir;
pub mod error;
pub mod filesystems;
pub(crate) mod forks;
pub(crate) mod lines;
pub mod maps;
pub(crate) mod memory;
pub mod pidfd;
pub mod process;
pub mod schedstat;
pub(crate) mod sharers;
pub mod smaps;
pub mod stat;
pub mod statm;
pub mod status;
mod vm_flags;

pub use dir::ProcessDir;
pub use error::ProcessError;
pub use pidfd::{PidFd, Signal};
pub use process::Process;
