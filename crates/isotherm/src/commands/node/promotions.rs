//! What the processes of each control group have accessed again after it had been idle, whether it was still present or had been
//! paged out by a rule.

use isotherm_core::history::reaccessed::Reaccessed;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Counters of groups, which go on when processes end.
#[derive(Debug, Default)]
pub struct Promotions {
    /// Of each target that is there, what was counted last.
    targets: HashMap<u32, Reaccessed>,
    /// Of each group's rule, what was counted last.
    rules: HashMap<String, Reaccessed>,
    groups: BTreeMap<String, Reaccessed>,
}

impl Promotions {
    /// The counters of `target`, which is in the group `path`, are `now`.
    pub fn count(&mut self, target: u32, path: &str, now: Reaccessed) {
        let new = now.since(&self.targets.insert(target, now).unwrap_or_default());
        self.add(path, new);
    }

    /// The counters of what the rule for the group `path` had paged out and came back are `now`: nothing at first, or again
    /// after the group was away for a moment, while its rule went on counting.
    pub fn count_back(&mut self, path: &str, now: Reaccessed) {
        if let Some(before) = self.rules.insert(path.to_owned(), now) {
            self.add(path, now.since(&before));
        }
    }

    fn add(&mut self, path: &str, new: Reaccessed) {
        match self.groups.get_mut(path) {
            Some(sum) => sum.add_all(&new, 1),
            None => drop(self.groups.insert(path.to_owned(), new)),
        }
    }

    /// A target has ended, or runs another program: its counters begin anew.
    pub fn end(&mut self, target: u32) {
        self.targets.remove(&target);
    }

    /// What the processes of a group have accessed again since it is watched; `None`: nobody knows.
    pub fn of(&self, path: &str) -> Option<Reaccessed> {
        self.groups.get(path).copied()
    }

    /// The same of all groups, by path.
    pub fn all(&self) -> impl Iterator<Item = (&str, Reaccessed)> {
        self.groups.iter().map(|(path, sum)| (path.as_str(), *sum))
    }

    /// Forgets all groups but these.
    pub fn keep<'a>(&mut self, paths: impl Iterator<Item = &'a str>) {
        let kept: HashSet<&str> = paths.collect();
        self.groups.retain(|path, _| kept.contains(path.as_str()));
        self.rules.retain(|path, _| kept.contains(path.as_str()));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use isotherm_core::addr::{AddrRange, TABLE_SPAN};
    use isotherm_core::bits::TableBits;
    use isotherm_core::history::pages::PageHistory;

    /// Counters of a process of which so many times 512 pages were accessed after a second.
    pub fn counted(times: u64) -> Reaccessed {
        let all = [u64::MAX; 8];
        let mut history = PageHistory::new(0);
        for second in 0..=2 * times {
            history.begin_walk(&[AddrRange::new(0, TABLE_SPAN)], second * 1_000_000_000);
            let accessed = if second > 0 && second % 2 == 0 { all } else { [0; 8] };
            history.take(&TableBits { present: all, accessed, cleared: accessed, ..TableBits::empty(0) });
            history.end_walk(second * 1_000_000_000);
        }
        history.reaccessed()
    }

    #[test]
    fn a_group_keeps_what_its_ended_processes_did() {
        let mut all = Promotions::default();
        let pages = |all: &Promotions, path| all.of(path).map(|sum| sum.pages()[0]);
        assert_eq!(pages(&all, "/a"), None);
        all.count(1, "/a", counted(1));
        all.count(2, "/a", counted(2));
        assert_eq!(pages(&all, "/a"), Some(3 * 512));
        all.count(1, "/a", counted(4));
        assert_eq!(pages(&all, "/a"), Some(6 * 512));
        all.end(1);
        // Another process under this number.
        all.count(1, "/b", counted(1));
        all.count(2, "/b", counted(3));
        assert_eq!((pages(&all, "/a"), pages(&all, "/b")), (Some(6 * 512), Some(2 * 512)), "it has moved");
        // What a rule had paged out adds to it; a rule that begins anew, too.
        all.count_back("/b", counted(0));
        all.count_back("/b", counted(2));
        all.count_back("/b", counted(3));
        all.count_back("/b", counted(1));
        assert_eq!(pages(&all, "/b"), Some(6 * 512));
        all.keep(["/b"].into_iter());
        assert_eq!((pages(&all, "/a"), pages(&all, "/b")), (None, Some(6 * 512)));
        // Its service starts anew: for a moment no process is in it.
        all.keep([].into_iter());
        all.count_back("/b", counted(1));
        assert_eq!(pages(&all, "/b"), None, "it was counted before");
        all.count_back("/b", counted(2));
        assert_eq!(pages(&all, "/b"), Some(512));
    }
}
