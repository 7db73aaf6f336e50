//! How much a second, of late.

use std::collections::VecDeque;

/// Over how many seconds it is taken.
const SECONDS: u64 = 10;

/// What was done in each of the last seconds.
#[derive(Debug, Clone, Default)]
pub struct Rate {
    /// Seconds and sums, in their order.
    recent: VecDeque<(u64, u64)>,
}

impl Rate {
    /// So much was done in this second.
    pub fn add(&mut self, second: u64, amount: u64) {
        self.forget(second);
        match self.recent.back_mut() {
            Some((at, sum)) if *at >= second => *sum += amount,
            _ => self.recent.push_back((second, amount)),
        }
    }

    /// How much a second in the last ten, of which this is the last.
    pub fn per_second(&mut self, second: u64) -> u64 {
        self.forget(second);
        self.recent.iter().map(|(_, sum)| sum).sum::<u64>() / SECONDS
    }

    fn forget(&mut self, second: u64) {
        while self.recent.front().is_some_and(|(at, _)| at + SECONDS <= second) {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_seconds_count() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(5), 0);
        rate.add(5, 100);
        rate.add(5, 50);
        rate.add(14, 10);
        assert_eq!((rate.per_second(14), rate.per_second(15), rate.per_second(24)), (16, 1, 0));
    }
}
