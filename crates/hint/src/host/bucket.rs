//! So much at a time, on average.

/// A bucket that fills at a steady rate up to its size, and is drawn from.
#[derive(Debug, Clone)]
pub struct Bucket {
    per_second: u64,
    size: u64,
    level: u64,
    filled_ns: u64,
}

impl Bucket {
    /// A full one. `per_second` 0: it is never empty.
    pub const fn new(per_second: u64, size: u64, now_ns: u64) -> Self {
        Self { per_second, size, level: size, filled_ns: now_ns }
    }

    /// Draws `amount` if it is there, all or nothing. More than the bucket's size at a time is let through when it is
    /// full, and empties it.
    pub fn take(&mut self, amount: u64, now_ns: u64) -> bool {
        if self.per_second == 0 {
            return true;
        }
        self.fill(now_ns);
        let needed = amount.min(self.size);
        if self.level < needed {
            return false;
        }
        self.level -= needed;
        true
    }

    /// How long until `amount` could be drawn, ns.
    pub fn wait_ns(&mut self, amount: u64, now_ns: u64) -> u64 {
        if self.per_second == 0 {
            return 0;
        }
        self.fill(now_ns);
        let missing = u128::from(amount.min(self.size).saturating_sub(self.level));
        u64::try_from((missing * 1_000_000_000).div_ceil(u128::from(self.per_second))).unwrap_or(u64::MAX)
    }

    fn fill(&mut self, now_ns: u64) {
        let gone = u128::from(now_ns.saturating_sub(self.filled_ns));
        let new = gone * u128::from(self.per_second) / 1_000_000_000;
        // The rest of a division is not lost: what has not become a unit yet stays in the time.
        let taken_ns = new * 1_000_000_000 / u128::from(self.per_second.max(1));
        self.filled_ns += u64::try_from(taken_ns).unwrap_or(u64::MAX).min(now_ns.saturating_sub(self.filled_ns));
        self.level = u64::try_from(u128::from(self.level) + new).unwrap_or(u64::MAX).min(self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_more_than_its_size_and_the_rate(
            rate in 1u64..1_000_000, size in 1u64..10_000, asks in prop::collection::vec((0u64..10_000_000, 1u64..10_000), 1..100),
        ) {
            let mut bucket = Bucket::new(rate, size, 5);
            let (mut now, mut drawn) = (5, 0u128);
            for (gap, amount) in asks {
                now += gap;
                let amount = amount.min(size);
                let wait = bucket.wait_ns(amount, now);
                let had = bucket.take(amount, now);
                prop_assert_eq!(had, wait == 0);
                if had {
                    drawn += u128::from(amount);
                } else {
                    let mut later = bucket.clone();
                    prop_assert!(later.take(amount, now + wait), "it was to be there after {} ns", wait);
                }
                prop_assert!(drawn <= u128::from(size) + u128::from(now - 5) * u128::from(rate) / 1_000_000_000);
            }
        }
    }

    #[test]
    fn nothing_is_no_limit() {
        let mut bucket = Bucket::new(0, 0, 0);
        assert!(bucket.take(u64::MAX, 0) && bucket.take(u64::MAX, 0));
        assert_eq!(bucket.wait_ns(u64::MAX, 0), 0);
    }
}
