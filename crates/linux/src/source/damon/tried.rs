//! Reads the regions that a scheme tried: four small files a region.
//!
//! Opening a file of sysfs costs more than everything else together, so each one that need not be opened counts: `end`
//! is read only where a region may not reach to the next one. The kernel tells the sum of all sizes (since 6.6), so it
//! shows when all gaps are found; the widest spans are tried first, since gaps between mappings are by far wider than
//! regions.

use isotherm_core::snapshot::RegionInfo;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The regions of one target. Its folder stays open: it lives as long as its scheme.
#[derive(Debug)]
pub(super) struct TriedRegions {
    path: PathBuf,
    dir: File,
    /// Names of the regions' folders. They ascend but need not begin at 0: some kernels count on over the schemes.
    names: Vec<u32>,
    order: Vec<usize>,
    /// Files opened by the last [`read`](Self::read).
    pub(super) files_read: u32,
}

impl TriedRegions {
    /// Opens the folder `tried_regions` of a scheme.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), dir: File::open(path)?, names: Vec::new(), order: Vec::new(), files_read: 0 })
    }

    /// Replaces `out` by the regions that the kernel has written down, sorted and disjoint.
    pub(super) fn read(&mut self, out: &mut Vec<RegionInfo>) -> io::Result<()> {
        out.clear();
        self.files_read = 0;
        self.names.clear();
        for entry in std::fs::read_dir(&self.path)? {
            self.names.extend(entry?.file_name().to_str().and_then(|n| n.parse::<u32>().ok()));
        }
        self.names.sort_unstable();
        for i in 0..self.names.len() {
            let start = self.field(i, "start")?;
            let nr_accesses = self.field(i, "nr_accesses")?;
            let age = self.field(i, "age")?;
            let clamp = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
            out.push(RegionInfo {
                start,
                end: start,
                nr_accesses: clamp(nr_accesses),
                age: clamp(age),
                evidence: None,
                accessed: None,
            });
        }
        self.find_ends(out)?;
        if !out.is_sorted_by(|a, b| a.end <= b.start) {
            out.sort_unstable_by_key(|r| r.start);
            out.dedup_by(|next, kept| next.start < kept.end);
        }
        out.retain(|r| !r.is_empty());
        Ok(())
    }

    fn find_ends(&mut self, out: &mut [RegionInfo]) -> io::Result<()> {
        let Some(last) = out.len().checked_sub(1) else { return Ok(()) };
        out[last].end = self.field(last, "end")?;
        let ascending = out.windows(2).all(|w| w[0].start < w[1].start);
        let total = if ascending { self.total_bytes()? } else { None };
        let span = out[last].end.saturating_sub(out[0].start);
        let Some(mut unseen_gaps) = total.and_then(|total| span.checked_sub(total)) else {
            // No sum to go by: read every end.
            return (0..last).try_for_each(|i| self.field(i, "end").map(|end| out[i].end = end));
        };
        for i in 0..last {
            out[i].end = out[i + 1].start;
        }
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(0..last);
        order.sort_unstable_by_key(|&i| std::cmp::Reverse(out[i].len()));
        for &i in &order {
            if unseen_gaps == 0 {
                break;
            }
            let end = self.field(i, "end")?;
            unseen_gaps = unseen_gaps.saturating_sub(out[i].end.saturating_sub(end));
            out[i].end = end;
        }
        self.order = order;
        Ok(())
    }

    fn total_bytes(&mut self) -> io::Result<Option<u64>> {
        self.number(c"total_bytes")
    }

    /// A figure of the region with the name at `index`.
    fn field(&mut self, index: usize, field: &str) -> io::Result<u64> {
        let mut path = [0u8; 32];
        // One byte is left for the final zero; the longest name fits.
        write!(&mut path[..31], "{}/{field}", self.names[index])?;
        let path = CStr::from_bytes_until_nul(&path).map_err(io::Error::other)?;
        self.number(path)?.ok_or_else(|| io::Error::other(format!("{} is missing", path.to_string_lossy())))
    }

    /// A file's number; `None` where there is no such file.
    fn number(&mut self, path: &CStr) -> io::Result<Option<u64>> {
        self.files_read += 1;
        let fd = match openat(&self.dir, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let mut buf = [0u8; 32];
        let n = rustix::io::read(&fd, &mut buf)?;
        let text = std::str::from_utf8(&buf[..n]).map_err(io::Error::other)?;
        text.trim().parse().map(Some).map_err(|e| io::Error::other(format!("{path:?} holds '{}': {e}", text.trim())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(dir: &Path, regions: &[(u64, u64, u32, u32)], total: bool) {
        write_from(dir, 0, regions, total);
    }

    fn write_from(dir: &Path, first_name: usize, regions: &[(u64, u64, u32, u32)], total: bool) {
        for (i, (start, end, nr, age)) in regions.iter().enumerate() {
            let r = dir.join((first_name + i).to_string());
            std::fs::create_dir(&r).unwrap();
            for (name, value) in
                [("start", *start), ("end", *end), ("nr_accesses", (*nr).into()), ("age", (*age).into())]
            {
                std::fs::write(r.join(name), format!("{value}\n")).unwrap();
            }
        }
        if total {
            let sum: u64 = regions.iter().map(|r| r.1 - r.0).sum();
            std::fs::write(dir.join("total_bytes"), format!("{sum}\n")).unwrap();
        }
    }

    fn read(dir: &Path) -> (Vec<(u64, u64, u32, u32)>, u32) {
        let mut tried = TriedRegions::open(dir).unwrap();
        let mut out = Vec::new();
        tried.read(&mut out).unwrap();
        (out.iter().map(|r| (r.start, r.end, r.nr_accesses, r.age)).collect(), tried.files_read)
    }

    #[test]
    fn ends_are_read_only_at_gaps() {
        let dir = tempfile::tempdir().unwrap();
        let mut regions: Vec<_> = (0..100u32).map(|i| (u64::from(i) << 20, u64::from(i + 1) << 20, i, 1)).collect();
        regions.extend(
            (0..100u32).map(|i| ((1 << 40) + (u64::from(i) << 12), (1 << 40) + (u64::from(i + 1) << 12), i, 2)),
        );
        write(dir.path(), &regions, true);
        let (out, files) = read(dir.path());
        assert_eq!(out, regions);
        // Three files each, the end of the last, one gap, the sum.
        assert_eq!(files, 3 * 200 + 3);
    }

    #[test]
    fn names_need_not_begin_at_zero() {
        let dir = tempfile::tempdir().unwrap();
        let regions: Vec<_> = (0..12).map(|i| (i * 8192, i * 8192 + 4096, 1, 1)).collect();
        write_from(dir.path(), 95, &regions, true);
        assert_eq!(read(dir.path()).0, regions);
    }

    #[test]
    fn broken_numbers_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[(0, 4096, 0, 0)], true);
        std::fs::write(dir.path().join("0/age"), "old\n").unwrap();
        assert!(TriedRegions::open(dir.path()).unwrap().read(&mut Vec::new()).is_err());
        std::fs::remove_file(dir.path().join("0/age")).unwrap();
        assert!(TriedRegions::open(dir.path()).unwrap().read(&mut Vec::new()).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn whatever_the_kernel_lists_is_read(steps in prop::collection::vec((0u64..3, 1u64..50, 0u32..20, 0u32..9), 0..30), total: bool) {
            let mut at = 0;
            let regions: Vec<_> = steps.iter().map(|&(gap, len, nr, age)| {
                let start = at + gap * 4096 * 7;
                at = start + len * 4096;
                (start, at, nr, age)
            }).collect();
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), &regions, total);
            prop_assert_eq!(read(dir.path()).0, regions);
        }
    }
}
