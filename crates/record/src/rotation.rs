//! Records in several parts.
//!
//! Parts are named `FILE`, `FILE.1`, `FILE.2`, … in the order of time; no part is renamed or changed once the next one
//! is begun. Each is a whole record of its own: it begins with the run, the targets and their mappings.

use crate::format::HEADER_LEN;
use crate::format::frame::FileHeader;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// When to begin the next part. Limits are looked at after each frame, so a part may exceed them by one frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Largest size of a part in bytes.
    pub max_bytes: Option<u64>,
    /// Longest time that a part covers, in ns of event time.
    pub max_age_ns: Option<u64>,
    /// How many parts to keep; older ones are removed. `None` keeps all.
    pub keep: Option<u32>,
}

/// The path of part `part` of the record `path`.
pub(crate) fn part_path(path: &Path, part: u32) -> PathBuf {
    if part == 0 { path.to_owned() } else { with_suffix(path, &format!(".{part}")) }
}

/// The parts of the record at `path` that exist, in the order of time; `path` itself where there are none, so that
/// reading says why. Files of other records beside it do not count, even if they are named like parts. Where only some
/// parts are kept, the first ones may be gone. What is no regular file (a pipe) is not opened: it could be read only once.
pub fn parts(path: &Path) -> Vec<PathBuf> {
    let alone = || vec![path.to_owned()];
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        return alone();
    }
    let mut numbers: Vec<u32> = numbered(path);
    if path.exists() {
        numbers.push(0);
    }
    numbers.sort_unstable();
    let Some(&first) = numbers.first() else { return alone() };
    // Of another format, or damaged.
    let Some(head) = header(&part_path(path, first)) else { return alone() };
    let of_record = numbers.into_iter().skip(1).map(|n| (n, part_path(path, n)));
    let further = of_record.filter(|(n, p)| header(p).is_some_and(|h| h.id == head.id && h.part == *n)).map(|(_, p)| p);
    std::iter::once(part_path(path, first)).chain(further).collect()
}

fn header(path: &Path) -> Option<FileHeader> {
    let mut bytes = [0; HEADER_LEN];
    File::open(path).and_then(|mut f| f.read_exact(&mut bytes)).ok()?;
    FileHeader::parse(&bytes)
}

/// Numbers of the files `FILE.N` beside `path`.
pub(crate) fn numbered(path: &Path) -> Vec<u32> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .filter_map(|e| {
            let file = e.ok()?.file_name();
            let digits = file.to_str()?.strip_prefix(name)?.strip_prefix('.')?;
            let number: u32 = digits.parse().ok()?;
            (number > 0 && number.to_string() == digits).then_some(number)
        })
        .collect()
}

/// `path` with `suffix` appended to its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
