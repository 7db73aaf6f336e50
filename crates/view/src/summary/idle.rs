//! How long memory has gone without an access.

use super::estimate::Estimate;
use crate::overview::TargetOverview;
use crate::units::age_ns;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_core::units::NS_PER_S;
use serde::Serialize;

/// For how long memory must be idle to be listed, ns.
pub(crate) const THRESHOLDS_NS: [u64; 4] = [10 * NS_PER_S, 60 * NS_PER_S, 300 * NS_PER_S, 1800 * NS_PER_S];

/// Memory that has been idle for at least some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cold {
    /// The time, ns.
    pub for_ns: u64,
    /// Bytes; `None` where the target was not watched for that long.
    pub bytes: Option<u64>,
    /// The least that may be true; `None` where only regions are known, which tell no ends.
    pub least: Option<u64>,
    pub most: Option<u64>,
}

impl Cold {
    /// From what is known of pages.
    pub fn new(for_ns: u64, known: Option<Estimate>) -> Self {
        Self { for_ns, bytes: known.map(|e| e.bytes), least: known.map(|e| e.least), most: known.map(|e| e.most) }
    }

    /// The bytes with their ends, as text.
    pub fn text(&self) -> Option<String> {
        let bytes = self.bytes?;
        Some(Estimate { bytes, least: self.least.unwrap_or(bytes), most: self.most.unwrap_or(bytes) }.text())
    }
}

/// What bytes are: accessed, idle, or not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Idle {
    /// Accessed: within ten seconds, where pages are known; else in the last aggregation interval.
    pub accessed: u64,
    /// Not accessed then; pages of accessed regions that were not themselves accessed included.
    pub not_accessed: u64,
    /// Of these, for how long. Times overlap: what is cold for a minute is cold for ten seconds, too.
    pub cold: [Cold; THRESHOLDS_NS.len()],
    /// Could not be observed: neither hot nor cold.
    pub not_observable: u64,
    /// Nobody has looked at it yet, or knows when it was accessed: neither hot nor cold.
    pub not_visited: u64,
    /// Whether bytes count present pages only (estimated from the pages looked at). Otherwise the source does not tell
    /// which pages are present, and all mapped memory counts.
    pub present_only: bool,
}

impl Idle {
    /// Of no memory.
    pub fn nothing() -> Self {
        Self {
            accessed: 0,
            not_accessed: 0,
            cold: THRESHOLDS_NS.map(|for_ns| Cold::new(for_ns, None)),
            not_observable: 0,
            not_visited: 0,
            present_only: false,
        }
    }

    /// From a snapshot of a target that has been watched for `watched_ns`; see [`watched_ns`].
    pub fn of(snapshot: &Snapshot, watched_ns: u64) -> Self {
        // Ages count from the end of the first interval: none is greater than this.
        let oldest_ns = watched_ns.saturating_sub(interval_ns(snapshot));
        let mut idle = Self { present_only: snapshot.regions.iter().any(|r| r.evidence.is_some()), ..Self::nothing() };
        for cold in &mut idle.cold {
            cold.bytes = (oldest_ns >= cold.for_ns).then_some(0);
        }
        for r in &snapshot.regions {
            if r.is_unvisited() {
                idle.not_visited += r.len();
                continue;
            }
            let (seen, blind) = present_bytes(r);
            idle.not_observable += blind;
            if r.is_blind() {
                continue;
            }
            if r.nr_accesses > 0 {
                // How long the rest of the region has been idle its age does not tell.
                let accessed = r.working_set().min(seen);
                idle.accessed += accessed;
                idle.not_accessed += seen - accessed;
                continue;
            }
            idle.not_accessed += seen;
            let age = age_ns(r, snapshot);
            for cold in &mut idle.cold {
                // A region that kept its age over attributes' or sources' changes may be older than the watch.
                if age >= cold.for_ns {
                    *cold.bytes.get_or_insert(0) += seen;
                }
            }
        }
        idle
    }

    /// Adds another target's. Where one of both was not watched for long enough, what is known of the other counts.
    pub fn add(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a + b.unwrap_or(0)));
        self.accessed += other.accessed;
        self.not_accessed += other.not_accessed;
        for (a, b) in self.cold.iter_mut().zip(&other.cold) {
            (a.bytes, a.least, a.most) = (sum(a.bytes, b.bytes), None, None);
        }
        self.not_observable += other.not_observable;
        self.not_visited += other.not_visited;
        self.present_only &= other.present_only;
    }
}

