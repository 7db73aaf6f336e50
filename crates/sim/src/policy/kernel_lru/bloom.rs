//! The filter that remembers which page tables were worth reading.

const BITS_LOG2: u32 = 15;
const WORDS: usize = 1 << (BITS_LOG2 - 6);
/// The golden ratio's fraction in 64 bits, as the kernel hashes pointers with.
const GOLDEN: u64 = 0x61C8_8646_80B5_83EB;

/// A Bloom filter of 32768 bits with two keys: it may say yes too often, never no too often.
#[derive(Debug, Clone)]
pub(crate) struct Bloom(Box<[u64; WORDS]>);

impl Default for Bloom {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

fn keys(item: u64) -> [usize; 2] {
    let hash = (item.wrapping_mul(GOLDEN) >> 34) as usize;
    [hash & ((1 << BITS_LOG2) - 1), hash >> BITS_LOG2]
}

impl Bloom {
    pub fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Adds an item. False if it (or one that looks like it) was there.
    pub fn insert(&mut self, item: u64) -> bool {
        let known = self.contains(item);
        for key in keys(item) {
            self.0[key / 64] |= 1 << (key % 64);
        }
        !known
    }

    /// Whether the item may have been added.
    pub fn contains(&self, item: u64) -> bool {
        keys(item).iter().all(|key| self.0[key / 64] >> (key % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn false_positives(n: usize) -> f64 {
        let mut rng = fastrand::Rng::with_seed(1);
        let items: Vec<u64> = (0..n).map(|_| rng.u64(..)).collect();
        let mut bloom = Bloom::default();
        items.iter().for_each(|&item| _ = bloom.insert(item));
        assert!(items.iter().all(|&item| bloom.contains(item)), "what was added is contained");
        (0..10_000).filter(|_| bloom.contains(rng.u64(..))).count() as f64 / 10_000.0
    }

    #[test]
    fn false_positives_are_as_many_as_they_should_be() {
        assert!((0.15..0.27).contains(&false_positives(10_000)));
        assert!((0.42..0.58).contains(&false_positives(20_000)));
    }

    #[test]
    fn clearing_forgets() {
        let mut bloom = Bloom::default();
        assert!(bloom.insert(7));
        assert!(!bloom.insert(7));
        bloom.clear();
        assert!(!bloom.contains(7));
    }
}
