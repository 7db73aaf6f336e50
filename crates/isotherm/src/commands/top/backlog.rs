//! What the engine's side has told and the screen's side has not taken yet, in bounded memory.
//!
//! The screen takes it several times a second, unless its terminal takes nothing: then drawing does not return, for hours
//! perhaps. What it shows after that needs the newest of each kind and target only. The screen waits for keys, not for
//! this.

use isotherm_core::event::Event;
use isotherm_core::history::frame::{IdlePages, PageAges};
use isotherm_core::mapping::Mapping;
use isotherm_core::target::TargetEnd;
use std::collections::HashSet;
use std::mem::{discriminant, size_of, size_of_val, take};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A backlog that needs more memory than this is reduced, bytes.
const MOST_BYTES: usize = 32 << 20;

/// What follows the last event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The last picture stays, with the reason, until a key says otherwise.
    Stay(&'static str),
    /// The screen is to leave.
    Leave,
}

/// What has come since the last time.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Events in the order in which they were told.
    pub events: Vec<Event>,
    /// What follows them; told once.
    pub over: Option<Over>,
}

/// Where one side tells and the other one takes; neither waits for the other.
#[derive(Debug)]
pub(super) struct Backlog(Mutex<Waiting>);

impl Backlog {
    pub(super) fn new() -> Self {
        Self::reduced_above(MOST_BYTES)
    }

    fn reduced_above(most_bytes: usize) -> Self {
        let told = Taken::default();
        Self(Mutex::new(Waiting { told, bytes: 0, reduce_above: most_bytes, most_bytes, taken: HashSet::new() }))
    }

    /// Adds an event.
    pub(super) fn tell(&self, event: Event) {
        self.waiting().add(event);
    }

    /// No more events come.
    pub(super) fn end(&self, over: Over) {
        self.waiting().told.over = Some(over);
    }

