//! The generations of one memory (one memcg on one node).

use super::bloom::Bloom;
use super::controller::Controller;
use super::flags::Flags;
use super::pages::{List, Pages};
use super::{LruStats, Switches, Variant};
pub use isotherm_core::keeper::MIN_GENS;

pub(crate) const MAX_GENS: u64 = 4;
/// Lists a memory needs: a generation and a kind each.
pub(crate) const LISTS: u32 = MAX_GENS as u32 * 2;
/// The swappiness that means anonymous memory only (6.14 on).
pub(crate) const ANON_ONLY: u8 = 201;

/// The index of a generation.
pub const fn index(seq: u64) -> usize {
    (seq % MAX_GENS) as usize
}

/// Figures of the mechanism beyond those that all policies share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Detail {
    /// Pages that eviction found with a younger label and moved to their list.
    pub sorted: u64,
    /// Pages protected for their tier.
    pub protected: u64,
    /// Pages promoted by walks.
    pub promoted_by_walk: u64,
    /// Pages promoted by looking around an accessed entry.
    pub promoted_by_look: u64,
    /// Pages looked up in page tables by eviction.
    pub rmap_walks: u64,
    /// Tables that walks read.
    pub tables_read: u64,
    /// Tables that the filter named and that were not worth it.
    pub tables_in_vain: u64,
    /// Tables added to a filter.
    pub tables_added: u64,
    /// Refaults soon enough to count.
    pub recent_refaults: u64,
    /// Refaults that were taken to belong to the working set.
    pub restored: u64,
    /// Pages evicted because nothing else was left to do.
    pub forced: u64,
}

/// How far the walks are.
#[derive(Debug, Clone)]
pub(super) struct WalkState {
    pub seq: u64,
    pub filters: [Option<Bloom>; 2],
}

/// The generations of one memory.
#[derive(Debug, Clone)]
pub(crate) struct Lruvec {
    pub(super) id: u16,
    pub(super) base: List,
    pub(super) variant: Variant,
    pub(super) batch: u32,
    pub(super) switches: Switches,
    pub(super) max_seq: u64,
    pub(super) min_seq: [u64; 2],
    pub(super) sizes: [[u64; 2]; MAX_GENS as usize],
    pub(super) controller: Controller,
    pub(super) walk: WalkState,
    pub(super) isolated: Vec<u32>,
    pub(super) stats: LruStats,
    pub(super) detail: Detail,
}

impl Lruvec {
    /// An empty memory: number `id`, its lists from `base` on.
    pub fn new(id: u16, base: List, variant: Variant, batch: u32) -> Self {
        let batch = batch.clamp(1, super::tables::ENTRIES);
        Self {
            id,
            base,
            variant,
            batch,
            switches: Switches::default(),
            max_seq: MIN_GENS + 1,
            min_seq: [0; 2],
            sizes: [[0; 2]; MAX_GENS as usize],
            controller: Controller::default(),
            walk: WalkState { seq: MIN_GENS, filters: [None, None] },
            isolated: Vec::with_capacity(batch as usize),
            stats: LruStats::default(),
            detail: Detail::default(),
        }
    }

    /// The list of a generation.
    pub fn list(&self, generation: usize, kind: usize) -> List {
        self.base + generation as u32 * 2 + kind as u32
    }

    /// Generations of a kind.
    pub const fn generations(&self, kind: usize) -> u64 {
        self.max_seq - self.min_seq[kind] + 1
    }

    /// Pages of a kind labelled with a generation; 0 for one that does not exist.
    #[cfg(test)]
    pub(super) fn size(&self, seq: u64, kind: usize) -> u64 {
        if seq < self.min_seq[kind] || seq > self.max_seq { 0 } else { self.sizes[index(seq)][kind] }
    }

    /// All pages on the lists.
    pub fn total(&self) -> u64 {
        self.sizes.iter().flatten().sum()
    }

    /// What was done to it.
    pub const fn stats(&self) -> LruStats {
        self.stats
    }

    /// What the mechanism did.
    pub const fn detail(&self) -> Detail {
        self.detail
    }

    /// Which kinds may be evicted, anonymous memory first.
    pub(super) const fn evictable(&self, swappiness: u8) -> [bool; 2] {
        [swappiness != 0, !matches!(self.variant, Variant::V6_14) || swappiness < ANON_ONLY]
    }

    /// The oldest generation that counts for the decision to age.
    pub(super) fn oldest(&self, swappiness: u8) -> u64 {
        match (self.variant, self.evictable(swappiness)) {
            (_, [false, _]) => self.min_seq[1],
            (Variant::V6_12, _) | (_, [_, false]) => self.min_seq[0],
            (Variant::V6_14, _) => self.min_seq[0].min(self.min_seq[1]),
        }
    }

    /// Labels a page anew. It is on a list, or its label says that it is not.
    pub(super) fn relabel(&mut self, flags: &mut Flags, generation: Option<usize>) {
        let kind = flags.kind();
        if let Some(old) = flags.generation() {
            self.sizes[old][kind] -= 1;
        }
        if let Some(new) = generation {
            self.sizes[new][kind] += 1;
        }
        flags.set_generation(generation);
    }

    /// Takes a page off its list.
    pub(super) fn take_off(&mut self, pages: &mut Pages, page: u32) {
        self.relabel(pages.flags_mut(page), None);
        pages.remove(page);
    }
}
