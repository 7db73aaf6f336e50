//! Where physical memory ends.

use isotherm_core::addr::PAGE_SIZE;
use std::path::Path;

/// First physical address above all memory, from /proc/iomem (shows addresses to root only), else from /proc/zoneinfo.
pub(crate) fn max_phys(root: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).ok();
    let iomem = read("proc/iomem").and_then(|s| max_phys_of_iomem(&s));
    iomem.or_else(|| read("proc/zoneinfo").and_then(|s| max_phys_of_zoneinfo(&s)))
}

fn max_phys_of_iomem(text: &str) -> Option<u64> {
    text.lines()
        .filter(|l| l.contains(" : System RAM") || l.contains(" : Persistent Memory"))
        .filter_map(|l| u64::from_str_radix(l.trim().split_once(' ')?.0.split_once('-')?.1, 16).ok())
        .map(|last| last.saturating_add(1))
        .max()
        .filter(|&end| end > 1)
}

fn max_phys_of_zoneinfo(text: &str) -> Option<u64> {
    let mut spanned = 0;
    let mut max = 0;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next().and_then(|w| w.parse::<u64>().ok())) {
            (Some("spanned"), Some(n)) => spanned = n,
            (Some("start_pfn:"), Some(start)) if spanned > 0 => max = max.max(start.saturating_add(spanned)),
            _ => {}
        }
    }
    max.checked_mul(PAGE_SIZE).filter(|&m| m > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IOMEM: &str = "00001000-0009fbff : System RAM\n000a0000-000fffff : Reserved\n  000f0000-000fffff : System ROM\n\
        100000000-63fffffff : System RAM\n  2c0000000-2c0ffffff : Kernel code\nfd00000000-ffffffffff : PCI Bus 0000:00\n";
    const ZONEINFO: &str = "Node 0, zone      DMA\n  pages free     3840\n        spanned  4095\n        present  3998\n\
        \x20 start_pfn:           1\nNode 0, zone   Normal\n        spanned  5505024\n  start_pfn:           1048576\n\
        Node 0, zone  Movable\n        spanned  0\n  start_pfn:           99999999\n";

    #[test]
    fn end_of_memory() {
        assert_eq!(max_phys_of_iomem(IOMEM), Some(0x6_4000_0000));
        assert_eq!(max_phys_of_iomem("00000000-00000000 : System RAM\n"), None);
        assert_eq!(max_phys_of_zoneinfo(ZONEINFO), Some((1048576 + 5505024) * 4096));
        assert_eq!(max_phys_of_zoneinfo("garbage"), None);
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        assert_eq!(max_phys(dir.path()), None);
        std::fs::write(dir.path().join("proc/zoneinfo"), ZONEINFO).unwrap();
        assert_eq!(max_phys(dir.path()), Some((1048576 + 5505024) * 4096));
        std::fs::write(dir.path().join("proc/iomem"), IOMEM).unwrap();
        assert_eq!(max_phys(dir.path()), Some(0x6_4000_0000));
    }
}
