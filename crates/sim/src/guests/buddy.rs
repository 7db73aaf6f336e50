//! A buddy allocator as Linux has it: free memory in blocks of powers of two, split when less is needed, joined with
//! their buddies when both are free. The last freed is the first given out.

use isotherm_core::hinter::{Bitmap, FreeMemory};

/// The largest order of a block: 4 MiB, Linux's MAX_PAGE_ORDER.
pub(crate) const MAX_ORDER: usize = 10;
/// The order that hints speak of: 2 MiB.
pub(crate) const HINT_ORDER: usize = 9;
const NONE: u32 = u32::MAX;
/// In `order`: not the first page of a free block.
const NOT_FREE: u8 = u8::MAX;

/// A guest's free memory.
#[derive(Debug, Clone)]
pub struct Buddy {
    /// First free block of each order.
    heads: [u32; MAX_ORDER + 1],
    tails: [u32; MAX_ORDER + 1],
    counts: [u32; MAX_ORDER + 1],
    next: Vec<u32>,
    prev: Vec<u32>,
    /// Of the first page of each free block.
    order: Vec<u8>,
    /// Blocks of [`HINT_ORDER`] given out, as a whole or in part, since they were last asked for.
    used: Bitmap,
    free: u64,
    /// Pages given out since the beginning.
    allocated: u64,
}

impl Buddy {
    /// `pages` pages, all free; a multiple of the largest block.
    pub fn new(pages: u32) -> Self {
        assert!(pages.is_multiple_of(1 << MAX_ORDER), "{pages} pages are no multiple of the largest block");
        let blocks = u64::from(pages >> HINT_ORDER);
        let mut buddy = Self {
            heads: [NONE; MAX_ORDER + 1],
            tails: [NONE; MAX_ORDER + 1],
            counts: [0; MAX_ORDER + 1],
            next: vec![NONE; pages as usize],
            prev: vec![NONE; pages as usize],
            order: vec![NOT_FREE; pages as usize],
            used: Bitmap::new(blocks),
            free: 0,
            allocated: 0,
        };
        // From the end, so that the lowest is given out first.
        for page in (0..pages).step_by(1 << MAX_ORDER).rev() {
            buddy.push(page, MAX_ORDER, false);
        }
        buddy
    }

    /// How much is free.
    pub fn free_memory(&self) -> FreeMemory {
        let huge = (HINT_ORDER..=MAX_ORDER).map(|order| u64::from(self.counts[order]) << order).sum::<u64>();
        FreeMemory {
            total: self.order.len() as u64 * 4096,
            free: self.free * 4096,
            free_huge: huge * 4096,
            allocated_pages: Some(self.allocated),
        }
    }

    /// Whether a page is free.
    pub fn is_free(&self, page: u32) -> bool {
        self.free_block_of(page, 0).is_some()
    }

    /// The free block of `least` order or more that a page is in: its first page and its order.
    fn free_block_of(&self, page: u32, least: usize) -> Option<(u32, usize)> {
        (least..=MAX_ORDER)
            .map(|order| (page & !((1 << order) - 1), order))
            .find(|(first, order)| self.order.get(*first as usize) == Some(&(*order as u8)))
    }

    /// Free blocks of an order, in their list.
    pub const fn count(&self, order: usize) -> u32 {
        self.counts[order]
    }

    /// Gives out 2^`order` pages.
    pub(crate) fn alloc(&mut self, order: usize) -> Option<u32> {
        let found = (order..=MAX_ORDER).find(|o| self.heads[*o] != NONE)?;
        let page = self.heads[found];
        self.remove(page, found);
        self.split(page, found, page, order);
        self.allocated += 1 << order;
        // What is smaller than a block spoils all of it.
        let block = u64::from(page >> HINT_ORDER);
        for b in block..block + (1u64 << order.saturating_sub(HINT_ORDER)) {
            self.used.put(b, true);
        }
        Some(page)
    }

    /// Takes pages back, to be given out next.
    pub(crate) fn free_pages(&mut self, page: u32, order: usize) {
        self.join(page, order, false);
    }

    /// Takes pages back that are to be given out last, as memory is that comes online.
    pub fn online(&mut self, page: u32, order: usize) {
        self.join(page, order, true);
    }

    fn join(&mut self, page: u32, order: usize, last: bool) {
        let (mut page, mut order) = (page, order);
        while order < MAX_ORDER {
            let other = page ^ (1 << order);
            if self.order.get(other as usize) != Some(&(order as u8)) {
                break;
            }
            self.remove(other, order);
            page = page.min(other);
            order += 1;
        }
        self.push(page, order, last);
    }

    /// Takes a certain block of [`HINT_ORDER`] away if it is free as a whole. It does not count as used by that.
    pub fn take(&mut self, block: u32) -> bool {
        let page = block << HINT_ORDER;
        let Some((first, order)) = self.free_block_of(page, HINT_ORDER) else { return false };
        self.remove(first, order);
        self.split(first, order, page, HINT_ORDER);
        true
    }

    /// Blocks of [`HINT_ORDER`] that were used since they were last asked for.
    pub(crate) fn take_used(&mut self) -> Vec<u32> {
        let used = self.used.set_from(0).map(|b| b as u32).collect();
        self.used.clear();
        used
    }

