//! Which blocks are free, from samples of their pages.
//!
//! A block is looked at in two places: at its first page and at another one, which changes from look to look. A page
//! found in use is looked at first the next time, so that a block that is used in part does not seem to come and go. A
//! sample may be wrong in both directions; what is isolated is what the kernel gave, whatever was thought of it.
//!
//! A look is skipped while nothing was allocated or freed in large pieces, and looks are spaced so that they cost at
//! most a two-hundredth of the time. One that was interrupted by others takes long and costs no more; what a look costs is
//! taken to grow slowly, or one such look would leave the agent blind for seconds.

use super::block::{BLOCK_BYTES, Block};
use super::guest::{FreeMemory, Guest};
use super::passes::Passes;
use crate::addr::{AddrRange, PAGE_SIZE};
use fastrand::Rng;

/// One part in so many of the time goes into looking, at most.
const SHARE: u64 = 200;
/// By such a part, at most, a look is taken to cost more than the one before.
const GROWTH: u64 = 4;
/// Pages that must have been allocated since the last look to make it worthwhile although the amount of free memory is
/// the same.
pub(super) const NEWS_PAGES: u64 = 2 * 512;
/// No longer than this without a look, ns.
const LONGEST_NS: u64 = 30_000_000_000;

#[derive(Debug)]
pub(super) struct Sampler {
    /// For each block, in the order of addresses: the page in it that was in use last, or 0.
    used_page: Vec<u16>,
    random: Rng,
    last: Option<FreeMemory>,
    not_before_ns: u64,
    last_ns: u64,
    /// What a look costs, ns.
    cost_ns: Option<u64>,
}

impl Sampler {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            used_page: Vec::new(),
            random: Rng::with_seed(seed),
            last: None,
            not_before_ns: 0,
            last_ns: 0,
            cost_ns: None,
        }
    }

    /// Whether a look is due and likely to show something new.
    pub(super) fn is_due(&self, free: &FreeMemory, now_ns: u64) -> bool {
        let Some(last) = &self.last else { return true };
        now_ns >= self.not_before_ns
            && (free.free_huge != last.free_huge
                || free.allocated_since(last).is_none_or(|pages| pages >= NEWS_PAGES)
                || now_ns >= self.last_ns + LONGEST_NS)
    }

    /// Looks at every block and tells `passes`.
    pub(super) fn look<G: Guest>(&mut self, passes: &mut Passes, free: FreeMemory, guest: &G) -> Result<(), G::Error> {
        let begin = guest.now_ns();
        self.used_page.resize(passes.blocks().len() as usize, 0);
        let elsewhere = self.random.u16(0..(BLOCK_BYTES / PAGE_SIZE) as u16);
        let mut next = passes.blocks().next(0);
        for used_page in &mut self.used_page {
            let Some(block) = next else { break };
            next = passes.blocks().next(block.0 + 1);
            // The first page is the most likely to be in use in a block that is used in part.
            let mut in_use = None;
            for page in [*used_page, 0, elsewhere] {
                if !guest.page_is_free(block.range().start + u64::from(page) * PAGE_SIZE)? {
                    in_use = Some(page);
                    break;
                }
            }
            *used_page = in_use.unwrap_or(0);
            match in_use {
                None => passes.freed(block, begin),
                Some(_) => passes.used(block),
            }
        }
        let end = guest.now_ns();
        self.last_ns = end;
        let took = end.saturating_sub(begin);
        let cost = self.cost_ns.map_or(took, |cost| took.min(cost + cost / GROWTH + 1));
        self.cost_ns = Some(cost);
        self.not_before_ns = end + cost.saturating_mul(SHARE);
        self.last = Some(free);
        Ok(())
    }
}

/// Bytes of `range` that seem free now, by looking at the first page of each of its blocks.
pub(super) fn likely_free<G: Guest>(range: AddrRange, guest: &G) -> Result<u64, G::Error> {
    Block::inside(range)
        .try_fold(0, |free, block| Ok(free + if guest.page_is_free(block.range().start)? { BLOCK_BYTES } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::super::guest::tests::TestGuest;
    use super::*;

    const BLOCKS: u64 = 4;

    fn passes() -> Passes {
        let mut passes = Passes::new(Config::touch(0));
        passes.add_memory(AddrRange::new(0, BLOCKS << 21));
        passes
    }

    fn free(free_huge: u64, allocated: u64) -> FreeMemory {
        FreeMemory { total: 8 << 20, free: 8 << 20, free_huge, allocated_pages: Some(allocated) }
    }

    #[test]
    fn a_page_in_use_is_looked_for_until_it_is_found_and_then_remembered() {
        let mut guest = TestGuest::new(BLOCKS);
        // The first block is in use as a whole, the second in one page of the middle.
        guest.used_pages = (0..512).chain([512 + 300]).collect();
        let (mut sampler, mut passes) = (Sampler::new(1), passes());
        let mut looks = 0;
        while {
            sampler.look(&mut passes, free(0, 0), &guest).unwrap();
            passes.blocks().is_free(Block(1))
        } {
            looks += 1;
            assert!(looks < 100_000, "it is never found");
        }
        for _ in 0..50 {
            sampler.look(&mut passes, free(0, 0), &guest).unwrap();
            assert!(!passes.blocks().is_free(Block(1)), "once found it does not come and go");
        }
        let is_free: Vec<bool> = (0..BLOCKS).map(|b| passes.blocks().is_free(Block(b))).collect();
        assert_eq!(is_free, [false, false, true, true]);
        guest.used_pages.clear();
        sampler.look(&mut passes, free(0, 0), &guest).unwrap();
        assert_eq!(passes.blocks().nr_free(), BLOCKS);
        assert_eq!(likely_free(AddrRange::new(2 << 20, 6 << 20), &guest).unwrap(), 4 << 20);
    }

    #[test]
    fn a_look_waits_for_news_and_for_what_the_last_one_cost() {
        let mut guest = TestGuest::new(BLOCKS);
        let (mut sampler, mut passes) = (Sampler::new(1), passes());
        assert!(sampler.is_due(&free(5, 0), 0), "the first");
        guest.look_ns = 1000;
        sampler.look(&mut passes, free(5, 0), &guest).unwrap();
        assert_eq!(guest.now_ns(), 1000, "so long did it take");
        assert!(!sampler.is_due(&free(6, 0), 150_000));
        assert!(sampler.is_due(&free(6, 0), 202_000), "another amount is free");
        assert!(!sampler.is_due(&free(5, 7), 202_000), "nothing new");
        assert!(sampler.is_due(&free(5, NEWS_PAGES), 202_000), "much was allocated meanwhile");
        assert!(sampler.is_due(&free(5, 0), LONGEST_NS + 202_000));
    }

    #[test]
    fn a_look_that_was_interrupted_delays_the_next_a_little_only() {
        let mut guest = TestGuest::new(BLOCKS);
        let (mut sampler, mut passes) = (Sampler::new(1), passes());
        let mut look = |took: u64| {
            guest.look_ns = took;
            sampler.look(&mut passes, free(5, 0), &guest).unwrap();
            let pause = sampler.not_before_ns - guest.now_ns();
            guest.set_now(sampler.not_before_ns);
            pause
        };
        assert_eq!(look(1000), 200_000);
        assert_eq!(look(1_000_000), 250_200, "a quarter more");
        assert_eq!(look(1000), 200_000, "and back");
        // What costs more from now on is believed after a while.
        assert_eq!((0..20).map(|_| look(10_000)).last(), Some(2_000_000));
    }
}