    /// Takes all that waits.
    pub(super) fn take(&self) -> Taken {
        self.waiting().take()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Waiting {
    told: Taken,
    /// What the events need, about.
    bytes: usize,
    /// More bytes than that are reduced.
    reduce_above: usize,
    /// The least value of that.
    most_bytes: usize,
    /// Targets that the screen has been told of, but for those that have exited.
    taken: HashSet<u32>,
}

impl Waiting {
    fn add(&mut self, event: Event) {
        self.bytes += bytes(&event);
        self.told.events.push(event);
        if self.bytes > self.reduce_above {
            self.told.events = reduced(take(&mut self.told.events), &self.taken);
            self.bytes = self.told.events.iter().map(bytes).sum();
            // What cannot be reduced further is not gone through again for each event.
            self.reduce_above = self.most_bytes.max(2 * self.bytes);
        }
    }

    fn take(&mut self) -> Taken {
        (self.bytes, self.reduce_above) = (0, self.most_bytes);
        let told = take(&mut self.told);
        for event in &told.events {
            match event {
                Event::End { target, why: TargetEnd::Exited, .. } => drop(self.taken.remove(target)),
                other => self.taken.extend(other.target()),
            }
        }
        told
    }
}

/// The newest event of each kind and target, at its place among the others. Of targets that have come and exited without
/// having been `taken`, only the one that exited last is left: where no other target is there, it is the last picture.
fn reduced(events: Vec<Event>, taken: &HashSet<u32>) -> Vec<Event> {
    let (mut met, mut passed_over) = (HashSet::new(), HashSet::new());
    let mut last_to_exit = None;
    // The newest comes first.
    let mut kept: Vec<Event> = events
        .into_iter()
        .rev()
        .filter(|event| {
            let target = event.target();
            let exits = matches!(event, Event::End { why: TargetEnd::Exited, .. });
            if let Some(target) = target.filter(|target| exits && !taken.contains(target))
                && *last_to_exit.get_or_insert(target) != target
            {
                passed_over.insert(target);
            }
            let is_passed_over = target.is_some_and(|target| passed_over.contains(&target));
            !is_passed_over && met.insert((discriminant(event), exits, target))
        })
        .collect();
    kept.reverse();
    kept
}

/// The memory that an event needs, about.
fn bytes(event: &Event) -> usize {
    let of_ages = |ages: &PageAges| (ages.idle.len() + ages.longer.len()) * size_of::<IdlePages>();
    let more = match event {
        Event::Target(info) => info.name.len(),
        Event::Mappings { mappings, .. } => mappings.iter().map(|m| size_of::<Mapping>() + m.name.len()).sum(),
        Event::Snapshot(s) => size_of_val(s.regions.as_slice()),
        Event::Pages(f) => {
            let mappings: usize = f.mappings.iter().map(|m| size_of_val(m) + of_ages(&m.ages)).sum();
            mappings + size_of_val(f.tables.as_slice())
        }
        Event::Together(f) => {
            let owned = f.owned.iter().map(|o| size_of_val(o) + of_ages(&o.mapped) + of_ages(&o.ages));
            of_ages(&f.ages) + owned.sum::<usize>()
        }
        Event::Run(_) | Event::Stats(_) | Event::Footprint(_) | Event::End { .. } => 0,
    };
    size_of::<Event>() + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::snapshot::{RegionInfo, Snapshot};
    use isotherm_core::target::{Footprint, TargetInfo};

    fn snapshot(target: u32, index: u64) -> Event {
        let region = RegionInfo { start: 0, end: 4096, nr_accesses: 1, age: 0, evidence: None, accessed: None };
        Event::Snapshot(Snapshot {
            start_ns: index,
            end_ns: index + 1,
            target,
            pid: None,
            sample_us: 5000,
            aggr_us: 100_000,
            max_nr_accesses: 20,
            regions: vec![region; 100],
        })
    }

    fn footprint(target: u32, time_ns: u64) -> Event {
        Event::Footprint(Footprint { time_ns, target, vsz: 2, rss: 1, swap: None })
    }

    fn begin(target: u32) -> Event {
        Event::Target(TargetInfo { target, pid: Some(target), name: "x".into() })
    }

    fn mappings(target: u32, time_ns: u64) -> Event {
        Event::Mappings { time_ns, target, mappings: vec![Mapping::anon(0, 4096)] }
    }

    fn end(target: u32, why: TargetEnd) -> Event {
        Event::End { time_ns: 9, target, why }
    }

    fn all_taken(targets: std::ops::Range<u32>) -> HashSet<u32> {
        targets.collect()
    }

    #[test]
    fn of_a_thousand_frames_of_three_targets_three_are_left() {
        let frames: Vec<Event> = (0..1000).map(|i| snapshot((i % 3) as u32, i)).collect();
        assert_eq!(reduced(frames.clone(), &all_taken(0..3)), frames[997..]);
        let most_bytes = 10 * bytes(&frames[0]);
        let backlog = Backlog::reduced_above(most_bytes);
        for frame in &frames {
            backlog.tell(frame.clone());
            assert!(backlog.waiting().bytes <= most_bytes);
        }
        let left = backlog.take().events;
        assert!((3..=10).contains(&left.len()), "{} are left", left.len());
        assert_eq!(left, frames[1000 - left.len()..]);
    }

    #[test]
    fn while_there_are_few_none_is_lost() {
        let backlog = Backlog::new();
        let told: Vec<Event> = (0..100).flat_map(|i| [snapshot(0, i), footprint(1, i)]).collect();
        told.iter().for_each(|event| backlog.tell(event.clone()));
        assert_eq!(backlog.take().events, told);
        assert_eq!(backlog.take().events, []);
    }

    #[test]
    fn ends_and_what_is_told_before_and_after_them_keep_their_order() {
        let told = vec![
            begin(0),
            mappings(0, 1),
            snapshot(0, 1),
            begin(1),
            snapshot(1, 1),
            end(0, TargetEnd::Replaced),
            begin(0),
            mappings(0, 2),
            snapshot(0, 2),
            footprint(1, 2),
            end(1, TargetEnd::Exited),
            snapshot(0, 3),
        ];
        let kept = [3, 4, 5, 6, 7, 9, 10, 11].map(|i: usize| told[i].clone());
        assert_eq!(reduced(told.clone(), &all_taken(0..2)), kept);
        // The same by and by.
        let by_and_by = told.into_iter().fold(Vec::new(), |mut events, event| {
            events.push(event);
            reduced(events, &all_taken(0..2))
        });
        assert_eq!(by_and_by, kept);
    }

    #[test]
    fn targets_that_come_and_go_unseen_need_no_memory() {
        let backlog = Backlog::reduced_above(20 * bytes(&snapshot(0, 0)));
        backlog.tell(begin(0));
        assert_eq!(backlog.take().events, [begin(0)]);
        for target in 1..2000 {
            backlog.tell(begin(target));
            backlog.tell(snapshot(target, 1));
            if target == 1000 {
                backlog.tell(begin(0));
                backlog.tell(end(0, TargetEnd::Exited));
            }
            backlog.tell(end(target, TargetEnd::Exited));
            assert!(backlog.waiting().told.events.len() < 200);
        }
        backlog.tell(begin(2000));
        let (events, taken) = {
            let waiting = backlog.waiting();
            (waiting.told.events.clone(), waiting.taken.clone())
        };
        let exited = TargetEnd::Exited;
        let kept = [begin(0), end(0, exited), begin(1999), snapshot(1999, 1), end(1999, exited), begin(2000)];
        assert_eq!(reduced(events, &taken), kept, "the screen knows the first one and shows the last ones");
        backlog.take();
        assert_eq!(backlog.waiting().taken, all_taken(2000..2001));
    }

    #[test]
    fn what_cannot_be_reduced_is_not_gone_through_for_each_event() {
        let backlog = Backlog::reduced_above(0);
        let mut reduced_to = Vec::new();
        for target in 0..1000 {
            backlog.tell(footprint(target, 1));
            let above = backlog.waiting().reduce_above;
            if reduced_to.last() != Some(&above) {
                reduced_to.push(above);
            }
        }
        assert!(reduced_to.len() <= 11, "{reduced_to:?}");
        assert_eq!(backlog.take().events.len(), 1000);
        assert_eq!(backlog.waiting().reduce_above, 0);
    }

    #[test]
    fn the_end_is_told_once_and_behind_all_events() {
        let backlog = Backlog::reduced_above(0);
        backlog.tell(snapshot(0, 1));
        backlog.end(Over::Stay("the time is over"));
        let taken = backlog.take();
        assert_eq!((taken.events.len(), taken.over), (1, Some(Over::Stay("the time is over"))));
        assert_eq!(backlog.take().over, None);
        backlog.end(Over::Stay("the time is over"));
        backlog.end(Over::Leave);
        assert_eq!(backlog.take().over, Some(Over::Leave));
    }
}
