//! Passes over free memory: which blocks are isolated, reported and returned next.

use super::block::{BLOCK_BYTES, Block, blocks_inside, blocks_touched};
use super::block_map::BlockMap;
use super::command::{Command, Event, Fate, Isolation};
use super::config::Config;
use super::stats::{HintStats, Rest};
use super::way::Way;
use crate::addr::AddrRange;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// Nothing.
    Idle,
    /// These were asked for.
    Isolating(Vec<Block>),
    /// Isolated, not sent yet.
    Ready(Vec<Block>),
    /// Sent.
    OnTheWay { blocks: Vec<Block>, sent_ns: u64 },
}

/// When to look again at something that nobody tells us about, at the latest, ns.
const LOOK_AGAIN_NS: u64 = 100_000_000;
/// When to send a batch again that was not acknowledged, ns.
const RESEND_NS: u64 = 2_000_000_000;
/// How long to leave memory alone after pressure, ns; doubled each time, up to the second.
const BACKOFF_NS: (u64, u64) = (1_000_000_000, 60_000_000_000);

/// Decides what to report, and when.
#[derive(Debug, Clone)]
pub struct Passes {
    config: Config,
    blocks: BlockMap,
    phase: Phase,
    /// Everything isolated: on its way, no longer needed, or being returned.
    isolated: BTreeSet<Block>,
    /// All that is isolated is being returned.
    releasing: bool,
    /// The isolator has given less than it was asked for.
    exhausted: bool,
    in_pass: bool,
    now_asked: bool,
    host: bool,
    stopping: bool,
    /// The last batch's number.
    batch: u64,
    /// Where the next candidates are looked for.
    cursor: u64,
    /// Since when there is something to report.
    waiting_since_ns: Option<u64>,
    not_before_ns: u64,
    put_off_until_ns: u64,
    calm_at_ns: u64,
    backoff_ns: u64,
    forgive_at_ns: Option<u64>,
    /// A step takes more CPU time than it may at present.
    over_budget: bool,
    rest: Rest,
    stats: HintStats,
}

impl Passes {
    /// One that knows of no memory and no host yet.
    pub fn new(config: Config) -> Self {
        debug_assert!(config.is_consistent(), "{config:?}");
        Self {
            config,
            blocks: BlockMap::default(),
            phase: Phase::Idle,
            isolated: BTreeSet::new(),
            releasing: false,
            exhausted: false,
            in_pass: false,
            now_asked: false,
            host: false,
            stopping: false,
            batch: 0,
            cursor: 0,
            waiting_since_ns: None,
            not_before_ns: 0,
            put_off_until_ns: 0,
            calm_at_ns: 0,
            backoff_ns: 0,
            forgive_at_ns: None,
            over_budget: false,
            rest: Rest::NoHost,
            stats: HintStats::default(),
        }
    }

    /// Memory is there: the blocks that lie in it as a whole.
    pub fn add_memory(&mut self, range: AddrRange) {
        let (first, end) = blocks_inside(range);
        self.blocks.add(first, end);
    }

    /// Memory goes: every block that it touches. What is isolated of it stays so until it is returned in the usual way.
    pub fn remove_memory(&mut self, range: AddrRange) {
        let (first, end) = blocks_touched(range);
        self.blocks.remove(first, end);
    }

    /// A block is free.
    pub fn freed(&mut self, block: Block, now_ns: u64) {
        if !self.isolated.contains(&block) && self.blocks.freed(block) {
            self.waiting_since_ns.get_or_insert(now_ns);
        }
    }

    /// A block is in use, in part at least, or was since it was last looked at.
    pub fn used(&mut self, block: Block) {
        // Of one that we hold ourselves this says nothing.
        if !self.isolated.contains(&block) {
            self.blocks.used(block);
        }
    }

    /// What is known of memory.
    pub const fn blocks(&self) -> &BlockMap {
        &self.blocks
    }

    /// What is isolated, and nobody else's to touch.
    pub const fn isolated(&self) -> &BTreeSet<Block> {
        &self.isolated
    }

    /// Reported and not acknowledged.
    pub fn on_the_way(&self) -> &[Block] {
        match &self.phase {
            Phase::OnTheWay { blocks, .. } => blocks,
            _ => &[],
        }
    }

