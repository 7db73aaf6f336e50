//! Snapshots of which lines are still to come: one of each kdamond, as several write their lines among each other.

use super::timeline::Ended;
use isotherm_core::snapshot::RegionInfo;
use std::collections::BTreeMap;

/// Most regions that are held for all of them together.
const MAX_HELD: usize = 1 << 21;

/// A snapshot, and what is known of its lines.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) ended: Ended,
    /// Regions that it is to have.
    pub(crate) expected: usize,
    /// Number of its first line.
    pub(crate) first: u64,
}

impl Open {
    /// Whether all of it is there.
    pub(crate) const fn is_whole(&self) -> bool {
        self.ended.regions.len() >= self.expected
    }

    /// Whether a line that tells of a region belongs to another: lines were lost then.
    fn is_foreign(&self, begun: &Self, region: &RegionInfo) -> bool {
        self.ended.key != begun.ended.key
            || self.expected != begun.expected
            || self.ended.regions.last().is_some_and(|last| region.start < last.end)
    }
}

/// All of them, by kdamond.
#[derive(Debug, Default)]
pub(crate) struct OpenSnapshots {
    all: BTreeMap<Option<u32>, Open>,
    held: usize,
}

impl OpenSnapshots {
    /// Adds a region to the snapshot that its line belongs to, which is `begun` if none is open. Returns those that end by that, the
    /// incomplete ones first.
    pub(crate) fn add(&mut self, begun: Open, region: RegionInfo) -> Vec<Open> {
        let kdamond = begun.ended.key.kdamond;
        let mut done = Vec::new();
        if self.all.get(&kdamond).is_some_and(|open| open.is_foreign(&begun, &region)) {
            done.extend(self.take(kdamond));
        }
        let open = self.all.entry(kdamond).or_insert(begun);
        open.ended.regions.push(region);
        self.held += 1;
        if open.is_whole() {
            done.extend(self.take(kdamond));
        }
        while self.held > MAX_HELD
            && let Some((&oldest, _)) = self.all.iter().min_by_key(|(_, open)| open.first)
        {
            done.extend(self.take(oldest));
        }
        done
    }

    /// Those that are left, in the order in which they began.
    pub(crate) fn finish(self) -> Vec<Open> {
        let mut left: Vec<Open> = self.all.into_values().collect();
        left.sort_by_key(|open| open.first);
        left
    }

    fn take(&mut self, kdamond: Option<u32>) -> Option<Open> {
        let open = self.all.remove(&kdamond)?;
        self.held -= open.ended.regions.len();
        Some(open)
    }
}
