//! The file that `--stats` names, while something runs that must go on whatever becomes of it.

use isotherm_linux::folder_lock::FolderLock;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Takes lines, which replace what the file held before; what was written since the last flush is in the file whole or not at all. Where the disk is full, lines
/// are lost and a warning says so, until there is room again.
#[derive(Debug)]
pub struct StatsFile {
    file: File,
    path: PathBuf,
    /// Whether there was none before.
    is_new: bool,
    /// Whether it has taken the place of what was there.
    begun: bool,
    waiting: Vec<u8>,
    /// Bytes in the file that are whole lines.
    whole: u64,
    failing: bool,
    /// Two that write would each take the other's lines away.
    _lock: Option<FolderLock>,
}

impl StatsFile {
    /// A file that can be written. What is there stays until there is something to take its place: the run may fail before. Fails with
    /// [`io::ErrorKind::WouldBlock`] where another run writes it.
    pub fn create(path: &Path) -> io::Result<Self> {
        let is_new = !path.exists();
        let file = File::options().create(true).write(true).truncate(false).open(path)?;
        let lock = match FolderLock::take(path, Duration::ZERO) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(error.kind(), "another run writes it; name another file"));
            }
            // One that may be written but not read cannot be locked.
            taken => taken.ok(),
        };
        let waiting = Vec::new();
        Ok(Self { file, path: path.to_owned(), is_new, begun: false, waiting, whole: 0, failing: false, _lock: lock })
    }

    /// Takes half a line away again.
    fn go_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.whole)?;
        self.file.seek(SeekFrom::Start(self.whole)).map(drop)
    }
}

impl Drop for StatsFile {
    fn drop(&mut self) {
        if self.is_new && !self.begun {
            // Nobody misses an empty file, nor minds one.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Write for StatsFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let lines = std::mem::take(&mut self.waiting);
        if !std::mem::replace(&mut self.begun, true) {
            self.file.set_len(0)?;
        }
        match self.file.write_all(&lines) {
            Ok(()) => {
                self.whole += lines.len() as u64;
                self.failing = false;
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        "statistics are lost until there is room again: cannot write {}: {error}",
                        self.path.display()
                    );
                }
                self.go_back()
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays_until_something_takes_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("stats.jsonl");
        let text = || std::fs::read_to_string(&path).expect("a file");
        std::fs::write(&path, "of an earlier run\n").expect("writes");
        drop(StatsFile::create(&path).expect("can be written"));
        assert_eq!(text(), "of an earlier run\n");
        let mut stats = StatsFile::create(&path).expect("can be written");
        let second = StatsFile::create(&path).expect_err("the first still writes");
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        for line in ["one\n", "two\n"] {
            stats.write_all(line.as_bytes()).and_then(|()| stats.flush()).expect("writes");
        }
        assert_eq!(text(), "one\ntwo\n");
        drop(stats);
        StatsFile::create(&path).expect("nobody writes any more");
        drop(StatsFile::create(&folder.path().join("new")).expect("can be written"));
        assert!(!folder.path().join("new").exists());
        StatsFile::create(&folder.path().join("no/folder")).expect_err("said before anything is done");
    }
}