/// For how long a target has been watched up to its `last` snapshot, ns, as ages count it: intervals that took longer than
/// they should have count for what they should have taken.
pub(crate) fn watched_ns(target: &TargetOverview, last: &Snapshot) -> u64 {
    let watched_ns = last.end_ns.saturating_sub(target.start_ns);
    let took_ns = last.end_ns.saturating_sub(last.start_ns).saturating_mul(target.snapshots);
    // Some tools keep a snapshot now and then only. Ages go on in between.
    if took_ns < watched_ns / 2 {
        return watched_ns;
    }
    watched_ns.min(interval_ns(last).saturating_mul(target.snapshots))
}

fn interval_ns(snapshot: &Snapshot) -> u64 {
    snapshot.aggr_us.saturating_mul(1000)
}

/// A region's present bytes that could be observed, and those that could not; all of it where nothing is known.
pub fn present_bytes(r: &RegionInfo) -> (u64, u64) {
    match r.evidence {
        Some(e) if e.pages > 0 => {
            let share = |pages: u32| (r.len() as u128 * u128::from(pages) / u128::from(e.pages)) as u64;
            (share(e.present.saturating_sub(e.blind)), share(e.blind))
        }
        _ => (r.len(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, region, seen, snapshot, unvisited};

    #[test]
    fn ages_present_pages_and_blind_ones() {
        let mut s = snapshot(
            0,
            0,
            vec![
                seen(region(0, 10 * MIB, 5, 1000), 10, 0),
                seen(region(10 * MIB, 20 * MIB, 0, 150), 5, 0),
                seen(region(20 * MIB, 30 * MIB, 0, 99), 10, 0),
                seen(region(30 * MIB, 40 * MIB, 0, 700), 10, 10),
                seen(region(40 * MIB, 50 * MIB, 0, 700), 10, 2),
                seen(region(50 * MIB, 60 * MIB, 0, 9999), 0, 0),
                unvisited(region(60 * MIB, 67 * MIB, 0, 9999)),
            ],
        );
        s.regions[0].accessed = Some(3 * MIB);
        let idle = Idle::of(&s, 61 * NS_PER_S);
        assert_eq!(idle.accessed, 3 * MIB);
        assert_eq!(idle.not_accessed, (7 + 5 + 10 + 8) * MIB);
        assert_eq!((idle.not_observable, idle.not_visited), (12 * MIB, 7 * MIB));
        assert_eq!(idle.cold.map(|c| c.bytes), [Some(13 * MIB), Some(8 * MIB), Some(0), None]);
        let short = Idle::of(&snapshot(0, 0, vec![region(0, MIB, 0, 5)]), NS_PER_S);
        assert_eq!(short.cold.map(|c| c.bytes), [None; 4]);
        assert!(!short.present_only);
    }

    #[test]
    fn what_no_age_can_reach_yet_is_not_known() {
        let cold = |snapshots: u64, interval_ns: u64| {
            let mut last = snapshot(0, snapshots - 1, vec![region(0, MIB, 0, snapshots as u32 - 1)]);
            let mut target = crate::testdata::overview_of(&last);
            (target.snapshots, target.start_ns) = (snapshots, last.end_ns - snapshots * interval_ns);
            last.start_ns = last.end_ns - interval_ns;
            Idle::of(&last, watched_ns(&target, &last)).cold[0].bytes
        };
        assert_eq!(cold(100, 100_000_000), None, "the age is 99 intervals");
        assert_eq!(cold(101, 100_000_000), Some(MIB));
        assert_eq!(cold(100, 102_000_000), None, "ages do not count that intervals took longer");
        assert_eq!(cold(101, 102_000_000), Some(MIB));
        // A snapshot each second, of regions that were not idle for longer than one.
        let last = snapshot(0, 599, vec![region(0, MIB, 0, 9)]);
        let mut target = crate::testdata::overview_of(&last);
        (target.snapshots, target.start_ns) = (60, last.end_ns - 60 * NS_PER_S);
        assert_eq!(Idle::of(&last, watched_ns(&target, &last)).cold[0].bytes, Some(0));
    }
}
