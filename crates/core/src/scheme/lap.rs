//! Where a turn goes on that could not look at everything: as far ahead as there is time until what was armed first is proven,
//! then back to it.
//!
//! Going on straight ahead would not do: a large target takes many turns, turns are far apart where the CPU budget says so, and
//! proof does not keep until the next round.

use crate::source::TargetId;

/// A place in the targets' memory.
pub(super) type Place = (TargetId, u64);

/// The state of going back and forth.
#[derive(Debug, Default)]
pub(super) struct Lap {
    phase: Phase,
    last_turn_ns: Option<u64>,
    /// Time between the last two turns.
    gap_ns: u64,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Fresh,
    /// Pages from here on were armed, in so many turns.
    Arming { from: Place, since_ns: u64, turns: u32 },
    /// Armed pages are looked at again, in so many more turns.
    Proving { turns: u32 },
}

impl Lap {
    /// A turn begins.
    pub fn begin(&mut self, now_ns: u64) {
        self.gap_ns = self.last_turn_ns.map_or(0, |last| now_ns.saturating_sub(last));
        self.last_turn_ns = Some(now_ns);
    }

    /// Everything was looked at.
    pub fn end(&mut self) {
        self.phase = Phase::Fresh;
    }

    /// The turn that began at `from` has looked at as much as it may, up to `at`: where the next one goes on. Pages must have
    /// been armed for `confirm_ns`.
    pub fn next(&mut self, from: Place, at: Place, confirm_ns: u64) -> Place {
        let now_ns = self.last_turn_ns.unwrap_or(0);
        let (from, since_ns, turns) = match self.phase {
            Phase::Fresh => (from, now_ns, 1),
            Phase::Arming { from, since_ns, turns } => (from, since_ns, turns + 1),
            Phase::Proving { turns } => {
                self.phase = if turns > 1 { Phase::Proving { turns: turns - 1 } } else { Phase::Fresh };
                return at;
            }
        };
        // By the next turn, as far as the last two tell.
        let proven = now_ns.saturating_add(self.gap_ns) >= since_ns.saturating_add(confirm_ns);
        self.phase = if proven { Phase::Proving { turns } } else { Phase::Arming { from, since_ns, turns } };
        if proven { from } else { at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Where the turns begin, in GiB, with one GiB a turn.
    fn places(gap_ms: u64, turns: u64) -> Vec<u64> {
        let mut lap = Lap::default();
        let mut place = (0, 0);
        (0..turns)
            .map(|i| {
                let from = place;
                lap.begin(1 + i * gap_ms * MS);
                place = lap.next(from, (0, from.1 + 1), 2000 * MS);
                from.1
            })
            .collect()
    }

    #[test]
    fn what_was_armed_is_looked_at_again_before_more_is() {
        assert_eq!(places(9000, 9), [0, 1, 0, 1, 2, 2, 3, 3, 4]);
        assert_eq!(places(1000, 10), [0, 1, 0, 1, 2, 3, 2, 3, 4, 5]);
        // Ahead while proof takes its time, then all of that once more.
        let expected: Vec<u64> = (0..20).chain(0..20).chain(20..40).collect();
        assert_eq!(places(100, 60), expected);
    }

    #[test]
    fn a_whole_round_begins_anew() {
        let mut lap = Lap::default();
        lap.begin(1);
        assert_eq!(lap.next((0, 0), (0, 1), 2000 * MS), (0, 1));
        lap.end();
        lap.begin(100 * MS);
        assert_eq!(lap.next((0, 5), (0, 6), 2000 * MS), (0, 6));
        assert!(matches!(lap.phase, Phase::Arming { from: (0, 5), turns: 1, .. }));
    }
}
