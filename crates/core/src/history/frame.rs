//! What the page history says about a target at one moment: the figures that records keep and reports show.

use super::reaccessed::Reaccessed;
use super::times::AGES_NS;
use crate::addr::{AddrRange, PAGE_SIZE};
use serde::{Deserialize, Serialize};

/// Pages that had not been accessed for some time.
///
/// A page's last access is known to lie between two moments; where the threshold lies between them, too, it may or may
/// not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdlePages {
    /// The figure to show: what is known, and of the rest the share to be expected.
    pub pages: u64,
    /// Certainly idle for so long.
    pub least: u64,
    /// Not known to have been accessed since; includes `unresolved`.
    pub most: u64,
    /// Nothing can be expected of these: their bits were set when watching began, and nobody knows for how long. Not in
    /// `pages`.
    pub unresolved: u64,
}

impl IdlePages {
    /// Not fewer than were idle for a `longer` time: what was estimated of either by itself may say otherwise, since of the time since
    /// the last walk little is known.
    fn raise_to(&mut self, longer: &Self) {
        let open = (self.pages + self.unresolved).max(longer.pages);
        self.least = self.least.max(longer.least);
        self.pages = self.pages.max(longer.pages);
        self.unresolved = open - self.pages;
        self.most = self.most.max(open);
    }

    /// Not more than were idle for a `shorter` time; nor more left open, since what was used within that was used within the longer
    /// time as well.
    fn lower_to(&mut self, shorter: &Self) {
        self.least = self.least.min(shorter.least);
        self.pages = self.pages.min(shorter.pages);
        self.unresolved = self.unresolved.min(shorter.pages + shorter.unresolved - self.pages);
        self.most = self.most.min(shorter.most);
    }

    /// Adds those of another part of memory.
    pub fn add(&mut self, other: &Self) {
        self.pages += other.pages;
        self.least += other.least;
        self.most += other.most;
        self.unresolved += other.unresolved;
    }
}

/// How old the pages of one part of memory are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageAges {
    /// Present pages.
    pub resident: u64,
    /// Of these, pages that cannot be observed: neither hot nor cold.
    pub unobservable: u64,
    /// For each of the first [`AGES_NS`] that the target has been watched for: the pages idle for at least that long.
    pub idle: Vec<IdlePages>,
    /// The same for the rest of [`AGES_NS`], where the process began so lately that it is known what it has accessed since;
    /// of other targets empty. Records do not keep it.
    #[serde(skip)]
    pub longer: Vec<IdlePages>,
}

impl PageAges {
    /// Adds another part of memory. Where one of both was not watched for so long as the other, it is known of its pages
    /// only which ones were accessed since.
    pub fn add(&mut self, other: &Self) {
        let ages = |of: fn(&Self) -> usize| of(self).max(of(other));
        let mut idle: Vec<IdlePages> = (0..ages(|p| p.idle.len() + p.longer.len())).map(|i| self.at(i)).collect();
        idle.iter_mut().enumerate().for_each(|(i, idle)| idle.add(&other.at(i)));
        self.longer = idle.split_off(ages(|p| p.idle.len()));
        self.idle = idle;
        self.resident += other.resident;
        self.unobservable += other.unobservable;
    }

    /// With no more idle for a longer time than for a shorter one. Both are estimates of the same kind, and what is idle for the longer
    /// time is so for the shorter.
    pub(super) fn in_order(mut self) -> Self {
        let mut longer = IdlePages::default();
        for idle in self.idle.iter_mut().chain(&mut self.longer).rev() {
            idle.raise_to(&longer);
            longer = *idle;
        }
        self.lowered()
    }

    /// The same, where the shorter one is the better known, and stays as it is.
    pub(super) fn lowered(mut self) -> Self {
        let mut ages = self.idle.iter_mut().chain(&mut self.longer);
        if let Some(mut shorter) = ages.next() {
            for idle in ages {
                idle.lower_to(shorter);
                shorter = idle;
            }
        }
        self
    }

    /// Those idle for the `i`th of [`AGES_NS`], whether the target was watched for so long or not.
    pub(super) fn at(&self, i: usize) -> IdlePages {
        let longer = || self.longer.get(i - self.idle.len());
        self.idle.get(i).or_else(longer).copied().unwrap_or_else(|| self.unknown())
    }

    /// The same, known for the first `ages` of [`AGES_NS`] as far as it can be: of who began while it was watched it is also known what it has
    /// accessed since. So it stands beside what was watched for longer.
    #[must_use]
    pub fn extended_to(mut self, ages: usize) -> Self {
        let more = ages.saturating_sub(self.idle.len()).min(self.longer.len());
        self.idle.extend(self.longer.drain(..more));
        self
    }

