//! The ranges of physical memory.

use crate::guestmem::MemoryMap;
use crate::roots::Roots;
use isotherm_core::addr::{AddrRange, PAGE_SIZE};

/// All RAM that `/proc/iomem` shows, hot-added memory included, cut to whole pages. Empty where we may not see addresses (they read as 0 then).
pub(super) fn system_ram(roots: &Roots) -> Vec<AddrRange> {
    let whole = |range: AddrRange| {
        let (start, end) = (range.start.checked_next_multiple_of(PAGE_SIZE)?, range.end / PAGE_SIZE * PAGE_SIZE);
        (start < end).then(|| AddrRange::new(start, end))
    };
    MemoryMap::read(roots).map(|map| map.ram()).unwrap_or_default().into_iter().filter_map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn takes_whole_pages_of_top_level_ram() {
        let text = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n00100000-bfffffff : System RAM\n  \
                    01000000-022090c7 : Kernel code\n  02000000-02ffffff : System RAM\n100000000-63fffffff : System RAM\n\
                    640000000-6bfffffff : Reserved\n700000000-77fffffff : System RAM (virtio_mem)\n";
        let t = tree(&[("proc/iomem", text)]);
        let expected = [
            (0x1000, 0x9f000),
            (0x10_0000, 0xc000_0000),
            (0x1_0000_0000, 0x6_4000_0000),
            (0x7_0000_0000, 0x7_8000_0000),
        ];
        assert_eq!(system_ram(&t.roots), expected.map(|(a, b)| AddrRange::new(a, b)));
    }

    #[test]
    fn hidden_addresses_are_no_ranges() {
        let t = tree(&[("proc/iomem", "00000000-00000000 : System RAM\n00000000-00000000 : System RAM\n")]);
        assert!(system_ram(&t.roots).is_empty());
    }
}
