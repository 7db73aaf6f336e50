//! Which areas are locked, hugetlb or PFN-mapped, at the least cost.
//!
//! Only smaps tells, and it costs about 10 ms per resident GiB. `VmLck` and `HugetlbPages` in `status` are nearly free
//! and say whether there is anything to find: while they are zero smaps is never read, and while they and the extent of
//! the locked ranges known from the last read stay the same, that read stays valid.

use super::dir::ProcessDir;
use super::error::ProcessError;
use super::smaps::{self, FlaggedRange};
use super::status::Status;
use isotherm_core::addr::{AddrRange, parts_in};
use std::time::{Duration, Instant};

/// A new read of smaps waits until this many times its last duration has passed, which keeps it near 0.25 % of one
/// core.
const REST: u32 = 400;

/// What is known about areas with special flags.
#[derive(Debug, Default)]
pub struct VmFlags {
    ranges: Vec<FlaggedRange>,
    /// `HugetlbPages` when `ranges` was read.
    hugetlb: u64,
    /// `VmLck` when `ranges` was read. It also counts memory that drivers pinned, so it can exceed `extent`.
    locked: u64,
    /// Bytes of locked ranges when `ranges` was read.
    extent: u64,
    last_read: Option<(Instant, Duration)>,
}

impl VmFlags {
    /// Brings the list up to date for an address space of which `areas` are the present ranges, sorted.
    pub fn update(
        &mut self,
        dir: &ProcessDir,
        status: &Status,
        areas: &[AddrRange],
        buf: &mut Vec<u8>,
    ) -> Result<(), ProcessError> {
        let locked = status.vm_locked.unwrap_or(0);
        let hugetlb = status.hugetlb.unwrap_or(0);
        if locked == 0 && hugetlb == 0 {
            self.ranges.clear();
            (self.locked, self.extent, self.hugetlb) = (0, 0, 0);
            return Ok(());
        }
        let known: u64 = self.ranges.iter().filter(|f| f.locked).map(|f| covered(areas, f.range)).sum();
        if self.extent == known && self.locked == locked && self.hugetlb == hugetlb {
            return Ok(());
        }
        if self.last_read.is_some_and(|(when, cost)| when.elapsed() < cost * REST) {
            return Ok(());
        }
        let begin = Instant::now();
        let ranges = &mut self.ranges;
        ranges.clear();
        smaps::read(dir, buf, |line, f| {
            if f.locked || f.huge_tlb || f.pfn_map {
                let range = line.range;
                ranges.push(FlaggedRange { range, locked: f.locked, huge_tlb: f.huge_tlb, pfn_map: f.pfn_map });
            }
        })?;
        self.extent = self.ranges.iter().filter(|f| f.locked).map(|f| f.range.len()).sum();
        (self.locked, self.hugetlb) = (locked, hugetlb);
        self.last_read = Some((begin, begin.elapsed()));
        Ok(())
    }

    /// The flags of the area at `range`, if it has any.
    pub fn get(&self, range: AddrRange) -> Option<&FlaggedRange> {
        let i = self.ranges.partition_point(|f| f.range.end <= range.start);
        self.ranges.get(i).filter(|f| f.range.start < range.end)
    }

    /// Forgets everything: the address space is another one.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Bytes of `range` inside `areas` (sorted, disjoint).
fn covered(areas: &[AddrRange], range: AddrRange) -> u64 {
    parts_in(areas, range).map(|r| r.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::Roots;

    fn status(locked: u64) -> Status {
        Status { vm_locked: Some(locked), ..Status::default() }
    }

    #[test]
    fn smaps_is_read_only_when_something_is_locked() {
        let root = tempfile::tempdir().unwrap();
        let dir = ProcessDir::of(&Roots::captured(root.path()), 7);
        let areas = [AddrRange::new(0x7f00_0000_0000, 0x7f00_0050_0000)];
        let mut flags = VmFlags::default();
        // There is no smaps file yet: reading it would fail.
        flags.update(&dir, &status(0), &areas, &mut Vec::new()).unwrap();
        assert!(flags.update(&dir, &status(1 << 20), &areas, &mut Vec::new()).is_err());

        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        std::fs::write(dir.file("smaps"), include_str!("../../tests/data/smaps-locked.txt")).unwrap();
        flags.update(&dir, &status(1 << 20), &areas, &mut Vec::new()).unwrap();
        let locked = AddrRange::new(0x7f00_0040_0000, 0x7f00_0050_0000);
        assert!(flags.get(locked).is_some_and(|f| f.locked));
        assert_eq!(flags.get(AddrRange::new(0x7f00_0000_0000, 0x7f00_0040_0000)), None);

        // Known ranges still add up: no second read, although the file has gone.
        std::fs::remove_file(dir.file("smaps")).unwrap();
        flags.update(&dir, &status(1 << 20), &areas, &mut Vec::new()).unwrap();
        flags.update(&dir, &status(0), &areas, &mut Vec::new()).unwrap();
        assert_eq!(flags.get(locked), None);
    }
}
