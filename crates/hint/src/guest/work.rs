//! Carries out what the algorithm decides, on the guest's own memory.

use super::link::Link;
use super::session::Session;
use super::status::note;
use super::watch::Watch;
use super::ways::Ways;
use super::{GuestError, Settings};
use crate::protocol::Limits;
use isotherm_core::addr::{AddrRange, subtract};
use isotherm_core::hint::{Block, BlockSize, Command, Event, Hinter, Isolation, Rest, joined};
use isotherm_core::units::format_size;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::guestmem::isolate::IsolateError;
use isotherm_linux::guestmem::{FreeLevel, Ledger, MemoryMap};
use isotherm_linux::roots::Roots;

const MS: u64 = 1_000_000;
/// How long to wait before trying again to give back what could not be given back, ns.
const RELEASE_RETRY_NS: u64 = 1_000 * MS;
/// A memory block is taken offline only if this part of it is free: the rest has to be moved. 3 / 4.
const FREE_PART: (u64, u64) = (3, 4);
/// While more is held than what waits for an answer, what others take is looked at so often, ns.
const LOOK_NS: u64 = 20 * MS;
/// An answer that takes longer than this is waited for without holding more than what it is about, ns.
const LATE_NS: u64 = 100 * MS;
/// So many batches of nothing but what the host had dropped already end a pass that clears memory, and some more where there is
/// much to be had.
const STALE_BATCHES: u64 = 2;
/// Everything counts as new again after this time, ns, and never so often that it costs more than a hundredth: samples miss
/// memory that was used and freed between two looks.
const REFRESH_NS: u64 = 60_000 * MS;
const REFRESH_SHARE: u64 = 100;
/// It counts as new sooner where the kernel gave what the host had dropped already, and much is left: memory blocks that go
/// offline and come back are handed out last, so that the next pass meets what is left. After this time at first, ns, doubled as
/// long as it does not help; at most a tenth of the time goes into it, and only while the guest itself allocates little.
const TURN_NS: u64 = 3_000 * MS;
const TURN_SHARE: u64 = 10;
/// What is little: pages since the last look.
const CALM_PAGES: u64 = 2 * 512;
/// What is much: this part of all free memory.
const MUCH_SHARE: u64 = 32;
/// And so many blocks.
const MUCH_BLOCKS: u64 = 4;

/// The algorithm and its hands.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) hinter: Hinter,
    pub(super) ways: Ways,
    pub(super) ledger: Ledger,
    pub(super) level: FreeLevel,
    pub(super) reserve: u64,
    pub(super) longest_step_ns: u64,
    watch: Watch,
    roots: Roots,
    size: BlockSize,
    limits: Option<Limits>,
    /// Batches in a row in which there was nothing that the host had not dropped already.
    stale_batches: u64,
    /// The last batch that was sent for the first time.
    last_batch: u64,
    sent_ns: u64,
    release_due: bool,
    /// Free memory when nothing was held last, bytes.
    pass_free: u64,
    /// Whether this pass was cut short for others.
    yielded: bool,
    /// Whether the way in use was tried since it came into use.
    tried: bool,
    looked: bool,
    once: bool,
    done: bool,
    /// Time spent on isolating and returning since the last refresh, ns, and when that was.
    spent_ns: u64,
    refreshed_ns: u64,
    refreshed_pages: Option<u64>,
    /// How long to wait before everything counts as new for the sake of what is left, ns; `None`: it need not.
    turn_ns: Option<u64>,
    /// The same for the next time.
    next_turn_ns: u64,
    told: String,
}

impl Work {
    #[allow(clippy::too_many_arguments, reason = "made in one place, of what was found there")]
    pub(super) fn new(
        roots: &Roots,
        settings: &Settings,
        map: &MemoryMap,
        size: BlockSize,
        ledger: Ledger,
        watch: Watch,
        watching: bool,
    ) -> Result<Self, GuestError> {
        let level = FreeLevel::read(roots).map_err(GuestError::io("read how much memory is free"))?;
        let reserve = settings.reserve.unwrap_or_else(|| level.default_reserve(roots));
        let ways = Ways::find(settings.wish, roots, size, reserve)?;
        let mut hinter = Hinter::new(ways.first_config()).map_err(|e| GuestError::Config(e.to_string()))?;
        if !watching {
            map.ram().into_iter().for_each(|range| hinter.add_memory(range));
        }
        let now = monotonic_ns();
        Ok(Self {
            hinter,
            ways,
            ledger,
            level,
            reserve,
            longest_step_ns: 0,
            watch,
            roots: roots.clone(),
            size,
            limits: None,
            stale_batches: 0,
            last_batch: 0,
            sent_ns: 0,
            release_due: false,
            pass_free: level.free,
            yielded: false,
            tried: false,
            looked: false,
            once: settings.once,
            done: false,
            spent_ns: 0,
            refreshed_ns: now,
            refreshed_pages: level.allocated_pages,
            turn_ns: None,
            next_turn_ns: TURN_NS,
            told: String::new(),
        })
    }

