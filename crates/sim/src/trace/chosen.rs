//! Pages of a range, chosen by a hash of their names: the same ones whatever the range, as many as a probability says.

use super::{Next, TraceError, ids};
use std::ops::Range;

/// With a smaller probability than this, blocks of pages are looked at instead of each page: a range may have billions,
/// of which a few are chosen.
const SPARSE: f64 = 1.0 / 64.0;
/// Page numbers have so many bits.
const PAGE_BITS: u32 = 52;

/// Which pages: with what probability, and the seed of the hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    seed: u64,
    /// In each aligned block of `1 << shift` pages one is a candidate ...
    shift: u32,
    /// ... and chosen if its hash is at most this.
    limit: u64,
}

impl Choice {
    /// Each page with this probability.
    pub fn new(probability: f64, seed: u64) -> Self {
        let shift = match probability {
            p if p >= SPARSE => 0,
            p if p > 0.0 => (-p.log2()).floor().min(f64::from(PAGE_BITS)) as u32,
            _ => PAGE_BITS,
        };
        let chance = probability * (1u64 << shift) as f64;
        // Hashes up to this are as many as the probability says.
        Self { seed, shift, limit: (chance * u64::MAX as f64) as u64 }
    }

    /// Whether its probability is the smaller one.
    pub const fn is_rarer_than(&self, other: &Self) -> bool {
        self.shift > other.shift || self.shift == other.shift && self.limit < other.limit
    }

    fn hash(&self, name: u64) -> u64 {
        ids::hash(name ^ self.seed)
    }

    /// Whether a page is chosen. `name` makes a name of its number.
    pub fn has(&self, page: u64, name: impl Fn(u64) -> u64 + Copy) -> bool {
        self.candidate(page >> self.shift, name) == page && self.hash(name(page)) <= self.limit
    }

    /// The candidate of a block. That of two blocks side by side is the candidate of one of them, so that with a smaller
    /// probability there are no others.
    fn candidate(&self, block: u64, name: impl Fn(u64) -> u64) -> u64 {
        (0..self.shift).rev().fold(block, |half, level| {
            let bit = ids::hash(self.hash(name(half)) ^ u64::from(level)) & 1;
            half << 1 | bit
        })
    }

    /// Hands out the chosen ones of `pages`, in order, until there are enough.
    pub fn each(
        &self,
        pages: Range<u64>,
        name: impl Fn(u64) -> u64 + Copy,
        mut f: impl FnMut(u64) -> Result<Next, TraceError>,
    ) -> Result<Next, TraceError> {
        if pages.is_empty() {
            return Ok(Next::More);
        }
        for block in pages.start >> self.shift..=(pages.end - 1) >> self.shift {
            let page = self.candidate(block, name);
            if pages.contains(&page) && self.hash(name(page)) <= self.limit && f(page)? == Next::Enough {
                return Ok(Next::Enough);
            }
        }
        Ok(Next::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(page: u64) -> u64 {
        3 << PAGE_BITS ^ page
    }

    fn chosen(choice: &Choice, pages: Range<u64>) -> Vec<u64> {
        let mut all = Vec::new();
        let add = |page| {
            all.push(page);
            Ok(Next::More)
        };
        choice.each(pages, name, add).unwrap();
        all
    }

    #[test]
    fn as_many_are_chosen_as_the_probability_says() {
        for (probability, pages) in
            [(0.3, 1 << 16), (1.0 / 64.0, 1 << 20), (0.001, 1 << 24), (1e-6, 1 << 34), (1.0, 99)]
        {
            let all = chosen(&Choice::new(probability, 7), 5..5 + pages);
            let expected = probability * pages as f64;
            let error = (all.len() as f64 - expected).abs();
            assert!(
                error <= 4.0 * expected.sqrt() * (1.0 - probability).sqrt(),
                "{probability}: {} {expected}",
                all.len()
            );
        }
        assert!(chosen(&Choice::new(0.0, 7), 0..1 << 51).is_empty());
    }

    #[test]
    fn it_ends_when_there_are_enough() {
        let mut seen = 0;
        let end = Choice::new(0.5, 7).each(0..1 << 50, name, |_| {
            seen += 1;
            Ok(if seen == 3 { Next::Enough } else { Next::More })
        });
        assert_eq!((end.unwrap(), seen), (Next::Enough, 3));
    }

    proptest! {
        #[test]
        fn the_same_are_chosen_whatever_the_range(
            probability in prop_oneof![0.0..0.002f64, 0.0..1.0f64], seed: u64, start in 0u64..1 << 40, cut in 0u64..5000,
        ) {
            let choice = Choice::new(probability, seed);
            let all = chosen(&choice, start..start + 5000);
            let parts = [chosen(&choice, start..start + cut), chosen(&choice, start + cut..start + 5000)].concat();
            prop_assert_eq!(&all, &parts);
            let each: Vec<u64> = (start..start + 5000).filter(|page| choice.has(*page, name)).collect();
            prop_assert_eq!(all, each);
        }
    }
}
