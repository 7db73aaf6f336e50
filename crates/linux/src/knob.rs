//! Settings of the kernel that are changed for a while.

use crate::folder_lock::FolderLock;
use crate::guard::Guard;
use crate::roots::Roots;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where it is kept who has changed what; it is gone after a restart, as the changes are.
const FOLDER: &str = "/run/isotherm";
/// How long the guard of one that was killed may take to put its change back.
const PATIENCE: Duration = Duration::from_secs(1);

/// A setting that we have changed. Put back when this is dropped, and by the [guard](crate::guard) if we are killed.
///
/// One process at a time has it changed: with two, each would put back what it had found, the other's value.
#[derive(Debug)]
pub struct Knob {
    path: PathBuf,
    before: String,
    /// What it holds now; the kernel may have rounded what was written.
    ours: String,
    guard: Guard,
    /// Held until it has been put back, by us or the guard.
    _lock: FolderLock,
}

impl Knob {
    /// Writes `value` to a file that holds one word; the guard that is started knows first what was in it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::ResourceBusy`], which names the other process, if that has changed it.
    pub fn set(
        roots: &Roots,
        file: &str,
        value: &str,
        start_guard: impl FnOnce() -> io::Result<Guard>,
    ) -> io::Result<Self> {
        let path = roots.path(file);
        let lock = lock(&roots.path(FOLDER), &path)?;
        // After that, so that it holds the lock for as long as it may have something to put back.
        let mut guard = start_guard()?;
        let before = word(&path)?;
        guard.changes(&path, &before)?;
        // Where this fails, the guard writes what is there.
        std::fs::write(&path, value)?;
        Ok(Self { ours: word(&path)?, path, before, guard, _lock: lock })
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        let path = self.path.display();
        match word(&self.path) {
            Ok(now) if now != self.ours => {
                tracing::warn!(
                    "{path} holds {now}: somebody has changed it meanwhile, so it is not put back to {}",
                    self.before
                );
            }
            _ => {
                if let Err(e) = std::fs::write(&self.path, &self.before) {
                    tracing::warn!("cannot put {path} back to {}: {e}", self.before);
                    return;
                }
            }
        }
        // Without a guard there is nobody to know.
        drop(self.guard.leaves(&self.path));
    }
}

fn word(path: &Path) -> io::Result<String> {
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

/// Locks the setting at `path` for us and the processes that we start; the lock's file says whose it is.
fn lock(folder: &Path, path: &Path) -> io::Result<FolderLock> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = folder.join(format!("{name}.lock"));
    OpenOptions::new().append(true).create(true).open(&file)?;
    match FolderLock::take(&file, PATIENCE) {
        Ok(lock) => {
            std::fs::write(&file, std::process::id().to_string())?;
            lock.inherited()
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            let holder = word(&file)?;
            let busy = format!("isotherm (pid {holder}) has changed it, and puts it back when it ends; end that first");
            Err(io::Error::new(io::ErrorKind::ResourceBusy, busy))
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::serve;
    use crate::test_tree::tree;
    use std::io::Write;
    use std::process::Command;

    /// A guard that writes down what it is given.
    fn scribe(log: &Path) -> io::Result<Guard> {
        Guard::run(Command::new("sh").args(["-c", "echo; exec cat >\"$0\""]).arg(log))
    }

    #[test]
    fn two_never_have_it_changed_at_the_same_time() {
        let t = tree(&[("knob", "0\n"), ("other", "0\n"), ("log", "")]);
        let log = t.roots.path("/log");
        let set = |file: &str, value: &str| Knob::set(&t.roots, file, value, || scribe(&log));
        let first = set("/knob", "3000").unwrap();
        let second = set("/knob", "5000").unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
        assert!(second.to_string().contains(&format!("pid {}", std::process::id())), "{second}");
        assert_eq!(t.roots.line("/knob").as_deref(), Some("3000"));
        drop(set("/other", "1").unwrap());
        drop(first);
        assert_eq!(t.roots.line("/knob").as_deref(), Some("0"));
        drop(set("/knob", "5000").unwrap());
        assert_eq!(t.roots.line("/knob").as_deref(), Some("0"));
    }

    #[test]
    fn what_somebody_else_has_set_meanwhile_stays() {
        let t = tree(&[("knob", "7\n"), ("log", "")]);
        let (path, log) = (t.roots.path("/knob"), t.roots.path("/log"));
        let knob = Knob::set(&t.roots, "/knob", "1000", || scribe(&log)).unwrap();
        std::fs::write(&path, "250\n").unwrap();
        drop(knob);
        assert_eq!(t.roots.line("/knob").as_deref(), Some("250"));
        let told = std::fs::read_to_string(&log).unwrap();
        assert!(told.lines().last().unwrap().starts_with("leave "), "the guard does not put it back, either: {told}");
    }

    #[test]
    fn a_setting_is_put_back_whatever_happens() {
        let t = tree(&[("knob", "7\n"), ("log", "")]);
        let (path, log) = (t.roots.path("/knob"), t.roots.path("/log"));
        let now = || std::fs::read_to_string(&path).unwrap();
        let knob = Knob::set(&t.roots, "/knob", "1000", || scribe(&log)).unwrap();
        assert_eq!(now(), "1000");
        drop(knob);
        assert_eq!(now(), "7");
        let reported = std::fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = reported.lines().collect();
        assert_eq!(lines.len(), 2, "{reported}");
        // The end of whoever has changed it, before and after it was put back.
        for (lines, left) in [(&lines[..1], "7"), (&lines[..], "5")] {
            std::fs::write(&path, "5").unwrap();
            let (input, mut writer) = io::pipe().unwrap();
            writeln!(writer, "{}", lines.join("\n")).unwrap();
            drop(writer);
            serve(input, io::sink()).unwrap();
            assert_eq!(now(), left);
        }
    }

    #[test]
    fn what_cannot_be_guarded_is_not_changed() {
        let t = tree(&[("knob", "7\n"), ("log", ""), ("two words", "1\n")]);
        let log = t.roots.path("/log");
        assert!(Knob::set(&t.roots, "/none", "1", || scribe(&log)).is_err());
        assert!(Knob::set(&t.roots, "/two words", "2", || scribe(&log)).is_err());
        assert_eq!(t.roots.line("/two words").as_deref(), Some("1"));
    }
}
