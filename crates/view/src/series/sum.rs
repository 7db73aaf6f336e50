//! The sum of several targets' figures over time.

use super::Point;
use std::collections::{HashMap, HashSet};

/// Adds up figures of several targets. Those that end together are one moment, which all of them belong to; where a record has
/// snapshots of each target at other times, the last figure of each counts until its next one.
#[derive(Debug, Default)]
pub(crate) struct SumBuilder {
    points: Vec<Point>,
    /// Targets already in the last point.
    members: HashSet<u32>,
    /// The last figure of each target that counts still.
    last: HashMap<u32, Figure>,
}

#[derive(Debug, Clone, Copy)]
struct Figure {
    point: Point,
    /// From one to the next, ns.
    interval_ns: u64,
}

impl SumBuilder {
    /// Adds a target's figure; figures of one target are about `interval_ns` apart.
    pub fn add(&mut self, target: u32, point: Point, interval_ns: u64) {
        let before = self.last.insert(target, Figure { point, interval_ns });
        match self.points.last_mut() {
            Some(p) if point.time_ns.abs_diff(p.time_ns) < interval_ns / 2 && !self.members.contains(&target) => {
                let others = p.value.saturating_sub(before.map_or(0, |f| f.point.value));
                p.value = others.saturating_add(point.value);
            }
            _ => {
                self.members.clear();
                // Longer than an interval, since they vary.
                self.last.retain(|_, f| point.time_ns.saturating_sub(f.point.time_ns) < f.interval_ns.max(1) * 3 / 2);
                let value = self.last.values().fold(0u64, |sum, f| sum.saturating_add(f.point.value));
                self.points.push(Point { value, ..point });
            }
        }
        self.members.insert(target);
    }

    /// A target has ended: its last figure is not of later moments.
    pub fn end(&mut self, target: u32) {
        self.last.remove(&target);
    }

    /// The number of moments so far.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// The sums by time.
    pub fn finish(self) -> Vec<Point> {
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums of figures (target, tenth of a second, value), a second apart each; `None`: the target has ended.
    fn sums(figures: &[(u32, u64, Option<u64>)]) -> Vec<(u64, u64)> {
        let mut sums = SumBuilder::default();
        for &(target, at, value) in figures {
            match value {
                Some(value) => sums.add(target, Point { time_ns: at * 100_000_000, value }, 1_000_000_000),
                None => sums.end(target),
            }
        }
        sums.finish().iter().map(|p| (p.time_ns / 100_000_000, p.value)).collect()
    }

    #[test]
    fn what_ends_together_is_one_moment_and_what_does_not_counts_until_its_next() {
        let together = [(0, 10, Some(1)), (1, 10, Some(10)), (0, 20, Some(2)), (1, 21, Some(20))];
        assert_eq!(sums(&together), [(10, 11), (20, 22)]);
        let apart = [(0, 10, Some(1)), (1, 16, Some(10)), (0, 20, Some(2)), (1, 26, Some(20)), (0, 30, Some(3))];
        assert_eq!(sums(&apart), [(10, 1), (16, 12), (26, 23)], "as many moments as before, with all targets in each");
        let half = [(0, 10, Some(1)), (1, 15, Some(10)), (0, 20, Some(2)), (1, 25, Some(20))];
        assert_eq!(sums(&half), [(10, 1), (15, 11), (20, 12), (25, 22)]);
    }

    #[test]
    fn who_has_ended_or_been_silent_for_long_counts_no_more() {
        let ended = [(0, 10, Some(1)), (1, 10, Some(10)), (1, 12, None), (0, 20, Some(2))];
        assert_eq!(sums(&ended), [(10, 11), (20, 2)]);
        let silent = [(0, 10, Some(1)), (1, 10, Some(10)), (0, 20, Some(2)), (0, 30, Some(3))];
        assert_eq!(sums(&silent), [(10, 11), (20, 12), (30, 3)]);
    }
}
