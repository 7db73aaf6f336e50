//! Asking the node that runs on this machine.

use super::agent::MACHINE;
use super::status::{COMMAND, NodeMachine};
use crate::instances::ask;
use anyhow::{Context, bail};
use isotherm_core::units::{format_time, nanos};
use isotherm_daemon::client::call;
use isotherm_daemon::socket_folders::{SocketFolders, live};
use std::path::Path;
use std::time::Duration;

/// A node is waited for until it has watched for so long: who looked meanwhile would clear bits before it sees them, and it would take
/// pages for older than they are.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is asked then.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What the node that watches all of this machine knows, and its process. `None`: none runs, none that we may talk to, or
/// none that knows anything, even after a while.
pub fn known() -> Option<(u32, NodeMachine)> {
    let (pid, socket) = live(&SocketFolders::from_env().all()).into_iter().find_map(|socket| {
        let instance = ask(&socket)?;
        // One that watches a part knows nothing of the rest.
        (instance.command == COMMAND && instance.about == super::ALL).then_some((instance.pid, socket))
    })?;
    let (patience_ns, mut waiting) = (nanos(PATIENCE), false);
    loop {
        match read(&socket) {
            Ok(known) if known.machine.total.pages().is_some() => return Some((pid, known)),
            Ok(known) if known.watched_ns >= patience_ns => {
                let watched = format_time(known.watched_ns);
                tracing::warn!("isotherm node (pid {pid}) knows nothing after {watched}; looking without it");
                return None;
            }
            Ok(_) if !waiting => {
                tracing::info!("isotherm node (pid {pid}) has begun only now; waiting until it knows something");
                waiting = true;
            }
            Ok(_) => {}
            Err(e) => {
                tracing::warn!("isotherm node (pid {pid}) cannot be asked: {e:#}; looking without it");
                return None;
            }
        }
        std::thread::sleep(ASK_AGAIN);
    }
}

fn read(socket: &Path) -> anyhow::Result<NodeMachine> {
    let response = call(socket, "POST", MACHINE, b"")?;
    if response.status != 200 {
        bail!("it refused with status {}", response.status);
    }
    serde_json::from_slice(&response.body).context("it is of another version")
}
