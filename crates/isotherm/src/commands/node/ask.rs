//! Asking the node that runs on this machine.

use super::agent::MACHINE;
use super::status::{COMMAND, NodeMachine};
use crate::instances::ask;
use anyhow::{Context, bail};
use isotherm_daemon::client::call;
use isotherm_daemon::socket_folders::{SocketFolders, live};
use std::path::Path;

/// What the node that watches all of this machine knows, and its process. `None`: none runs, none that we may talk to, or
/// none that knows anything yet.
pub fn known() -> Option<(u32, NodeMachine)> {
    let (pid, socket) = live(&SocketFolders::from_env().all()).into_iter().find_map(|socket| {
        let instance = ask(&socket)?;
        // One that watches a part knows nothing of the rest.
        (instance.command == COMMAND && instance.about == super::ALL).then_some((instance.pid, socket))
    })?;
    match read(&socket) {
        Ok(known) if known.machine.total.pages().is_some() => Some((pid, known)),
        Ok(_) => {
            tracing::info!("isotherm node (pid {pid}) has begun only now and knows nothing yet; looking without it");
            None
        }
        Err(e) => {
            tracing::warn!("isotherm node (pid {pid}) cannot be asked: {e:#}; looking without it");
            None
        }
    }
}

fn read(socket: &Path) -> anyhow::Result<NodeMachine> {
    let response = call(socket, "POST", MACHINE, b"")?;
    if response.status != 200 {
        bail!("it refused with status {}", response.status);
    }
    serde_json::from_slice(&response.body).context("it is of another version")
}