    /// Counters.
    pub const fn stats(&self) -> HintStats {
        self.stats
    }

    /// Why the last command was to wait.
    pub const fn rest(&self) -> Rest {
        self.rest
    }

    /// The settings.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Whether all is returned after [`Event::Stop`].
    pub fn is_stopped(&self) -> bool {
        self.stopping && self.isolated.is_empty() && matches!(self.phase, Phase::Idle)
    }

    /// Other limits, which hold for what is begun from now on. What one way to isolate could not have, another may.
    pub(crate) fn reconfigure(&mut self, config: Config) {
        debug_assert!(config.is_consistent(), "{config:?}");
        if config.way != self.config.way {
            self.blocks.forgive();
            self.forgive_at_ns = None;
        }
        self.config = config;
    }

    /// Whether the next step takes more CPU time than it may: no pass begins, and none over memory blocks goes on.
    pub(super) const fn set_over_budget(&mut self, over_budget: bool) {
        self.over_budget = over_budget;
    }

    /// Something happened.
    pub fn event(&mut self, event: Event, now_ns: u64) {
        match event {
            Event::Isolated(isolation) => self.on_isolated(isolation, now_ns),
            Event::Acked { batch, fates, wait_ns } => self.on_acked(batch, &fates, wait_ns, now_ns),
            Event::Released => {
                if std::mem::take(&mut self.releasing) {
                    self.stats.released += self.isolated.len() as u64;
                    self.isolated.clear();
                }
            }
            Event::Ready => {
                self.void();
                self.host = true;
                self.put_off_until_ns = 0;
            }
            Event::Silent => {
                self.host = false;
                self.in_pass = false;
            }
            Event::Void => self.void(),
            Event::Forgotten => {
                self.blocks.forget_reported();
                self.begin_waiting(now_ns);
            }
            Event::Pressure => {
                self.stats.pressures += 1;
                let (least, most) = BACKOFF_NS;
                // Doubled if the last one is not long over.
                let again = now_ns < self.calm_at_ns.saturating_add(self.backoff_ns);
                self.backoff_ns = if again { self.backoff_ns.saturating_mul(2).max(least).min(most) } else { least };
                self.calm_at_ns = now_ns.saturating_add(self.backoff_ns);
                self.in_pass = false;
            }
            Event::Now => self.now_asked = true,
            Event::Stop => {
                self.stopping = true;
                self.in_pass = false;
            }
        }
    }

    /// What to do now. `free`: bytes of free memory, those isolated not counted.
    pub fn command(&mut self, now_ns: u64, free: u64) -> Command {
        if self.forgive_at_ns.is_some_and(|at| at <= now_ns) {
            self.blocks.forgive();
            self.forgive_at_ns = None;
            self.begin_waiting(now_ns);
        }
        if self.releasing || matches!(self.phase, Phase::Isolating(_)) {
            return self.wait(Rest::Busy, None);
        }
        let may_send = self.host && !self.stopping && now_ns >= self.calm_at_ns;
        if matches!(self.phase, Phase::Ready(_)) && !may_send {
            // Never sent: they can go back.
            self.phase = Phase::Idle;
            self.in_pass = false;
        }
        // An isolator returns everything or nothing: not while some of it is reported, or about to be.
        if self.phase == Phase::Idle && self.must_return() {
            return self.release();
        }
        match &mut self.phase {
            Phase::Ready(blocks) => {
                let blocks = std::mem::take(blocks);
                self.batch += 1;
                self.stats.batches += 1;
                self.stats.reported += blocks.len() as u64;
                self.phase = Phase::OnTheWay { blocks: blocks.clone(), sent_ns: now_ns };
                return Command::Report { batch: self.batch, blocks };
            }
            Phase::OnTheWay { blocks, sent_ns } if self.host => {
                let due = sent_ns.saturating_add(RESEND_NS);
                if now_ns < due {
                    return self.wait(Rest::NoAnswer, Some(due));
                }
                *sent_ns = now_ns;
                self.stats.resent += 1;
                return Command::Report { batch: self.batch, blocks: blocks.clone() };
            }
            Phase::OnTheWay { .. } => return self.wait(Rest::NoAnswer, None),
            Phase::Isolating(_) | Phase::Idle => {}
        }
        let wanted = self.wanted(now_ns, free);
        if wanted.is_empty() {
            if self.must_return() {
                return self.release();
            }
            return self.wait(self.rest, self.wake_ns(now_ns));
        }
        self.cursor = wanted.last().map_or(0, |block| block.0 + 1);
        self.phase = Phase::Isolating(wanted.clone());
        Command::Isolate(wanted)
    }

