//! Asking the node that runs on this machine.

use super::agent::MACHINE;
use super::status::{COMMAND, NodeMachine};
use crate::instances::try_ask;
use anyhow::{Context, bail};
use isotherm_core::units::{format_time, nanos};
use isotherm_daemon::client::{ClientError, call};
use isotherm_daemon::socket_folders::{SocketFolders, live};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A node is waited for until it has watched for so long: who looked meanwhile would clear bits before it sees them, and it would take
/// pages for older than they are.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is asked then.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Why no node tells anything.
#[derive(Debug, thiserror::Error)]
pub enum Unasked {
    #[error("no isotherm node runs here that watches all processes and may be asked")]
    Nobody,
    /// Who it is, is not known.
    #[error(
        "the isotherm at {} does not answer; if it is a node, it is stopped or overloaded: let it go on (kill -CONT), or end it",
        .0.display()
    )]
    Silent(PathBuf),
    #[error("isotherm node (pid {pid}) cannot be asked: {why}")]
    Failed { pid: u32, why: String },
    #[error("isotherm node (pid {pid}) knows nothing after {}", format_time(*watched_ns))]
    Knowless { pid: u32, watched_ns: u64 },
}

impl Unasked {
    /// Tells why whoever asked looks for itself, where that is not what is to be expected.
    pub fn warn(&self) {
        match self {
            Self::Nobody => {}
            Self::Silent(_) => tracing::warn!("{self}; looking without it, which clears the bits that it goes by"),
            _ => tracing::warn!("{self}; looking without it"),
        }
    }
}

/// What the node that watches all of this machine knows, and its process. One that has just begun is waited for.
pub fn known() -> Result<(u32, NodeMachine), Unasked> {
    let (pid, socket) = find(live(&SocketFolders::from_env().all()))?;
    let mut waiting = false;
    loop {
        let known = read(&socket).map_err(|e| Unasked::Failed { pid, why: format!("{e:#}") })?;
        if is_ready(&known) {
            return match known.machine.total.pages() {
                Some(_) => Ok((pid, known)),
                None => Err(Unasked::Knowless { pid, watched_ns: known.watched_ns }),
            };
        }
        if !waiting {
            tracing::info!("isotherm node (pid {pid}) has begun only now; waiting until it knows something");
            waiting = true;
        }
        std::thread::sleep(ASK_AGAIN);
    }
}

/// The node among those that listen, and its socket.
fn find(sockets: Vec<PathBuf>) -> Result<(u32, PathBuf), Unasked> {
    let mut silent = None;
    for socket in sockets {
        match try_ask(&socket) {
            // One that watches a part knows nothing of the rest.
            Ok(Some(instance)) if instance.command == COMMAND && instance.about == super::ALL => {
                return Ok((instance.pid, socket));
            }
            Err(ClientError::Silent(socket)) => silent = Some(socket),
            _ => {}
        }
    }
    Err(silent.map_or(Unasked::Nobody, Unasked::Silent))
}

/// Whether there is nothing to wait for any more.
fn is_ready(known: &NodeMachine) -> bool {
    known.watched_ns >= nanos(PATIENCE) || known.machine.total.pages().is_some() && known.machine.is_of_nearly_all()
}

fn read(socket: &Path) -> anyhow::Result<NodeMachine> {
    let response = call(socket, "POST", MACHINE, b"")?;
    if response.status != 200 {
        bail!("it refused with status {}", response.status);
    }
    serde_json::from_slice(&response.body).context("it is of another version")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn one_that_listens_and_does_not_answer_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hung.sock");
        let _listens = UnixListener::bind(&path).unwrap();
        let silent = find(vec![path.clone()]).unwrap_err();
        assert!(matches!(&silent, Unasked::Silent(socket) if *socket == path), "{silent}");
        assert!(silent.to_string().contains("hung.sock does not answer"), "{silent}");
        assert!(matches!(find(Vec::new()), Err(Unasked::Nobody)));
        assert!(matches!(find(vec![folder.path().join("none.sock")]), Err(Unasked::Nobody)), "it has gone meanwhile");
    }
}
