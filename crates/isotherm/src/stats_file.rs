//! The file that `--stats` names, while something runs that must go on whatever becomes of it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Takes lines; what was written since the last flush is in the file whole or not at all. Where the disk is full, lines
/// are lost and a warning says so, until there is room again.
#[derive(Debug)]
pub struct StatsFile {
    file: File,
    path: PathBuf,
    waiting: Vec<u8>,
    /// Bytes in the file that are whole lines.
    whole: u64,
    failing: bool,
}

impl StatsFile {
    /// An empty file in the place of what was there.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        Ok(Self { file, path: path.to_owned(), waiting: Vec::new(), whole: 0, failing: false })
    }

    /// Takes half a line away again.
    fn go_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.whole)?;
        self.file.seek(SeekFrom::Start(self.whole)).map(drop)
    }
}

impl Write for StatsFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let lines = std::mem::take(&mut self.waiting);
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
