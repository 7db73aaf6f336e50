//! Files that are there whole or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is written beside its place and takes its name when it is complete; dropped before that, it vanishes. What is
/// no plain file (`/dev/stdout`, a pipe) is written to as it is.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    /// Where it grows; `None` if it is written in place.
    temporary: Option<PathBuf>,
}

impl NewFile {
    /// Begins a file that will be `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.metadata().is_ok_and(|m| !m.is_file()) {
            let file = File::options().write(true).open(path)?;
            return Ok(Self { file, path: path.to_owned(), temporary: None });
        }
        // A link keeps pointing to the file that it names.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let temporary = neighbour(&path);
        let file = File::create_new(&temporary)?;
        Ok(Self { file, path, temporary: Some(temporary) })
    }

    /// A further handle to write through.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its name.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            self.file.sync_all()?;
            std::fs::rename(temporary, &self.path)?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Whatever went wrong before matters more.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

fn neighbour(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}
