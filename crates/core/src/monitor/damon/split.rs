//! DAMON's random splits.

use super::region::Region;
use crate::addr::PAGE_SIZE;

/// Cuts each region into up to `pieces`: the left part gets 1 to 9 tenths, and is cut again for a third piece.
pub(super) fn split_pass(regions: &mut Vec<Region>, pieces: u32, rng: &mut fastrand::Rng) {
    let mut out = Vec::with_capacity(regions.len() * pieces as usize);
    for mut left in regions.drain(..) {
        let mut cut_off = Vec::new();
        for _ in 1..pieces {
            if left.len() <= 2 * PAGE_SIZE {
                break;
            }
            let size = (u128::from(left.len()) * u128::from(rng.u64(1..=9)) / 10) as u64 & !(PAGE_SIZE - 1);
            if size == 0 || size >= left.len() {
                continue;
            }
            cut_off.push(left.split_off(left.start + size));
        }
        out.push(left);
        out.extend(cut_off.into_iter().rev());
    }
    *regions = out;
}

/// Cuts every region above `limit` bytes (page aligned) into parts of at most `limit`.
pub(super) fn force_split(regions: &mut Vec<Region>, limit: u64) {
    if regions.iter().all(|r| r.len() <= limit) {
        return;
    }
    let mut out = Vec::with_capacity(regions.len() + 16);
    for mut r in regions.drain(..) {
        while r.len() > limit {
            let right = r.split_off(r.start + limit);
            out.push(r);
            r = right;
        }
        out.push(r);
    }
    *regions = out;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_tile_the_region_and_keep_its_counts(pages in 1u64..10_000, pieces in 2u32..=3, seed: u64, limit in 1u64..5000) {
            let mut r = vec![Region { nr_accesses: 5, age: 9, ..Region::new(PAGE_SIZE, (1 + pages) * PAGE_SIZE) }];
            split_pass(&mut r, pieces, &mut fastrand::Rng::with_seed(seed));
            prop_assert!(r.len() <= pieces as usize);
            force_split(&mut r, limit * PAGE_SIZE);
            prop_assert!(r.iter().all(|r| r.nr_accesses == 5 && r.age == 9 && r.len() <= limit * PAGE_SIZE && r.len().is_multiple_of(PAGE_SIZE)));
            prop_assert!(r.windows(2).all(|w| w[0].end == w[1].start));
            prop_assert_eq!((r[0].start, r[r.len() - 1].end), (PAGE_SIZE, (1 + pages) * PAGE_SIZE));
        }
    }
}
