//! A guest's place: what the user says of it, and what is known.

use super::guest::Guest;
use crate::protocol::auth::Key;
use isotherm_linux::proc::PidFd;
use std::path::PathBuf;
use std::sync::Arc;

/// A guest as the user names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestSpec {
    /// What to call it.
    pub name: Option<String>,
    /// Its VMM; without it, whoever listens at the socket.
    pub pid: Option<u32>,
    /// Where its VMM listens for us.
    pub socket: Option<PathBuf>,
    /// Where its VMM can be asked about its memory.
    pub qmp: Option<PathBuf>,
    /// Its vsock context id, if it calls over that.
    pub cid: Option<u32>,
    /// What it has to know if it calls over TCP.
    pub key: Option<Key>,
}

impl GuestSpec {
    /// What a guest is called: by its name, or else by its VMM's number, or its place among the others.
    pub fn called(&self, number: usize) -> String {
        self.name.clone().unwrap_or_else(|| match self.pid {
            Some(pid) => format!("pid{pid}"),
            None => format!("guest{number}"),
        })
    }
}

/// A guest's place: there before the guest is, and after it.
#[derive(Debug)]
pub(super) struct Slot {
    pub spec: GuestSpec,
    /// Its VMM: that of the command line's pid, or the one that called. Held as long as the slot exists, so that the
    /// number is never taken for another process.
    pub process: Option<Arc<PidFd>>,
    /// Whose VMM it is, if that came by itself.
    pub uid: Option<u32>,
    pub guest: Option<Arc<Guest>>,
    pub problem: Option<String>,
}

impl Slot {
    pub fn named(spec: &GuestSpec) -> Self {
        let opened = spec.pid.map(|pid| PidFd::open(pid).map_err(|e| format!("there is no process {pid}: {e}")));
        let (process, problem) = match opened.transpose() {
            Ok(process) => (process.map(Arc::new), None),
            Err(problem) => (None, Some(problem)),
        };
        Self { spec: spec.clone(), process, uid: None, guest: None, problem }
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.pid()).or(self.spec.pid)
    }

    pub fn name(&self, number: usize) -> String {
        self.spec.called(number)
    }

    /// What is in the way: that its VMM has ended goes before what was wrong with it earlier.
    pub fn shown_problem(&self) -> Option<String> {
        let ended = |process: &Arc<PidFd>| process.has_exited().then(|| process.pid());
        if let Some(pid) = self.process.as_ref().and_then(ended) {
            return Some(match self.uid {
                None => ended_for_good(pid),
                Some(_) => format!("process {pid} has ended; a new VMM that calls is a guest of its own"),
            });
        }
        let waits = |pid| format!("process {pid} has ended; its socket is called until a new VMM listens there");
        let guest = self.guest.as_ref().filter(|guest| guest.process().has_exited());
        self.problem.clone().or_else(|| guest.map(|guest| waits(guest.process().pid())))
    }

    /// Whether it came by itself, and nothing could be done for it.
    pub fn has_failed(&self) -> bool {
        self.uid.is_some() && self.guest.is_none() && self.problem.is_some()
    }
}

/// The VMM that the command line names has ended.
pub(super) fn ended_for_good(pid: u32) -> String {
    format!(
        "process {pid} has ended, and its number says nothing about others; give the pid of the new VMM, or its socket alone"
    )
}
