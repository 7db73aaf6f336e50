//! From which age on each control group's memory is taken, where a rule leaves that to the group's own past.

use super::super::promotions::Promotions;
use isotherm_core::history::reaccessed::Reaccessed;
use isotherm_core::history::times::IDLE_NS;
use isotherm_core::scheme::threshold::{NONE, SeenWindow, Threshold, ThresholdPolicy};
use isotherm_record::parquet::window::GroupWindow;
use isotherm_view::machine::Machine;
use std::collections::HashMap;

/// The length of a window, as that of the Parquet files is unless said otherwise, ns.
pub const WINDOW_NS: u64 = 300_000_000_000;

/// An age from which on memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// So many ns.
    Known(u64),
    /// The group has not been watched for long enough, or is too young.
    NotKnown,
    /// Too much came back at each.
    None,
}

impl Age {
    /// In ns, if there is one.
    pub fn ns(self) -> Option<u64> {
        match self {
            Self::Known(ns) => Some(ns),
            Self::NotKnown | Self::None => None,
        }
    }

    /// Code and sentence, if nothing is taken.
    pub fn idle(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Known(_) => None,
            Self::NotKnown => Some((
                "threshold_unknown",
                "from which age on memory may go is not known: the group is too young, or was not watched for long enough",
            )),
            Self::None => Some(("no_threshold", "at each age more of its memory was used again than the rule allows")),
        }
    }
}

/// The past of each group.
#[derive(Debug, Default)]
pub struct Thresholds {
    /// Begin of the window, ns; `None`: none has begun.
    begin_ns: Option<u64>,
    /// Counters of all groups at its begin; one that is not there had none then.
    begin: HashMap<String, Reaccessed>,
    groups: HashMap<String, Past>,
}

#[derive(Debug)]
struct Past {
    policy: ThresholdPolicy,
    threshold: Threshold,
}

