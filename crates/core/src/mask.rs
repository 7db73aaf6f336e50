//! Sets of the 512 pages that one last-level page table maps.

/// 512 pages as a bit set, page `i` being bit `i % 64` of word `i / 64`.
pub type PageMask = [u64; 8];

/// The empty set.
pub const NO_PAGES: PageMask = [0; 8];

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

/// Takes page `i` out.
pub const fn take(mask: &mut PageMask, i: usize) {
    mask[i / 64] &= !(1 << (i % 64));
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

/// Number of runs of set bits.
pub fn runs(mask: &PageMask) -> u32 {
    let mut before = 0;
    mask.iter()
        .map(|&word| {
            let begins = word & !(word << 1 | before);
            before = word >> 63;
            begins.count_ones()
        })
        .sum()
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

    proptest! {
        #[test]
        fn shifted_sets(mask in prop::array::uniform8(any::<u64>()), by in 0usize..512) {
            let (down, up) = (shift_down(&mask, by), shift_up(&mask, by));
            for i in 0..512 {
                prop_assert_eq!(has(&down, i), i + by < 512 && has(&mask, i + by));
                prop_assert_eq!(has(&up, i), i >= by && has(&mask, i - by));
            }
        }

        #[test]
        fn runs_begin_where_the_page_before_is_missing(mask in prop::array::uniform8(any::<u64>())) {
            let begins = iter(&mask).filter(|&i| i == 0 || !has(&mask, i - 1)).count();
            prop_assert_eq!(runs(&mask) as usize, begins);
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
