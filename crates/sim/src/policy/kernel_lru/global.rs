//! Reclaim for the sake of the whole machine: whose turn it is, what becomes of them, and when it stops.

use isotherm_core::keeper::memcg_lru::{BINS, MemcgLru, Move, Segment};

/// How a memory is protected at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    /// Not at all.
    #[default]
    None,
    /// It holds less than its `memory.low`: only if nothing else is left.
    Low,
    /// It holds less than its `memory.min`: never.
    Min,
}

/// What reclaim wants to know of a memory, and asks of it.
pub trait Memories {
    /// Whether a memory is protected.
    fn protection(&self, id: u32) -> Protection;

    /// Pages that could be evicted.
    fn evictable(&self, id: u32) -> u64;

    /// Evicts what the priority demands. The pages evicted, and whether the memory was aged instead.
    fn shrink(&mut self, id: u32, priority: u32) -> (u64, bool);

    /// It was reclaimed below its `memory.low`.
    fn low_event(&mut self, _id: u32) {}
}

/// One memory's turn. What it was evicted of, and where it goes.
fn turn<M: Memories>(lru: &MemcgLru, memories: &mut M, id: u32, priority: u32) -> (u64, Option<Move>) {
    let tried = lru.segment(id) == Some(Segment::Tail);
    match memories.protection(id) {
        Protection::Min => return (0, Some(Move::Young)),
        Protection::Low if !tried => return (0, Some(Move::Tail)),
        Protection::Low => memories.low_event(id),
        Protection::None => {}
    }
    let (reclaimed, aged) = memories.shrink(id, priority);
    let op = if aged {
        Some(Move::Young)
    } else if memories.evictable(id) >> priority > 0 {
        None
    } else if tried {
        Some(Move::Young)
    } else {
        Some(Move::Tail)
    };
    (reclaimed, op)
}

/// Goes through the old generation at one priority until `wanted` pages are evicted. How many were.
pub(crate) fn shrink_many<M: Memories>(lru: &mut MemcgLru, memories: &mut M, priority: u32, wanted: u64) -> u64 {
    let first = lru.random_bin();
    let (generation, mut reclaimed) = (lru.seq(), 0);
    for step in 0..BINS {
        // As they stand now: who is moved within the generation meanwhile comes again only if the bin is still ahead.
        let ids: Vec<u32> = lru.bin((first + step) % BINS).collect();
        for id in ids {
            let (pages, op) = turn(lru, memories, id, priority);
            reclaimed += pages;
            if let Some(op) = op {
                lru.apply(id, op);
            }
            if reclaimed >= wanted {
                return reclaimed;
            }
        }
        if lru.seq() != generation {
            break;
        }
    }
    reclaimed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memories that are aged at every third turn and otherwise give 64 pages.
    #[derive(Default)]
    struct Toy {
        left: Vec<u64>,
        given: Vec<u64>,
        turns: Vec<u32>,
        protected: Vec<Protection>,
        lows: u32,
    }

    impl Toy {
        fn new(sizes: &[u64]) -> (Self, MemcgLru) {
            let mut lru = MemcgLru::new(3);
            (0..sizes.len() as u32).for_each(|id| lru.add(id));
            let n = sizes.len();
            let toy = Self {
                left: sizes.to_vec(),
                given: vec![0; n],
                turns: vec![0; n],
                protected: vec![Protection::None; n],
                lows: 0,
            };
            (toy, lru)
        }
    }

    impl Memories for Toy {
        fn protection(&self, id: u32) -> Protection {
            self.protected[id as usize]
        }

        fn evictable(&self, id: u32) -> u64 {
            self.left[id as usize]
        }

        fn shrink(&mut self, id: u32, _priority: u32) -> (u64, bool) {
            let id = id as usize;
            self.turns[id] += 1;
            if self.turns[id].is_multiple_of(3) {
                return (0, true);
            }
            let pages = self.left[id].min(64);
            self.left[id] -= pages;
            self.given[id] += pages;
            (pages, false)
        }

        fn low_event(&mut self, _id: u32) {
            self.lows += 1;
        }
    }

    #[test]
    fn all_give_about_as_much() {
        let (mut toy, mut lru) = Toy::new(&[1 << 20; 16]);
        for _ in 0..400 {
            shrink_many(&mut lru, &mut toy, 10, 64);
        }
        let (least, most) = (toy.given.iter().min().unwrap(), toy.given.iter().max().unwrap());
        assert!(most - least <= 4 * 64, "{:?}", toy.given);
    }

    #[test]
    fn what_is_protected_gives_nothing_or_last() {
        let (mut toy, mut lru) = Toy::new(&[1 << 20; 4]);
        toy.protected[1] = Protection::Min;
        toy.protected[2] = Protection::Low;
        for _ in 0..6 {
            shrink_many(&mut lru, &mut toy, 10, 64);
        }
        assert_eq!((toy.given[1], toy.turns[1]), (0, 0));
        assert!(toy.given[0] > 0 && toy.given[3] > 0);
        // Nobody else is there: the second attempt takes it, and says so.
        let (mut toy, mut lru) = Toy::new(&[1 << 20]);
        toy.protected[0] = Protection::Low;
        assert_eq!(shrink_many(&mut lru, &mut toy, 10, 64) + shrink_many(&mut lru, &mut toy, 10, 64), 64);
        assert_eq!(toy.lows, 1);
    }

    #[test]
    fn the_small_are_tried_once_more_and_then_left() {
        let (mut toy, mut lru) = Toy::new(&[100, 1 << 20]);
        toy.left[0] = 0;
        for _ in 0..3 {
            shrink_many(&mut lru, &mut toy, 10, u64::MAX);
        }
        assert!(toy.turns[0] >= 2, "{:?}", toy.turns);
        assert!(lru.seq() > 0 || !lru.is_old(0));
    }
}
