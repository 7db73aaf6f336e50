//! The working set of several targets together over time, as pages tell it: summaries and series draw it from here.

use super::{Point, SumBuilder, working_set_of};
use isotherm_core::history::frame::PageFrame;
use isotherm_core::history::together_frame::TogetherFrame;
use isotherm_core::units::NS_PER_S;
use std::collections::HashSet;

/// What was found out of all targets together stands for so long, ns: it is found out more seldom than what is known of
/// each.
pub(crate) const TOGETHER_NS: u64 = 20 * NS_PER_S;

/// Collects what pages tell of each target and of all together.
///
/// Where it is known what all hold together, that counts, since targets may share pages. The sum of what the targets' own
/// pages tell counts where only one of them was there, and where nothing was found out of all for longer than
/// [`TOGETHER_NS`]: before the first time, after the last, and in between.
#[derive(Debug, Default)]
pub(crate) struct PageMoments {
    sums: SumBuilder,
    /// Of each of the sums, how it came about.
    origins: Vec<Origin>,
    together: Vec<Point>,
    /// Targets that are there and of whose pages ages are known.
    known: HashSet<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Origin {
    /// Several targets were there, which may share pages.
    several: bool,
    /// Since the target's figure before, ns.
    interval_ns: u64,
}

impl PageMoments {
    /// Adds what is known of a target: its working set, `None` where no age is known yet.
    pub fn add(&mut self, frame: &PageFrame) -> Option<Point> {
        let point = Point { time_ns: frame.time_ns, value: working_set_of(&frame.total())? };
        let interval_ns = frame.time_ns.saturating_sub(frame.since_ns);
        self.sums.add(frame.target, point, interval_ns);
        self.known.insert(frame.target);
        self.origins.resize(self.sums.len(), Origin { several: false, interval_ns });
        if let Some(origin) = self.origins.last_mut() {
            origin.several |= self.known.len() > 1;
        }
        Some(point)
    }

    /// Adds what is known of all together.
    pub fn add_together(&mut self, frame: &TogetherFrame) {
        self.together.extend(working_set_of(&frame.ages).map(|value| Point { time_ns: frame.time_ns, value }));
    }

    /// A target has ended, or runs another program, of which nothing is known.
    pub fn end(&mut self, target: u32) {
        self.known.remove(&target);
        self.sums.end(target);
    }

