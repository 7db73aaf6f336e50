//! Which ways of isolating memory this guest has, and which is used now.
//!
//! `auto` takes memory blocks offline where it can, and what these cannot give (blocks with memory that cannot be moved, blocks in
//! use for the most part) as huge pages afterwards.

use super::GuestError;
use isotherm_core::hint::{BlockSize, Choice, Config, Hinter};
use isotherm_linux::guestmem::isolate::offline::Offline;
use isotherm_linux::guestmem::isolate::touch::Touch;
use isotherm_linux::guestmem::isolate::{IsolateError, Isolator, Way};
use isotherm_linux::guestmem::{FreeLevel, MemoryMap};
use isotherm_linux::roots::Roots;
use std::str::FromStr;
use std::time::Duration;

const MS: u64 = 1_000_000;
/// An attempt to take a memory block offline takes this long, at most, if none has run out of time. Meanwhile nobody gets what is
/// free in it.
const OFFLINE_LIMIT: Duration = Duration::from_millis(500);
/// A memory block is taken offline only while so many of its size are free.
const LEAST_FREE: u64 = 3;
/// And only if all memory is so many times its size: a program that asks for more than there is without it is refused in that moment.
const LEAST_TOTAL: u64 = 4;
/// Huge pages that are never asked for: the last ones would make the kernel tidy up memory, or drop its page cache.
const HUGE_MARGIN: u64 = 4;
/// Blocks in a batch where they come one by one. Larger ones gain little and take the guest's memory for longer.
const BATCH: usize = 8;
/// How long a way that failed is not used, ns.
const PENALTY_NS: u64 = 60_000 * MS;

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// The cheapest that works.
    Auto,
    /// This one.
    Only(Way),
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let way = Way::ALL.into_iter().find(|way| way.name() == text).map(Self::Only);
        let way = way.or_else(|| (text == "auto").then_some(Self::Auto));
        way.ok_or_else(|| format!("'{text}' is no way to isolate memory; there are auto, offline and touch"))
    }
}

/// A way, and how it is used.
#[derive(Debug)]
struct Entry {
    isolator: Box<dyn Isolator>,
    config: Config,
    not_before_ns: u64,
    /// Blocks that were still new after the last pass. They cannot be had in this way (they are what the reserve keeps, or free in
    /// part only), and are no reason for another pass.
    left: u64,
}

/// The ways, in the order in which they are used.
#[derive(Debug)]
pub struct Ways {
    entries: Vec<Entry>,
    now: usize,
    reserve: u64,
}

impl Ways {
    /// Looks for those that `wish` allows. `reserve`: bytes of free memory that are left alone.
    pub fn find(wish: Wish, roots: &Roots, size: BlockSize, reserve: u64) -> Result<Self, GuestError> {
        let mut refusals = Vec::new();
        let mut entries: Vec<Entry> = Vec::new();
        for way in Way::ALL.into_iter().filter(|way| wish == Wish::Auto || wish == Wish::Only(*way)) {
            match isolator(way, roots) {
                Ok((isolator, unit)) => {
                    let config = config(way, unit, size, reserve);
                    config.check().map_err(|e| GuestError::Config(e.to_string()))?;
                    entries.push(Entry { isolator, config, not_before_ns: 0, left: 0 });
                }
                Err(e) => refusals.push(format!("{way}: {e}")),
            }
        }
        if entries.is_empty() {
            return Err(GuestError::NoWay(refusals.join("; ")));
        }
        Ok(Self { entries, now: 0, reserve })
    }

    /// The settings that the algorithm begins with.
    pub fn first_config(&self) -> Config {
        self.entries[0].config
    }

    /// The way in use.
    pub fn way(&self) -> Way {
        self.current().isolator.way()
    }

