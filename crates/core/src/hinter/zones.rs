//! All zones: memory comes and goes.

use super::block::Block;
use super::zone::Zone;

/// Zones by address, without overlaps; two that touch are one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zones {
    zones: Vec<Zone>,
}

impl Zones {
    /// The zones.
    pub fn iter(&self) -> impl Iterator<Item = &Zone> {
        self.zones.iter()
    }

    /// Adds the blocks `[first, end)`; of those that were there already everything is kept.
    pub fn add(&mut self, first: u64, end: u64) {
        let mut at = first;
        let mut new = Vec::new();
        for zone in &self.zones {
            if zone.first() > at && at < end {
                new.push(Zone::new(at, zone.first().min(end)));
            }
            at = at.max(zone.end());
        }
        if at < end {
            new.push(Zone::new(at, end));
        }
        self.zones.append(&mut new);
        self.zones.sort_unstable_by_key(Zone::first);
        self.zones = std::mem::take(&mut self.zones).into_iter().fold(Vec::new(), |mut zones: Vec<Zone>, zone| {
            match zones.last_mut() {
                Some(last) if last.end() == zone.first() => last.append(&zone),
                _ => zones.push(zone),
            }
            zones
        });
    }

    /// Forgets the blocks `[first, end)`.
    pub fn remove(&mut self, first: u64, end: u64) {
        let parts = self.zones.iter().flat_map(|zone| {
            let before = (zone.first(), zone.end().min(first));
            let after = (zone.first().max(end), zone.end());
            [before, after].into_iter().filter(|(a, b)| a < b).map(move |(a, b)| zone.part(a, b))
        });
        // An empty stretch would keep what lies on both sides of it twice.
        if first < end {
            self.zones = parts.collect();
        }
    }

