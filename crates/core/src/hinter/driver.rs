//! Carries out what [`Passes`] decides, on a guest: in which way memory is isolated, when to try again, and when to
//! return it for the sake of others.

use super::block::{BLOCK_BYTES, Block, joined};
use super::budget::Budget;
use super::calm::Calm;
use super::command::{Command, Event, Isolation};
use super::compaction::{Compaction, CompactionStats};
use super::config::Config;
use super::guest::{FreeMemory, Guest, IsolateError, Isolator};
use super::passes::Passes;
use super::refresh::Refresh;
use super::sampler::{Sampler, likely_free};
use super::stats::Rest;
use super::way::Way;
use super::ways::Ways;
use crate::addr::{AddrRange, PAGE_SIZE, subtract, total_len};

const MS: u64 = 1_000_000;
/// How long to wait before trying again to return what could not be returned, ns.
const RELEASE_RETRY_NS: u64 = 1_000 * MS;
/// A memory block is taken offline only if this part of it is free: the rest has to be moved. 3 / 4.
const FREE_PART: (u64, u64) = (3, 4);
/// While more is isolated than what waits for an answer, what others take is looked at so often, ns.
const LOOK_NS: u64 = 20 * MS;
/// An answer that takes longer than this is waited for with nothing isolated but what it is about, ns.
const LATE_NS: u64 = 100 * MS;
/// So many batches of nothing but what the host had dropped already end a pass that clears memory, and some more where
/// there is much to be had.
const STALE_BATCHES: u64 = 2;

/// How a guest is to be hinted.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The ways that there are, in the order in which they are used; at least one.
    pub ways: Vec<Config>,
    /// Bytes of free memory that are left alone.
    pub reserve: u64,
    /// Between looks at free memory, ns.
    pub look_ns: u64,
    /// One pass in each way, and no more.
    pub once: bool,
    /// The share of one CPU that passes may take while the guest is busy; `None`: what they need.
    pub cpu_budget: Option<f64>,
    /// Whether the kernel may be asked to put scattered free memory together.
    pub compact: bool,
    /// Any number; it says which pages are looked at.
    pub seed: u64,
}

/// Decides for a guest what is isolated, reported and returned, and does it.
#[derive(Debug)]
pub struct Driver {
    passes: Passes,
    ways: Ways,
    sampler: Sampler,
    refresh: Refresh,
    calm: Calm,
    budget: Budget,
    /// Whether the guest was calm when what goes on was begun: then it does not count, although it may take a whole CPU.
    begun_calm: bool,
    compaction: Compaction,
    settings: Settings,
    ram: Vec<AddrRange>,
    free: FreeMemory,
    longest_step_ns: u64,
    next_look_ns: u64,
    /// Batches in a row in which there was nothing that the host had not dropped already.
    stale_batches: u64,
    /// The last batch that was sent for the first time, and when it was sent.
    last_batch: u64,
    sent_ns: u64,
    release_due: bool,
    /// Free memory when nothing was isolated last, bytes.
    pass_free: u64,
    /// Whether this pass was cut short for others.
    yielded: bool,
    /// Whether the way in use was tried since it came into use.
    tried: bool,
    looked: bool,
    done: bool,
}

impl Driver {
    /// One for a guest with `free` memory, of whose memory map nothing is known yet.
    pub fn new(settings: Settings, free: FreeMemory, now_ns: u64) -> Self {
        let ways = Ways::new(&settings.ways);
        Self {
            passes: Passes::new(ways.config()),
            ways,
            sampler: Sampler::new(settings.seed),
            refresh: Refresh::new(free, now_ns),
            calm: Calm::default(),
            budget: Budget::new(settings.cpu_budget, now_ns),
            begun_calm: false,
            compaction: Compaction::new(),
            settings,
            ram: Vec::new(),
            free,
            longest_step_ns: 0,
            next_look_ns: now_ns,
            stale_batches: 0,
            last_batch: 0,
            sent_ns: 0,
            release_due: false,
            pass_free: free.free,
            yielded: false,
            tried: false,
            looked: false,
            done: false,
        }
    }

    /// What is known of memory, and what is isolated and on its way.
    pub const fn passes(&self) -> &Passes {
        &self.passes
    }

