//! The ranges of physical memory.

use crate::roots::Roots;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, normalize};

/// All ranges of `System RAM` in `/proc/iomem`, cut to whole pages. Empty where we may not see addresses (they read as
/// 0 then).
pub(super) fn system_ram(roots: &Roots) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> = roots.read("/proc/iomem").unwrap_or_default().lines().filter_map(parse).collect();
    normalize(&mut ranges);
    ranges
}

fn parse(line: &str) -> Option<AddrRange> {
    // Indented lines are parts of the one above.
    let (range, name) = line.split_once(" : ")?;
    let (first, last) = range.split_once('-')?;
    if name != "System RAM" || first.starts_with(' ') {
        return None;
    }
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (first, end) = (hex(first)?, hex(last)?.checked_add(1)?);
    Some(AddrRange::new(first.checked_next_multiple_of(PAGE_SIZE)?, end / PAGE_SIZE * PAGE_SIZE)).filter(|_| end > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn takes_whole_pages_of_top_level_ram() {
        let text = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n00100000-bfffffff : System RAM\n  \
                    01000000-022090c7 : Kernel code\n  02000000-02ffffff : System RAM\n100000000-63fffffff : System RAM\n";
        let t = tree(&[("proc/iomem", text)]);
        let expected = [(0x1000, 0x9f000), (0x10_0000, 0xc000_0000), (0x1_0000_0000, 0x6_4000_0000)];
        assert_eq!(system_ram(&t.roots), expected.map(|(a, b)| AddrRange::new(a, b)));
    }

    #[test]
    fn hidden_addresses_are_no_ranges() {
        let t = tree(&[("proc/iomem", "00000000-00000000 : System RAM\n00000000-00000000 : System RAM\n")]);
        assert!(system_ram(&t.roots).is_empty());
    }
}