    /// All of them, for people.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.entries.iter().map(|e| e.isolator.way().name()).collect();
        names.join(", then ")
    }

    /// Whether isolating writes to memory in the way in use: huge pages are cleared.
    pub fn writes(&self) -> bool {
        !self.way().chooses()
    }

    /// The taker of the way in use.
    pub fn isolator(&mut self) -> &mut dyn Isolator {
        &mut *self.entries[self.now].isolator
    }

    /// Bytes held by all of them.
    pub fn held(&self) -> u64 {
        self.entries.iter().map(|e| e.isolator.held()).sum()
    }

    /// Free memory as the way in use sees it, bytes.
    pub fn free(&self, level: &FreeLevel) -> u64 {
        if self.way().chooses() {
            // The guest lacks a whole block for a moment, which must not be much of what it has.
            let block = self.current().config.unit * self.current().config.block.bytes();
            let enough = level.total >= LEAST_TOTAL * block;
            return if enough { level.free.saturating_sub((LEAST_FREE - 1) * block) } else { 0 };
        }
        // More huge pages than there are free would be made by moving and dropping what is in use.
        let huge = level.free_huge.saturating_sub(HUGE_MARGIN * BlockSize::huge().bytes());
        level.free.min(huge.saturating_add(self.reserve))
    }

    /// The way in use failed: it is not used for a while.
    pub fn penalize(&mut self, now_ns: u64) {
        self.entries[self.now].not_before_ns = now_ns + PENALTY_NS;
    }

    /// Whether the way in use may be used now.
    pub fn is_usable(&self, now_ns: u64) -> bool {
        self.current().not_before_ns <= now_ns
    }

    /// The way in use has nothing more to do: goes on to the next for which there is something, or back to the first. True if
    /// another one is in use now. Nothing may be isolated.
    pub fn go_on(&mut self, hinter: &mut Hinter, insist: bool, now_ns: u64) -> bool {
        let zones = hinter.zones();
        let (fresh, known) = (zones.nr_free(), zones.nr_free() + zones.nr_reported());
        let before = self.now;
        let next = (self.now + 1..self.entries.len()).find(|&i| {
            let entry = &self.entries[i];
            // Clearing touches what the host had dropped already: not for little.
            let news = fresh.saturating_sub(entry.left);
            let enough = entry.isolator.way().chooses() || news * self.least_share() >= known;
            fresh > 0 && entry.not_before_ns <= now_ns && (insist || enough && news >= entry.config.threshold)
        });
        if self.now > 0 {
            let pause = if self.stops_early() { 3000 * MS } else { 10_000 * MS };
            let entry = &mut self.entries[self.now];
            entry.not_before_ns = entry.not_before_ns.max(now_ns + pause);
        }
        self.now = next.unwrap_or(0);
        if self.now == before {
            return false;
        }
        self.configure(hinter);
        true
    }

    /// A pass has ended, and everything is returned.
    pub fn pass_ended(&mut self, hinter: &mut Hinter) {
        self.entries[self.now].left = hinter.zones().nr_free();
        self.configure(hinter);
    }

    /// What is known of memory has changed.
    pub fn looked(&mut self, hinter: &mut Hinter) {
        let fresh = hinter.zones().nr_free();
        self.entries.iter_mut().for_each(|entry| entry.left = entry.left.min(fresh));
        self.configure(hinter);
    }

    /// Everything counts as new again.
    pub fn forgotten(&mut self, hinter: &mut Hinter) {
        self.entries.iter_mut().for_each(|entry| entry.left = 0);
        self.configure(hinter);
    }

    fn configure(&self, hinter: &mut Hinter) {
        let entry = self.current();
        let left = if entry.isolator.way().chooses() { 0 } else { entry.left };
        let config = Config { threshold: entry.config.threshold + left, ..entry.config };
        // Checked when it was made.
        let _ = hinter.reconfigure(config);
    }

    /// Which part of all that is free must be new for it to be worth clearing memory. What was offline comes last when the kernel
    /// hands memory out, so that after it little is cleared in vain.
    fn least_share(&self) -> u64 {
        if self.entries[0].isolator.way().chooses() { 64 } else { 4 }
    }

    /// Whether the kernel chooses the blocks in the way in use, and one in which we do comes first.
    pub fn follows_choice(&self) -> bool {
        self.now > 0 && self.entries[0].isolator.way().chooses()
    }

    /// Whether the way in use is to stop as soon as it gets what the host had dropped already.
    pub fn stops_early(&self) -> bool {
        self.writes() && self.entries[0].isolator.way().chooses()
    }

    /// Whether the way in use is the first.
    pub const fn is_first(&self) -> bool {
        self.now == 0
    }

    /// Another memory map.
    pub fn set_memory(&mut self, map: &MemoryMap) {
        self.entries.iter_mut().for_each(|entry| entry.isolator.set_memory(map));
    }

    /// Batches of `most` blocks at most, where blocks come one by one.
    pub fn limit_batch(&mut self, hinter: &mut Hinter, most: usize) {
        for entry in self.entries.iter_mut().filter(|e| !e.isolator.way().chooses()) {
            entry.config.batch = entry.config.batch.min(most.max(1));
        }
        self.configure(hinter);
    }

    fn current(&self) -> &Entry {
        &self.entries[self.now]
    }
}

fn isolator(way: Way, roots: &Roots) -> Result<(Box<dyn Isolator>, u64), IsolateError> {
    Ok(match way {
        Way::Offline => {
            let offline = Offline::new(roots, OFFLINE_LIMIT)?;
            let unit = offline.block_size() / BlockSize::huge().bytes();
            (Box::new(offline), unit)
        }
        Way::Touch => (Box::new(Touch::new(roots)?), 1),
    })
}

fn config(way: Way, unit: u64, size: BlockSize, reserve: u64) -> Config {
    let base = Config { block: size, reserve, ..Config::default() };
    if way.chooses() {
        let batch = unit as usize;
        // Taking a block off and on again costs some milliseconds: not for less than an eighth of 128 MiB.
        let unit_worth = unit.min(8);
        return Config {
            choice: Choice::Blocks,
            unit,
            unit_worth,
            batch,
            most_isolated: batch,
            gap_ns: 500 * MS,
            ..base
        };
    }
    Config {
        choice: Choice::Number,
        unit: 1,
        unit_worth: 1,
        // Clearing takes its time, in which nobody looks after the guest.
        batch: BATCH,
        // All of a pass is kept until its end, or the kernel would give the same blocks again; the reserve is the limit.
        most_isolated: 1 << 24,
        threshold: 4,
        linger_ns: None,
        retry_ns: 2000 * MS,
        ..base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes() {
        assert_eq!("auto".parse(), Ok(Wish::Auto));
        assert_eq!("touch".parse(), Ok(Wish::Only(Way::Touch)));
        assert!(["thp", "reserve"].iter().all(|no| no.parse::<Wish>().unwrap_err().contains("offline and touch")));
    }

    #[test]
    fn every_configuration_makes_sense() {
        for (way, unit) in [(Way::Offline, 64), (Way::Offline, 1024), (Way::Offline, 1), (Way::Touch, 1)] {
            config(way, unit, BlockSize::huge(), 1 << 24).check().unwrap();
        }
    }
}