    pub(super) fn introduction(&self) -> String {
        format!("hinting by {}, keeping {} free,", self.ways.names(), format_size(self.reserve))
    }

    /// Whether the one pass asked for is over.
    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    /// A host is there.
    pub(super) fn welcome(&mut self, limits: Limits, new_host: bool, once: bool, now: u64) {
        self.limits = Some(limits);
        self.ways.limit_batch(&mut self.hinter, usize::from(limits.ranges));
        self.hinter.event(Event::Ready, now);
        if new_host {
            self.forget(now);
        }
        if once {
            self.hinter.event(Event::Now, now);
        }
    }

    /// Memory has come or gone.
    pub(super) fn set_memory(&mut self, old: &MemoryMap, new: &MemoryMap) {
        let (old, ram) = (old.ram(), new.ram());
        subtract(&old, &ram).into_iter().for_each(|range| self.hinter.remove_memory(range));
        subtract(&ram, &old).into_iter().for_each(|range| self.hinter.add_memory(range));
        // Blocks at the seams are whole now.
        ram.iter().for_each(|range| self.hinter.add_memory(*range));
        self.watch.set_memory(new);
        self.ways.set_memory(new);
    }

    /// Looks at free memory, if that is likely to show something new.
    pub(super) fn look(&mut self, now: u64) -> Result<(), GuestError> {
        let before = self.level.allocated_pages;
        let level = self.read_level()?;
        let calm =
            matches!((level.allocated_pages, before), (Some(now), Some(then)) if now.wrapping_sub(then) < CALM_PAGES);
        if self.watch.is_due(&level, now) {
            let look = self.watch.look(&mut self.hinter, level, monotonic_ns);
            look.map_err(GuestError::io("read /proc/kpageflags"))?;
            self.looked = true;
            self.ways.looked(&mut self.hinter);
        }
        self.refresh(calm, now);
        Ok(())
    }

    /// Lets everything count as new if much was allocated since that was done last, or if what is left cannot be had otherwise.
    fn refresh(&mut self, calm: bool, now: u64) {
        if !self.hinter.isolated().is_empty() {
            return;
        }
        let since = now.saturating_sub(self.refreshed_ns);
        let turn = calm && self.turn_ns.is_some_and(|pause| since >= pause.max(self.spent_ns * TURN_SHARE));
        let pause = (self.spent_ns * REFRESH_SHARE).max(if self.ways.writes() { 10 * REFRESH_NS } else { REFRESH_NS });
        if !turn && (since < pause || self.allocated() < self.level.total / 4096 / 4) {
            return;
        }
        if turn {
            self.next_turn_ns = (self.next_turn_ns * 2).min(10 * REFRESH_NS);
        }
        self.forget(now);
    }

    /// Pages that were allocated since everything counted as new.
    fn allocated(&self) -> u64 {
        match (self.level.allocated_pages, self.refreshed_pages) {
            (Some(now), Some(then)) => now.wrapping_sub(then),
            _ => u64::MAX,
        }
    }

    /// Everything counts as new.
    fn forget(&mut self, now: u64) {
        self.refreshed_ns = now;
        self.refreshed_pages = self.level.allocated_pages;
        self.spent_ns = 0;
        self.turn_ns = None;
        self.hinter.event(Event::Forgotten, now);
        self.ways.forgotten(&mut self.hinter);
    }

    /// A pass has ended: is much left that it could not have?
    fn judge_rest(&mut self) {
        let zones = self.hinter.zones();
        let (left, known) = (zones.nr_free(), zones.nr_free() + zones.nr_reported());
        let much = left * MUCH_SHARE >= known && left >= MUCH_BLOCKS;
        if self.ways.follows_choice() {
            self.turn_ns = much.then_some(self.next_turn_ns);
            if !much {
                self.next_turn_ns = TURN_NS;
            }
        }
    }

