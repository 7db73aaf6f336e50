//! Several memories on one machine: limits of their own, and one size for all of them together.

use super::dense::Dense;
use super::flags::Flags;
use super::global::{Memories, Protection, shrink_many};
use super::lruvec::{LISTS, Lruvec};
use super::mglru::MgConfig;
use super::pages::Pages;
use super::reclaim::{DEF_PRIORITY, Demand};
use super::{Access, Channel, Hit, tier};
use isotherm_core::keeper::memcg_lru::{MemcgLru, Move};

/// A memory's bounds, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// `memory.min`: not reclaimed below it.
    pub min: u64,
    /// `memory.low`: reclaimed below it only if nothing else is left.
    pub low: u64,
    /// The soft limit: above it the memory comes first.
    pub soft: u64,
    /// `memory.max`: its own limit.
    pub max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { min: 0, low: 0, soft: u64::MAX, max: u64::MAX }
    }
}

#[derive(Debug, Clone)]
struct Memory {
    lruvec: Lruvec,
    tables: Dense,
    bounds: Bounds,
    low_events: u64,
}

/// How memories are chosen when the machine is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fairness {
    /// By the LRU of memories.
    #[default]
    MemcgLru,
    /// One after the other, always from the first on, as a plain iteration would. For comparison.
    InOrder,
    /// One after the other, each time from where the last time ended. For comparison.
    RoundRobin,
}

/// Several memories of the multi-generational LRU.
#[derive(Debug, Clone)]
pub struct Machine {
    config: MgConfig,
    fairness: Fairness,
    pages: Pages,
    memories: Vec<Memory>,
    order: MemcgLru,
    /// Whose turn it is with [`Fairness::RoundRobin`].
    next: u32,
    requests: u64,
}

struct Turn<'a> {
    pages: &'a mut Pages,
    memories: &'a mut [Memory],
    demand: Demand,
}

impl Memory {
    fn resident(&self) -> u64 {
        self.lruvec.total()
    }

    fn protection(&self) -> Protection {
        match self.resident() {
            pages if pages > 0 && pages <= self.bounds.min => Protection::Min,
            pages if pages > 0 && pages <= self.bounds.low => Protection::Low,
            _ => Protection::None,
        }
    }
}

impl Memories for Turn<'_> {
    fn protection(&self, id: u32) -> Protection {
        self.memories[id as usize].protection()
    }

    fn evictable(&self, id: u32) -> u64 {
        self.memories[id as usize].resident()
    }

    fn shrink(&mut self, id: u32, priority: u32) -> (u64, bool) {
        let memory = &mut self.memories[id as usize];
        let shrunk = memory.lruvec.shrink(self.pages, &mut memory.tables, self.demand, priority);
        (shrunk.reclaimed, shrunk.aged)
    }

    fn low_event(&mut self, id: u32) {
        self.memories[id as usize].low_events += 1;
    }
}

impl Turn<'_> {
    /// Each once, from `first` on, until `wanted` pages are evicted. How many were, and who would be next.
    fn one_by_one(&mut self, first: u32, priority: u32, wanted: u64) -> (u64, u32) {
        let (mut reclaimed, count) = (0, self.memories.len() as u32);
        for id in (0..count).map(|step| (first + step) % count) {
            if self.protection(id) == Protection::None {
                reclaimed += self.shrink(id, priority).0;
            }
            if reclaimed >= wanted {
                return (reclaimed, (id + 1) % count);
            }
        }
        (reclaimed, first)
    }
}

impl Machine {
    /// A machine of `config.capacity` pages and one memory for each of the bounds. The seed decides over bins.
    pub fn new(config: MgConfig, bounds: &[Bounds], fairness: Fairness, seed: u64) -> Self {
        let count = bounds.len().min(usize::from(u16::MAX));
        let pages = Pages::new(LISTS * count as u32, config.pages);
        let mut order = MemcgLru::new(seed);
        let memories = (0..count as u16)
            .zip(bounds)
            .map(|(id, &bounds)| {
                order.add(u32::from(id));
                let mut lruvec = Lruvec::new(id, u32::from(id) * LISTS, config.variant, config.batch);
                lruvec.switches = config.switches;
                Memory { lruvec, tables: Dense::default(), bounds, low_events: 0 }
            })
            .collect();
        Self { config, fairness, pages, memories, order, next: 0, requests: 0 }
    }

    const fn demand(&self, pages: u64, global: bool) -> Demand {
        Demand { pages, global, swappiness: self.config.swappiness }
    }

    /// All pages in memory.
    pub fn resident(&self) -> u64 {
        self.memories.iter().map(Memory::resident).sum()
    }

    /// The generations of a memory.
    pub(crate) fn lruvec(&self, memory: u16) -> Option<&Lruvec> {
        self.memories.get(usize::from(memory)).map(|memory| &memory.lruvec)
    }

    /// How often a memory was reclaimed below its `memory.low`.
    pub fn low_events(&self, memory: u16) -> Option<u64> {
        self.memories.get(usize::from(memory)).map(|memory| memory.low_events)
    }

