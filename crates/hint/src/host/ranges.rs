//! Which ranges of a report are acted upon.

use crate::protocol::Verdict;
use isotherm_core::addr::{AddrRange, overlap_len, total_len};

/// A verdict on each range, [`Verdict::Dropped`] for those that nothing speaks against. `memory` is what may be
/// dropped, sorted and disjoint; `block` a power of two.
pub fn judge(ranges: &[AddrRange], block: u64, memory: &[AddrRange]) -> Vec<Verdict> {
    // Accepted so far, sorted: overlaps are found without comparing each with each.
    let mut accepted: Vec<AddrRange> = Vec::with_capacity(ranges.len());
    let mut verdicts = Vec::with_capacity(ranges.len());
    for range in ranges {
        let at = accepted.partition_point(|other| other.end <= range.start);
        verdicts.push(if range.is_empty() || (range.start | range.end) & (block - 1) != 0 {
            Verdict::Misaligned
        } else if overlap_len(memory, std::slice::from_ref(range)) != range.len() {
            Verdict::Outside
        } else if accepted.get(at).is_some_and(|other| other.start < range.end) {
            Verdict::Overlapping
        } else {
            accepted.insert(at, *range);
            Verdict::Dropped
        });
    }
    debug_assert!(total_len(&accepted) <= total_len(memory));
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::addr::normalize;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_dropped_is_memory_once(
            ranges in prop::collection::vec((0u64..40, 1u64..10), 0..30), mut memory in prop::collection::vec((0u64..40, 1u64..20), 0..5)
                .prop_map(|v| v.into_iter().map(|(s, l)| AddrRange::new(s, s + l)).collect::<Vec<_>>()),
        ) {
            normalize(&mut memory);
            let ranges: Vec<AddrRange> = ranges.into_iter().map(|(s, l)| AddrRange::new(s, s + l)).collect();
            let verdicts = judge(&ranges, 4, &memory);
            let mut taken = std::collections::BTreeSet::new();
            for (range, verdict) in ranges.iter().zip(&verdicts) {
                let expected = if range.start % 4 != 0 || range.end % 4 != 0 {
                    Verdict::Misaligned
                } else if !(range.start..range.end).all(|a| memory.iter().any(|m| m.contains(a))) {
                    Verdict::Outside
                } else if (range.start..range.end).any(|a| taken.contains(&a)) {
                    Verdict::Overlapping
                } else {
                    taken.extend(range.start..range.end);
                    Verdict::Dropped
                };
                prop_assert_eq!(*verdict, expected);
            }
        }
    }

    #[test]
    fn the_ends_of_the_address_space_are_no_trap() {
        let all = [AddrRange { start: 0, end: u64::MAX }];
        let ranges = [all[0], AddrRange { start: 1 << 63, end: u64::MAX }, AddrRange { start: 5, end: 5 }];
        assert_eq!(judge(&ranges, 4096, &all), [Verdict::Misaligned; 3]);
        assert_eq!(judge(&[AddrRange { start: 0, end: 1 << 63 }], 4096, &[]), [Verdict::Outside]);
    }
}
