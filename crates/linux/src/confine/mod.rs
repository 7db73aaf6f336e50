//! Least privilege: once a command is set up, it gives up for good what it does not need.
//!
//! [`Needs`] declares what a command needs from then on; [`confine`] takes all else away:
//!
//! * capabilities, of the calling thread and those that it starts later ([`capabilities`]);
//! * new privileges through programs that are executed (`no_new_privs`);
//! * system calls, of all threads, by a list of those that are allowed ([`filter`]); others fail with EPERM, which the
//!   kernel's audit log tells where it has one;
//! * files, by Landlock where the kernel has it ([`files`]).
//!
//! Nothing of this can be undone, and children inherit it. So commands that are to run with all rights must have been
//! forked before. None executes a program afterwards.
//!
//! Limits. Who looks into other processes cannot be restricted by Landlock, which forbids to trace those outside and, in
//! Linux 6.1 and 6.12, every look at them (`/proc/PID/maps`, process_madvise). A filter of system calls cannot see what a
//! pointer points to: not which file is opened.

mod calls;
mod capabilities;
mod error;
mod files;
mod filter;
mod needs;

pub use calls::Calls;
pub use capabilities::{CapabilitySet, lacks, names};
pub use error::ConfineError;
pub use files::Landlock;
pub use needs::{Files, Needs};

/// What was taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confined {
    /// Capabilities that are left.
    pub capabilities: CapabilitySet,
    /// What Landlock does.
    pub landlock: Landlock,
}

/// Confines this process to what it needs. Best called while it has one thread: others keep their capabilities.
///
/// After an error, part of it may be in force.
pub fn confine(needs: &Needs) -> Result<Confined, ConfineError> {
    // Compiled first: a set that is no set must not leave half a sandbox.
    let filters = filter::compile(needs)?;
    let landlock = files::restrict(needs.files())?;
    let capabilities = capabilities::keep(needs.wanted_capabilities())?;
    rustix::thread::set_no_new_privs(true).map_err(|e| ConfineError::NewPrivileges(e.into()))?;
    filter::install(&filters)?;
    Ok(Confined { capabilities, landlock })
}
