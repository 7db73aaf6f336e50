//! Ages over newly drawn regions.

use super::Region;

/// Sets the age of each new region from the old ones below it. A piece goes on aging where the access count changed by at
/// most `threshold` and did not begin or cease to be zero (DAMON's rule); elsewhere it starts at 0. The region's age is
/// the size-weighted mean of its pieces.
pub(super) fn carry_over(old: &[Region], new: &mut [Region], threshold: u32) {
    let mut first = 0;
    for r in new {
        while first < old.len() && old[first].end <= r.start {
            first += 1;
        }
        let mut sum = 0u128;
        for o in old[first..].iter().take_while(|o| o.start < r.end) {
            let len = o.end.min(r.end) - o.start.max(r.start);
            let goes_on = o.nr.abs_diff(r.nr) <= threshold && (o.nr == 0) == (r.nr == 0);
            if goes_on {
                sum += u128::from(len) * (u128::from(o.age) + 1);
            }
        }
        r.age = (sum / u128::from((r.end - r.start).max(1))).min(u128::from(u32::MAX)) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64, nr: u32, age: u32) -> Region {
        Region { start, end, nr, age, ..Region::default() }
    }

    #[test]
    fn pieces_that_go_on_keep_their_age() {
        let old = [region(0, 100, 0, 9), region(100, 200, 10, 4)];
        let mut new = [
            region(0, 50, 0, 0),
            region(50, 100, 10, 0),
            region(100, 150, 11, 0),
            region(150, 200, 0, 0),
            region(300, 400, 0, 0),
        ];
        carry_over(&old, &mut new, 2);
        assert_eq!(new.map(|r| r.age), [10, 0, 5, 0, 0]);
    }

    #[test]
    fn joined_pieces_give_their_mean() {
        let old = [region(0, 100, 0, 9), region(100, 400, 0, 1)];
        let mut new = [region(0, 400, 0, 0)];
        carry_over(&old, &mut new, 2);
        assert_eq!(new[0].age, (100 * 10 + 300 * 2) / 400);
    }
}