    /// Somebody waits for memory: what can go back does at once, the rest when the host has answered.
    pub(super) fn pressure(&mut self, now: u64) {
        self.ways.isolator().thin();
        self.hinter.event(Event::Pressure, now);
    }

    /// Carries out what is to be done until there is nothing; when to come again.
    pub(super) fn act(&mut self, session: &mut Session, link: &mut Link) -> Result<Option<u64>, GuestError> {
        loop {
            let now = monotonic_ns();
            if self.release_due && !self.give_back(now) {
                return Ok(Some(now + RELEASE_RETRY_NS));
            }
            let level = self.read_level()?;
            self.follow_others(&level, now);
            match self.hinter.command(now, self.free(&level)) {
                Command::Isolate(blocks) => self.isolate(&blocks),
                Command::Report { batch, blocks } => {
                    self.report(batch, &blocks, session, now);
                    // At once: the guest lacks that memory until the answer comes.
                    let _ = link.write(session.out());
                }
                // All that is isolated, and nothing is on its way.
                Command::Release(_) => self.release_due = true,
                Command::Wait(until) => {
                    if let Some(soon) = self.thin_if_late(now) {
                        return Ok(Some(until.map_or(soon, |until| until.min(soon))));
                    }
                    if !self.go_on(now) {
                        return Ok(until);
                    }
                }
            }
        }
    }

    /// Somebody takes memory while much of it is held: it may go on like that, faster than any alarm tells.
    fn follow_others(&mut self, level: &FreeLevel, now: u64) {
        let held = self.ways.held();
        if held == 0 {
            self.pass_free = level.free;
            self.yielded = false;
        } else if !self.yielded && !self.ways.way().chooses() {
            let others = self.pass_free.saturating_sub(held).saturating_sub(level.free);
            if others > level.free / 4 {
                self.yielded = true;
                self.pressure(now);
            }
        }
    }

    /// Free memory as the algorithm is to see it, bytes. In a pass a 16th of what was free at its beginning is left, if that is
    /// more than the reserve.
    fn free(&self, level: &FreeLevel) -> u64 {
        let free = self.ways.free(level);
        let kept = if self.ways.way().chooses() { 0 } else { (self.pass_free / 16).saturating_sub(self.reserve) };
        free.saturating_sub(kept)
    }

    /// A host that does not answer soon keeps no more than what waits for its answer. When to look again, if that is to come.
    fn thin_if_late(&mut self, now: u64) -> Option<u64> {
        if self.hinter.on_the_way().is_empty() {
            return None;
        }
        let late = self.sent_ns + LATE_NS;
        if now < late {
            return Some(late.min(now + LOOK_NS));
        }
        self.ways.isolator().thin();
        None
    }

    /// There is nothing to do in this way: perhaps in the next.
    fn go_on(&mut self, now: u64) -> bool {
        // Once tried, a way that gets no more of what it wants pauses before it tries again.
        let paused = self.once && self.tried && self.hinter.rest() == Rest::Gap;
        // Nor is one waited for that is not used for a while.
        let paused = paused || !self.ways.is_usable(now);
        let idle = paused || matches!(self.hinter.rest(), Rest::NothingNew | Rest::Reserve | Rest::Busy);
        if !idle || !self.hinter.isolated().is_empty() || self.done {
            return false;
        }
        let first = self.ways.is_first();
        let insist = self.once && self.looked;
        let switched = self.ways.go_on(&mut self.hinter, insist, now);
        if insist {
            // Once round is enough.
            self.done = !switched || !first && self.ways.is_first();
            if !self.done {
                self.hinter.event(Event::Now, now);
            }
        }
        self.tried &= !switched;
        switched && !self.done
    }