    /// What is known of `age_ns`, one of [`AGES_NS`], as in a [`sum`] with what was watched for so long; of what nobody watched for so long it is
    /// known which pages were accessed within a shorter time, and nothing of the others. `None`: it is another time.
    pub fn within_a_sum(&self, age_ns: u64) -> Option<IdlePages> {
        Some(self.at(AGES_NS.iter().position(|&a| a == age_ns)?))
    }

    /// What is known of a time for which nobody watched: what was accessed within a shorter one was within this.
    fn unknown(&self) -> IdlePages {
        let seen = self.resident.saturating_sub(self.unobservable);
        let (most, unresolved) =
            self.idle.last().map_or((seen, seen), |idle| (idle.most, idle.pages + idle.unresolved));
        IdlePages { pages: 0, least: 0, most, unresolved }
    }

    /// Pages idle for at least `age_ns`, one of [`AGES_NS`]; `None` if the target was not watched for so long.
    pub fn idle_for(&self, age_ns: u64) -> Option<&IdlePages> {
        self.idle.get(AGES_NS.iter().position(|&a| a == age_ns)?)
    }

    /// The same, but `None` also where nothing is known yet of more than a twentieth of what can be observed: as a single figure,
    /// without its ends, it would be wrong by more than that.
    pub fn known_for(&self, age_ns: u64) -> Option<&IdlePages> {
        let seen = self.resident.saturating_sub(self.unobservable);
        self.idle_for(age_ns).filter(|idle| idle.unresolved.saturating_mul(20) <= seen)
    }

    /// The same as [`accessed_within`](Self::accessed_within), where it is [known](Self::known_for).
    pub fn known_within(&self, window_ns: u64) -> Option<Accessed> {
        self.known_for(window_ns).and_then(|_| self.accessed_within(window_ns))
    }

    /// Pages accessed within the last `window_ns`, one of [`AGES_NS`], with the least and the largest number that may
    /// be true; `None` if the target was not watched for so long.
    pub fn accessed_within(&self, window_ns: u64) -> Option<Accessed> {
        let idle = self.idle_for(window_ns)?;
        let seen = self.resident.saturating_sub(self.unobservable);
        Some(Accessed {
            pages: seen.saturating_sub(idle.pages + idle.unresolved),
            least: seen.saturating_sub(idle.most),
            most: seen.saturating_sub(idle.least),
        })
    }
}

/// Pages accessed within some time; see [`PageAges::accessed_within`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accessed {
    /// The figure to show.
    pub pages: u64,
    /// Certainly accessed.
    pub least: u64,
    /// All that may have been.
    pub most: u64,
}

/// The pages of one mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingPages {
    /// Its addresses, as in the target's mappings in force; mappings without a present page are left out.
    pub range: AddrRange,
    /// How old they are.
    pub ages: PageAges,
}

/// The pages below one last-level page table (2 MiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePages {
    /// First address; a multiple of 2 MiB.
    pub base: u64,
    /// Present pages that could be observed, and were not just found with a bit from before the watch; 0: there are
    /// such pages only.
    pub present: u16,
    /// Of these, accessed since the frame before.
    pub accessed: u16,
}

/// A target's pages at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageFrame {
    /// When, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The frame before; for the first one, the begin of the watch.
    pub since_ns: u64,
    /// When the target's pages were first looked at.
    pub begin_ns: u64,
    /// Time between the last two walks: nothing shorter can be distinguished. 0 after the first.
    pub walk_ns: u64,
    /// Which target.
    pub target: u32,
    /// One in so many page tables was looked at, and counts for so many; 1: all.
    pub one_in: u32,
    /// By mapping, sorted.
    pub mappings: Vec<MappingPages>,
    /// By page table, sorted; tables of which no page is present, or none can be observed, are left out.
    pub tables: Vec<TablePages>,
    /// Pages accessed again since the watch began, by how long they had been idle; of one that other targets map, too,
    /// each counts its own accesses. Records do not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaccessed: Option<Box<Reaccessed>>,
    /// Whether it was forked, and runs what its parent runs: most of its pages may be its parent's, too. Records do not keep
    /// it.
    #[serde(skip)]
    pub forked: bool,
}

impl PageFrame {
    /// All mappings together.
    pub fn total(&self) -> PageAges {
        sum(self.mappings.iter().map(|m| &m.ages))
    }
}

/// Several parts of memory together; nothing if there is none.
pub fn sum<'a>(parts: impl Iterator<Item = &'a PageAges>) -> PageAges {
    let mut parts = parts;
    let mut total = parts.next().cloned().unwrap_or_default();
    parts.for_each(|p| total.add(p));
    total
}

/// Bytes of so many pages; of more than there can be, which others may claim, the largest number.
pub const fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_SIZE)
}
