//! What one command knows of a process, kept for the next: so that `age` and `evict` work as the two commands of the
//! kernel do.

use crate::kept_generations::{FOLDER, LOCKS, kept_files, voided};
use anyhow::{Context, bail};
use isotherm_core::keeper::address_space::AddressSpace;
use isotherm_core::keeper::creation_times::CreationTimes;
use isotherm_core::keeper::stored;
use isotherm_daemon::socket_folders::SocketFolders;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::number_locks::NumberLocks;
use isotherm_linux::proc::ProcessDir;
use isotherm_linux::proc::stat::Stat;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How often somebody else who is at work on a process is asked for.
const ASK_EVERY_NS: u64 = 50_000_000;

/// A folder with a file for each process.
///
/// The file's name holds the process's start time and the address of its code, so that neither another process with the
/// same id nor another program in the same process finds it. It is gone while a command is at work: what that has
/// cleared and cannot keep, since it was killed, nobody knows.
#[derive(Debug)]
pub struct Store {
    open: Option<Open>,
    warned: bool,
}

#[derive(Debug)]
struct Open {
    folder: PathBuf,
    /// Two commands at work on one process would clear each other's bits.
    locks: NumberLocks,
    voided: Option<Vec<u8>>,
}

impl Store {
    /// Opens this user's folder, or makes it. Without one nothing is kept.
    pub fn new() -> Self {
        match SocketFolders::from_env().home() {
            Some(home) => Self::at(home.join(FOLDER)),
            None => Self { open: None, warned: false },
        }
    }

    fn at(folder: PathBuf) -> Self {
        let locks = DirBuilder::new().recursive(true).mode(0o700).create(&folder).and_then(|()| {
            sweep(&folder);
            NumberLocks::open(&folder.join(LOCKS))
        });
        match locks {
            Ok(locks) => {
                let voided = voided(&folder);
                Self { open: Some(Open { folder, locks, voided }), warned: false }
            }
            Err(e) => {
                tracing::warn!("generations cannot be kept for later commands in {}: {e}", folder.display());
                Self { open: None, warned: true }
            }
        }
    }

    /// Makes these processes ours until the end. Where another command is at work on one of them, that is said and its
    /// end is waited for, with `wait` until a time; whether to give up is what that tells.
    ///
    /// # Errors
    ///
    /// It was given up.
    pub fn lock(&self, mut pids: Vec<u32>, mut wait: impl FnMut(u64) -> bool) -> anyhow::Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        // In one order, so that no two commands wait for each other.
        pids.sort_unstable();
        for pid in pids {
            let mut told = None;
            let take = || open.locks.take(pid).with_context(|| format!("cannot lock in {}", open.folder.display()));
            while let Some(holder) = take()? {
                if told.replace(holder) != Some(holder) {
                    say!("waiting for isotherm (pid {holder}), which is at work on pid {pid}");
                }
                if wait(monotonic_ns() + ASK_EVERY_NS) {
                    bail!("interrupted while waiting for isotherm (pid {holder}), which is at work on pid {pid}");
                }
            }
        }
        Ok(())
    }

    /// Makes a process ours that has come meanwhile, if nobody is at work on it.
    pub fn try_lock(&self, pid: u32) -> bool {
        self.open.as_ref().is_some_and(|open| matches!(open.locks.take(pid), Ok(None)))
    }

    /// Takes out what was kept of a process.
    pub fn take(&self, pid: u32) -> Option<(CreationTimes, AddressSpace)> {
        let path = self.open.as_ref()?.folder.join(name_of(pid)?);
        let bytes = std::fs::read(&path).ok()?;
        std::fs::remove_file(&path).ok()?;
        stored::read(&bytes)
    }

    /// Keeps it. A failure is reported once and matters to later commands only.
    pub fn save(&mut self, pid: u32, created: &CreationTimes, space: &AddressSpace) {
        let (Some(open), Some(name)) = (&self.open, name_of(pid)) else { return };
        if voided(&open.folder) != open.voided {
            tracing::debug!("pid {pid}: not kept, since others have cleared accessed bits meanwhile");
            return;
        }
        let path = open.folder.join(&name);
        let temporary = open.folder.join(format!("{name}.tmp"));
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
    for path in kept_files(folder) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".tmp").unwrap_or(&name);
        let pid = name.split('-').next().and_then(|pid| pid.parse().ok());
        if pid.and_then(name_of).as_deref() != Some(name) {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_generations::void_in;

    fn keep(store: &mut Store) {
        store.save(std::process::id(), &CreationTimes::new(3, 7), &AddressSpace::default());
    }

    fn kept(folder: &Path) -> Option<u64> {
        Some(Store::at(folder.to_owned()).take(std::process::id())?.0.max_seq())
    }

    #[test]
    fn what_is_kept_is_taken_out_and_gone_if_it_is_not_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("lru");
        assert_eq!(kept(&folder), None);
        keep(&mut Store::at(folder.clone()));
        assert_eq!((kept(&folder), kept(&folder)), (Some(3), None));
    }

    #[test]
    fn who_clears_bits_voids_what_was_kept_and_what_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("lru");
        void_in(&folder);
        assert!(!folder.exists(), "nothing was kept");
        keep(&mut Store::at(folder.clone()));
        void_in(&folder);
        assert_eq!(kept(&folder), None);
        let mut in_use = Store::at(folder.clone());
        void_in(&folder);
        keep(&mut in_use);
        assert_eq!(kept(&folder), None, "it was voided while it was in use");
        keep(&mut Store::at(folder.clone()));
        assert_eq!(kept(&folder), Some(3), "later ones keep again");
    }

    #[test]
    fn only_files_of_processes_that_are_no_more_are_swept_away() {
        let folder = tempfile::tempdir().unwrap();
        keep(&mut Store::at(folder.path().to_owned()));
        for dead in ["4294967295-1-1", "4294967295-1-1.tmp", ".1-2-3.tmp"] {
            std::fs::write(folder.path().join(dead), "").unwrap();
        }
        drop(Store::at(folder.path().to_owned()));
        let own = name_of(std::process::id()).unwrap();
        assert_eq!(kept_files(folder.path()), [folder.path().join(own)]);
    }
}
