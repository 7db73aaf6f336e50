//! A bit a block.

/// A bitmap of fixed length that knows how many of its bits are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    len: u64,
    count: u64,
}

impl Bitmap {
    /// `len` bits, none set.
    pub fn new(len: u64) -> Self {
        Self { words: vec![0; len.div_ceil(64) as usize], len, count: 0 }
    }

    /// How many bits there are.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// How many are set.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Whether a bit is set; those beyond the end are not.
    pub fn get(&self, at: u64) -> bool {
        at < self.len && self.words[(at / 64) as usize] & (1 << (at % 64)) != 0
    }

    /// Sets or clears a bit and tells whether that changed it. Beyond the end nothing happens.
    pub fn put(&mut self, at: u64, value: bool) -> bool {
        if at >= self.len || self.get(at) == value {
            return false;
        }
        self.words[(at / 64) as usize] ^= 1 << (at % 64);
        if value {
            self.count += 1
        } else {
            self.count -= 1
        }
        true
    }

    /// Clears all.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The set bits from `from` on.
    pub fn set_from(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        let mut at = self.next_set(from);
        std::iter::from_fn(move || {
            let found = at?;
            at = self.next_set(found + 1);
            Some(found)
        })
    }

    /// The first set bit at `from` or later.
    pub(super) fn next_set(&self, from: u64) -> Option<u64> {
        if from >= self.len {
            return None;
        }
        let first = (from / 64) as usize;
        let mut word = self.words[first] & (u64::MAX << (from % 64));
        for index in first.. {
            if word != 0 {
                return Some(index as u64 * 64 + u64::from(word.trailing_zeros()));
            }
            word = *self.words.get(index + 1)?;
        }
        None
    }

    /// Makes it at least `len` bits long; the new ones are not set.
    pub(super) fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
        self.words.resize(self.len.div_ceil(64) as usize, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_list_of_bits(ops in prop::collection::vec((0u64..200, any::<bool>()), 0..300), len in 0u64..200, more in 0u64..300) {
            let (mut map, mut model) = (Bitmap::new(len), vec![false; len as usize]);
            for (at, value) in ops {
                let changed = model.get_mut(at as usize).is_some_and(|bit| std::mem::replace(bit, value) != value);
                prop_assert_eq!(map.put(at, value), changed);
            }
            let set: Vec<u64> = (0..len).filter(|at| model[*at as usize]).collect();
            prop_assert_eq!(map.count(), set.len() as u64);
            prop_assert_eq!(map.set_from(0).collect::<Vec<_>>(), set);
            prop_assert!((0..220).all(|at| map.get(at) == model.get(at as usize).copied().unwrap_or(false)));
            let count = map.count();
            map.grow(more);
            prop_assert_eq!((map.count(), map.len(), map.set_from(len).count()), (count, len.max(more), 0));
            prop_assert_eq!(map.put(more, true), more < len.max(more) && model.get(more as usize) != Some(&true));
            map.clear();
            prop_assert_eq!((map.count(), map.next_set(0)), (0, None));
        }
    }
}