    /// The way in use.
    pub fn way(&self) -> Way {
        self.ways.way()
    }

    /// Free memory when it was looked at last.
    pub const fn free(&self) -> &FreeMemory {
        &self.free
    }

    /// The longest time that a single step of isolating took, ns.
    pub const fn longest_step_ns(&self) -> u64 {
        self.longest_step_ns
    }

    /// What compactions did.
    pub const fn compaction_stats(&self) -> CompactionStats {
        self.compaction.stats()
    }

    /// When the next look at free memory is due, ns.
    pub const fn next_look_ns(&self) -> u64 {
        self.next_look_ns
    }

    /// With [`Settings::once`]: whether that is over.
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// The guest's memory, by address, which may have come or gone.
    pub fn set_memory(&mut self, ram: Vec<AddrRange>) {
        subtract(&self.ram, &ram).into_iter().for_each(|range| self.passes.remove_memory(range));
        // What was there is kept; blocks at the seams are whole now.
        ram.iter().for_each(|range| self.passes.add_memory(*range));
        self.ram = ram;
    }

    /// A host is there, which takes `most` ranges in a report; `new`: it is another one than before, or the first.
    pub fn welcome(&mut self, most: usize, new: bool, now_ns: u64) {
        self.ways.limit_batch(most);
        self.passes.reconfigure(self.ways.config());
        self.passes.event(Event::Ready, now_ns);
        if new {
            self.forget(now_ns);
        }
        if self.settings.once {
            self.passes.event(Event::Now, now_ns);
        }
    }

    /// Something happened: other events than those with methods of their own, which are the outcome of
    /// [`act`](Self::act).
    pub fn event<G: Guest>(&mut self, event: Event, guest: &mut G) {
        match &event {
            Event::Acked { .. } => guest.isolator().acked(),
            // What can be returned is at once, the rest when the host has answered.
            Event::Pressure => {
                guest.isolator().release_answered();
                self.calm.pressure();
            }
            _ => {}
        }
        self.passes.event(event, guest.now_ns());
    }

    /// Looks at free memory if it is time; whether it was. It is looked at closely only if that is likely to show
    /// something new.
    pub fn look<G: Guest>(&mut self, guest: &mut G) -> Result<bool, G::Error> {
        let now = guest.now_ns();
        if now < self.next_look_ns {
            return Ok(false);
        }
        self.next_look_ns = now + self.settings.look_ns;
        self.free = guest.free_memory()?;
        // What was isolated was allocated by ourselves.
        let own_pages = self.passes.stats().isolated * (BLOCK_BYTES / PAGE_SIZE);
        self.calm.looked(&self.free, own_pages, guest.idle_ns(), now);
        self.compact(guest)?;
        if self.sampler.is_due(&self.free, now) {
            self.sampler.look(&mut self.passes, self.free, guest)?;
            self.looked = true;
            self.ways.looked(self.passes.blocks().nr_free());
            self.passes.reconfigure(self.ways.config());
        }
        let clears = self.way() == Way::Touch;
        if self.passes.isolated().is_empty() && self.refresh.is_due(&self.free, self.calm.is_calm(), clears, now) {
            self.forget(now);
        }
        Ok(true)
    }

    /// Has scattered free memory put together if that is worth it now, so that the look that follows sees it whole.
    fn compact<G: Guest>(&mut self, guest: &mut G) -> Result<(), G::Error> {
        let begin = guest.now_ns();
        let at_rest = matches!(self.passes.rest(), Rest::NothingNew | Rest::Reserve | Rest::Gap);
        let first = self.settings.once && !self.looked;
        let may = self.settings.compact && (at_rest || first) && guest.isolator().isolated() == 0;
        if !may || !self.compaction.is_due(&self.free, self.calm.duration_ns(begin), first, begin) {
            return Ok(());
        }
        if let Err(e) = guest.compact() {
            guest.trouble(format_args!("the kernel does not put free memory together: {e}; not tried any more"));
            self.compaction.failed();
            return Ok(());
        }
        let end = guest.now_ns();
        let before = std::mem::replace(&mut self.free, guest.free_memory()?);
        self.compaction.done(&before, &self.free, begin, end);
        Ok(())
    }