    fn isolate(&mut self, blocks: &[Block]) {
        self.tried = true;
        let begin = monotonic_ns();
        let wanted = self.wanted(blocks);
        // The more there is to be had, the longer it is looked for.
        let patience = STALE_BATCHES + self.hinter.zones().nr_free() / (2 * self.hinter.config().batch as u64);
        let fruitless = self.ways.stops_early() && self.stale_batches >= patience;
        let usable = !wanted.is_empty() && self.ways.is_usable(begin) && !fruitless;
        let taken = if usable { self.ways.isolator().take(&wanted, &mut self.ledger) } else { Ok(Vec::new()) };
        let end = monotonic_ns();
        self.longest_step_ns = self.longest_step_ns.max(end - begin);
        self.spent_ns += end - begin;
        let taken = taken.unwrap_or_else(|e| {
            self.failed(&e, end);
            Vec::new()
        });
        let blocks = taken.iter().flat_map(|range| {
            let (first, end) = self.size.inside(*range);
            (first..end).map(Block)
        });
        let blocks: Vec<Block> = blocks.collect();
        let stale = !blocks.is_empty() && blocks.iter().all(|block| self.hinter.zones().is_reported(*block));
        self.stale_batches = if stale { self.stale_batches + 1 } else { 0 };
        let isolation = Isolation { blocks, written: self.ways.writes() };
        self.hinter.event(Event::Isolated(isolation), end);
    }

    /// What to ask the isolator for: whole memory blocks that are free for the most part, or so many huge pages.
    fn wanted(&self, blocks: &[Block]) -> Vec<AddrRange> {
        if !self.ways.way().chooses() {
            return blocks.iter().map(|block| self.size.range(*block)).collect();
        }
        let unit = self.hinter.config().unit * self.size.bytes();
        let units = blocks.iter().map(|block| {
            let start = self.size.range(*block).start;
            AddrRange::new(start, start + unit)
        });
        let mostly_free = |range: &AddrRange| {
            let free = self.watch.likely_free(*range).unwrap_or(0);
            free * FREE_PART.1 >= range.len() * FREE_PART.0
        };
        units.filter(mostly_free).collect()
    }

    fn report(&mut self, batch: u64, blocks: &[Block], session: &mut Session, now: u64) {
        if batch != self.last_batch {
            // Before it is sent the first time, and not afterwards: what was sent cannot be taken back.
            let ranges = joined(blocks, self.size);
            if let Err(e) = self.ways.isolator().check(&ranges) {
                self.hinter.event(Event::Void, now);
                self.failed(&e, now);
                return;
            }
            self.last_batch = batch;
            self.sent_ns = now;
        }
        let unit = self.hinter.config().unit;
        let most = self.limits.map_or(1, |limits| usize::from(limits.ranges));
        session.report(batch, blocks, unit, most);
    }

    /// The way in use does not work any more. Nothing is on its way.
    fn failed(&mut self, error: &IsolateError, now: u64) {
        if matches!(error, IsolateError::Taken) {
            self.hinter.event(Event::Pressure, now);
            self.release_due = true;
            return;
        }
        let text = format!("isolating by {}: {error}; not used for a minute", self.ways.way());
        if self.told != text {
            note(&text);
            self.told = text;
        }
        self.ways.penalize(now);
        self.release_due = true;
    }

    /// Gives everything back; false if that failed and is to be tried again.
    fn give_back(&mut self, now: u64) -> bool {
        let result = self.ways.isolator().give_back(&mut self.ledger);
        self.spent_ns += monotonic_ns() - now;
        match result {
            Ok(()) => {
                self.release_due = false;
                self.hinter.event(Event::Released, now);
                self.ways.pass_ended(&mut self.hinter);
                self.judge_rest();
                true
            }
            Err(e) => {
                let text = format!("cannot give memory back yet: {e}");
                if self.told != text {
                    note(&text);
                    self.told = text;
                }
                false
            }
        }
    }

    /// At the end: gives back what no report can be on its way of.
    pub(super) fn put_back_if_safe(&mut self, leftover: bool) -> Result<(), GuestError> {
        if leftover || !self.hinter.on_the_way().is_empty() {
            let held = format_size(self.ways.held());
            let what = if leftover { "what a predecessor isolated".to_owned() } else { held };
            return Err(GuestError::Left(format!(
                "{what} stays isolated, because the host has not answered the last report and may still act on it; start the \
                 agent again while the host is there, or reboot the guest"
            )));
        }
        self.ledger.put_back().map_err(|troubles| GuestError::Left(troubles.join("; ")))
    }

    fn read_level(&mut self) -> Result<FreeLevel, GuestError> {
        self.level = FreeLevel::read(&self.roots).map_err(GuestError::io("read how much memory is free"))?;
        Ok(self.level)
    }
}
