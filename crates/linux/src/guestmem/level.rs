//! How much memory is free, and how much allocation went on.

use super::overcommit;
use crate::facts::{buddyinfo, meminfo, vmstat};
use crate::roots::Roots;
use isotherm_core::hinter::FreeMemory;
use std::io;

/// Pages allocated since boot, over all zones.
const ALLOCATED: vmstat::PageCounter = vmstat::PageCounter {
    fields: &["pgalloc_dma", "pgalloc_dma32", "pgalloc_normal", "pgalloc_movable"],
    options: "CONFIG_VM_EVENT_COUNTERS",
};

/// Reads how much memory is free. Free memory in smaller pieces than 2 MiB is not among the huge ones, nor is the zone
/// for old devices, which the kernel hands out last. Where what is isolated is missing from what programs
/// may map (`vm.overcommit_memory` is 2), no more counts as free than does them no harm.
pub fn free_memory(roots: &Roots) -> io::Result<FreeMemory> {
    let info = roots.read("/proc/meminfo")?;
    let field = |name: &str| {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("/proc/meminfo has no {name}"));
        meminfo::kib(&info, name).and_then(|kib| kib.checked_mul(1024)).ok_or_else(missing)
    };
    let most = overcommit::may_be_isolated(roots, field)?.unwrap_or(u64::MAX);
    Ok(FreeMemory {
        total: field("MemTotal")?,
        free: field("MemFree")?.min(most),
        free_huge: buddyinfo::free_huge(&roots.read(buddyinfo::FILE)?).min(most),
        allocated_pages: roots.read(vmstat::FILE).ok().and_then(|text| vmstat::pages(&text, ALLOCATED)),
    })
}

/// What a guest of `total` bytes keeps if nothing else is said: a 32nd of its memory, at least 16 MiB and twice what
/// makes the kernel begin to reclaim.
pub fn default_reserve(total: u64, roots: &Roots) -> u64 {
    let watermark = high_watermarks(&roots.read("/proc/zoneinfo").unwrap_or_default()) << 12;
    (total / 32).max(2 * watermark).max(16 << 20)
}

/// Sum of the zones' high watermarks, pages.
fn high_watermarks(zoneinfo: &str) -> u64 {
    let pages = zoneinfo.lines().filter_map(|l| l.trim().strip_prefix("high ")?.trim().parse::<u64>().ok());
    pages.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn a_small_guest() {
        let t = tree(&[
            ("proc/meminfo", "MemTotal: 480000 kB\nMemFree: 400000 kB\nMemAvailable: 410000 kB\n"),
            ("proc/vmstat", "pgalloc_dma 4\npgalloc_dma32 100\npgfree 7\npgalloc_normal 0\npgalloc_movable 0\n"),
            (
                "proc/zoneinfo",
                "Node 0, zone DMA32\n  pages free 9\n        min      300\n        high     500\n   high_x 1\n\
                Node 0, zone Normal\n        high     7\n    pagesets\n              high: 42\n",
            ),
            (
                "proc/buddyinfo",
                "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      2\n\
                Node 0, zone    DMA32    100      0      0      0      0      0      0      0      0      3     95\n",
            ),
        ]);
        let level = free_memory(&t.roots).unwrap();
        assert_eq!(high_watermarks(&t.roots.read("/proc/zoneinfo").unwrap()), 507);
        assert_eq!(level.free_huge, (3 << 21) + (95 << 22));
        assert_eq!((level.allocated_pages, level.free), (Some(104), 400_000 << 10));
        assert_eq!(default_reserve(level.total, &t.roots), 16 << 20);
        assert_eq!(default_reserve(8 << 30, &t.roots), 256 << 20);
    }

    #[test]
    fn what_programs_may_map_is_left_to_them() {
        let info = "MemTotal: 480000 kB\nMemFree: 400000 kB\nCommitLimit: 240000 kB\nCommitted_AS: 200000 kB\n";
        let zones = "Node 0, zone DMA32 0 0 0 0 0 0 0 0 0 0 95\n";
        let files = [("proc/meminfo", info), ("proc/buddyinfo", zones), ("proc/sys/vm/overcommit_memory", "2\n")];
        let level = free_memory(&tree(&files).roots).unwrap();
        assert_eq!((level.free, level.free_huge), (10_000 << 10, 10_000 << 10));
        let level = free_memory(&tree(&files[..2]).roots).unwrap();
        assert_eq!((level.free, level.free_huge), (400_000 << 10, 95 << 22));
    }

    #[test]
    fn a_missing_field_is_an_error() {
        let t = tree(&[("proc/meminfo", "MemTotal: 480000 kB\nMemAvailable: 400000 kB\n")]);
        assert!(free_memory(&t.roots).unwrap_err().to_string().contains("MemFree"));
    }
}
