//! By how much a counter has grown lately.

use std::collections::VecDeque;

/// Readings of a counter within a window.
#[derive(Debug, Clone, Default)]
pub(super) struct Growth {
    /// Time, ns, and value.
    readings: VecDeque<(u64, u64)>,
}

/// What a counter has grown by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grown {
    /// The difference of its values.
    pub by: u64,
    /// The time between them, ns: the window or a little more, and less where it has not been read for so long.
    pub over_ns: u64,
}

impl Growth {
    /// Takes in a value at `now_ns`, and returns the growth within `window_ns`. A counter that falls begins anew: those of
    /// what has gone are not in a sum any more, and another group of the same path has counters of its own.
    pub fn note(&mut self, now_ns: u64, value: u64, window_ns: u64) -> Grown {
        if self.readings.back().is_some_and(|&(_, last)| value < last) {
            self.readings.clear();
        }
        self.readings.push_back((now_ns, value));
        while self.readings.len() > 2 && self.readings[1].0 + window_ns <= now_ns {
            self.readings.pop_front();
        }
        self.grown()
    }

    /// The growth as of the last value.
    pub fn grown(&self) -> Grown {
        let ends = self.readings.front().zip(self.readings.back());
        ends.map_or(Grown { by: 0, over_ns: 0 }, |(first, last)| Grown {
            by: last.1 - first.1,
            over_ns: last.0 - first.0,
        })
    }

    /// When the last value was taken in, ns.
    pub fn last_ns(&self) -> Option<u64> {
        self.readings.back().map(|&(at_ns, _)| at_ns)
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.readings.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_window_and_of_one_counter() {
        let mut growth = Growth::default();
        let grown = |by, over_ns| Grown { by, over_ns };
        assert_eq!((growth.grown(), growth.last_ns()), (grown(0, 0), None));
        assert_eq!(growth.note(100, 7, 10), grown(0, 0));
        assert_eq!(growth.note(104, 8, 10), grown(1, 4), "not full");
        assert_eq!(growth.note(110, 20, 10), grown(13, 10));
        assert_eq!(growth.note(113, 20, 10), grown(13, 13), "nothing was read at 103");
        assert_eq!(growth.note(114, 25, 10), grown(17, 10));
        assert_eq!((growth.note(115, 3, 10), growth.last_ns()), (grown(0, 0), Some(115)), "it begins anew");
    }
}
