//! Writes the truth while the workload runs, so that the file is whole and valid at any moment.

use super::truth::{Header, Slice};
use isotherm_files::NewFile;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Slices of up to so many bytes are written with each that comes; beyond that, once those that wait are a
/// [`SHARE`]th of those that were written: so all writes together grow with the file, and not with its square.
const SMALL: usize = 1 << 20;
/// See [`SMALL`].
const SHARE: usize = 16;

/// A truth file that grows slice by slice and is replaced as a whole each time.
#[derive(Debug)]
pub struct TruthFile {
    path: PathBuf,
    header: Header,
    slices: String,
    /// Bytes of the slices that are in the file.
    saved: usize,
}

/// The truth file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the truth to {}: {source}", path.display())]
pub struct TruthFileError {
    path: PathBuf,
    source: io::Error,
}

impl TruthFile {
    /// Creates the file, replacing one that is there, with no slice in it.
    pub fn create(path: &Path, header: Header) -> Result<Self, TruthFileError> {
        let mut file = Self { path: path.to_owned(), header, slices: String::new(), saved: 0 };
        file.save()?;
        Ok(file)
    }

    /// Adds a slice and writes the file, where it is small or has grown by a sixteenth since it was written.
    pub fn push(&mut self, slice: &Slice) -> Result<(), TruthFileError> {
        self.add(slice)?;
        let waiting = self.slices.len() - self.saved;
        if self.slices.len() > SMALL && waiting < self.saved / SHARE {
            return Ok(());
        }
        self.save()
    }

    /// Adds a slice that is written with the next one or at the end.
    pub fn add(&mut self, slice: &Slice) -> Result<(), TruthFileError> {
        let text = serde_json::to_string(slice).map_err(|e| self.error(e.into()))?;
        if !self.slices.is_empty() {
            self.slices.push_str(",\n");
        }
        self.slices.push_str(&text);
        Ok(())
    }

    /// Marks the truth as complete and writes the file for the last time.
    pub fn finish(mut self) -> Result<(), TruthFileError> {
        self.header.complete = true;
        self.save()
    }

    fn save(&mut self) -> Result<(), TruthFileError> {
        let header = serde_json::to_string(&self.header).map_err(|e| self.error(e.into()))?;
        let open = header.strip_suffix('}').unwrap_or(&header);
        let text = format!("{open},\"slices\":[\n{}\n]}}\n", self.slices);
        // Most of them are replaced again within a second.
        NewFile::create(&self.path, NewFile::READABLE)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.commit_unsynced()))
            .map_err(|e| self.error(e))?;
        self.saved = self.slices.len();
        Ok(())
    }

    fn error(&self, source: io::Error) -> TruthFileError {
        TruthFileError { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::super::truth::{Touched, Truth};
    use super::*;
    use isotherm_core::addr::AddrRange;

    fn header() -> Header {
        Header {
            version: 1,
            pattern: "hotspot".into(),
            seed: 0,
            pid: None,
            clock: "virtual".into(),
            arena: AddrRange::new(0, 4096),
            complete: false,
        }
    }

    #[test]
    fn the_file_is_valid_after_every_step() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("truth.json");
        let read = || serde_json::from_str::<Truth>(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut file = TruthFile::create(&path, header()).unwrap();
        assert_eq!(read(), Truth { header: header(), slices: vec![] });
        let slice = |n| Slice {
            start_ns: n,
            end_ns: n + 1,
            stage: "a \"b\"".into(),
            touched: vec![Touched::all(AddrRange::new(0, 4096), n)],
        };
        for n in 0..3 {
            file.push(&slice(n)).unwrap();
            assert_eq!(read().slices.len(), n as usize + 1);
            assert!(!read().header.complete);
        }
        file.finish().unwrap();
        assert_eq!(read().slices, [slice(0), slice(1), slice(2)]);
        assert!(read().header.complete);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_large_file_is_not_written_with_every_slice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("truth.json");
        let mut file = TruthFile::create(&path, header()).unwrap();
        let touched = Touched::all(AddrRange::new(0, 4096), 1);
        let slice = |n| Slice { start_ns: n, end_ns: n + 1, stage: "s".into(), touched: vec![touched; 200] };
        let (mut len, mut writes, mut written) = (0, 0, 0);
        let mut slices = 0;
        while len < 4 * SMALL as u64 {
            file.push(&slice(slices)).unwrap();
            slices += 1;
            let now = std::fs::metadata(&path).unwrap().len();
            if now != len {
                (len, writes, written) = (now, writes + 1, written + if len > SMALL as u64 { now } else { 0 });
            }
        }
        assert!(writes < slices / 2, "{writes} for {slices} slices");
        assert!(written < (SHARE as u64 + 2) * len, "{written} bytes for {len}");
        file.push(&slice(slices)).unwrap();
        file.finish().unwrap();
        let read: Truth = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read.slices.len() as u64, slices + 1, "nothing is left out");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = TruthFile::create(Path::new("/nowhere/at/all.json"), header()).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all.json"), "{error}");
    }
}
