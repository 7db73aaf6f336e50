//! What we have changed and must put back, written down before it is done: after `kill -9` the next start reads it.
//!
//! It lives in `/run`, which is empty after a new start of the machine, as the changes are undone. A reboot does both, too, but a
//! host that has stalled may act on an old report after it, since the connections of a virtual machine survive it. So people are
//! told to power the machine off. One agent at a time holds the ledger's lock.

use crate::folder_lock::FolderLock;
use crate::roots::Roots;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FOLDER: &str = "/run/isotherm/hint-guest";
const FILE: &str = "taken";
const FIRST_LINE: &str = "isotherm hint guest 1";
const REFUSED_OBVIOUS: &str = "overcommit_memory";

/// Why the ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("another isotherm hint guest runs here (it holds the lock of {}); end it first", .0.display())]
    Busy(PathBuf),
    /// It says what this version does not understand: that would be lost with the first change.
    #[error(
        "{} is not of this version ({why}), and what it says is still to be put back; start the isotherm hint guest that wrote it, \
         which does that, or power this virtual machine off and start it again (after a reboot alone a host could still act on an \
         old report, and drop memory that the new kernel uses); then start this one", path.display()
    )]
    Foreign {
        path: PathBuf,
        /// What is wrong with it.
        why: NotUnderstood,
    },
    /// A file operation failed.
    #[error("cannot {what} {}: {source}; the agent needs root and a writable /run", path.display())]
    Io {
        /// What was to be done.
        what: &'static str,
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What is in a ledger that this version has not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotUnderstood {
    #[error("it is no text")]
    NoText,
    #[error("its first line is {0:?}, not {FIRST_LINE:?}")]
    FirstLine(String),
    #[error("it has the line {0:?}")]
    Line(String),
}

/// What is taken or changed now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Leftover {
    /// Numbers of memory blocks that we have taken offline, or were about to.
    pub(super) offline: BTreeSet<u64>,
    /// Of these, the ones that were in the zone for movable memory alone, where they belong again.
    pub(super) movable: BTreeSet<u64>,
    /// Whether the kernel refused requests for more than RAM and swap until a block was about to go offline, and is to do so again.
    pub(super) refused_obvious: bool,
    /// The number of huge pages that may be allocated on demand, as it was before we changed it.
    pub(super) overcommit: Option<u64>,
    /// Whether shared memory segments of huge pages may be there.
    pub(super) segments: bool,
}

impl Leftover {
    /// A memory block is about to go offline.
    pub(super) fn block_goes(&mut self, number: u64, movable: bool) {
        self.offline.insert(number);
        if movable {
            self.movable.insert(number);
        } else {
            self.movable.remove(&number);
        }
    }

    /// A memory block is online again.
    pub(super) fn block_is_back(&mut self, number: u64) {
        self.offline.remove(&number);
        self.movable.remove(&number);
    }

    /// Whether there is nothing to put back.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads what [`text`](Self::text) wrote. The error says what else is there.
    fn parse(bytes: &[u8]) -> Result<Self, NotUnderstood> {
        let text = std::str::from_utf8(bytes).map_err(|_| NotUnderstood::NoText)?;
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        if first != FIRST_LINE {
            return Err(NotUnderstood::FirstLine(first.to_owned()));
        }
        let mut found = Self::default();
        for line in lines {
            let (word, number) = match line.split_once(' ') {
                Some((word, number)) => (word, number.parse::<u64>().ok()),
                None => (line, None),
            };
            match (word, number) {
                ("offline", Some(n)) => drop(found.offline.insert(n)),
                ("movable", Some(n)) => drop(found.movable.insert(n)),
                ("overcommit", Some(n)) => found.overcommit = Some(n),
                _ if line == "segments" => found.segments = true,
                _ if line == REFUSED_OBVIOUS => found.refused_obvious = true,
                _ => return Err(NotUnderstood::Line(line.to_owned())),
            }
        }
        Ok(found)
    }

    fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for n in &self.offline {
            text += &format!("offline {n}\n");
        }
        for n in &self.movable {
            text += &format!("movable {n}\n");
        }
        if let Some(n) = self.overcommit {
            text += &format!("overcommit {n}\n");
        }
        if self.refused_obvious {
            text += &format!("{REFUSED_OBVIOUS}\n");
        }
        if self.segments {
            text += "segments\n";
        }
        text
    }
}

/// The ledger; dropping it unlocks it, and leaves the file where something is still taken.
#[derive(Debug)]
pub struct Ledger {
    folder: PathBuf,
    now: Leftover,
    _lock: FolderLock,
}