    /// Does what is to be done until there is nothing; when to come again (ns), if nothing happens before.
    pub fn act<G: Guest>(&mut self, guest: &mut G) -> Result<Option<u64>, G::Error> {
        loop {
            let now = guest.now_ns();
            if self.release_due && !self.release(guest) {
                return Ok(Some(now + RELEASE_RETRY_NS));
            }
            self.free = guest.free_memory()?;
            self.yield_to_others(guest);
            self.budget.passed(now);
            if self.passes.isolated().is_empty() {
                self.begun_calm = self.calm.is_calm();
            }
            let fresh = self.passes.blocks().nr_free();
            // Who asks for one pass waits for it.
            let may = self.settings.once || self.begun_calm || self.budget.is_enough(self.passes.config(), fresh);
            self.passes.set_over_budget(!may);
            match self.passes.command(now, self.spare()) {
                Command::Isolate(blocks) => self.isolate(&blocks, guest),
                Command::Report { batch, blocks } => self.report(batch, &blocks, guest),
                // All that is isolated, and nothing is on its way.
                Command::Release => self.release_due = true,
                Command::Wait(until) => {
                    if let Some(soon) = self.release_if_late(guest) {
                        return Ok(Some(until.map_or(soon, |until| until.min(soon))));
                    }
                    if !self.go_on(now) {
                        return Ok(until);
                    }
                }
            }
        }
    }

    /// Somebody takes memory while much of it is isolated: it may go on like that, faster than any alarm tells.
    fn yield_to_others<G: Guest>(&mut self, guest: &mut G) {
        let isolated = guest.isolator().isolated();
        if isolated == 0 {
            self.pass_free = self.free.free;
            self.yielded = false;
        } else if !self.yielded && self.way() == Way::Touch {
            let others = self.pass_free.saturating_sub(isolated).saturating_sub(self.free.free);
            if others > self.free.free / 4 {
                self.yielded = true;
                self.event(Event::Pressure, guest);
            }
        }
    }

    /// Free memory as the passes are to see it, bytes. A pass that clears leaves a 16th of what was free at its
    /// beginning, if that is more than the reserve.
    fn spare(&self) -> u64 {
        let kept =
            if self.way() == Way::Touch { (self.pass_free / 16).saturating_sub(self.settings.reserve) } else { 0 };
        self.ways.free(&self.free).saturating_sub(kept)
    }

    /// Of a host that does not answer soon no more stays isolated than what waits for its answer. When to look again,
    /// if that is to come.
    fn release_if_late<G: Guest>(&mut self, guest: &mut G) -> Option<u64> {
        if self.passes.on_the_way().is_empty() {
            return None;
        }
        let (now, late) = (guest.now_ns(), self.sent_ns + LATE_NS);
        if now < late {
            return Some(late.min(now + LOOK_NS));
        }
        guest.isolator().release_answered();
        None
    }

    /// There is nothing to do in this way: perhaps in the next.
    fn go_on(&mut self, now: u64) -> bool {
        let rest = self.passes.rest();
        // Once tried, a way that gets no more of what it wants pauses before it tries again.
        let pauses = self.settings.once && self.tried && rest == Rest::Gap;
        // The first may take less than what this one has no budget for.
        let is_over_budget = rest == Rest::Budget && !self.ways.is_first();
        let has_nothing = matches!(rest, Rest::NothingNew | Rest::Reserve | Rest::Busy);
        let idle = pauses || is_over_budget || has_nothing || !self.ways.is_usable(now);
        if !idle || !self.passes.isolated().is_empty() || self.done {
            return false;
        }
        let first = self.ways.is_first();
        let insist = self.settings.once && self.looked;
        let switched = self.ways.go_on(self.passes.blocks(), insist, now);
        if switched {
            self.passes.reconfigure(self.ways.config());
        }
        if insist {
            // Once round is enough.
            self.done = !switched || !first && self.ways.is_first();
            if !self.done {
                self.passes.event(Event::Now, now);
            }
        }
        self.tried &= !switched;
        switched && !self.done
    }

