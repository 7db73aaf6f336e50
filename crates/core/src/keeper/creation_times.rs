//! When generations were created.

use super::page::OLDEST;
use crate::history::pages::PageHistory;
use std::collections::VecDeque;

/// Birth times of the last generations. Numbers only grow.
#[derive(Debug, Clone)]
pub struct CreationTimes {
    max_seq: u64,
    /// The oldest first; the last one is that of `max_seq`.
    times: VecDeque<u64>,
}

impl CreationTimes {
    /// One generation, number `seq`, created at `now_ns`: everything that is there when we begin.
    pub fn new(seq: u64, now_ns: u64) -> Self {
        Self { max_seq: seq, times: VecDeque::from([now_ns]) }
    }

    /// What was kept of earlier times: the birth times of generations up to `max_seq`, the oldest first. `None` if
    /// there are none.
    pub fn restore(max_seq: u64, times: Vec<u64>) -> Option<Self> {
        let sorted = times.is_sorted();
        let enough = (max_seq as usize).saturating_add(1) >= times.len();
        (!times.is_empty() && sorted && enough).then(|| Self { max_seq, times: times.into() })
    }

    /// Creates a generation; later than the one before at any rate, so that times tell them apart.
    pub fn create(&mut self, now_ns: u64) {
        self.max_seq = self.max_seq.saturating_add(1);
        self.times.push_back(now_ns.max(self.of_age(0).saturating_add(1)));
        if self.times.len() > usize::from(OLDEST) + 1 {
            self.times.pop_front();
        }
    }

    /// The youngest generation's number.
    pub const fn max_seq(&self) -> u64 {
        self.max_seq
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// There is always one.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// When the generation that is `age` below the youngest was created; the oldest known one for those below.
    pub(crate) fn of_age(&self, age: usize) -> u64 {
        self.times[self.times.len() - 1 - age.min(self.times.len() - 1)]
    }

    /// For each byte of `history`, the number of generations above that of its pages: those created after their last
    /// access. What cannot be observed is young.
    pub fn ages(&self, history: &PageHistory) -> [u8; 256] {
        let since = |by: u64| self.times.len() - self.times.partition_point(|&born| born <= by);
        std::array::from_fn(|c| history.accessed_by(c as u8).map_or(0, |by| since(by).min(usize::from(OLDEST)) as u8))
    }

    /// The birth times, the oldest first.
    pub fn times(&self) -> impl Iterator<Item = u64> + '_ {
        self.times.iter().copied()
    }

    /// The least age whose pages have not been used for `ttl_ns`; `None` if no generation is that old.
    ///
    /// A page of age `a` was used before generation `max_seq - a` was created, and has not been since.
    pub fn age_idle_for(&self, ttl_ns: u64, now_ns: u64) -> Option<u8> {
        (0..self.times.len()).find(|&age| now_ns.saturating_sub(self.of_age(age)) >= ttl_ns).map(|age| age as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn births_are_kept_for_as_long_as_ages_are_told_apart() {
        let mut created = CreationTimes::new(3, 0);
        (1..=1000).for_each(|t| created.create(t * 10));
        assert_eq!((created.max_seq(), created.len()), (1003, usize::from(OLDEST) + 1));
        assert_eq!((created.of_age(0), created.of_age(2), created.of_age(9999)), (10_000, 9_980, 7_500));
        assert_eq!(created.age_idle_for(25, 10_001), Some(3));
        assert_eq!(created.age_idle_for(0, 10_001), Some(0));
        assert_eq!(created.age_idle_for(100_000, 10_001), None);
        let again = CreationTimes::restore(created.max_seq(), created.times().collect()).unwrap();
        assert_eq!(again.of_age(250), created.of_age(250));
        assert!(CreationTimes::restore(3, vec![]).is_none());
        assert!(CreationTimes::restore(0, vec![1, 2]).is_none(), "more generations than numbers");
        assert!(CreationTimes::restore(9, vec![2, 1]).is_none());
    }
}
