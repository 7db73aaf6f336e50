//! The multi-generational LRU on its own: one memory of so many pages, fed with accesses.
//!
//! A mapped access sets a bit in simulated page tables that nobody looks at until reclaim does. Reclaim runs before a
//! page is added to a full memory, as for a memcg at its limit.

use super::dense::Dense;
use super::flags::Flags;
use super::lruvec::{Detail, LISTS, Lruvec};
use super::pages::Pages;
use super::reclaim::Demand;
use super::{Access, Channel, Hit, LruStats, Switches, Variant, tier};

/// How the multi-generational LRU is set up.
#[derive(Debug, Clone)]
pub struct MgConfig {
    /// Pages that fit.
    pub capacity: u32,
    /// How many pages there are; more are taken as they come, at the price of growing.
    pub pages: u32,
    pub variant: Variant,
    /// Preference for anonymous memory, 0 (never) to 200; 201: anonymous memory only.
    pub swappiness: u8,
    /// How many pages are handled at once (the kernel: 64), 1 to 512. Also the noise floor of the controller and the
    /// width of look-around. Half of it is what reclaim evicts at least.
    pub batch: u32,
    /// Walks of page tables.
    pub switches: Switches,
    /// Whether writing makes a page dirty, so that it is not evicted at once.
    pub dirty: bool,
}

impl MgConfig {
    /// The kernel's defaults. Memories of less than about 4096 pages are coarse with them, as they are in the kernel.
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity,
            pages: 0,
            variant: Variant::default(),
            swappiness: 60,
            batch: 64,
            switches: Switches::default(),
            dirty: true,
        }
    }

    /// With batches that fit the capacity: a 64th of it, 1 to 64 pages.
    pub fn scaled(capacity: u32) -> Self {
        Self { batch: (capacity / 64).clamp(1, 64), ..Self::new(capacity) }
    }
}

/// The multi-generational LRU over simulated page tables.
#[derive(Debug, Clone)]
pub struct MgLru {
    config: MgConfig,
    pub(super) pages: Pages,
    pub(super) tables: Dense,
    pub(super) lruvec: Lruvec,
    pub(super) resident: u32,
}

impl MgLru {
    pub fn new(config: MgConfig) -> Self {
        let mut lruvec = Lruvec::new(0, 0, config.variant, config.batch);
        lruvec.switches = config.switches;
        let pages = Pages::new(LISTS, config.pages);
        Self { config, pages, tables: Dense::default(), lruvec, resident: 0 }
    }

    /// One access; reclaims first if the page is not in memory and memory is full.
    #[inline]
    pub fn access(&mut self, page: u32, access: Access) -> Hit {
        self.lruvec.stats.requests += 1;
        // What is mapped is in memory: the page itself, a cache miss away, need not be looked at.
        if access.channel == Channel::Mapped && !(access.write && self.config.dirty) && self.tables.touch_mapped(page) {
            return Hit::Hit;
        }
        if page < self.pages.len() {
            let variant = self.config.variant;
            let flags = self.pages.flags_mut(page);
            if flags.has(Flags::RESIDENT) {
                if access.write && self.config.dirty {
                    flags.set(Flags::DIRTY);
                    flags.clear(Flags::SWAPCACHE);
                }
                match access.channel {
                    Channel::Fd => tier::touch(variant, flags),
                    Channel::Mapped => self.tables.touch(page),
                }
                return Hit::Hit;
            }
        }
        self.miss(page, access)
    }

    /// Reads what accesses to these pages will need, so that a processor fetches all of it at once instead of one after
    /// the other. Changes nothing; the result only keeps the compiler from leaving it out.
    #[inline]
    pub fn warm(&self, pages: &[u32]) -> u32 {
        let len = self.pages.len();
        let flags = pages.iter().filter(|&&page| page < len).map(|&page| self.pages.flags(page));
        flags.fold(0, |sum, flags| sum ^ u32::from(flags.has(Flags::RESIDENT)))
    }

    #[inline(never)]
    fn miss(&mut self, page: u32, access: Access) -> Hit {
        self.lruvec.stats.misses += 1;
        if self.config.capacity == 0 || !self.pages.ensure(page) {
            return Hit::Miss;
        }
        self.make_room();
        if access.channel == Channel::Mapped {
            self.tables.touch(page);
        }
        self.resident += 1;
        self.lruvec.fault_in(&mut self.pages, page, access, self.config.dirty)
    }

    fn make_room(&mut self) {
        let pages = u64::from(self.config.batch / 2).clamp(1, u64::from(self.config.capacity));
        let mut rounds = 0;
        while self.resident >= self.config.capacity {
            let demand = Demand { pages, global: false, swappiness: self.config.swappiness };
            let reclaimed = self.lruvec.reclaim(&mut self.pages, &mut self.tables, demand);
            self.resident -= reclaimed as u32;
            rounds += 1;
            if rounds == 16 && self.resident >= self.config.capacity {
                // The kernel would kill someone here. What no rule lets go (all of it anonymous, and swap forbidden)
                // must still give way.
                while self.resident >= self.config.capacity && self.lruvec.force(&mut self.pages, &mut self.tables) {
                    self.resident -= 1;
                }
                break;
            }
        }
    }

    pub const fn stats(&self) -> LruStats {
        self.lruvec.stats
    }

    /// What the mechanism did beyond that.
    pub const fn detail(&self) -> Detail {
        self.lruvec.detail
    }

    /// Pages in memory.
    pub const fn resident(&self) -> u32 {
        self.resident
    }

    /// Whether a page is in memory.
    pub fn holds(&self, page: u32) -> bool {
        page < self.pages.len() && self.pages.flags(page).has(Flags::RESIDENT)
    }

    #[cfg(test)]
    pub(super) const fn parts(&self) -> (&Lruvec, &Pages) {
        (&self.lruvec, &self.pages)
    }

    #[cfg(test)]
    pub(super) const fn parts_mut(&mut self) -> (&mut Lruvec, &mut Pages, &mut Dense) {
        (&mut self.lruvec, &mut self.pages, &mut self.tables)
    }
}