    /// The free blocks of an order, last freed first.
    pub fn list(&self, order: usize) -> Vec<u32> {
        let mut pages = Vec::new();
        let mut at = self.heads[order];
        while at != NONE {
            pages.push(at);
            at = self.next[at as usize];
        }
        pages
    }

    /// Of the block at `first` keeps what is not the block of `order` at `page`.
    fn split(&mut self, first: u32, from: usize, page: u32, order: usize) {
        let mut first = first;
        for half in (order..from).rev() {
            let upper = first + (1 << half);
            if page >= upper {
                self.push(first, half, false);
                first = upper;
            } else {
                self.push(upper, half, false);
            }
        }
    }

    fn push(&mut self, page: u32, order: usize, last: bool) {
        let (head, tail) = (self.heads[order], self.tails[order]);
        let (prev, next) = if last { (tail, NONE) } else { (NONE, head) };
        self.link(prev, page, order);
        self.link(page, next, order);
        self.order[page as usize] = order as u8;
        self.counts[order] += 1;
        self.free += 1 << order;
    }

    /// Makes `next` follow `prev` in the list of an order; `NONE` is before the first and after the last.
    fn link(&mut self, prev: u32, next: u32, order: usize) {
        match prev {
            NONE => self.heads[order] = next,
            prev => self.next[prev as usize] = next,
        }
        match next {
            NONE => self.tails[order] = prev,
            next => self.prev[next as usize] = prev,
        }
    }

    fn remove(&mut self, page: u32, order: usize) {
        let (prev, next) = (self.prev[page as usize], self.next[page as usize]);
        self.link(prev, next, order);
        self.order[page as usize] = NOT_FREE;
        self.counts[order] -= 1;
        self.free -= 1 << order;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGES: u32 = 4 << MAX_ORDER;

    proptest! {
        /// Nothing is given out twice, nothing is lost, and all joins again.
        #[test]
        fn pages_have_one_owner(ops in prop::collection::vec((0usize..=MAX_ORDER, any::<bool>(), any::<prop::sample::Index>()), 0..200)) {
            let mut buddy = Buddy::new(PAGES);
            let mut held: Vec<(u32, usize)> = vec![];
            for (order, alloc, which) in ops {
                if alloc {
                    if let Some(page) = buddy.alloc(order) {
                        prop_assert_eq!(page % (1 << order), 0);
                        held.push((page, order));
                    }
                } else if order == 0 {
                    let block = which.index((PAGES >> HINT_ORDER) as usize) as u32;
                    let pages = block << HINT_ORDER..(block + 1) << HINT_ORDER;
                    let free = !held.iter().any(|(p, o)| p + (1 << o) > pages.start && *p < pages.end);
                    prop_assert_eq!(buddy.take(block), free);
                    if free { held.push((pages.start, HINT_ORDER)) }
                } else if !held.is_empty() {
                    let (page, order) = held.swap_remove(which.index(held.len()));
                    if page % 2 == 0 { buddy.free_pages(page, order) } else { buddy.online(page, order) }
                }
                let pages: Vec<u32> = held.iter().flat_map(|(p, o)| *p..*p + (1 << o)).collect();
                let set: BTreeSet<u32> = pages.iter().copied().collect();
                prop_assert_eq!(set.len(), pages.len());
                prop_assert_eq!(buddy.free, u64::from(PAGES) - set.len() as u64);
                prop_assert!((0..PAGES).step_by(97).all(|page| buddy.is_free(page) != set.contains(&page)));
                let listed: u64 = (0..=MAX_ORDER).map(|o| buddy.list(o).len() as u64 * (1 << o)).sum();
                prop_assert_eq!(listed, buddy.free);
            }
            for (page, order) in held {
                buddy.free_pages(page, order);
            }
            prop_assert_eq!(buddy.count(MAX_ORDER), 4);
        }
    }

    #[test]
    fn what_was_used_is_told_by_whole_blocks() {
        let mut buddy = Buddy::new(PAGES);
        assert_eq!(buddy.take_used(), [0u32; 0]);
        let page = buddy.alloc(0).unwrap();
        assert_eq!(buddy.take_used(), [0]);
        assert_eq!(buddy.take_used(), [0u32; 0]);
        buddy.free_pages(page, 0);
        assert_eq!(buddy.take_used(), [0u32; 0], "freed is not used");
        assert!(buddy.take(1));
        assert_eq!(buddy.take_used(), [0u32; 0], "nor is what is taken to be reported");
    }

    #[test]
    fn memory_that_comes_online_is_given_out_last() {
        let mut buddy = Buddy::new(PAGES);
        let first = buddy.alloc(MAX_ORDER).unwrap();
        buddy.online(first, MAX_ORDER);
        let rest: Vec<u32> = (0..4).map(|_| buddy.alloc(MAX_ORDER).unwrap()).collect();
        assert_eq!((rest[3], rest.contains(&first)), (first, true));
        buddy.free_pages(rest[1], MAX_ORDER);
        buddy.free_pages(first, MAX_ORDER);
        assert_eq!(buddy.alloc(MAX_ORDER), Some(first), "what was freed last is given out first");
    }
}