    fn isolate<G: Guest>(&mut self, wanted: &[Block], guest: &mut G) {
        self.tried = true;
        let begin = guest.now_ns();
        let way = self.way();
        let wanted = self.ranges(wanted, guest);
        // The more there is to be had, the longer it is looked for.
        let patience = STALE_BATCHES + self.passes.blocks().nr_free() / (2 * self.passes.config().batch as u64);
        let fruitless = self.ways.follows_offline() && self.stale_batches >= patience;
        let usable = !wanted.is_empty() && self.ways.is_usable(begin) && !fruitless;
        let cpu_ns = guest.cpu_ns();
        let isolated = if usable { guest.isolator().isolate(way, &wanted) } else { Ok(Vec::new()) };
        let end = guest.now_ns();
        if usable {
            self.budget.isolated(way, total_len(&wanted), guest.cpu_ns() - cpu_ns, self.begun_calm);
        }
        self.longest_step_ns = self.longest_step_ns.max(end - begin);
        self.refresh.spent_ns += end - begin;
        let isolated = isolated.unwrap_or_else(|e| {
            self.failed(&e, guest);
            Vec::new()
        });
        let blocks: Vec<Block> = isolated.into_iter().flat_map(Block::inside).collect();
        let stale = !blocks.is_empty() && blocks.iter().all(|block| self.passes.blocks().is_reported(*block));
        self.stale_batches = if stale { self.stale_batches + 1 } else { 0 };
        self.passes.event(Event::Isolated(Isolation { blocks, written: way == Way::Touch }), end);
    }

    /// What to ask the isolator for: whole memory blocks that are free for the most part, or so many huge pages.
    fn ranges<G: Guest>(&self, blocks: &[Block], guest: &G) -> Vec<AddrRange> {
        if self.way() == Way::Touch {
            return blocks.iter().map(|block| block.range()).collect();
        }
        let units = blocks.iter().map(|block| {
            let start = block.range().start;
            AddrRange::new(start, start + self.passes.config().unit * BLOCK_BYTES)
        });
        let mostly_free =
            |range: &AddrRange| likely_free(*range, guest).unwrap_or(0) * FREE_PART.1 >= range.len() * FREE_PART.0;
        units.filter(mostly_free).collect()
    }

    fn report<G: Guest>(&mut self, batch: u64, blocks: &[Block], guest: &mut G) {
        let now = guest.now_ns();
        if batch != self.last_batch {
            // Before it is sent the first time, and not afterwards: what was sent cannot be taken back.
            if let Err(e) = guest.isolator().check(&joined(blocks)) {
                self.passes.event(Event::Void, now);
                self.failed(&e, guest);
                return;
            }
            self.last_batch = batch;
            self.sent_ns = now;
        }
        guest.report(batch, blocks, self.passes.config().unit);
    }

    /// The way in use does not work any more. Nothing is on its way.
    fn failed<G: Guest>(&mut self, error: &IsolateError, guest: &mut G) {
        self.release_due = true;
        let now = guest.now_ns();
        if matches!(error, IsolateError::Taken) {
            self.passes.event(Event::Pressure, now);
        } else {
            guest.trouble(format_args!("isolating by {}: {error}; not used for a minute", self.way()));
            self.ways.penalize(now);
        }
    }

    /// Returns everything; false if that failed and is to be tried again.
    fn release<G: Guest>(&mut self, guest: &mut G) -> bool {
        let (begin, cpu_ns) = (guest.now_ns(), guest.cpu_ns());
        let result = guest.isolator().release();
        self.budget.released(guest.cpu_ns() - cpu_ns, self.begun_calm);
        self.refresh.spent_ns += guest.now_ns() - begin;
        if let Err(e) = result {
            guest.trouble(format_args!("cannot give memory back yet: {e}"));
            return false;
        }
        self.release_due = false;
        self.passes.event(Event::Released, begin);
        let (left, dropped) = (self.passes.blocks().nr_free(), self.passes.blocks().nr_reported());
        self.ways.pass_ended(left);
        self.passes.reconfigure(self.ways.config());
        if self.ways.follows_offline() {
            self.refresh.pass_left(left, left + dropped);
        }
        true
    }

    /// Everything counts as new.
    fn forget(&mut self, now: u64) {
        self.refresh.done(self.free, now);
        self.passes.event(Event::Forgotten, now);
        self.ways.looked(0);
        self.passes.reconfigure(self.ways.config());
    }
}

#[cfg(test)]
mod tests;
