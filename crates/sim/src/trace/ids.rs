//! Dense numbers for the names of pages.

use super::MOST_PAGES;

/// Spreads a name over all 64 bits (the finaliser of MurmurHash3: one-to-one, every bit depends on every bit).
#[inline]
pub fn hash(name: u64) -> u64 {
    let mut h = name.wrapping_add(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

const EMPTY: u32 = u32::MAX;

/// A place of the table: a number, and bits of its name's hash that the place itself does not tell.
#[derive(Debug, Clone, Copy)]
struct Slot {
    tag: u32,
    number: u32,
}

/// Numbers in order of appearance: open addressing, at most two thirds full, 12 to 24 bytes a page while reading, and 8
/// for its name.
#[derive(Debug)]
pub struct Ids {
    slots: Vec<Slot>,
    shift: u32,
    names: Vec<u64>,
}

impl Ids {
    /// No name yet.
    pub fn new() -> Self {
        Self::with_slots(10)
    }

    fn with_slots(bits: u32) -> Self {
        Self { slots: vec![Slot { tag: 0, number: EMPTY }; 1 << bits], shift: 64 - bits, names: Vec::new() }
    }

    /// Where a name's search begins. A sample holds only names whose hash is small: its high bits alone would not do.
    #[inline]
    const fn place(&self, hash: u64) -> usize {
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Reads what looking these names up will need, so that the processor fetches all of it at once instead of one
    /// after the other. The result only keeps the compiler from leaving it out.
    #[inline]
    pub fn warm(&self, names: impl Iterator<Item = u64> + Clone) -> u64 {
        let mask = self.slots.len() - 1;
        let numbers = names.map(|name| self.slots[self.place(hash(name)) & mask].number as usize);
        let Some(last) = self.names.len().checked_sub(1) else { return 0 };
        numbers.fold(0, |sum, number| sum ^ self.names[number.min(last)])
    }

    /// The number of `name`, whose [`hash`] is `hash`; `None`: there are too many.
    #[inline]
    pub fn number(&mut self, name: u64, hash: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = self.place(hash);
        loop {
            let slot = self.slots[at & mask];
            if slot.number == EMPTY {
                return self.add(at & mask, name, hash);
            }
            // The tag keeps most strangers' names, which lie elsewhere, from being looked at.
            if slot.tag == hash as u32 && self.names[slot.number as usize] == name {
                return Some(slot.number);
            }
            at += 1;
        }
    }

    #[cold]
    fn add(&mut self, at: usize, name: u64, hash: u64) -> Option<u32> {
        let number = self.names.len() as u32;
        if number == MOST_PAGES {
            return None;
        }
        self.slots[at] = Slot { tag: hash as u32, number };
        self.names.push(name);
        if self.names.len() * 3 > self.slots.len() * 2 {
            self.grow();
        }
        Some(number)
    }

    fn grow(&mut self) {
        let mut larger = Self::with_slots(64 - self.shift + 1);
        let mask = larger.slots.len() - 1;
        for (number, &name) in self.names.iter().enumerate() {
            let hash = hash(name);
            let mut at = larger.place(hash);
            while larger.slots[at & mask].number != EMPTY {
                at += 1;
            }
            larger.slots[at & mask] = Slot { tag: hash as u32, number: number as u32 };
        }
        self.slots = larger.slots;
        self.shift = larger.shift;
    }

    /// All names, by number.
    pub(crate) fn into_names(mut self) -> Vec<u64> {
        self.names.shrink_to_fit();
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn numbers_like_a_map_does() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut ids, mut map) = (Ids::new(), HashMap::new());
        for _ in 0..100_000 {
            let name = match rng.u8(0..3) {
                0 => rng.u64(0..5000),
                1 => rng.u64(0..5000) << 40,
                _ => u64::MAX - rng.u64(0..5000),
            };
            let next = map.len() as u32;
            assert_eq!(ids.number(name, hash(name)), Some(*map.entry(name).or_insert(next)));
        }
        assert!(ids.into_names().iter().enumerate().all(|(i, name)| map[name] == i as u32));
    }

    #[test]
    fn a_sample_of_small_hashes_does_not_pile_up() {
        let mut ids = Ids::new();
        let kept: Vec<u64> = (0..4_000_000).filter(|n| hash(*n) < u64::MAX / 100).collect();
        for (number, &name) in kept.iter().enumerate() {
            assert_eq!(ids.number(name, hash(name)), Some(number as u32));
        }
        let away = |(at, slot): (usize, &Slot)| match ids.names.get(slot.number as usize) {
            Some(&name) => at.wrapping_sub(ids.place(hash(name))) & (ids.slots.len() - 1),
            None => 0,
        };
        let farthest = ids.slots.iter().enumerate().map(away).max().expect("slots");
        assert!(farthest < 100, "{farthest} places from where the search begins");
    }
}
