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

/// Numbers in order of appearance: open addressing, at most half full, 32 to 64 bytes a page while reading and 8 after.
#[derive(Debug)]
pub struct Ids {
    slots: Vec<(u64, u32)>,
    shift: u32,
    names: Vec<u64>,
}

impl Ids {
    /// No name yet.
    pub fn new() -> Self {
        Self::with_slots(10)
    }

    fn with_slots(bits: u32) -> Self {
        Self { slots: vec![(0, EMPTY); 1 << bits], shift: 64 - bits, names: Vec::new() }
    }

    /// The number of `name`, whose [`hash`] is `hash`; `None`: there are too many.
    #[inline]
    pub fn number(&mut self, name: u64, hash: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        loop {
            let (there, number) = self.slots[at & mask];
            if number == EMPTY {
                return self.add(at & mask, name);
            }
            if there == name {
                return Some(number);
            }
            at += 1;
        }
    }

    #[cold]
    fn add(&mut self, at: usize, name: u64) -> Option<u32> {
        let number = self.names.len() as u32;
        if number == MOST_PAGES {
            return None;
        }
        self.slots[at] = (name, number);
        self.names.push(name);
        if self.names.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(number)
    }

    fn grow(&mut self) {
        let mut larger = Self::with_slots(64 - self.shift + 1);
        let mask = larger.slots.len() - 1;
        for (number, &name) in self.names.iter().enumerate() {
            let mut at = (hash(name) >> larger.shift) as usize;
            while larger.slots[at & mask].1 != EMPTY {
                at += 1;
            }
            larger.slots[at & mask] = (name, number as u32);
        }
        self.slots = larger.slots;
        self.shift = larger.shift;
    }

    /// All names, by number.
    pub fn into_names(mut self) -> Vec<u64> {
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
}