impl Ledger {
    /// Opens it below `roots`, and makes it if it is missing. It begins with what a predecessor left.
    pub fn open(roots: &Roots) -> Result<Self, LedgerError> {
        let folder = roots.path(FOLDER);
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| LedgerError::Io { what, path, source }
        };
        // Nobody else may open it: whoever locks it keeps the agent from its work.
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed("create", &folder))?;
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).map_err(failed("make private", &folder))?;
        let lock = FolderLock::take(&folder, Duration::ZERO).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => LedgerError::Busy(folder.clone()),
            _ => failed("lock", &folder)(e),
        })?;
        let path = folder.join(FILE);
        let now = match fs::read(&path) {
            Ok(bytes) => Leftover::parse(&bytes).map_err(|why| LedgerError::Foreign { path, why })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Leftover::default(),
            Err(e) => return Err(failed("read", &path)(e)),
        };
        Ok(Self { folder, now, _lock: lock })
    }

    /// What is taken or changed now.
    pub(super) fn taken(&self) -> &Leftover {
        &self.now
    }

    /// Whether nothing is taken, also not by a dead predecessor.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    /// Changes what is written down. It is on file when this returns.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Leftover)) -> io::Result<()> {
        let mut next = self.now.clone();
        change(&mut next);
        if next == self.now {
            return Ok(());
        }
        let path = self.folder.join(FILE);
        if next.is_empty() {
            fs::remove_file(&path)?;
        } else {
            // A kill between the two leaves the old text whole.
            let new = self.folder.join("taken.new");
            fs::write(&new, next.text())?;
            fs::rename(&new, &path)?;
        }
        self.now = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;
    use std::time::Instant;

    #[test]
    fn nobody_else_may_open_its_folder() {
        let t = tree(&[]);
        let folder = t.roots.path(FOLDER);
        // As an older version left it.
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        drop(Ledger::open(&t.roots).unwrap());
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_was_written_is_read_after_a_death() {
        let t = tree(&[]);
        let mut ledger = Ledger::open(&t.roots).unwrap();
        assert!(ledger.taken().is_empty());
        assert!(matches!(Ledger::open(&t.roots).unwrap_err(), LedgerError::Busy(_)));
        ledger.change(|l| l.block_goes(5, true)).unwrap();
        ledger.change(|l| l.block_goes(6, false)).unwrap();
        ledger.change(|l| l.overcommit = Some(3)).unwrap();
        ledger.change(|l| l.segments = true).unwrap();
        ledger.change(|l| l.refused_obvious = true).unwrap();
        let then = ledger.taken().clone();
        drop(ledger);
        // A process that another test has just forked may have the lock's descriptor for a moment longer.
        let end = Instant::now() + Duration::from_secs(20);
        let mut ledger = loop {
            match Ledger::open(&t.roots) {
                Err(LedgerError::Busy(_)) if Instant::now() < end => std::thread::yield_now(),
                other => break other.unwrap(),
            }
        };
        assert_eq!(ledger.taken(), &then);
        ledger.change(|l| *l = Leftover::default()).unwrap();
        assert!(!t.roots.path(FOLDER).join(FILE).exists(), "nothing is left of it");
    }

    #[test]
    fn what_another_version_wrote_is_refused_and_stays() {
        let t = tree(&[]);
        let path = t.roots.path(FOLDER).join(FILE);
        drop(Ledger::open(&t.roots).unwrap());
        let head = |rest: &[u8]| [FIRST_LINE.as_bytes(), b"\n", rest].concat();
        let odd = [
            b"isotherm hint guest 2\noffline 5\n".to_vec(),
            b"".to_vec(),
            b"\xff\xfe".to_vec(),
            head(b"offline x\n"),
            head(b"offline 7\noverload 3\n"),
            head(b"\n"),
            head(b"segments \n"),
            head(b"segments 1\n"),
        ];
        for bytes in odd {
            fs::write(&path, &bytes).unwrap();
            // A process that another test has just forked may have the lock's descriptor for a moment longer.
            let end = Instant::now() + Duration::from_secs(20);
            let error = loop {
                match Ledger::open(&t.roots).unwrap_err() {
                    LedgerError::Busy(_) if Instant::now() < end => std::thread::yield_now(),
                    other => break other.to_string(),
                }
            };
            assert!(error.contains("hint-guest/taken is not of this version") && error.contains("reboot"), "{error}");
            assert!(error.contains("power this virtual machine off"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
        let whole = Leftover { offline: [7].into(), segments: true, ..Leftover::default() };
        assert_eq!(Leftover::parse(whole.text().as_bytes()), Ok(whole));
    }
}
