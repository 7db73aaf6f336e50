//! Which blocks are free, from samples.
//!
//! A block is looked at in two places: at its first page and at another one, which changes from look to look. A page found in
//! use is looked at first the next time, so that a block that is used in part does not seem to come and go. A sample may be
//! wrong in both directions; what is isolated is what the kernel gave, whatever was thought of it.
//!
//! A look is skipped while nothing was allocated or freed in large pieces, and looks are spaced so that they cost at most a
//! hundredth of the time. One that was interrupted by others takes long and costs no more; what a look costs is taken to grow
//! slowly, or one such look would leave the agent blind for seconds.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::hint::{Block, BlockSize, Hinter};
use isotherm_linux::guestmem::{FlagSampler, FreeLevel, MemoryMap};
use std::io;

/// One part in so many of the time goes into looking, at most.
const SHARE: u64 = 100;
/// By such a part, at most, a look is taken to cost more than the one before.
const GROWTH: u64 = 4;
/// Pages that must have been allocated since the last look to make it worthwhile although the amount of free memory is the same.
const NEWS_PAGES: u64 = 2 * 512;
/// No longer than this without a look, ns.
const LONGEST_NS: u64 = 30_000_000_000;

/// The blocks of a stretch of memory.
#[derive(Debug)]
struct Stretch {
    first: u64,
    /// For each block: the page in it that was in use last, or 0.
    used_page: Vec<u16>,
}

/// Looks at blocks.
#[derive(Debug)]
pub struct Watch {
    flags: FlagSampler,
    size: BlockSize,
    stretches: Vec<Stretch>,
    seed: u64,
    last: Option<FreeLevel>,
    not_before_ns: u64,
    last_ns: u64,
    /// What a look costs, ns.
    cost_ns: Option<u64>,
}

impl Watch {
    /// Looks at the memory of `map`.
    pub fn new(flags: FlagSampler, size: BlockSize, map: &MemoryMap, seed: u64) -> Self {
        let stretches = Vec::new();
        let mut watch =
            Self { flags, size, stretches, seed: seed | 1, last: None, not_before_ns: 0, last_ns: 0, cost_ns: None };
        watch.set_memory(map);
        watch
    }

    /// Another memory map.
    pub fn set_memory(&mut self, map: &MemoryMap) {
        let stretch = |range: &AddrRange| {
            let (first, end) = self.size.inside(*range);
            Stretch { first, used_page: vec![0; end.saturating_sub(first) as usize] }
        };
        self.stretches = map.ram().iter().map(stretch).collect();
    }

    /// Whether a look is due and likely to show something new.
    pub fn is_due(&self, level: &FreeLevel, now_ns: u64) -> bool {
        let Some(last) = &self.last else { return true };
        if now_ns < self.not_before_ns {
            return false;
        }
        let allocated = match (level.allocated_pages, last.allocated_pages) {
            (Some(now), Some(then)) => now.wrapping_sub(then),
            _ => u64::MAX,
        };
        level.free_huge != last.free_huge || allocated >= NEWS_PAGES || now_ns >= self.last_ns + LONGEST_NS
    }

    /// Looks at every block and tells `hinter`. `now` is asked for the time, ns.
    pub fn look(&mut self, hinter: &mut Hinter, level: FreeLevel, now: impl Fn() -> u64) -> io::Result<()> {
        let begin = now();
        // Steps of xorshift64: where to look need not be unpredictable, only different.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let pages = self.size.bytes() / PAGE_SIZE;
        let elsewhere = self.seed % pages;
        for stretch in &mut self.stretches {
            for (i, used_page) in stretch.used_page.iter_mut().enumerate() {
                let block = Block(stretch.first + i as u64);
                let start = self.size.range(block).start;
                let mut free = true;
                // The first page is the most likely to be in use in a block that is used in part.
                for page in [u64::from(*used_page), 0, elsewhere] {
                    if !self.flags.at(start + page * PAGE_SIZE)?.is_some_and(|f| f.free()) {
                        *used_page = page as u16;
                        free = false;
                        break;
                    }
                }
                if free {
                    *used_page = 0;
                    hinter.freed(block, begin);
                } else {
                    hinter.used(block);
                }
            }
        }
        let end = now();
        self.last_ns = end;
        let took = end.saturating_sub(begin);
        let cost = self.cost_ns.map_or(took, |cost| took.min(cost + cost / GROWTH + 1));
        self.cost_ns = Some(cost);
        self.not_before_ns = end + cost.saturating_mul(SHARE);
        self.last = Some(level);
        Ok(())
    }

