//! What is known of each block of memory.

use super::bitmap::Bitmap;
use super::block::Block;

/// A few bits a block, from address 0 to the end of memory: 64 KiB for each of them where that is at 1 TiB.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockMap {
    /// Is memory.
    present: Bitmap,
    /// Free, and not reported since it became so.
    free: Bitmap,
    /// Dropped by the host, and not used since.
    reported: Bitmap,
    /// Could not be had, or was refused; not tried for a while.
    refused: Bitmap,
}

impl BlockMap {
    /// Adds the blocks `[first, end)`; of those that were there already everything is kept.
    pub(super) fn add(&mut self, first: u64, end: u64) {
        for map in [&mut self.present, &mut self.free, &mut self.reported, &mut self.refused] {
            map.grow(end);
        }
        (first..end).for_each(|block| {
            self.present.put(block, true);
        });
    }

    /// Forgets the blocks `[first, end)`.
    pub(super) fn remove(&mut self, first: u64, end: u64) {
        for block in first..end.min(self.present.len()) {
            self.used(Block(block));
            self.present.put(block, false);
        }
    }

    /// The first block at `from` or later.
    pub(super) fn next(&self, from: u64) -> Option<Block> {
        self.present.next_set(from).map(Block)
    }

    /// Number of blocks.
    pub const fn len(&self) -> u64 {
        self.present.count()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks that are free and to be reported.
    pub const fn nr_free(&self) -> u64 {
        self.free.count()
    }

    /// Blocks that the host has dropped and that were not used since.
    pub const fn nr_reported(&self) -> u64 {
        self.reported.count()
    }

    /// Whether there is such a block.
    pub(super) fn contains(&self, block: Block) -> bool {
        self.present.get(block.0)
    }

    /// Whether the block is free and to be reported.
    #[cfg(test)]
    pub(super) fn is_free(&self, block: Block) -> bool {
        self.free.get(block.0)
    }

    /// Whether the host has dropped the block and it was not used since.
    pub(super) fn is_reported(&self, block: Block) -> bool {
        self.reported.get(block.0)
    }

    /// The block is free: it is to be reported, unless it was already. Tells whether that is news.
    pub(super) fn freed(&mut self, block: Block) -> bool {
        self.contains(block) && !self.is_reported(block) && self.free.put(block.0, true)
    }

    /// The block is in use, or was.
    pub(super) fn used(&mut self, block: Block) {
        for map in [&mut self.free, &mut self.reported, &mut self.refused] {
            map.put(block.0, false);
        }
    }

    /// The host has dropped it.
    pub(super) fn dropped(&mut self, block: Block) {
        if self.contains(block) {
            self.free.put(block.0, false);
            self.reported.put(block.0, true);
        }
    }

    /// It could not be had, or the host did not want it: not to be tried for a while.
    pub(super) fn refused(&mut self, block: Block) {
        if self.contains(block) {
            self.refused.put(block.0, true);
        }
    }

    /// All may be tried again.
    pub(super) fn forgive(&mut self) {
        self.refused.clear();
    }

    /// Nothing counts as dropped any more; what was, is to be reported again.
    pub(super) fn forget_reported(&mut self) {
        for block in self.reported.set_from(0) {
            self.free.put(block, true);
        }
        self.reported.clear();
    }

    /// Blocks that are to be reported and may be tried, from block `from` on and then around, each once, at most
    /// `most`.
    pub(super) fn candidates(&self, from: u64, most: usize) -> Vec<Block> {
        let around = self.candidates_from(0).take_while(|block| *block < from);
        self.candidates_from(from).chain(around).take(most).map(Block).collect()
    }

    /// Groups of `unit` blocks, aligned and whole, with at least `worth` candidates: those with the most first, at most
    /// `most`.
    pub(super) fn units(&self, unit: u64, worth: u64, most: usize) -> Vec<Block> {
        let mut units: Vec<(u64, u64)> = Vec::new();
        for first in self.candidates_from(0).map(|block| block / unit * unit) {
            match units.last_mut() {
                Some((count, last)) if *last == first => *count += 1,
                _ => units.push((1, first)),
            }
        }
        units.retain(|(count, first)| *count >= worth && (*first..first + unit).all(|block| self.present.get(block)));
        units.sort_unstable_by_key(|(count, first)| (std::cmp::Reverse(*count), *first));
        units.into_iter().take(most).map(|(_, first)| Block(first)).collect()
    }

    fn candidates_from(&self, from: u64) -> impl Iterator<Item = u64> {
        self.free.set_from(from).filter(|block| !self.refused.get(*block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Op {
        Add(u64, u64),
        Remove(u64, u64),
        Freed(u64),
        Used(u64),
        Dropped(u64),
        Refused(u64),
    }

    fn arb_op() -> impl Strategy<Value = Op> {
        let block = 0u64..150;
        prop_oneof![
            (block.clone(), 0u64..70).prop_map(|(a, n)| Op::Add(a, a + n)),
            (block.clone(), 0u64..70).prop_map(|(a, n)| Op::Remove(a, a + n)),
            block.clone().prop_map(Op::Freed),
            block.clone().prop_map(Op::Freed),
            block.clone().prop_map(Op::Freed),
            block.clone().prop_map(Op::Used),
            block.clone().prop_map(Op::Dropped),
            block.prop_map(Op::Refused),
        ]
    }

    proptest! {
        /// Against a map with an entry a block: (free, reported, refused).
        #[test]
        fn it_is_a_map_of_blocks(ops in prop::collection::vec(arb_op(), 0..80), from in 0u64..200, most in 0usize..20) {
            let (mut map, mut model) = (BlockMap::default(), BTreeMap::<u64, (bool, bool, bool)>::new());
            for op in ops {
                match op {
                    Op::Add(a, b) => {
                        map.add(a, b);
                        (a..b).for_each(|block| { model.entry(block).or_default(); });
                    }
                    Op::Remove(a, b) => {
                        map.remove(a, b);
                        model.retain(|block, _| !(a..b).contains(block));
                    }
                    Op::Freed(b) => {
                        let news = map.freed(Block(b));
                        let entry = model.get_mut(&b).filter(|e| !e.1 && !e.0);
                        prop_assert_eq!(news, entry.is_some());
                        if let Some(e) = entry { e.0 = true }
                    }
                    Op::Used(b) => {
                        map.used(Block(b));
                        if let Some(e) = model.get_mut(&b) { *e = (false, false, false) }
                    }
                    Op::Dropped(b) => {
                        map.dropped(Block(b));
                        if let Some(e) = model.get_mut(&b) { (e.0, e.1) = (false, true) }
                    }
                    Op::Refused(b) => {
                        map.refused(Block(b));
                        if let Some(e) = model.get_mut(&b) { e.2 = true }
                    }
                }
            }
            prop_assert_eq!(map.len(), model.len() as u64);
            prop_assert_eq!(map.nr_free(), model.values().filter(|e| e.0).count() as u64);
            prop_assert_eq!(map.nr_reported(), model.values().filter(|e| e.1).count() as u64);
            for block in 0..230 {
                prop_assert_eq!(map.contains(Block(block)), model.contains_key(&block));
                prop_assert_eq!(map.is_free(Block(block)), model.get(&block).is_some_and(|e| e.0));
                prop_assert_eq!(map.is_reported(Block(block)), model.get(&block).is_some_and(|e| e.1));
            }
            let candidate = |b: &u64| model.get(b).is_some_and(|e| e.0 && !e.2);
            let expected: Vec<Block> = (from..300).chain(0..from).filter(candidate).take(most).map(Block).collect();
            prop_assert_eq!(map.candidates(from, most), expected);
            let mut units: Vec<(u64, u64)> = (0..300u64).step_by(8).filter(|first| (*first..first + 8).all(|b| model.contains_key(&b)))
                .map(|first| ((first..first + 8).filter(candidate).count() as u64, first)).filter(|u| u.0 >= 2).collect();
            units.sort_by_key(|u| (u64::MAX - u.0, u.1));
            let units: Vec<Block> = units.into_iter().take(most).map(|u| Block(u.1)).collect();
            prop_assert_eq!(map.units(8, 2, most), units);
            map.forget_reported();
            prop_assert_eq!(map.nr_free(), model.values().filter(|e| e.0 || e.1).count() as u64);
            map.forgive();
            prop_assert_eq!(map.candidates(0, 1000).len() as u64, map.nr_free());
        }
    }
}