    /// The working sets by time.
    pub fn finish(mut self) -> Vec<Point> {
        self.together.sort_by_key(|p| p.time_ns);
        let sums = self.sums.finish().into_iter().zip(self.origins);
        let mut points: Vec<Point> =
            sums.filter(|(p, origin)| !is_told(&self.together, p.time_ns, *origin)).map(|(p, _)| p).collect();
        points.append(&mut self.together);
        points.sort_by_key(|p| p.time_ns);
        points
    }
}

/// Whether `together` tells of the moment of a sum.
fn is_told(together: &[Point], time_ns: u64, origin: Origin) -> bool {
    let next = together.partition_point(|p| p.time_ns <= time_ns);
    let before = next.checked_sub(1).map(|i| time_ns - together[i].time_ns);
    let after = together.get(next).map(|p| p.time_ns - time_ns);
    let same_moment = |ns: u64| ns <= origin.interval_ns / 2;
    if before.into_iter().chain(after).any(same_moment) {
        return true;
    }
    // Near a frame a moment less does not matter. A sum in its place would count shared pages for each target.
    let gap_ns = before.unwrap_or(0) + after.unwrap_or(0);
    origin.several && !together.is_empty() && gap_ns <= TOGETHER_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{Measure, SeriesOptions, distribution::Distribution, read};
    use crate::summary::Summaries;
    use crate::testdata::{BASE_NS, page_frame, paged_record, together};
    use isotherm_core::event::Event;
    use isotherm_core::target::TargetEnd;

    /// KiB and second of each moment, where frames of all targets come in these seconds.
    fn moments(pages: impl Iterator<Item = (u32, u64)>, all: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
        let mut moments = PageMoments::default();
        for (target, second) in pages {
            moments.add(&page_frame(target, second));
        }
        for second in all {
            let Event::Together(frame) = together(2, second) else { unreachable!() };
            moments.add_together(&frame);
        }
        let second = |p: &Point| (p.time_ns - BASE_NS) / NS_PER_S - 1;
        moments.finish().iter().map(|p| (p.value / 1024, second(p))).collect()
    }

    fn both(seconds: std::ops::Range<u64>) -> impl Iterator<Item = (u32, u64)> {
        seconds.flat_map(|second| [(0, second), (1, second)])
    }

    #[test]
    fn long_gaps_are_filled_from_each_targets_pages() {
        let of = |second: u64| if second % 2 == 1 { 6400 } else { 5376 };
        let short = moments(both(0..20), [0, 19].into_iter());
        assert_eq!(short, [(5376, 0), (6400, 19)], "what is known of all stands for a while");
        let long = moments(both(0..50), [10, 40].into_iter());
        let expected: Vec<(u64, u64)> = (10..=40)
            .map(|second| (if [10, 40].contains(&second) { of(second) } else { 2 * of(second) }, second))
            .collect();
        assert_eq!(long, expected);
        let late = moments(both(0..50), std::iter::once(25));
        let counted: Vec<u64> = late.iter().map(|m| m.1).collect();
        assert_eq!(counted, (0..5).chain([25]).chain(46..50).collect::<Vec<_>>());
        assert_eq!(moments(both(0..2), std::iter::empty()), [(2 * 5376, 0), (2 * 6400, 1)]);
    }

    /// Two targets of which the second is there from the 10th to the 20th of 40 seconds only.
    fn joined_and_left() -> Vec<Event> {
        let is_there = |time_ns: u64| (BASE_NS + 10 * NS_PER_S + 1..=BASE_NS + 20 * NS_PER_S).contains(&time_ns);
        let mut events = paged_record(2, 40);
        events.retain(|e| match e {
            Event::Snapshot(s) => s.target == 0 || is_there(s.end_ns),
            Event::Pages(f) => f.target == 0 || is_there(f.time_ns),
            Event::Footprint(f) => f.target == 0 || is_there(f.time_ns),
            _ => true,
        });
        let after = |ns: u64| move |e: &Event| matches!(e, Event::Pages(f) if f.time_ns > ns);
        let at = BASE_NS + 20 * NS_PER_S;
        let end = events.iter().position(after(at)).expect("goes on");
        events.insert(end, Event::End { time_ns: at, target: 1, why: TargetEnd::Exited });
        for second in (10..20).rev() {
            let begin = events.iter().position(after(BASE_NS + (second + 1) * NS_PER_S)).expect("goes on");
            events.insert(begin, together(2, second));
        }
        events
    }

    #[test]
    fn while_one_target_lives_its_pages_count_in_summaries_and_series() {
        let events = joined_and_left();
        let measure = Measure::WorkingSet { min_rate: 0.0 };
        let all = read(&events, &SeriesOptions { measure, target: None, skip: None }).expect("has snapshots");
        let sum = &all[2].points;
        assert_eq!(sum.len(), 40, "no moment is missing, and none counts twice");
        assert_eq!(*sum, all[0].points, "all that the second one maps is the first one's");

        let overview = crate::overview::Overview::read(&events).expect("has snapshots");
        let chosen = overview.select(None).expect("all");
        let summary = Summaries::read(&events, &overview, &chosen).expect("has snapshots").total.working_set;
        let distribution = Distribution::of(sum);
        let percentiles = [50.0, 95.0, 99.0].map(|percent| distribution.percentile(percent));
        assert_eq!([summary.p50, summary.p95, summary.p99].map(Some), percentiles);
        assert_eq!(summary.snapshots, sum.len());
    }
}
