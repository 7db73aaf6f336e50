//! What one command knows of a process, kept for the next: so that `age` and `evict` work as the two commands of the
//! kernel do.

use isotherm_core::keeper::address_space::AddressSpace;
use isotherm_core::keeper::creation_times::CreationTimes;
use isotherm_core::keeper::stored;
use isotherm_linux::folder_lock::FolderLock;
use isotherm_linux::proc::ProcessDir;
use isotherm_linux::proc::stat::Stat;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where root's commands keep it; it is gone after a restart, as the processes are.
const FOLDER: &str = "/run/isotherm/lru";
/// How long another command of this kind is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a file for each process.
///
/// The file's name holds the process's start time and the address of its code, so that neither another process with the
/// same id nor another program in the same process finds it. Somebody else who clears accessed bits meanwhile makes
/// pages look older than they are, as he does with every observer.
#[derive(Debug)]
pub struct Store {
    folder: Option<PathBuf>,
    /// Two commands at once would clear each other's bits.
    _lock: Option<FolderLock>,
    warned: bool,
}

impl Store {
    /// Opens the folder, or makes it. Without one nothing is kept.
    pub fn new() -> Self {
        let folder = PathBuf::from(FOLDER);
        let lock = DirBuilder::new().recursive(true).mode(0o700).create(&folder).and_then(|()| {
            sweep(&folder);
            FolderLock::take(&folder, PATIENCE)
        });
        match lock {
            Ok(lock) => Self { folder: Some(folder), _lock: Some(lock), warned: false },
            Err(e) => {
                tracing::warn!("generations cannot be kept for later commands in {}: {e}", folder.display());
                Self { folder: None, _lock: None, warned: true }
            }
        }
    }

    /// What was kept of a process.
    pub fn load(&self, pid: u32) -> Option<(CreationTimes, AddressSpace)> {
        stored::read(&std::fs::read(self.folder.as_ref()?.join(name_of(pid)?)).ok()?)
    }

    /// Keeps it. A failure is reported once and matters to later commands only.
    pub fn save(&mut self, pid: u32, created: &CreationTimes, space: &AddressSpace) {
        let (Some(folder), Some(name)) = (&self.folder, name_of(pid)) else { return };
        let path = folder.join(&name);
        let temporary = folder.join(format!(".{name}.tmp"));
        let saved =
            std::fs::write(&temporary, stored::write(created, space)).and_then(|()| std::fs::rename(&temporary, &path));
        if let Err(e) = saved
            && !std::mem::replace(&mut self.warned, true)
        {
            let _ = std::fs::remove_file(&temporary);
            tracing::warn!("generations cannot be kept for later commands in {}: {e}", path.display());
        }
    }
}

/// `PID-START-CODE`; `None` once it has exited.
fn name_of(pid: u32) -> Option<String> {
    let stat = Stat::read(&ProcessDir::live(pid)).ok()?;
    Some(format!("{pid}-{}-{:x}", stat.start_ticks, stat.image.0))
}

/// Removes files of processes that are no more.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.filter_map(io::Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.split('-').next().and_then(|p| p.parse().ok());
        if pid.and_then(name_of).as_deref() != Some(&name) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
