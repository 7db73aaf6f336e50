//! Bits of x86-64 page table entries ("Intel SDM", volume 3, 4.5), as Linux uses them.

use crate::mm::entry_bits::present_and_accessed;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::mask::{NO_PAGES, PageMask, count, shift_up};

const PRESENT: u64 = 1;
const ACCESSED: u64 = 1 << 5;
/// Bit 8 without bit 0: mapped, but any access faults (PROT_NONE mappings and NUMA hinting).
const PROT_NONE: u64 = 1 << 8;
/// Bit 9 (SOFTW1): "special", an entry of the last level without a page of the process: the frame of zeros that stands for what was read and never written,
/// and device memory. The kernel counts neither as resident.
const SPECIAL: u64 = 1 << 9;
/// Physical address bits of an entry of the last level.
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// Whether a last-level entry maps a page that counts as resident.
pub(crate) const fn is_present(entry: u64) -> bool {
    entry & (PRESENT | PROT_NONE) != 0 && entry & SPECIAL == 0
}

/// Whether the hardware has set the accessed bit of a present entry.
pub(crate) const fn is_accessed(entry: u64) -> bool {
    is_present(entry) && entry & ACCESSED != 0
}

/// Whether the hardware has set the accessed bit of a huge entry (one with bit 7, which the kernel keeps while it
/// changes the entry, although it takes bit 0 away for that time).
pub(crate) const fn is_leaf_accessed(entry: u64) -> bool {
    entry & ACCESSED != 0
}

/// The last-level entry that would map the first page of a huge entry: bit 12 of the latter is a memory type, not
/// address.
pub(crate) const fn leaf_as_first_page(entry: u64) -> u64 {
    if entry & PRESENT == 0 { entry | 1 << 12 } else { entry & !(1 << 12) }
}

/// Page frame number in a last-level entry. `phys_mask` drops bits that are not part of the address here (memory
/// encryption).
pub const fn frame(entry: u64, phys_mask: u64) -> u64 {
    // Where the hardware must not follow it, the kernel keeps the address inverted, so that no processor speculates on
    // it (L1TF).
    let address = if entry & PRESENT == 0 { !entry } else { entry };
    (address & FRAME & phys_mask) / PAGE_SIZE
}

/// How many of at most 512 entries are present, and how many of those accessed.
pub fn counts(entries: &[u64]) -> (u16, u16) {
    const FEW: usize = 32;
    if entries.len() > FEW {
        let (p, a) = table_masks(entries);
        return (count(&p) as u16, count(&a) as u16);
    }
    entries.iter().fold((0, 0), |(p, a), &e| (p + is_present(e) as u16, a + is_accessed(e) as u16))
}

/// Bits of a whole last-level table: which entries are present, and which of those accessed. Missing entries count as
/// empty.
///
/// Every entry of the target goes through here in a scan, so it works on 16 entries at a time with instructions that
/// every x86-64 processor has.
pub(crate) fn table_masks(table: &[u64]) -> (PageMask, PageMask) {
    let (mut present, mut accessed) = (NO_PAGES, NO_PAGES);
    let mut put16 = |group: usize, entries: &[u64; 16]| {
        let (p, a) = present_and_accessed(entries);
        present[group / 4] |= u64::from(p) << (group % 4 * 16);
        accessed[group / 4] |= u64::from(a) << (group % 4 * 16);
    };
    let (groups, rest) = table[..table.len().min(512)].as_chunks::<16>();
    for (i, entries) in groups.iter().enumerate() {
        put16(i, entries);
    }
    if !rest.is_empty() {
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        put16(groups.len(), &last);
    }
    (present, accessed)
}

/// The same for part of a table: `entries` are those from index `first` on.
pub(crate) fn window_masks(first: usize, entries: &[u64]) -> (PageMask, PageMask) {
    let (present, accessed) = table_masks(entries);
    (shift_up(&present, first), shift_up(&accessed, first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::mask::{and, and_not, has, iter, span_mask};
    use proptest::prelude::*;

    #[test]
    fn entries() {
        assert!(is_present(1) && is_present(0x100) && !is_present(0x20));
        assert!(!is_present(0x225) && !is_accessed(0x225) && !is_present(0x320), "the frame of zeros");
        assert!(is_accessed(0x21) && is_accessed(0x120) && !is_accessed(0x20) && !is_accessed(1));
        assert_eq!(frame(0x8000_0001_2345_6867, !0), 0x12_3456);
        assert_eq!(frame(1 << 47 | 0x5067, (1 << 40) - 1), 5);
        assert_eq!(frame(!(0x12_3456 << 12) & FRAME | PROT_NONE, !0), 0x12_3456);
        for entry in [0x4000_1067, !0x4000_1000 & FRAME | PROT_NONE, !0x4000_0000 & FRAME | PROT_NONE] {
            assert_eq!(frame(leaf_as_first_page(entry), !0), 0x4_0000);
        }
    }

    proptest! {
        #[test]
        fn masks_agree_with_single_entries(table in prop::collection::vec(any::<u64>(), 0..=512)) {
            let (p, a) = table_masks(&table);
            prop_assert_eq!(and_not(&p, &span_mask(0, table.len())), NO_PAGES);
            for (i, &e) in table.iter().enumerate() {
                prop_assert_eq!(has(&p, i), is_present(e));
                prop_assert_eq!(has(&a, i), is_accessed(e));
            }
            prop_assert_eq!(iter(&a).collect::<Vec<_>>(), (0..table.len()).filter(|&i| is_accessed(table[i])).collect::<Vec<_>>());
            prop_assert_eq!(count(&a) as usize, iter(&a).count());
            prop_assert_eq!(counts(&table), (count(&p) as u16, count(&a) as u16));
            let few = &table[..table.len().min(20)];
            let (p, a) = table_masks(few);
            prop_assert_eq!(counts(few), (count(&p) as u16, count(&a) as u16));
        }

        #[test]
        fn a_window_is_a_part_of_its_table(table in prop::collection::vec(any::<u64>(), 512), first in 0usize..512, n in 1usize..512) {
            let end = (first + n).min(512);
            let span = span_mask(first, end);
            let (p, a) = table_masks(&table);
            prop_assert_eq!(window_masks(first, &table[first..end]), (and(&p, &span), and(&a, &span)));
        }
    }
}