impl Thresholds {
    /// Whether the window has ended.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.begin_ns.is_none_or(|begin_ns| now_ns.saturating_sub(begin_ns) >= WINDOW_NS)
    }

    /// Ends the window: learns of each group with a policy what a row of the Parquet files would say. Groups that have gone, or have
    /// another policy now, begin anew.
    pub fn end_window(
        &mut self,
        now_ns: u64,
        machine: &Machine,
        promotions: &Promotions,
        policy_of: impl Fn(&str) -> Option<ThresholdPolicy>,
    ) {
        let begin_ns = self.begin_ns.replace(now_ns);
        let all = promotions.all().map(|(path, sum)| (path.to_owned(), sum)).collect();
        let begin = std::mem::replace(&mut self.begin, all);
        let mut before = std::mem::take(&mut self.groups);
        for row in &machine.groups {
            let Some((path, policy)) = row.cgroup.as_ref().and_then(|path| Some((path, policy_of(path)?))) else {
                continue;
            };
            let past = before.remove(path).filter(|past| past.policy == policy);
            let mut past = past.unwrap_or(Past { policy, threshold: Threshold::default() });
            if let (Some(begin_ns), Some(ages)) = (begin_ns, &row.ages) {
                let mut window = GroupWindow::default();
                window.set_ages(ages);
                let promoted = promotions.of(path).unwrap_or_default();
                window.set_promoted(&promoted.since(&begin.get(path).copied().unwrap_or_default()));
                let (start_s, window_s) = (begin_ns / 1_000_000_000, (now_ns - begin_ns) / 1_000_000_000);
                let seen =
                    SeenWindow { start_s, window_s, accessed: window.accessed_bytes, promoted: &window.promoted_bytes };
                past.threshold.see(&seen, &policy);
            }
            self.groups.insert(path.clone(), past);
        }
    }

    /// From which age on the memory of the group at `path` is taken now.
    pub fn age(&self, path: &str, now_ns: u64) -> Age {
        let entry = self.groups.get(path).and_then(|past| past.threshold.entry(&past.policy, now_ns / 1_000_000_000));
        match entry {
            None => Age::NotKnown,
            Some(NONE) => Age::None,
            Some(entry) => Age::Known(IDLE_NS[entry]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::addr::{AddrRange, TABLE_SPAN};
    use isotherm_core::bits::TableBits;
    use isotherm_core::history::frame::{IdlePages, PageAges};
    use isotherm_core::history::pages::PageHistory;
    use isotherm_core::history::times::AGES_NS;
    use isotherm_view::machine::Row;
    use isotherm_view::summary::total::Shared;

    const S: u64 = 1_000_000_000;
    const POLICY: ThresholdPolicy = ThresholdPolicy { rate: 0.002, percentile: 0.98, warmup_s: 600 };

    /// A group that has been watched for so long, of 1000 pages, half of which are in use.
    fn machine(watched_s: u64) -> Machine {
        let idle = IdlePages { pages: 500, least: 500, most: 500, unresolved: 0 };
        let known = AGES_NS.iter().filter(|ns| **ns <= watched_s * S).count();
        let row = |cgroup: Option<&str>| Row {
            pid: None,
            name: "x".into(),
            cgroup: cgroup.map(str::to_owned),
            processes: 1,
            not_watched: 0,
            rss: None,
            swap: None,
            ages: Some(PageAges { resident: 1000, unobservable: 0, idle: vec![idle; known], ..PageAges::default() }),
        };
        Machine {
            processes: Vec::new(),
            groups: vec![row(Some("/a"))],
            total: row(None),
            shared: Shared::CountedOnce,
            cost: None,
            most_age_ns: None,
        }
    }

    /// Counters of a process that so many times came back to 512 pages after 300 s.
    fn again(times: u64) -> Reaccessed {
        let all = [u64::MAX; 8];
        let mut history = PageHistory::new(0);
        for round in 0..=2 * times {
            history.begin_walk(&[AddrRange::new(0, TABLE_SPAN)], round * 300 * S);
            let accessed = if round > 0 && round % 2 == 0 { all } else { [0; 8] };
            history.take(&TableBits { present: all, accessed, cleared: accessed, ..TableBits::empty(0) });
            history.end_walk(round * 300 * S);
        }
        history.reaccessed()
    }

    #[test]
    fn a_group_is_left_alone_until_its_past_says_from_which_age_on_it_may_be_taken() {
        let (mut thresholds, mut promotions) = (Thresholds::default(), Promotions::default());
        let policy = |path: &str| (path == "/a").then_some(POLICY);
        assert!(thresholds.is_due(0));
        promotions.count(1, "/a", again(0));
        thresholds.end_window(0, &machine(0), &promotions, policy);
        assert!(!thresholds.is_due(299 * S) && thresholds.is_due(300 * S));
        assert_eq!(thresholds.age("/a", 0), Age::NotKnown);
        thresholds.end_window(300 * S, &machine(300), &promotions, policy);
        assert_eq!(thresholds.age("/a", 300 * S), Age::NotKnown, "it is too young");
        thresholds.end_window(600 * S, &machine(600), &promotions, policy);
        assert_eq!(thresholds.age("/a", 600 * S), Age::Known(120 * S), "nothing ever came back");
        // Half of its memory comes back after 4 min and more: only longer ages would do.
        promotions.count(1, "/a", again(1));
        thresholds.end_window(900 * S, &machine(900), &promotions, policy);
        let Age::Known(age_ns) = thresholds.age("/a", 900 * S) else { panic!("{:?}", thresholds.age("/a", 900 * S)) };
        assert!(age_ns > 240 * S, "{age_ns}");
        // Another policy, or a group without one, begins anew.
        thresholds.end_window(1200 * S, &machine(1200), &promotions, |_| Some(ThresholdPolicy { rate: 0.1, ..POLICY }));
        assert_eq!(thresholds.age("/a", 1200 * S), Age::NotKnown);
        thresholds.end_window(1500 * S, &machine(1500), &promotions, |_| None);
        assert_eq!((thresholds.groups.len(), thresholds.age("/a", 1500 * S)), (0, Age::NotKnown));
        // A group that begins within a window: all that it did counts.
        let (mut thresholds, mut promotions) = (Thresholds::default(), Promotions::default());
        let policy = |_: &str| Some(ThresholdPolicy { warmup_s: 0, ..POLICY });
        thresholds.end_window(0, &machine(0), &promotions, policy);
        promotions.count(1, "/a", again(1));
        thresholds.end_window(300 * S, &machine(300), &promotions, policy);
        assert_eq!(thresholds.age("/a", 300 * S), Age::Known(480 * S), "it came back after 4 min, the longest known");
        assert!(Age::None.idle().is_some() && Age::Known(1).idle().is_none());
    }
}
