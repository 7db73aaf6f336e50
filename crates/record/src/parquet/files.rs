//! The files of a folder: one for each hour, written aside and renamed.

use super::columns::Columns;
use super::window::{GroupWindow, Origin};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// How names of files end while they grow.
const GROWING: &str = ".parquet.part";
/// Microseconds of an hour.
const HOUR_US: i64 = 3_600_000_000;

/// Why rows are not in a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Its folder cannot be used.
    #[error("cannot use the folder {}: {error}; give another one, or make it writable", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It cannot be written.
    #[error(
        "cannot write {}: {why}; the rows of this hour so far are lost; see that there is room and that it may be written, and \
         the next window begins a new file", path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What happened.
        why: String,
    },
}

/// Writes windows into files of an hour each. Only one of a host may do so in a folder at a time. Dropped without
/// [`finish`](Self::finish), the hour's rows are lost.
pub struct HourFiles {
    folder: PathBuf,
    origin: Origin,
    growing: Option<Growing>,
}

/// The file of the present hour.
struct Growing {
    hour: i64,
    part: PathBuf,
    columns: Columns<File>,
}

impl std::fmt::Debug for HourFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HourFiles").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl HourFiles {
    /// Files in `folder`, which is made if it is missing and must be writable. Removes what an earlier one of this host has left
    /// unfinished.
    pub fn new(folder: &Path, origin: Origin) -> Result<Self, FileError> {
        let error = |error| FileError::Folder { path: folder.to_owned(), error };
        fs::create_dir_all(folder).map_err(error)?;
        // The first rows may come in an hour only: what is wrong is to be known now.
        let trial = folder.join(format!("isotherm-{}-trial{GROWING}", plain(&origin.host)));
        let tried = File::create(&trial).and_then(|mut file| {
            file.write_all(&[0; 4096])?;
            file.sync_all()
        });
        let removed = fs::remove_file(&trial);
        tried.and(removed).map_err(error)?;
        let ours = format!("isotherm-{}-", plain(&origin.host));
        for entry in fs::read_dir(folder).map_err(error)?.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(&ours) && name.ends_with(GROWING)) {
                fs::remove_file(entry.path()).map_err(error)?;
            }
        }
        Ok(Self { folder: folder.to_owned(), origin, growing: None })
    }

    /// How accesses are seen, for files that are begun from now on.
    pub fn set_source(&mut self, source: &str) {
        source.clone_into(&mut self.origin.source);
    }

    /// Appends the rows of a window that began at `start_us` (microseconds since 1970); where that is another hour than
    /// the last one's, the file before is given its name first, which is returned. After an error the next call begins a
    /// new file, but where it was the file before that failed.
    pub fn write(&mut self, start_us: i64, rows: Vec<GroupWindow>) -> Result<Option<PathBuf>, FileError> {
        let hour = start_us.div_euclid(HOUR_US);
        let ended = if self.growing.as_ref().is_some_and(|g| g.hour != hour) { self.finish() } else { Ok(None) };
        // What the hour before has lost, this one need not.
        let appended = self.append(hour, rows);
        ended.and_then(|ended| appended.map(|()| ended))
    }

    fn append(&mut self, hour: i64, rows: Vec<GroupWindow>) -> Result<(), FileError> {
        let mut growing = match self.growing.take() {
            Some(growing) => growing,
            None => self.begin(hour)?,
        };
        if let Err(e) = growing.columns.write(rows) {
            return Err(lost(growing.part, &e));
        }
        self.growing = Some(growing);
        Ok(())
    }

    /// Gives the present hour's file its name, which is returned; `None`: there is none.
    pub fn finish(&mut self) -> Result<Option<PathBuf>, FileError> {
        let Some(Growing { hour, part, mut columns }) = self.growing.take() else { return Ok(None) };
        let named = columns.finish().map_err(io::Error::other).and_then(|file| {
            file.sync_all()?;
            // An earlier one of the same hour is never replaced.
            let paths = (0u32..).map(|number| self.folder.join(self.name(hour, number)));
            let Some(path) = paths.into_iter().find(|path| !path.exists()) else {
                return Err(io::ErrorKind::AlreadyExists.into());
            };
            fs::rename(&part, &path)?;
            File::open(&self.folder)?.sync_all()?;
            Ok(path)
        });
        named.map(Some).map_err(|e| lost(part, &e))
    }

    fn begin(&self, hour: i64) -> Result<Growing, FileError> {
        let name = self.name(hour, 0);
        let part = self.folder.join(name.replace(".parquet", GROWING));
        let begun = File::create(&part).map_err(io::Error::other);
        match begun.and_then(|file| Columns::new(file, self.origin.clone()).map_err(io::Error::other)) {
            Ok(columns) => Ok(Growing { hour, part, columns }),
            Err(e) => Err(lost(part, &e)),
        }
    }

    /// `isotherm-HOST-BOOT-YYYYMMDDTHHZ-N.parquet`.
    fn name(&self, hour: i64, number: u32) -> String {
        let boot: String = plain(&self.origin.boot_id).chars().take(8).collect();
        let host = plain(&self.origin.host);
        let time = OffsetDateTime::from_unix_timestamp(hour.saturating_mul(3600)).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
        format!("isotherm-{host}-{boot}-{year:04}{month:02}{day:02}T{:02}Z-{number}.parquet", time.hour())
    }
}

/// What was begun goes. What the system says is what people can act on.
fn lost(part: PathBuf, error: &dyn Error) -> FileError {
    let _ = fs::remove_file(&part);
    let causes = std::iter::successors(Some(error), |&error| error.source());
    FileError::Write { path: part, why: causes.last().unwrap_or(error).to_string() }
}

/// As a part of a file's name.
fn plain(text: &str) -> String {
    let plain: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '_' { c } else { '_' }).collect();
    if plain.is_empty() { "unknown".to_owned() } else { plain }
}
