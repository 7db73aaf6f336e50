//! Which scheme of the engine belongs to which control group. The engine knows schemes by their number, and keeps what one
//! has learnt while it stays in its place.

use std::collections::BTreeMap;

/// For how long a group without processes keeps its place, and a place that was given up stays empty, ns: work that was
/// handed over for it is finished by then.
const REST_NS: u64 = 60_000_000_000;

/// A place in the engine's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    Empty {
        since_ns: u64,
    },
    Group {
        path: String,
        /// The number of its rule.
        rule: usize,
        /// When it last had processes, ns.
        seen_ns: u64,
    },
}

/// All places.
#[derive(Debug, Default)]
pub struct Slots(Vec<Slot>);

impl Slots {
    /// Takes in which groups there are and the rules for them; whether a place has changed.
    pub fn update(&mut self, mut wanted: BTreeMap<String, usize>, now_ns: u64) -> bool {
        let before = self.0.clone();
        for slot in &mut self.0 {
            let Slot::Group { path, rule, seen_ns } = slot else { continue };
            match wanted.remove(path) {
                Some(now) => (*rule, *seen_ns) = (now, now_ns),
                None if now_ns.saturating_sub(*seen_ns) < REST_NS => {}
                None => *slot = Slot::Empty { since_ns: now_ns },
            }
        }
        let rested =
            |slot: &Slot| matches!(slot, Slot::Empty { since_ns } if now_ns.saturating_sub(*since_ns) >= REST_NS);
        for (path, rule) in wanted {
            let group = Slot::Group { path, rule, seen_ns: now_ns };
            match self.0.iter_mut().find(|slot| rested(slot)) {
                Some(slot) => *slot = group,
                None => self.0.push(group),
            }
        }
        while self.0.last().is_some_and(rested) {
            self.0.pop();
        }
        let key = |slot: &Slot| match slot {
            Slot::Empty { .. } => None,
            Slot::Group { path, rule, .. } => Some((path.clone(), *rule)),
        };
        before.len() != self.0.len() || before.iter().zip(&self.0).any(|(before, now)| key(before) != key(now))
    }

    /// There are other rules: `rule_of` tells which is for a group. Without one it gives its place up.
    pub fn replace_rules(&mut self, rule_of: impl Fn(&str) -> Option<usize>, now_ns: u64) {
        for slot in &mut self.0 {
            let Slot::Group { path, rule, .. } = slot else { continue };
            match rule_of(path) {
                Some(now) => *rule = now,
                None => *slot = Slot::Empty { since_ns: now_ns },
            }
        }
    }

    pub fn all(&self) -> &[Slot] {
        &self.0
    }

    /// Groups with their places and rules.
    pub fn groups(&self) -> impl Iterator<Item = (usize, &str, usize)> {
        self.0.iter().enumerate().filter_map(|(i, slot)| match slot {
            Slot::Group { path, rule, .. } => Some((i, path.as_str(), *rule)),
            Slot::Empty { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn wanted(groups: &[(&str, usize)]) -> BTreeMap<String, usize> {
        groups.iter().map(|(path, rule)| ((*path).to_owned(), *rule)).collect()
    }

    fn groups(slots: &Slots) -> Vec<(usize, &str, usize)> {
        slots.groups().collect()
    }

    #[test]
    fn groups_keep_their_places_while_others_come_and_go() {
        let mut slots = Slots::default();
        assert!(slots.update(wanted(&[("/a", 0), ("/b", 0)]), 0));
        assert!(!slots.update(wanted(&[("/a", 0), ("/b", 0)]), S));
        assert!(slots.update(wanted(&[("/b", 1), ("/c", 0)]), 10 * S));
        assert_eq!(groups(&slots), [(0, "/a", 0), (1, "/b", 1), (2, "/c", 0)], "processes may come back");
        assert!(slots.update(wanted(&[("/b", 1), ("/c", 0), ("/d", 0)]), 61 * S));
        assert_eq!(groups(&slots), [(1, "/b", 1), (2, "/c", 0), (3, "/d", 0)], "work for /a may be under way");
        assert!(slots.update(wanted(&[("/b", 1), ("/c", 0), ("/d", 0), ("/e", 2)]), 121 * S));
        assert_eq!(groups(&slots), [(0, "/e", 2), (1, "/b", 1), (2, "/c", 0), (3, "/d", 0)]);
    }

    #[test]
    fn places_at_the_end_go_and_other_rules_free_some_at_once() {
        let mut slots = Slots::default();
        slots.update(wanted(&[("/a", 2), ("/b", 0), ("/c", 0)]), 0);
        slots.replace_rules(|path| (path == "/a").then_some(1), S);
        assert_eq!((groups(&slots), slots.all().len()), (vec![(0, "/a", 1)], 3));
        assert!(!slots.update(wanted(&[("/a", 1)]), 2 * S));
        assert!(slots.update(wanted(&[("/a", 1)]), 62 * S));
        assert_eq!(slots.all().len(), 1);
    }
}
