//! The classic LRU of two lists, active and inactive, with refault distances: what the multi-generational one replaces.

pub mod balance;
mod shrink;

use super::dense::Dense;
use super::flags::Flags;
use super::pages::{List, Pages};
use super::shadow::{Shadow, mask};
use super::{Access, Channel, Hit, LruStats, PageKind};
use balance::Costs;

/// Inactive and active, for each kind.
pub(super) const LISTS: u32 = 4;
/// The node that its shadows name, so that they are distinguished from those of the multi-generational LRU after a
/// switch: their numbers count something else.
const NODE: u16 = 1023;

/// How the classic LRU is set up.
#[derive(Debug, Clone)]
pub struct ClassicConfig {
    /// Pages that fit.
    pub capacity: u32,
    /// How many pages there are; more are taken as they come, at the price of growing.
    pub pages: u32,
    /// Preference for anonymous memory, 0 (never) to 200 (only).
    pub swappiness: u8,
    /// How many pages are handled at once (the kernel: 32); reclaim evicts as many at least.
    pub batch: u32,
    /// Whether there is swap for anonymous memory.
    pub swap: bool,
    /// Whether writing makes a page dirty, so that it is not evicted at once.
    pub dirty: bool,
}

impl ClassicConfig {
    pub const fn new(capacity: u32) -> Self {
        Self { capacity, pages: 0, swappiness: 60, batch: 32, swap: true, dirty: true }
    }

    /// With batches that fit the capacity: a 128th of it, 1 to 32 pages.
    pub fn scaled(capacity: u32) -> Self {
        Self { batch: (capacity / 128).clamp(1, 32), ..Self::new(capacity) }
    }
}

/// The classic LRU over simulated page tables.
#[derive(Debug, Clone)]
pub struct Classic {
    config: ClassicConfig,
    pub(super) pages: Pages,
    pub(super) tables: Dense,
    /// Pages per list, by [`list`].
    sizes: [u64; LISTS as usize],
    pub(super) resident: u32,
    /// Evictions and activations so far: the clock of refault distances.
    age: u64,
    /// Refaults that were activated, per kind; and how many there were when reclaim last ended.
    activations: [u64; 2],
    activations_seen: [u64; 2],
    costs: Costs,
    isolated: Vec<u32>,
    pub(super) stats: LruStats,
}

/// The list of a kind: inactive, active.
const fn list(kind: usize, active: bool) -> List {
    kind as u32 * 2 + active as u32
}

impl Classic {
    pub fn new(config: ClassicConfig) -> Self {
        Self {
            // As many as the multi-generational LRU has, so that a switch need not renumber the pages.
            pages: Pages::new(super::lruvec::LISTS, config.pages),
            tables: Dense::default(),
            sizes: [0; LISTS as usize],
            resident: 0,
            age: 0,
            activations: [0; 2],
            activations_seen: [0; 2],
            costs: Costs::default(),
            isolated: Vec::with_capacity(config.batch as usize),
            stats: LruStats::default(),
            config,
        }
    }

    fn list_of(flags: Flags) -> List {
        list(flags.kind(), flags.has(Flags::ACTIVE))
    }

    pub(super) fn take_off(&mut self, page: u32) {
        self.sizes[Self::list_of(self.pages.flags(page)) as usize] -= 1;
        self.pages.remove(page);
    }

    /// Puts a page at the head (or the tail) of the list its flags name.
    pub(super) fn put(&mut self, page: u32, head: bool) {
        let list = Self::list_of(self.pages.flags(page));
        self.sizes[list as usize] += 1;
        if head {
            self.pages.push_head(list, page);
        } else {
            self.pages.push_tail(list, page);
        }
    }

    /// One access through a file descriptor.
    fn mark_accessed(&mut self, page: u32) {
        let flags = self.pages.flags_mut(page);
        if !flags.has(Flags::REFERENCED) {
            flags.set(Flags::REFERENCED);
        } else if !flags.has(Flags::ACTIVE) {
            self.take_off(page);
            let flags = self.pages.flags_mut(page);
            flags.clear(Flags::REFERENCED);
            flags.set(Flags::ACTIVE);
            self.put(page, true);
            self.age += 1;
            self.stats.list_moves += 1;
        }
    }

