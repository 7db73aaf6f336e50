//! Dense numbers for the names of pages.

use super::MOST_PAGES;
use super::dense::{Dense, NO_NUMBER};

/// Spreads a name over all 64 bits (the finaliser of MurmurHash3: one-to-one, every bit depends on every bit).
#[inline]
pub fn hash(name: u64) -> u64 {
    let mut h = name.wrapping_add(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// Places of a bucket.
const PLACES: usize = 8;
/// Names that are looked up together.
pub const TOGETHER: usize = 32;

/// What [`Ids::find`] says where it finds none.
pub const NONE: [u32; TOGETHER] = [NO_NUMBER; TOGETHER];

/// A cache line of the table: numbers, and of each a part of its name's hash. Filled from the first place on.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Bucket {
    tags: [u32; PLACES],
    numbers: [u32; PLACES],
}

impl Bucket {
    const FREE: Self = Self { tags: [0; PLACES], numbers: [NO_NUMBER; PLACES] };

    /// Places whose tag this is, as bits; free ones may be among them.
    #[inline]
    fn alike(&self, tag: u32) -> u32 {
        self.tags.iter().enumerate().fold(0, |bits, (i, &other)| bits | u32::from(other == tag) << i)
    }

    /// The number at the first place whose tag this is. Without a branch, which would be foretold wrongly at every second name.
    #[inline]
    fn first(&self, tag: u32) -> u32 {
        let mut first = NO_NUMBER;
        for (&other, &number) in self.tags.iter().zip(&self.numbers).rev() {
            first = if other == tag { number } else { first };
        }
        first
    }

    fn is_full(&self) -> bool {
        self.numbers[PLACES - 1] != NO_NUMBER
    }
}

/// Numbers in order of appearance. As long as names lie close together, a table that they index; then a hash table of buckets, a name's
/// own or, where that is full, the next one, at most three quarters full. 4 to 24 bytes a page while reading, and 8 for its name.
#[derive(Debug)]
pub struct Ids {
    dense: Option<Dense>,
    buckets: Vec<Bucket>,
    shift: u32,
    names: Vec<u64>,
}

impl Ids {
    /// No name yet.
    pub fn new() -> Self {
        Self { dense: Some(Dense::default()), buckets: Vec::new(), shift: 64, names: Vec::new() }
    }

    /// The bucket of a name. A sample holds only names whose hash is small: its high bits alone would not do.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize & (self.buckets.len() - 1)
    }

    /// Numbers of names that were seen before and are easily found, [`Self::is_number`] of the others is false. Each step is done for all
    /// names before the next one, so that the processor fetches what they need at once and not one after the other.
    #[inline]
    pub fn find(&self, names: &[u64; TOGETHER]) -> [u32; TOGETHER] {
        let (mut hashes, mut numbers) = ([0; TOGETHER], NONE);
        if let Some(dense) = &self.dense {
            for (number, &name) in numbers.iter_mut().zip(names) {
                *number = dense.find(name);
            }
            return numbers;
        }
        for (hash, &name) in hashes.iter_mut().zip(names) {
            *hash = self::hash(name);
        }
        for (number, &hash) in numbers.iter_mut().zip(&hashes) {
            *number = self.buckets[self.place(hash)].first(hash as u32);
        }
        for (number, name) in numbers.iter_mut().zip(names) {
            if self.names.get(*number as usize) != Some(name) {
                *number = NO_NUMBER;
            }
        }
        numbers
    }

    /// Whether it is a number, not what [`Self::find`] says of a name that it did not find.
    #[inline]
    pub const fn is_number(found: u32) -> bool {
        found != NO_NUMBER
    }

    /// The number of `name`, whose [`hash`] is `hash`; `None`: there are too many.
    #[inline]
    pub fn number(&mut self, name: u64, hash: u64) -> Option<u32> {
        if let Some(dense) = &mut self.dense {
            let number = dense.find(name);
            if number != NO_NUMBER {
                return Some(number);
            }
            if dense.put(name, self.names.len() as u32) {
                return self.push(name);
            }
            self.dense = None;
            self.rehash(usize::BITS - (self.names.len() / PLACES).leading_zeros() + 1);
        }
        let mut at = self.place(hash);
        loop {
            let bucket = &self.buckets[at];
            let mut alike = bucket.alike(hash as u32);
            while alike != 0 {
                let number = bucket.numbers[alike.trailing_zeros() as usize];
                if self.names.get(number as usize) == Some(&name) {
                    return Some(number);
                }
                alike &= alike - 1;
            }
            if !bucket.is_full() {
                return self.add(at, name, hash);
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
    }

    #[cold]
    fn add(&mut self, at: usize, name: u64, hash: u64) -> Option<u32> {
        let number = self.push(name)?;
        self.put(at, number, hash);
        if self.names.len() * 4 > self.buckets.len() * PLACES * 3 {
            self.rehash(64 - self.shift + 1);
        }
        Some(number)
    }

    /// The next number, for a name that has none.
    fn push(&mut self, name: u64) -> Option<u32> {
        let number = self.names.len() as u32;
        (number < MOST_PAGES).then(|| {
            self.names.push(name);
            number
        })
    }

    /// Into the bucket at `at`, or the next one that has room.
    fn put(&mut self, mut at: usize, number: u32, hash: u64) {
        while self.buckets[at].is_full() {
            at = (at + 1) & (self.buckets.len() - 1);
        }
        let bucket = &mut self.buckets[at];
        let free = bucket.numbers.iter().position(|&number| number == NO_NUMBER).unwrap_or(0);
        (bucket.tags[free], bucket.numbers[free]) = (hash as u32, number);
    }

    /// All names into 2^`bits` buckets.
    fn rehash(&mut self, bits: u32) {
        (self.buckets, self.shift) = (vec![Bucket::FREE; 1 << bits], 64 - bits);
        let names = std::mem::take(&mut self.names);
        for (number, &name) in names.iter().enumerate() {
            let hash = hash(name);
            self.put(self.place(hash), number as u32, hash);
        }
        self.names = names;
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
        let names: Vec<u64> = map.keys().copied().chain(5_000_000..5_001_000).collect();
        for names in names.as_chunks::<TOGETHER>().0 {
            for (name, found) in names.iter().zip(ids.find(names)) {
                let wrong = Ids::is_number(found) && map.get(name) != Some(&found);
                assert!(!wrong, "{name} is said to be {found}");
            }
        }
        let found = names.as_chunks().0.iter().flat_map(|names| ids.find(names)).filter(|&n| Ids::is_number(n)).count();
        assert!(found * 10 > map.len() * 8, "only {found} of {} are found at once", map.len());
        assert!(ids.into_names().iter().enumerate().all(|(i, name)| map[name] == i as u32));
    }

    #[test]
    fn a_sample_of_small_hashes_does_not_pile_up() {
        let mut ids = Ids::new();
        let kept: Vec<u64> = (0..4_000_000).filter(|n| hash(*n) < u64::MAX / 100).collect();
        for (number, &name) in kept.iter().enumerate() {
            assert_eq!(ids.number(name, hash(name)), Some(number as u32));
        }
        let buckets = ids.buckets.iter().enumerate();
        let entries = buckets.flat_map(|(at, bucket)| bucket.numbers.iter().map(move |&number| (at, number)));
        let away = entries.filter_map(|(at, number)| {
            let name = *ids.names.get(number as usize)?;
            Some(at.wrapping_sub(ids.place(hash(name))) & (ids.buckets.len() - 1))
        });
        assert!(ids.dense.is_none(), "too far apart for a table");
        let farthest = away.max().expect("names");
        assert!(farthest < 20, "{farthest} buckets from where the search begins");
    }
}
