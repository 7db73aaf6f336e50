//! Where the commands of `lru` keep what they know of processes for the next one, and who else makes that void.

use isotherm_daemon::socket_folders::SocketFolders;
use isotherm_linux::clock::monotonic_ns;
use std::io;
use std::path::{Path, PathBuf};

/// Below the folder of control sockets: it is gone when the machine starts anew, as the processes are.
pub const FOLDER: &str = "lru";
/// Which command is at work on which process.
pub const LOCKS: &str = "locks";
/// Who last made void what was kept, and when: a command that has read it before must not hand it on.
const VOIDED: &str = "voided";

/// What [`void`] has left in `folder`, another text each time; `None`: nothing.
pub fn voided(folder: &Path) -> Option<Vec<u8>> {
    std::fs::read(folder.join(VOIDED)).ok()
}

/// Accessed bits are about to be cleared by somebody who does not keep generations: what is kept would take pages to be
/// idle that were accessed. Whose bits does not matter: nothing that is kept holds any more.
pub fn void() {
    for folder in SocketFolders::from_env().all() {
        void_in(&folder.join(FOLDER));
    }
}

/// The same in this folder.
pub fn void_in(folder: &Path) {
    // Told before the files go: a command that is just writing either sees that, or its file goes.
    let stamp = format!("pid {} at {}\n", std::process::id(), monotonic_ns());
    if let Err(e) = std::fs::write(folder.join(VOIDED), stamp) {
        // Mostly: no command has kept anything yet, or the folder is another user's.
        tracing::trace!("{}: {e}", folder.display());
        return;
    }
    for path in kept_files(folder) {
        let _ = std::fs::remove_file(path);
    }
}

/// The files of processes.
pub fn kept_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(io::Result::ok).map(|entry| entry.path());
    paths.filter(|path| ![LOCKS, VOIDED].iter().any(|name| path.ends_with(name))).collect()
}