    /// Bytes of `range` that seem free now, by looking at its blocks once.
    pub fn likely_free(&self, range: AddrRange) -> io::Result<u64> {
        let (first, end) = self.size.inside(range);
        let mut free = 0;
        for block in first..end {
            let range = self.size.range(Block(block));
            if self.flags.at(range.start)?.is_some_and(|f| f.free()) {
                free += range.len();
            }
        }
        Ok(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::hint::Config;
    use isotherm_linux::guestmem::{Area, AreaKind};
    use isotherm_linux::roots::Roots;
    use std::fs;
    use std::path::PathBuf;

    const BLOCKS: u64 = 4;
    const BUDDY: u64 = 1 << 10;

    /// A machine of four blocks, of whose pages `used` says which are not free.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("isotherm-watch-{name}-{}", std::process::id()));
            fs::create_dir_all(folder.join("proc")).unwrap();
            Self(folder)
        }

        fn set(&self, used: impl Fn(u64) -> bool) {
            let flags = (0..BLOCKS * 512).flat_map(|page| if used(page) { 0 } else { BUDDY }.to_ne_bytes());
            fs::write(self.0.join("proc/kpageflags"), flags.collect::<Vec<u8>>()).unwrap();
        }

        fn watch(&self) -> (Watch, Hinter) {
            let range = AddrRange::new(0, BLOCKS << 21);
            let map = MemoryMap { areas: vec![Area { range, kind: AreaKind::Ram }] };
            let flags = FlagSampler::open(&Roots::captured(&self.0)).unwrap();
            let mut hinter = Hinter::new(Config::default()).unwrap();
            hinter.add_memory(range);
            (Watch::new(flags, BlockSize::huge(), &map, 1), hinter)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn level(free_huge: u64, allocated: u64) -> FreeLevel {
        FreeLevel { total: 8 << 20, free: 8 << 20, available: 8 << 20, free_huge, allocated_pages: Some(allocated) }
    }

    #[test]
    fn a_page_in_use_is_looked_for_until_it_is_found_and_then_remembered() {
        let machine = Machine::new("page");
        // The first block is in use as a whole, the second in one page of the middle.
        machine.set(|page| page < 512 || page == 512 + 300);
        let (mut watch, mut hinter) = machine.watch();
        let mut looks = 0;
        while {
            watch.look(&mut hinter, level(0, 0), || 0).unwrap();
            hinter.zones().is_free(Block(1))
        } {
            looks += 1;
            assert!(looks < 100_000, "it is never found");
        }
        for _ in 0..50 {
            watch.look(&mut hinter, level(0, 0), || 0).unwrap();
            assert!(!hinter.zones().is_free(Block(1)), "once found it does not come and go");
        }
        let free: Vec<bool> = (0..BLOCKS).map(|b| hinter.zones().is_free(Block(b))).collect();
        assert_eq!(free, [false, false, true, true]);
        machine.set(|_| false);
        watch.look(&mut hinter, level(0, 0), || 0).unwrap();
        assert_eq!(hinter.zones().nr_free(), BLOCKS);
        assert_eq!(watch.likely_free(AddrRange::new(2 << 20, 6 << 20)).unwrap(), 4 << 20);
    }

    #[test]
    fn a_look_waits_for_news_and_for_what_the_last_one_cost() {
        let machine = Machine::new("due");
        machine.set(|_| false);
        let (mut watch, mut hinter) = machine.watch();
        assert!(watch.is_due(&level(5, 0), 0), "the first");
        let times = std::cell::Cell::new(0);
        let clock = || times.replace(times.get() + 1000);
        watch.look(&mut hinter, level(5, 0), clock).unwrap();
        // It took 1000 ns.
        assert!(!watch.is_due(&level(6, 0), 50_000));
        assert!(watch.is_due(&level(6, 0), 102_000), "another amount is free");
        assert!(!watch.is_due(&level(5, 7), 102_000), "nothing new");
        assert!(watch.is_due(&level(5, NEWS_PAGES), 102_000), "much was allocated meanwhile");
        assert!(watch.is_due(&level(5, 0), LONGEST_NS + 102_000));
    }

    #[test]
    fn a_look_that_was_interrupted_delays_the_next_a_little_only() {
        let machine = Machine::new("interrupted");
        machine.set(|_| false);
        let (mut watch, mut hinter) = machine.watch();
        let mut at = 0;
        let mut look = |took: u64| {
            let times = std::cell::Cell::new(at);
            watch.look(&mut hinter, level(5, 0), || times.replace(times.get() + took)).unwrap();
            at += took;
            let pause = watch.not_before_ns - at;
            at = watch.not_before_ns;
            pause
        };
        assert_eq!(look(1000), 100_000);
        assert_eq!(look(1_000_000), 125_100, "a quarter more");
        assert_eq!(look(1000), 100_000, "and back");
        // What costs more from now on is believed after a while.
        assert_eq!((0..20).map(|_| look(10_000)).last(), Some(1_000_000));
    }
}