    /// What to isolate next; if nothing, `rest` says why.
    fn wanted(&mut self, now_ns: u64, free: u64) -> Vec<Block> {
        if let Some(rest) = self.hindrance(now_ns) {
            self.end_pass(now_ns, rest);
            return Vec::new();
        }
        if std::mem::take(&mut self.exhausted) {
            self.end_pass(now_ns, Rest::Gap);
            self.not_before_ns = now_ns.saturating_add(self.config.retry_ns);
            return Vec::new();
        }
        let room = self.config.batch.min(self.config.most_isolated.saturating_sub(self.isolated.len())) as u64;
        let spare = free.saturating_sub(self.config.reserve) / BLOCK_BYTES;
        let units = (room.min(spare) / self.config.unit) as usize;
        if units == 0 {
            self.end_pass(now_ns, if spare < self.config.unit { Rest::Reserve } else { Rest::Gap });
            if self.config.way == Way::Touch && !self.isolated.is_empty() {
                // The same blocks would come again.
                self.not_before_ns = now_ns.saturating_add(self.config.retry_ns);
            }
            return Vec::new();
        }
        let found = if self.config.unit == 1 {
            self.blocks.candidates(self.cursor, units)
        } else {
            self.blocks.units(self.config.unit, self.config.unit_worth, units)
        };
        if found.is_empty() {
            self.end_pass(now_ns, Rest::NothingNew);
            self.waiting_since_ns = None;
            self.now_asked = false;
            return found;
        }
        if !self.in_pass {
            self.in_pass = true;
            self.stats.passes += 1;
        }
        found
    }

    /// Why no pass may begin or go on.
    fn hindrance(&self, now_ns: u64) -> Option<Rest> {
        if self.stopping {
            Some(Rest::Stopped)
        } else if !self.host {
            Some(Rest::NoHost)
        } else if now_ns < self.calm_at_ns {
            Some(Rest::Pressure)
        } else if now_ns < self.put_off_until_ns {
            Some(Rest::PutOff)
        } else if self.in_pass {
            (self.over_budget && self.config.way == Way::Offline).then_some(Rest::Budget)
        } else if now_ns < self.not_before_ns {
            Some(Rest::Gap)
        } else if !self.now_asked && !self.is_due(now_ns) {
            Some(Rest::NothingNew)
        } else if self.over_budget {
            Some(Rest::Budget)
        } else {
            None
        }
    }

    fn is_due(&self, now_ns: u64) -> bool {
        self.blocks.nr_free() >= self.config.threshold.max(1) || self.lingered_ns().is_some_and(|at| at <= now_ns)
    }

    /// When few blocks start a pass as well.
    fn lingered_ns(&self) -> Option<u64> {
        Some(self.waiting_since_ns?.saturating_add(self.config.linger_ns?))
    }

    fn begin_waiting(&mut self, now_ns: u64) {
        if self.blocks.nr_free() > 0 {
            self.waiting_since_ns.get_or_insert(now_ns);
        }
    }

    fn end_pass(&mut self, now_ns: u64, rest: Rest) {
        self.rest = rest;
        if std::mem::take(&mut self.in_pass) {
            self.not_before_ns = now_ns.saturating_add(self.config.gap_ns);
        }
    }

    /// Whether something has to go back before anything else is done.
    fn must_return(&self) -> bool {
        !self.isolated.is_empty() && (self.config.way == Way::Offline || !self.in_pass)
    }

