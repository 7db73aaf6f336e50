//! Where a node keeps its page history while it is restarted.

use isotherm_daemon::socket_folders::SocketFolders;
use std::path::{Path, PathBuf};

/// Below the folder of control sockets: it is gone when the machine starts anew, as the processes are.
const FOLDER: &str = "node-history";
const FILE: &str = "pages.gz";

/// The folder; `None`: this user has no place for it.
pub fn folder() -> Option<PathBuf> {
    SocketFolders::from_env().home().map(|home| home.join(FOLDER))
}

/// The file in it.
pub fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// We are about to clear accessed bits: what a node has kept would take pages to be idle that were accessed.
pub fn void() {
    let Some(path) = folder().map(|folder| file(&folder)) else { return };
    match std::fs::remove_file(&path) {
        Ok(()) => tracing::debug!("removed {}: what isotherm node knew does not hold any more", path.display()),
        // Mostly: a node runs and has taken it, or none ever did.
        Err(e) => tracing::trace!("{}: {e}", path.display()),
    }
}
