//! Records in several parts.
//!
//! Parts are named `FILE`, `FILE.1`, `FILE.2`, … in the order of time; no part is renamed or changed once the next one
//! is begun. Each is a whole record of its own: it begins with the run, the targets and their mappings.

use crate::format::HEADER_LEN;
use crate::format::frame::FileHeader;
use crate::input::Input;
use crate::kind::Format;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// When to begin the next part. Limits are looked at after each frame, so a part may exceed them by one frame. Each
/// part but the first begins with a snapshot, so what follows the last snapshot stays in the part before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Largest size of a part in bytes.
    pub max_bytes: Option<u64>,
    /// Longest time that a part covers, in ns of event time.
    pub max_age_ns: Option<u64>,
    /// How many parts to keep; older ones are removed once the newest has its first frame of events. `None` keeps all.
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
    existing(path).into_iter().map(|n| part_path(path, n)).collect()
}

/// Numbers of parts of the record at `path` that are gone, or of which nothing can be read, although earlier and later ones are
/// there. What they held is left out.
pub fn missing_parts(path: &Path) -> Vec<RangeInclusive<u32>> {
    let gaps = existing(path);
    let gaps = gaps.windows(2).filter(|pair| pair[1] - pair[0] > 1);
    gaps.map(|pair| pair[0] + 1..=pair[1] - 1).collect()
}

/// Numbers of the parts that exist; 0 alone where there are none.
fn existing(path: &Path) -> Vec<u32> {
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        return vec![0];
    }
    let mut numbers = numbered(path);
    if path.exists() {
        numbers.push(0);
    }
    numbers.sort_unstable();
    let head = |n: u32| header(&part_path(path, n)).filter(|head| head.part == n);
    // The header may be damaged: the frames behind it can still be read.
    let is_headless = |n: u32| head(n).is_none() && is_record(&part_path(path, n));
    let Some(&first) = numbers.first() else { return vec![0] };
    let id = match head(first) {
        Some(head) => Some(head.id),
        None if is_headless(first) => numbers.iter().find_map(|n| head(*n)).map(|head| head.id),
        None => None,
    };
    // Of another format, or alone.
    let Some(id) = id else { return vec![first] };
    let is_ours = |n: u32| head(n).is_some_and(|head| head.id == id);
    let last = numbers.iter().copied().rfind(|n| is_ours(*n)).unwrap_or(first);
    numbers.retain(|n| is_ours(*n) || *n < last && is_headless(*n));
    numbers
}

fn is_record(path: &Path) -> bool {
    Input::open(path).and_then(|input| input.format()).is_ok_and(|format| format == Format::Iso)
}

fn header(path: &Path) -> Option<FileHeader> {
    let mut bytes = [0; HEADER_LEN];
    File::open(path).and_then(|mut f| f.read_exact(&mut bytes)).ok()?;
    FileHeader::parse(&bytes)
}

/// Numbers of the files `FILE.N` beside `path`.
pub(crate) fn numbered(path: &Path) -> Vec<u32> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name().map(OsStr::as_bytes) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .filter_map(|e| {
            let file = e.ok()?.file_name();
            let digits = std::str::from_utf8(file.as_bytes().strip_prefix(name)?.strip_prefix(b".")?).ok()?;
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
