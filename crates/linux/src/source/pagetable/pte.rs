//! Bits of x86-64 page table entries ("Intel SDM", volume 3, 4.5), as Linux uses them.

use crate::mm::entry_bits::present_and_accessed;
use isotherm_core::addr::PAGE_SIZE;

const PRESENT: u64 = 1;
const ACCESSED: u64 = 1 << 5;
/// Bit 8 without bit 0: mapped, but any access faults (PROT_NONE mappings and NUMA hinting).
const PROT_NONE: u64 = 1 << 8;
/// Physical address bits of an entry of the last level.
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// Whether a last-level entry maps a page.
pub const fn is_present(entry: u64) -> bool {
    entry & (PRESENT | PROT_NONE) != 0
}

/// Whether the hardware has set the accessed bit of a present entry.
pub const fn is_accessed(entry: u64) -> bool {
    is_present(entry) && entry & ACCESSED != 0
}

/// Whether the hardware has set the accessed bit of a huge entry (one with bit 7, which the kernel keeps while it changes
/// the entry, although it takes bit 0 away for that time).
pub const fn is_leaf_accessed(entry: u64) -> bool {
    entry & ACCESSED != 0
}

/// The last-level entry that would map the first page of a huge entry: bit 12 of the latter is a memory type, not address.
pub const fn leaf_as_first_page(entry: u64) -> u64 {
    entry & !(1 << 12)
}

/// Page frame number in a last-level entry. `phys_mask` drops bits that are not part of the address here (memory encryption).
pub const fn frame(entry: u64, phys_mask: u64) -> u64 {
    (entry & FRAME & phys_mask) / PAGE_SIZE
}

/// 512 pages as a bit set, page `i` being bit `i % 64` of word `i / 64`.
pub type PageMask = [u64; 8];

/// The empty set.
pub const NO_PAGES: PageMask = [0; 8];

/// How many of at most 512 entries are present, and how many of those accessed.
pub fn counts(entries: &[u64]) -> (u16, u16) {
    const FEW: usize = 32;
    if entries.len() > FEW {
        let (p, a) = table_masks(entries);
        return (count(&p) as u16, count(&a) as u16);
    }
    entries.iter().fold((0, 0), |(p, a), &e| (p + is_present(e) as u16, a + is_accessed(e) as u16))
}

/// Bits of a whole last-level table: which entries are present, and which of those accessed. Missing entries count as empty.
///
/// Every entry of the target goes through here in a scan, so it works on 16 entries at a time with instructions that every
/// x86-64 processor has.
pub fn table_masks(table: &[u64]) -> (PageMask, PageMask) {
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
pub fn window_masks(first: usize, entries: &[u64]) -> (PageMask, PageMask) {
    let (present, accessed) = table_masks(entries);
    (shift_up(&present, first), shift_up(&accessed, first))
}

/// The set with every page's number lowered by `by`; pages below it fall out.
pub fn shift_down(mask: &PageMask, by: usize) -> PageMask {
    let (words, bits) = (by / 64, by % 64);
    let at = |w: usize| mask.get(w).copied().unwrap_or(0);
    std::array::from_fn(|w| {
        let low = at(w + words) >> bits;
        if bits == 0 { low } else { low | at(w + words + 1) << (64 - bits) }
    })
}

/// The set with every page's number raised by `by`; pages that would come above 511 fall out.
pub fn shift_up(mask: &PageMask, by: usize) -> PageMask {
    let (words, bits) = (by / 64, by % 64);
    let at = |w: usize| w.checked_sub(words).map_or(0, |w| mask[w]);
    std::array::from_fn(|w| {
        let high = at(w) << bits;
        if bits == 0 || w == 0 { high } else { high | at(w - 1) >> (64 - bits) }
    })
}

/// The set of pages `first..end` (clamped to 512).
pub fn span_mask(first: usize, end: usize) -> PageMask {
    let mut m = NO_PAGES;
    for (w, bits) in m.iter_mut().enumerate() {
        let lo = first.clamp(w * 64, w * 64 + 64) - w * 64;
        let hi = end.clamp(w * 64, w * 64 + 64) - w * 64;
        if lo < hi {
            *bits = (u64::MAX >> (64 - (hi - lo))) << lo;
        }
    }
    m
}

/// Whether page `i` is in the set.
pub const fn has(mask: &PageMask, i: usize) -> bool {
    mask[i / 64] >> (i % 64) & 1 == 1
}

/// Adds page `i`.
pub const fn put(mask: &mut PageMask, i: usize) {
    mask[i / 64] |= 1 << (i % 64);
}

/// Pages in both sets.
pub fn and(a: &PageMask, b: &PageMask) -> PageMask {
    std::array::from_fn(|w| a[w] & b[w])
}

/// Pages in `a` but not in `b`.
pub fn and_not(a: &PageMask, b: &PageMask) -> PageMask {
    std::array::from_fn(|w| a[w] & !b[w])
}

/// Pages in either set.
pub fn or(a: &PageMask, b: &PageMask) -> PageMask {
    std::array::from_fn(|w| a[w] | b[w])
}

/// Number of pages in the set.
pub fn count(mask: &PageMask) -> u32 {
    mask.iter().map(|w| w.count_ones()).sum()
}

/// The pages in the set, ascending.
pub fn iter(mask: &PageMask) -> impl Iterator<Item = usize> + '_ {
    mask.iter().enumerate().flat_map(|(w, &bits)| {
        std::iter::successors((bits != 0).then_some(bits), |b| {
            let rest = b & (b - 1);
            (rest != 0).then_some(rest)
        })
        .map(move |b| w * 64 + b.trailing_zeros() as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries() {
        assert!(is_present(1) && is_present(0x100) && !is_present(0x20));
        assert!(is_accessed(0x21) && is_accessed(0x120) && !is_accessed(0x20) && !is_accessed(1));
        assert_eq!(frame(0x8000_0001_2345_6867, !0), 0x12_3456);
        assert_eq!(frame(1 << 47 | 0x5067, (1 << 40) - 1), 5);
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
        fn shifted_sets(mask in prop::array::uniform8(any::<u64>()), by in 0usize..512) {
            let (down, up) = (shift_down(&mask, by), shift_up(&mask, by));
            for i in 0..512 {
                prop_assert_eq!(has(&down, i), i + by < 512 && has(&mask, i + by));
                prop_assert_eq!(has(&up, i), i >= by && has(&mask, i - by));
            }
        }

        #[test]
        fn a_window_is_a_part_of_its_table(table in prop::collection::vec(any::<u64>(), 512), first in 0usize..512, n in 1usize..512) {
            let end = (first + n).min(512);
            let span = span_mask(first, end);
            let (p, a) = table_masks(&table);
            prop_assert_eq!(window_masks(first, &table[first..end]), (and(&p, &span), and(&a, &span)));
        }

        #[test]
        fn spans(first in 0usize..600, end in 0usize..600) {
            let m = span_mask(first, end);
            for i in 0..512 {
                prop_assert_eq!(has(&m, i), first <= i && i < end);
            }
        }
    }
}
