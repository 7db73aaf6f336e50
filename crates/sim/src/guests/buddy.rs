//! A buddy allocator as Linux has it: free memory in blocks of powers of two, split when less is needed, joined with their buddies
//! when both are free. The last freed is the first given out.

use isotherm_core::hint::Bitmap;

/// The largest order of a block: 4 MiB, Linux's MAX_PAGE_ORDER.
pub const MAX_ORDER: usize = 10;
/// The order that hints speak of: 2 MiB.
pub const HINT_ORDER: usize = 9;
const NONE: u32 = u32::MAX;
/// In `order`: not the first page of a free block.
const NOT_FREE: u8 = u8::MAX;

/// A guest's free memory.
#[derive(Debug, Clone)]
pub struct Buddy {
    /// First free block of each order.
    heads: [u32; MAX_ORDER + 1],
    counts: [u32; MAX_ORDER + 1],
    next: Vec<u32>,
    prev: Vec<u32>,
    /// Of the first page of each free block.
    order: Vec<u8>,
    /// Blocks of [`HINT_ORDER`] given out, as a whole or in part, since they were last asked for.
    used: Bitmap,
    /// Blocks of [`HINT_ORDER`] that came free as a whole since they were last asked for.
    freed: Bitmap,
    free: u64,
}

impl Buddy {
    /// `pages` pages, all free; a multiple of the largest block.
    pub fn new(pages: u32) -> Self {
        assert!(pages.is_multiple_of(1 << MAX_ORDER), "{pages} pages are no multiple of the largest block");
        let blocks = u64::from(pages >> HINT_ORDER);
        let mut buddy = Self {
            heads: [NONE; MAX_ORDER + 1],
            counts: [0; MAX_ORDER + 1],
            next: vec![NONE; pages as usize],
            prev: vec![NONE; pages as usize],
            order: vec![NOT_FREE; pages as usize],
            used: Bitmap::new(blocks),
            freed: Bitmap::new(blocks),
            free: 0,
        };
        // From the end, so that the lowest is given out first.
        for page in (0..pages).step_by(1 << MAX_ORDER).rev() {
            buddy.push(page, MAX_ORDER);
        }
        buddy
    }

    /// Free pages.
    pub const fn free(&self) -> u64 {
        self.free
    }

    /// Free blocks of an order, in their list.
    pub const fn count(&self, order: usize) -> u32 {
        self.counts[order]
    }

    /// Gives out 2^`order` pages.
    pub fn alloc(&mut self, order: usize) -> Option<u32> {
        let found = (order..=MAX_ORDER).find(|o| self.heads[*o] != NONE)?;
        let page = self.heads[found];
        self.remove(page, found);
        self.split(page, found, page, order);
        // What is smaller than a block spoils all of it.
        let block = u64::from(page >> HINT_ORDER);
        for b in block..block + (1u64 << order.saturating_sub(HINT_ORDER)) {
            self.used.put(b, true);
            self.freed.put(b, false);
        }
        Some(page)
    }

    /// Takes pages back.
    pub fn free_pages(&mut self, page: u32, order: usize) {
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
        self.push(page, order);
    }

    /// Takes a certain block of [`HINT_ORDER`] away if it is free as a whole. It does not count as used by that.
    pub fn take(&mut self, block: u32) -> bool {
        let page = block << HINT_ORDER;
        for order in HINT_ORDER..=MAX_ORDER {
            let first = page & !((1 << order) - 1);
            if self.order.get(first as usize) == Some(&(order as u8)) {
                self.remove(first, order);
                self.split(first, order, page, HINT_ORDER);
                return true;
            }
        }
        false
    }

    /// What happened to blocks of [`HINT_ORDER`] since the last time: those that were used, and those that came free as a whole.
    pub fn news(&mut self) -> (Vec<u32>, Vec<u32>) {
        let all = |map: &mut Bitmap| {
            let set = map.set_from(0).map(|b| b as u32).collect();
            map.clear();
            set
        };
        (all(&mut self.used), all(&mut self.freed))
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
                self.push(first, half);
                first = upper;
            } else {
                self.push(upper, half);
            }
        }
    }

    fn push(&mut self, page: u32, order: usize) {
        let head = self.heads[order];
        self.next[page as usize] = head;
        self.prev[page as usize] = NONE;
        if head != NONE {
            self.prev[head as usize] = page;
        }
        self.heads[order] = page;
        self.order[page as usize] = order as u8;
        self.counts[order] += 1;
        self.free += 1 << order;
        if order >= HINT_ORDER {
            let block = u64::from(page >> HINT_ORDER);
            (block..block + (1 << (order - HINT_ORDER))).for_each(|b| {
                self.freed.put(b, true);
            });
        }
    }

    fn remove(&mut self, page: u32, order: usize) {
        let (prev, next) = (self.prev[page as usize], self.next[page as usize]);
        if prev == NONE {
            self.heads[order] = next
        } else {
            self.next[prev as usize] = next
        }
        if next != NONE {
            self.prev[next as usize] = prev;
        }
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
                    buddy.free_pages(page, order);
                }
                let pages: Vec<u32> = held.iter().flat_map(|(p, o)| *p..*p + (1 << o)).collect();
                let set: BTreeSet<u32> = pages.iter().copied().collect();
                prop_assert_eq!(set.len(), pages.len());
                prop_assert_eq!(buddy.free(), u64::from(PAGES) - set.len() as u64);
                let listed: u64 = (0..=MAX_ORDER).map(|o| buddy.list(o).len() as u64 * (1 << o)).sum();
                prop_assert_eq!(listed, buddy.free());
            }
            for (page, order) in held {
                buddy.free_pages(page, order);
            }
            prop_assert_eq!(buddy.count(MAX_ORDER), 4);
        }
    }

    #[test]
    fn news_tell_of_whole_blocks() {
        let mut buddy = Buddy::new(PAGES);
        let (used, freed) = buddy.news();
        assert_eq!((used.len(), freed.len()), (0, 8), "all are free at the beginning");
        let page = buddy.alloc(0).unwrap();
        assert_eq!(buddy.news(), (vec![0], vec![1]), "the other half of the largest block comes free on its own");
        assert_eq!(buddy.news(), (vec![], vec![]));
        buddy.free_pages(page, 0);
        assert_eq!(buddy.news().1, [0, 1]);
    }
}