    /// One access; reclaims first if the page is not in memory and memory is full.
    #[inline]
    pub fn access(&mut self, page: u32, access: Access) -> Hit {
        self.stats.requests += 1;
        // What is mapped is in memory: the page itself, a cache miss away, need not be looked at.
        if access.channel == Channel::Mapped && !(access.write && self.config.dirty) && self.tables.touch_mapped(page) {
            return Hit::Hit;
        }
        if self.holds(page) {
            if access.write && self.config.dirty {
                let flags = self.pages.flags_mut(page);
                flags.set(Flags::DIRTY);
                flags.clear(Flags::SWAPCACHE);
            }
            match access.channel {
                Channel::Fd => self.mark_accessed(page),
                Channel::Mapped => self.tables.touch(page),
            }
            return Hit::Hit;
        }
        self.miss(page, access)
    }

    #[inline(never)]
    fn miss(&mut self, page: u32, access: Access) -> Hit {
        self.stats.misses += 1;
        if self.config.capacity == 0 || !self.pages.ensure(page) {
            return Hit::Miss;
        }
        self.make_room();
        let old = self.pages.flags(page);
        let shadow = old.has(Flags::SHADOW).then(|| Shadow::unpack(self.pages.shadow(page)));
        let mut flags = Flags::default();
        flags.set(Flags::RESIDENT | if access.kind == PageKind::File { Flags::FILE } else { 0 });
        if let Some(shadow) = shadow {
            if access.kind == PageKind::Anon {
                flags.set(Flags::SWAPCACHE);
            }
            self.refault(&mut flags, shadow);
        }
        if access.write && self.config.dirty {
            flags.set(Flags::DIRTY);
            flags.clear(Flags::SWAPCACHE);
        }
        *self.pages.flags_mut(page) = flags;
        self.put(page, true);
        self.resident += 1;
        match access.channel {
            Channel::Fd => self.mark_accessed(page),
            Channel::Mapped => self.tables.touch(page),
        }
        if shadow.is_some() { Hit::Refault } else { Hit::Miss }
    }

    /// How many evictions and activations a page may have been away to be made active: it would have stayed if it had
    /// had what others have.
    fn working_set(&self, kind: usize) -> u64 {
        let size = |kind, active| self.sizes[list(kind, active) as usize];
        let mut pages = size(1, true);
        if kind == 0 {
            pages += size(1, false);
        }
        if self.config.swap {
            pages += size(0, true);
            if kind == 1 {
                pages += size(0, false);
            }
        }
        pages
    }

    fn refault(&mut self, flags: &mut Flags, shadow: Shadow) {
        let kind = flags.kind();
        self.stats.refaults += 1;
        if shadow.node != NODE || mask(self.age.wrapping_sub(shadow.seq)) > self.working_set(kind) {
            return;
        }
        flags.set(Flags::ACTIVE);
        self.age += 1;
        self.activations[kind] += 1;
        if shadow.workingset {
            flags.set(Flags::WORKINGSET);
            self.costs.note(kind, 1, 0, u64::from(self.config.batch), u64::from(self.resident));
        }
    }

    pub const fn stats(&self) -> LruStats {
        self.stats
    }

    /// Pages in memory.
    pub const fn resident(&self) -> u32 {
        self.resident
    }

    /// Whether a page is in memory.
    pub fn holds(&self, page: u32) -> bool {
        page < self.pages.len() && self.pages.flags(page).has(Flags::RESIDENT)
    }

    /// Pages of a kind on the inactive and on the active list.
    pub const fn sizes(&self, kind: PageKind) -> (u64, u64) {
        let at = kind as usize * 2;
        (self.sizes[at], self.sizes[at + 1])
    }
}

#[cfg(test)]
mod tests;
