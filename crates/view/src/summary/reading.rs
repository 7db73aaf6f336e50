//! Reads the events of a record once, for the summaries of some targets and their total.

use super::Summaries;
use super::cost::{Cost, CostBuilder};
use super::target::{SummaryBuilder, TargetSummary};
use super::total::TotalBuilder;
use crate::error::ViewError;
use crate::overview::{Overview, TargetOverview};
use crate::replay::Replay;
use isotherm_core::event::Event;
use isotherm_core::target::TargetEnd;
use std::collections::HashMap;

/// What is held of targets that have exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Their summaries only: of many targets that come and go, snapshots, mappings and pages need much memory.
    Summaries,
    /// Everything, where a record tells more of a target after its end.
    Everything,
}

/// What was read of each target and of all together.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    targets: Vec<OneTarget>,
    total: TotalBuilder,
    costs: CostBuilder<'a>,
    /// Whether more was told of a target after its summary had been drawn up.
    told_late: bool,
}

impl<'a> Reading<'a> {
    /// Reads all events once.
    pub fn of(
        events: &(impl Replay + ?Sized),
        overview: &'a Overview,
        targets: &[&TargetOverview],
        hold: Hold,
    ) -> Result<Self, ViewError> {
        let index: HashMap<u32, usize> = targets.iter().enumerate().map(|(i, t)| (t.info.target, i)).collect();
        let mut reading = Self {
            targets: targets.iter().map(|t| OneTarget::new(overview, t)).collect(),
            total: TotalBuilder::new(overview, index.keys().copied()),
            costs: CostBuilder::new(overview.run.as_ref()),
            told_late: false,
        };
        events.replay(&mut |event| {
            reading.total.add(event);
            reading.costs.add(event);
            if let Some(&i) = event.target().and_then(|t| index.get(&t)) {
                reading.told_late |= !reading.targets[i].add(event, hold);
            }
            Ok(())
        })?;
        Ok(reading)
    }

    /// Whether the figures lack something, so that all must be read again and [everything](Hold::Everything) held.
    pub const fn lacks_something(&self) -> bool {
        self.told_late
    }

    pub fn finish(self, overview: &Overview) -> Result<Summaries, ViewError> {
        let cost = self.costs.finish();
        let targets = self.targets.into_iter().map(|t| t.finish(cost)).collect::<Option<Vec<TargetSummary>>>();
        let targets = targets.ok_or(ViewError::NoSnapshot)?;
        let total = self.total.finish(overview, &targets);
        Ok(Summaries { targets: targets.into_iter().map(|t| t.summary).collect(), total })
    }
}

/// A target while it is read about.
#[derive(Debug)]
struct OneTarget {
    /// What its summary is drawn up from, until that is done.
    builder: Option<Box<SummaryBuilder>>,
    /// The summary of one that has exited.
    exited: Option<Box<TargetSummary>>,
}

impl OneTarget {
    fn new(overview: &Overview, target: &TargetOverview) -> Self {
        Self { builder: Some(Box::new(SummaryBuilder::new(overview, target))), exited: None }
    }

    /// Takes an event of the target; false: its summary has been drawn up without it.
    fn add(&mut self, event: &Event, hold: Hold) -> bool {
        let Some(builder) = &mut self.builder else {
            // Neither of these has a part in a summary.
            return matches!(event, Event::Target(_) | Event::End { .. });
        };
        builder.add(event);
        let exits = matches!(event, Event::End { why: TargetEnd::Exited, .. });
        if exits && hold == Hold::Summaries && builder.is_enough() {
            self.exited = self.builder.take().and_then(|builder| builder.finish()).map(Box::new);
        }
        true
    }

    /// The summary, with what watching all targets cost; `None`: there was no snapshot.
    fn finish(self, cost: Option<Cost>) -> Option<TargetSummary> {
        let mut target = match self.exited {
            Some(exited) => *exited,
            None => self.builder?.finish()?,
        };
        target.summary.cost = cost;
        Some(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{BASE_NS, paged_record};
    use isotherm_core::units::NS_PER_S;

    const END_NS: u64 = BASE_NS + 15 * NS_PER_S;

    /// A record of 30 s of three targets, the second of which exits after 15.
    fn one_exits() -> Vec<Event> {
        let is_later = |e: &Event| match e {
            Event::Snapshot(s) => s.end_ns > END_NS,
            Event::Pages(f) => f.time_ns > END_NS,
            Event::Footprint(f) => f.time_ns > END_NS,
            _ => false,
        };
        let mut events = paged_record(3, 30);
        let at = events.iter().position(is_later).expect("is longer");
        events.retain(|e| e.target() != Some(1) || !is_later(e));
        events.insert(at, Event::End { time_ns: END_NS, target: 1, why: TargetEnd::Exited });
        events
    }

    fn read<R>(events: &Vec<Event>, hold: Hold, see: impl FnOnce(Reading<'_>, &Overview) -> R) -> R {
        let overview = Overview::read(events).expect("has snapshots");
        let all = overview.select(None).expect("all");
        see(Reading::of(events, &overview, &all, hold).expect("has snapshots"), &overview)
    }

    fn summaries(events: &Vec<Event>, hold: Hold) -> Summaries {
        read(events, hold, |reading, overview| reading.finish(overview).expect("has snapshots"))
    }

    fn lacks_something(events: &Vec<Event>) -> bool {
        read(events, Hold::Summaries, |reading, _| reading.lacks_something())
    }

    #[test]
    fn of_a_target_that_has_exited_only_its_summary_is_held() {
        let held = |hold| {
            read(&one_exits(), hold, |reading, _| {
                assert!(!reading.lacks_something());
                reading.targets.iter().map(|t| (t.builder.is_some(), t.exited.is_some())).collect::<Vec<_>>()
            })
        };
        assert_eq!(held(Hold::Summaries), [(true, false), (false, true), (true, false)]);
        assert_eq!(held(Hold::Everything), [(true, false); 3]);
    }

    #[test]
    fn no_figure_is_another_for_that() {
        let pages = one_exits();
        let mut regions = pages.clone();
        regions.retain(|e| !matches!(e, Event::Pages(_)));
        for events in [pages, regions] {
            let all = summaries(&events, Hold::Everything);
            assert_eq!(summaries(&events, Hold::Summaries), all);
            assert_eq!(all.targets[1].target.ended, Some((END_NS, TargetEnd::Exited)));
            assert!(all.targets[1].cost.is_some() && all.targets[1].resident.is_some());
        }
    }

    #[test]
    fn what_is_told_of_a_target_after_its_end_counts() {
        let mut events = paged_record(2, 30);
        let end = Event::End { time_ns: END_NS, target: 1, why: TargetEnd::Exited };
        events.insert(events.len() / 2, end.clone());
        assert!(lacks_something(&events));
        let overview = Overview::read(&events).expect("has snapshots");
        let all = overview.select(None).expect("all");
        let read = Summaries::read(&events, &overview, &all).expect("has snapshots");
        assert_eq!(read, summaries(&events, Hold::Everything));
        assert_ne!(read, summaries(&events, Hold::Summaries), "the second half");
        // One that is told to have ended before it was seen.
        let mut events = paged_record(2, 30);
        events.insert(0, end);
        assert!(!lacks_something(&events));
    }
}
