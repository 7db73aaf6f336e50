//! What a command needs once it is set up.

use super::calls::Calls;
use rustix::thread::CapabilitySet;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Declared, not found out: capabilities, groups of system calls, files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    capabilities: CapabilitySet,
    calls: BTreeSet<Calls>,
    files: Files,
}

/// The files that may be opened or changed from now on. What is open stays so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// Whatever the user may, for this reason. Descriptors and control sockets are not concerned.
    Any(&'static str),
    /// These, with what is below them. One that is not there when the process is confined may not be used later.
    Only {
        /// To be read.
        read: Vec<PathBuf>,
        /// To be read and written.
        write: Vec<PathBuf>,
        /// Folders in which files are read, written, made and removed.
        own: Vec<PathBuf>,
    },
}

impl Needs {
    /// Nothing but what every process needs, and `files`.
    pub fn new(files: Files) -> Self {
        Self { capabilities: CapabilitySet::empty(), calls: BTreeSet::from([Calls::Basic]), files }
    }

    /// These capabilities in addition.
    #[must_use]
    pub fn capabilities(mut self, more: CapabilitySet) -> Self {
        self.capabilities |= more;
        self
    }

    /// These system calls in addition.
    #[must_use]
    pub fn calls(mut self, more: impl IntoIterator<Item = Calls>) -> Self {
        self.calls.extend(more);
        self
    }

    /// The capabilities.
    pub const fn wanted_capabilities(&self) -> CapabilitySet {
        self.capabilities
    }

    /// The groups of system calls.
    pub const fn wanted_calls(&self) -> &BTreeSet<Calls> {
        &self.calls
    }

    /// The files.
    pub const fn files(&self) -> &Files {
        &self.files
    }
}
