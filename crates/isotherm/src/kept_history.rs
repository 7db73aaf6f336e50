//! Where a node keeps its page history while it is restarted.

use crate::kept_generations;
use isotherm_daemon::socket_folders::SocketFolders;
use isotherm_linux::clock::monotonic_ns;
use std::io;
use std::path::{Path, PathBuf};

/// Below the folder of control sockets: it is gone when the machine starts anew, as the processes are.
const FOLDER: &str = "node-history";
const FILE: &str = "pages.gz";
/// Who last made void what was kept, and when: a node that has read the file before must not hand it on.
const VOIDED: &str = "voided";

/// The folder; `None`: this user has no place for it.
pub fn folder() -> Option<PathBuf> {
    SocketFolders::from_env().home().map(|home| home.join(FOLDER))
}

/// The file in it.
pub fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// What [`void`] has left in `folder`, another text each time; `None`: nothing.
pub fn voided(folder: &Path) -> Option<Vec<u8>> {
    std::fs::read(folder.join(VOIDED)).ok()
}

/// We are about to clear accessed bits: what a node or the commands of `lru` have kept would take pages to be idle that
/// were accessed.
pub fn void() {
    kept_generations::void();
    void_node();
}

/// The same by those who go on with what `lru` has kept.
pub fn void_node() {
    if let Some(folder) = folder() {
        void_in(&folder);
    }
}

/// The same in this folder. Told before the file goes: a node that is just writing either sees that, or its file goes.
pub fn void_in(folder: &Path) {
    let stamp = folder.join(VOIDED);
    match std::fs::write(&stamp, format!("pid {} at {}\n", std::process::id(), monotonic_ns())) {
        Ok(()) => {}
        // No node has kept anything yet.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => tracing::warn!("{}: {e}; remove {} once no isotherm node runs", stamp.display(), folder.display()),
    }
    let path = file(folder);
    match std::fs::remove_file(&path) {
        Ok(()) => tracing::debug!("removed {}: what isotherm node knew does not hold any more", path.display()),
        // Mostly: a node runs and has taken it, or none ever did.
        Err(e) => tracing::trace!("{}: {e}", path.display()),
    }
}