    /// When to look again, if nothing happens before.
    fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        let at = match self.rest {
            Rest::Pressure => Some(self.calm_at_ns),
            Rest::PutOff => Some(self.put_off_until_ns),
            Rest::Gap => Some(self.not_before_ns),
            Rest::Reserve => Some(self.not_before_ns.max(now_ns.saturating_add(LOOK_AGAIN_NS))),
            Rest::NothingNew if self.blocks.nr_free() == 0 => None,
            Rest::NothingNew => {
                [self.lingered_ns(), self.forgive_at_ns].into_iter().flatten().filter(|at| *at > now_ns).min()
            }
            // Others tell, or a look at the guest does.
            Rest::NoHost | Rest::NoAnswer | Rest::Busy | Rest::Budget | Rest::Stopped => None,
        };
        // Of something that is due there is no more to wait for than a moment.
        at.map(|at| at.max(now_ns + 1))
    }

    fn wait(&mut self, rest: Rest, until_ns: Option<u64>) -> Command {
        self.rest = rest;
        Command::Wait(until_ns)
    }

    fn release(&mut self) -> Command {
        self.releasing = true;
        Command::Release
    }

    fn on_isolated(&mut self, isolation: Isolation, now_ns: u64) {
        let Phase::Isolating(wanted) = &mut self.phase else {
            // Nobody asked for them, but they must go back.
            self.stats.odd += isolation.blocks.len() as u64;
            self.isolated.extend(isolation.blocks);
            return;
        };
        let wanted = std::mem::take(wanted);
        self.phase = Phase::Idle;
        self.exhausted = self.config.way == Way::Touch && isolation.blocks.len() < wanted.len();
        let mut report = Vec::new();
        for block in isolation.blocks {
            if !self.isolated.insert(block) {
                self.stats.odd += 1;
                continue;
            }
            self.stats.isolated += 1;
            if isolation.written {
                self.blocks.used(block);
            }
            if !self.blocks.contains(block) {
                self.stats.odd += 1;
            } else if !self.blocks.is_reported(block) {
                report.push(block);
            }
        }
        let missing: Vec<Block> = match self.config.way {
            Way::Offline => wanted.into_iter().filter(|block| !self.isolated.contains(block)).collect(),
            Way::Touch => Vec::new(),
        };
        if !missing.is_empty() {
            self.stats.not_had += missing.len() as u64;
            self.refuse(&missing, now_ns);
        }
        if !report.is_empty() {
            self.phase = Phase::Ready(report);
        }
    }

    fn refuse(&mut self, blocks: &[Block], now_ns: u64) {
        for block in blocks {
            // A unit is refused as a whole.
            (block.0..block.0 + self.config.unit).for_each(|b| self.blocks.refused(Block(b)));
        }
        self.forgive_at_ns.get_or_insert(now_ns.saturating_add(self.config.retry_ns));
    }

    fn on_acked(&mut self, batch: u64, fates: &[Fate], wait_ns: u64, now_ns: u64) {
        let blocks = match &mut self.phase {
            Phase::OnTheWay { blocks, .. } if batch == self.batch && fates.len() == blocks.len() => {
                std::mem::take(blocks)
            }
            _ => {
                self.stats.odd_acks += 1;
                return;
            }
        };
        self.phase = Phase::Idle;
        self.put_off_until_ns = now_ns.saturating_add(wait_ns);
        let mut refused = false;
        for (block, fate) in blocks.iter().zip(fates) {
            match fate {
                Fate::Dropped => {
                    self.stats.dropped += 1;
                    self.blocks.dropped(*block);
                }
                Fate::Refused => {
                    self.stats.refused += 1;
                    refused = true;
                    self.blocks.refused(*block);
                }
                Fate::NotNow => {
                    self.stats.put_off += 1;
                    self.put_off_until_ns = self.put_off_until_ns.max(now_ns.saturating_add(LOOK_AGAIN_NS));
                    // It may have been one of those that only came along.
                    self.blocks.freed(*block);
                }
            }
        }
        if refused {
            self.refuse(&[], now_ns);
        }
    }

    /// What is on its way will not be acted upon: it counts as not reported, and goes back.
    fn void(&mut self) {
        if let Phase::OnTheWay { blocks, .. } = &mut self.phase {
            let blocks = std::mem::take(blocks);
            self.stats.void += blocks.len() as u64;
            for block in &blocks {
                self.blocks.freed(*block);
            }
            self.phase = Phase::Idle;
            self.in_pass = false;
        }
    }
}
