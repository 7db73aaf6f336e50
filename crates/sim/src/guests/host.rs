//! The host's memory: which pages of which guest it backs, and which it has swapped out.

use super::params::Params;

/// Pages of a block, the unit in which the host remembers when it was touched.
const BLOCK: u32 = 512;

/// Where the host has a guest's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageState {
    /// Nowhere: never touched, or dropped.
    Nowhere,
    Memory,
    Swap,
}

/// A guest's pages as its host sees them.
#[derive(Debug, Clone)]
struct Backing {
    places: Vec<PageState>,
    /// When each block was touched last, and how many of its pages are in memory.
    touched: Vec<(u64, u32)>,
}

/// The host's counters, in pages and ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Backed in memory now.
    pub resident: u64,
    pub swapped: u64,
    /// Written to swap, in all.
    pub swap_outs: u64,
    /// Read from swap, in all.
    pub swap_ins: u64,
}

#[derive(Debug, Clone)]
pub struct Host {
    /// Pages for guests and VMMs.
    room: u64,
    guests: Vec<Backing>,
    clock: u64,
    stats: HostStats,
    swap_out_ns: u64,
    swap_in_ns: u64,
}

impl Host {
    pub fn new(params: &Params) -> Self {
        Self {
            room: params.host_memory.saturating_sub(params.host_own) / 4096,
            guests: Vec::new(),
            clock: 0,
            stats: HostStats::default(),
            swap_out_ns: params.swap_out_ns,
            swap_in_ns: params.swap_in_ns,
        }
    }

    /// A guest comes, whose VMM takes some memory of its own that is never swapped; its number.
    pub fn add(&mut self, pages: u32, vmm_pages: u64) -> usize {
        let touched = vec![(0, 0); pages.div_ceil(BLOCK) as usize];
        self.guests.push(Backing { places: vec![PageState::Nowhere; pages as usize], touched });
        self.room = self.room.saturating_sub(vmm_pages);
        self.guests.len() - 1
    }

    pub const fn stats(&self) -> HostStats {
        self.stats
    }

    /// Pages of a guest in memory or swap.
    pub fn backed(&self, guest: usize) -> u64 {
        self.guests[guest].places.iter().filter(|place| **place != PageState::Nowhere).count() as u64
    }

    /// A guest touches a page; what that costs beyond the touch itself, ns.
    pub fn touch(&mut self, guest: usize, page: u32) -> u64 {
        self.clock += 1;
        let backing = &mut self.guests[guest];
        let block = &mut backing.touched[(page / BLOCK) as usize];
        block.0 = self.clock;
        let place = &mut backing.places[page as usize];
        let mut cost = 0;
        match place {
            PageState::Memory => return 0,
            PageState::Nowhere => {}
            PageState::Swap => {
                cost += self.swap_in_ns;
                self.stats.swap_ins += 1;
                self.stats.swapped -= 1;
            }
        }
        *place = PageState::Memory;
        block.1 += 1;
        self.stats.resident += 1;
        if self.stats.resident > self.room {
            cost += self.reclaim();
        }
        cost
    }

    /// A guest says that a block is free.
    pub(crate) fn drop_block(&mut self, guest: usize, block: u32) {
        let backing = &mut self.guests[guest];
        let pages = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
        for place in &mut backing.places[pages] {
            match std::mem::replace(place, PageState::Nowhere) {
                PageState::Nowhere => {}
                PageState::Memory => self.stats.resident -= 1,
                PageState::Swap => self.stats.swapped -= 1,
            }
        }
        backing.touched[block as usize].1 = 0;
    }

    /// Swaps the block out that was touched least recently; what that costs, ns.
    fn reclaim(&mut self) -> u64 {
        let blocks = self.guests.iter().enumerate().flat_map(|(g, backing)| {
            backing.touched.iter().enumerate().filter(|(_, (_, pages))| *pages > 0).map(move |(b, (at, _))| (*at, g, b))
        });
        let Some((_, guest, block)) = blocks.min() else { return 0 };
        let backing = &mut self.guests[guest];
        let first = block * BLOCK as usize;
        let end = (first + BLOCK as usize).min(backing.places.len());
        let mut out = 0;
        for place in backing.places[first..end].iter_mut().filter(|place| **place == PageState::Memory) {
            *place = PageState::Swap;
            out += 1;
        }
        backing.touched[block].1 = 0;
        self.stats.resident -= out;
        self.stats.swapped += out;
        self.stats.swap_outs += out;
        out * self.swap_out_ns
    }
}
