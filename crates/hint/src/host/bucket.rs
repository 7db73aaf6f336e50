//! So much at a time, on average.

/// A bucket that fills at a steady rate up to its size, and is drawn from.
#[derive(Debug, Clone)]
pub struct Bucket {
    per_second: u64,
    size: u64,
    /// How much is missing until it is full; more than its size after more than that was drawn at once.
    missing: u128,
    filled_ns: u64,
}

impl Bucket {
    /// A full one. `per_second` 0: it is never empty.
    pub const fn new(per_second: u64, size: u64, now_ns: u64) -> Self {
        Self { per_second, size, missing: 0, filled_ns: now_ns }
    }

    /// Draws `amount` if it is there, all or nothing. More than the bucket's size at a time is let through when it is
    /// full; then nothing more is until all of that has come in.
    pub fn take(&mut self, amount: u64, now_ns: u64) -> bool {
        if self.per_second == 0 {
            return true;
        }
        self.fill(now_ns);
        if self.lacks(amount) > 0 {
            return false;
        }
        self.missing += u128::from(amount);
        true
    }

    /// How long until `amount` could be drawn, ns.
    pub fn wait_ns(&mut self, amount: u64, now_ns: u64) -> u64 {
        if self.per_second == 0 {
            return 0;
        }
        self.fill(now_ns);
        u64::try_from((self.lacks(amount) * 1_000_000_000).div_ceil(u128::from(self.per_second))).unwrap_or(u64::MAX)
    }

    /// How much has to come in before `amount` may be drawn.
    fn lacks(&self, amount: u64) -> u128 {
        (self.missing + u128::from(amount.min(self.size))).saturating_sub(self.size.into())
    }

    fn fill(&mut self, now_ns: u64) {
        let gone = u128::from(now_ns.saturating_sub(self.filled_ns));
        let new = gone * u128::from(self.per_second) / 1_000_000_000;
        // The rest of a division is not lost: what has not become a unit yet stays in the time.
        let taken_ns = new * 1_000_000_000 / u128::from(self.per_second.max(1));
        self.filled_ns += u64::try_from(taken_ns).unwrap_or(u64::MAX).min(now_ns.saturating_sub(self.filled_ns));
        self.missing = self.missing.saturating_sub(new);
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

    proptest! {
        #[test]
        fn what_is_larger_than_the_bucket_is_paid_for_afterwards(
            rate in 1u64..1_000_000, size in 1u64..10_000, asks in prop::collection::vec((0u64..10_000_000, 1u64..1_000_000), 1..100),
        ) {
            let mut bucket = Bucket::new(rate, size, 5);
            let (mut now, mut before) = (5, 0u128);
            for (gap, amount) in asks {
                now += gap;
                let wait = bucket.wait_ns(amount, now);
                if bucket.take(amount, now) {
                    // All but the last one is within the size and the rate.
                    let come_in = u128::from(size) + u128::from(now - 5) * u128::from(rate) / 1_000_000_000;
                    prop_assert!(before + u128::from(amount.min(size)) <= come_in);
                    before += u128::from(amount);
                } else {
                    let mut later = bucket.clone();
                    prop_assert!(later.take(amount, now + wait), "it was to be there after {} ns", wait);
                }
            }
        }
    }

    #[test]
    fn a_large_debt_is_paid_at_the_rate() {
        let mut bucket = Bucket::new(16, 64, 0);
        assert!(bucket.take(384, 0));
        assert_eq!((bucket.wait_ns(1, 0), bucket.wait_ns(384, 0)), (20_062_500_000, 24_000_000_000));
        assert!(!bucket.take(384, 23_999_999_999) && bucket.take(384, 24_000_000_000));
        let mut slow = Bucket::new(1, 1, 0);
        assert!(slow.take(u64::MAX, 0));
        assert_eq!(slow.wait_ns(1, 0), u64::MAX);
        assert!(!slow.take(1, u64::MAX));
    }

    #[test]
    fn nothing_is_no_limit() {
        let mut bucket = Bucket::new(0, 0, 0);
        assert!(bucket.take(u64::MAX, 0) && bucket.take(u64::MAX, 0));
        assert_eq!(bucket.wait_ns(u64::MAX, 0), 0);
    }
}