    /// Number of blocks.
    pub fn len(&self) -> u64 {
        self.zones.iter().map(|zone| zone.end() - zone.first()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    /// Blocks that are free and to be reported.
    pub fn nr_free(&self) -> u64 {
        self.zones.iter().map(Zone::nr_free).sum()
    }

    /// Blocks that the other side has dropped and that were not used since.
    pub fn nr_reported(&self) -> u64 {
        self.zones.iter().map(Zone::nr_reported).sum()
    }

    /// Whether there is such a block.
    pub fn contains(&self, block: Block) -> bool {
        self.find(block).is_some()
    }

    /// Whether the block is free and to be reported.
    pub fn is_free(&self, block: Block) -> bool {
        self.find(block).is_some_and(|zone| zone.free.get(zone.place(block.0)))
    }

    /// Whether the other side has dropped the block and it was not used since.
    pub fn is_reported(&self, block: Block) -> bool {
        self.find(block).is_some_and(|zone| zone.reported.get(zone.place(block.0)))
    }

    /// The block is free: it is to be reported, unless it was already. Tells whether that is news.
    pub(super) fn freed(&mut self, block: Block) -> bool {
        self.with(block, |zone, at| !zone.reported.get(at) && zone.free.put(at, true)).unwrap_or(false)
    }

    /// The block is in use, or was.
    pub(super) fn used(&mut self, block: Block) {
        self.with(block, |zone, at| {
            zone.free.put(at, false);
            zone.reported.put(at, false);
            zone.refused.put(at, false);
        });
    }

    /// The other side has dropped it.
    pub(super) fn dropped(&mut self, block: Block) {
        self.with(block, |zone, at| {
            zone.free.put(at, false);
            zone.reported.put(at, true);
        });
    }

    /// It could not be had, or the other side did not want it: not to be tried for a while.
    pub(super) fn refused(&mut self, block: Block) {
        self.with(block, |zone, at| zone.refused.put(at, true));
    }

    /// All may be tried again.
    pub(super) fn forgive(&mut self) {
        self.zones.iter_mut().for_each(|zone| zone.refused.clear());
    }

    /// Nothing counts as dropped any more; what was, is to be reported again.
    pub(super) fn forget_reported(&mut self) {
        for zone in &mut self.zones {
            for at in zone.reported.set_from(0).collect::<Vec<_>>() {
                zone.free.put(at, true);
            }
            zone.reported.clear();
        }
    }

    /// Candidates from block `from` on and then around, each once, at most `most`.
    pub(super) fn candidates(&self, from: u64, most: usize) -> Vec<Block> {
        let mut found = Vec::new();
        for (begin, end) in [(from, u64::MAX), (0, from)] {
            for zone in self.zones.iter().filter(|zone| zone.end() > begin && zone.first() < end) {
                let mut at = begin;
                while found.len() < most {
                    match zone.next_candidate(at) {
                        Some(block) if block < end => {
                            found.push(Block(block));
                            at = block + 1;
                        }
                        _ => break,
                    }
                }
            }
        }
        found
    }

    /// Groups of `unit` blocks, aligned and whole, with at least `worth` candidates: those with the most first, at most `most`.
    pub(super) fn units(&self, unit: u64, worth: u64, most: usize) -> Vec<Block> {
        let mut units: Vec<(u64, u64)> = Vec::new();
        for zone in &self.zones {
            let mut at = zone.first();
            while let Some(block) = zone.next_candidate(at) {
                let first = block / unit * unit;
                let next = first.saturating_add(unit);
                if zone.first() <= first && next <= zone.end() {
                    let free = zone.free.set_from(zone.place(first)).take_while(|at| *at < zone.place(next));
                    units.push((free.filter(|at| !zone.refused.get(*at)).count() as u64, first));
                }
                at = next;
            }
        }
        units.retain(|(count, _)| *count >= worth.max(1));
        units.sort_unstable_by_key(|(count, first)| (std::cmp::Reverse(*count), *first));
        units.into_iter().take(most).map(|(_, first)| Block(first)).collect()
    }

    fn find(&self, block: Block) -> Option<&Zone> {
        let index = self.zones.partition_point(|zone| zone.end() <= block.0);
        self.zones.get(index).filter(|zone| zone.contains(block.0))
    }

    fn with<T>(&mut self, block: Block, change: impl FnOnce(&mut Zone, u64) -> T) -> Option<T> {
        let index = self.zones.partition_point(|zone| zone.end() <= block.0);
        let zone = self.zones.get_mut(index).filter(|zone| zone.contains(block.0))?;
        let place = zone.place(block.0);
        Some(change(zone, place))
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
        fn zones_are_a_map_of_blocks(ops in prop::collection::vec(arb_op(), 0..80), from in 0u64..200, most in 0usize..20) {
            let (mut zones, mut model) = (Zones::default(), BTreeMap::<u64, (bool, bool, bool)>::new());
            for op in ops {
                match op {
                    Op::Add(a, b) => {
                        zones.add(a, b);
                        (a..b).for_each(|block| { model.entry(block).or_default(); });
                    }
                    Op::Remove(a, b) => {
                        zones.remove(a, b);
                        model.retain(|block, _| !(a..b).contains(block));
                    }
                    Op::Freed(b) => {
                        let news = zones.freed(Block(b));
                        let entry = model.get_mut(&b).filter(|e| !e.1 && !e.0);
                        prop_assert_eq!(news, entry.is_some());
                        if let Some(e) = entry { e.0 = true }
                    }
                    Op::Used(b) => {
                        zones.used(Block(b));
                        if let Some(e) = model.get_mut(&b) { *e = (false, false, false) }
                    }
                    Op::Dropped(b) => {
                        zones.dropped(Block(b));
                        if let Some(e) = model.get_mut(&b) { (e.0, e.1) = (false, true) }
                    }
                    Op::Refused(b) => {
                        zones.refused(Block(b));
                        if let Some(e) = model.get_mut(&b) { e.2 = true }
                    }
                }
                let gaps = zones.iter().zip(zones.iter().skip(1)).all(|(a, b)| a.end() < b.first());
                prop_assert!(gaps, "zones touch or overlap: {:?}", zones);
            }
            prop_assert_eq!(zones.len(), model.len() as u64);
            prop_assert_eq!(zones.nr_free(), model.values().filter(|e| e.0).count() as u64);
            prop_assert_eq!(zones.nr_reported(), model.values().filter(|e| e.1).count() as u64);
            for block in 0..230 {
                prop_assert_eq!(zones.contains(Block(block)), model.contains_key(&block));
                prop_assert_eq!(zones.is_free(Block(block)), model.get(&block).is_some_and(|e| e.0));
                prop_assert_eq!(zones.is_reported(Block(block)), model.get(&block).is_some_and(|e| e.1));
            }
            let candidate = |b: &u64| model.get(b).is_some_and(|e| e.0 && !e.2);
            let expected: Vec<Block> = (from..300).chain(0..from).filter(candidate).take(most).map(Block).collect();
            prop_assert_eq!(zones.candidates(from, most), expected);
            let mut units: Vec<(u64, u64)> = (0..300u64).step_by(8).filter(|first| (*first..first + 8).all(|b| model.contains_key(&b)))
                .map(|first| ((first..first + 8).filter(candidate).count() as u64, first)).filter(|u| u.0 >= 2).collect();
            units.sort_by_key(|u| (u64::MAX - u.0, u.1));
            let units: Vec<Block> = units.into_iter().take(most).map(|u| Block(u.1)).collect();
            prop_assert_eq!(zones.units(8, 2, most), units);
            zones.forget_reported();
            prop_assert_eq!(zones.nr_free(), model.values().filter(|e| e.0 || e.1).count() as u64);
            zones.forgive();
            prop_assert_eq!(zones.candidates(0, 1000).len() as u64, zones.nr_free());
        }
    }
}