    /// One access on behalf of a memory. A page that another memory brought in stays with that one. None if there is no
    /// such memory.
    pub fn access(&mut self, memory: u16, page: u32, access: Access) -> Option<Hit> {
        let at = usize::from(memory);
        self.requests += 1;
        self.memories.get_mut(at)?.lruvec.stats.requests += 1;
        if !self.pages.ensure(page) {
            self.memories[at].lruvec.stats.misses += 1;
            return Some(Hit::Miss);
        }
        let flags = self.pages.flags_mut(page);
        if flags.has(Flags::RESIDENT) {
            if access.write && self.config.dirty {
                flags.set(Flags::DIRTY);
                flags.clear(Flags::SWAPCACHE);
            }
            let owner = usize::from(flags.memcg());
            match access.channel {
                Channel::Fd => tier::touch(self.config.variant, flags),
                Channel::Mapped => self.memories[owner].tables.touch(page),
            }
            return Some(Hit::Hit);
        }
        self.memories[at].lruvec.stats.misses += 1;
        if self.config.capacity == 0 || self.memories[at].bounds.max == 0 {
            return Some(Hit::Miss);
        }
        self.make_room(at);
        let one = &mut self.memories[at];
        if access.channel == Channel::Mapped {
            one.tables.touch(page);
        }
        let hit = one.lruvec.fault_in(&mut self.pages, page, access, self.config.dirty);
        if one.resident() > one.bounds.soft {
            self.order.apply(u32::from(memory), Move::Head);
        }
        Some(hit)
    }

    fn make_room(&mut self, at: usize) {
        let pages = u64::from(self.config.batch / 2).max(1);
        let demand = self.demand(pages, false);
        let one = &mut self.memories[at];
        for _ in 0..16 {
            if one.resident() < one.bounds.max {
                break;
            }
            one.lruvec.reclaim(&mut self.pages, &mut one.tables, demand);
        }
        while one.resident() >= one.bounds.max && one.lruvec.force(&mut self.pages, &mut one.tables) {}
        let capacity = u64::from(self.config.capacity);
        for _ in 0..16 {
            if self.resident() < capacity {
                return;
            }
            self.reclaim(pages);
        }
        for one in &mut self.memories {
            let room = |memories: u64| memories < capacity;
            if room(one.resident()) && one.protection() != Protection::None {
                continue;
            }
            if one.lruvec.force(&mut self.pages, &mut one.tables) {
                return;
            }
        }
        // All are protected: protection gives way before the machine's size does.
        for one in &mut self.memories {
            if one.lruvec.force(&mut self.pages, &mut one.tables) {
                return;
            }
        }
    }

    /// Evicts `wanted` pages for the sake of the whole machine, or as many as there are. How many it evicted.
    fn reclaim(&mut self, wanted: u64) -> u64 {
        let demand = self.demand(wanted, true);
        let mut reclaimed = 0;
        for priority in (0..=DEF_PRIORITY).rev() {
            let mut turn = Turn { pages: &mut self.pages, memories: &mut self.memories, demand };
            match self.fairness {
                Fairness::MemcgLru => {
                    reclaimed += shrink_many(&mut self.order, &mut turn, priority, wanted - reclaimed);
                }
                Fairness::InOrder => reclaimed += turn.one_by_one(0, priority, wanted - reclaimed).0,
                Fairness::RoundRobin => {
                    let (pages, last) = turn.one_by_one(self.next, priority, wanted - reclaimed);
                    reclaimed += pages;
                    self.next = last;
                }
            }
            if reclaimed >= wanted {
                break;
            }
        }
        reclaimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::kernel_lru::PageKind;

    /// Four memories of equal size and equal use; how much each was evicted.
    fn evictions(fairness: Fairness) -> Vec<u64> {
        let config = MgConfig { batch: 16, ..MgConfig::new(8000) };
        let mut machine = Machine::new(config, &[Bounds::default(); 4], fairness, 5);
        let mut rng = fastrand::Rng::with_seed(9);
        for _ in 0..300_000 {
            let memory = rng.u16(..4);
            let page = u32::from(memory) * 3000 + rng.u32(..3000);
            machine.access(memory, page, Access::mapped(PageKind::Anon, true)).unwrap();
            assert!(machine.resident() <= 8000);
        }
        (0..4).map(|memory| machine.lruvec(memory).unwrap().stats.evictions).collect()
    }

    fn spread(evictions: &[u64]) -> f64 {
        *evictions.iter().max().unwrap() as f64 / *evictions.iter().min().unwrap().max(&1) as f64
    }

    #[test]
    fn equal_memories_give_equally() {
        let (fair, plain) = (evictions(Fairness::MemcgLru), evictions(Fairness::InOrder));
        println!("fair {fair:?}, in order {plain:?}");
        assert!(spread(&fair) < 1.1, "{fair:?}");
        // The inequality is bounded: who is evicted more holds less, and is found with less the next time.
        assert!(spread(&plain) - 1.0 > 3.0 * (spread(&fair) - 1.0), "{plain:?} against {fair:?}");
    }

    #[test]
    fn protection_and_limits_hold() {
        let bounds =
            [Bounds { min: 500, ..Bounds::default() }, Bounds { max: 300, ..Bounds::default() }, Bounds::default()];
        let mut machine = Machine::new(MgConfig { batch: 8, ..MgConfig::new(2000) }, &bounds, Fairness::MemcgLru, 1);
        (0..500).for_each(|page| _ = machine.access(0, page, Access::fd(false)));
        for page in 0..5000 {
            machine.access(1, 10_000 + page, Access::fd(false)).unwrap();
            machine.access(2, 20_000 + page, Access::fd(false)).unwrap();
            assert!(machine.lruvec(1).unwrap().total() <= 300);
        }
        assert_eq!(machine.lruvec(0).unwrap().stats.evictions, 0);
        assert!(machine.access(3, 0, Access::fd(false)).is_none());
    }
}
