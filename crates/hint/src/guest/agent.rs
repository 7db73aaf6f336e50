//! The loop: one thread, which waits for the host, the kernel's alarm, signals and the clock.

use super::leftover::{Greeting, Leftover};
use super::link::{Address, Incoming, Link};
use super::machine::Machine;
use super::session::{self, GuestSession, Heard};
use super::status::{Status, own_rss};
use super::{GuestError, Settings};
use crate::protocol::GuestStat;
use isotherm_core::hinter::{self, BLOCK_BYTES, Driver, Event, Guest, Isolator, Way};
use isotherm_core::units::{format_size, nanos};
use isotherm_linux::clock::{kernel_release, monotonic_ns, process_cpu_ns};
use isotherm_linux::guestmem::{
    FlagSampler, KernelIsolator, Ledger, MemoryMap, MemoryMapFile, StallAlarm, clears_on_free, default_reserve,
    free_memory, reporting_balloons,
};
use isotherm_linux::random;
use isotherm_linux::ready::{self, Interest};
use isotherm_linux::roots::Roots;
use isotherm_linux::signals::StopSignals;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

const MS: u64 = 1_000_000;
/// How often a port is looked at on which nobody listens, and a stream is opened again at first; ns.
const RETRY_NS: u64 = 250 * MS;
/// The longest pause between attempts to reach the host, ns.
const LONGEST_RETRY_NS: u64 = 5_000 * MS;
/// After a refusal, ns.
const REFUSED_RETRY_NS: u64 = 30_000 * MS;
/// Between looks at the memory map, and messages for people who look, ns.
const SELDOM_NS: u64 = 5_000 * MS;
/// How long a stop waits for the host's answer to what is on its way, and `--once` for a host.
const STOP_PATIENCE_NS: u64 = 10_000 * MS;
const ONCE_PATIENCE_NS: u64 = 30_000 * MS;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By a signal; everything is as it was.
    Stopped,
    /// The one pass asked for is done.
    Done,
}

#[derive(Debug)]
pub struct Agent<'a> {
    signals: &'a StopSignals,
    settings: Settings,
    map: MemoryMap,
    map_file: MemoryMapFile,
    machine: Machine,
    driver: Driver,
    reserve: u64,
    ways: Vec<Way>,
    alarm: Option<StallAlarm>,
    alarm_rang: bool,
    leftover: Leftover,
    /// The balloon does the work: nothing is isolated.
    watching: bool,
    /// The port is open and nobody is on the other side.
    nobody: bool,
    start_ns: u64,
    next_open_ns: u64,
    open_pause_ns: u64,
    next_seldom_ns: u64,
    stop_by_ns: Option<u64>,
}

impl<'a> Agent<'a> {
    /// Looks at this machine and takes what it needs; nothing is isolated yet.
    pub fn new(signals: &'a StopSignals, settings: Settings) -> Result<Self, GuestError> {
        Self::below(Roots::system(), signals, settings)
    }

    fn below(roots: Roots, signals: &'a StopSignals, settings: Settings) -> Result<Self, GuestError> {
        let mut map_file = MemoryMapFile::open(&roots).map_err(GuestError::io("open the memory map"))?;
        let map = map_file.read().map_err(GuestError::io("read the memory map"))?;
        if clears_on_free(&roots) && !settings.force {
            return Err(GuestError::ClearsOnFree);
        }
        let reporting = reporting_balloons(&roots).into_iter().next();
        let watching = reporting.is_some() && !settings.force;
        if let Some(balloon) = reporting.filter(|_| watching) {
            tracing::info!(
                "the balloon {balloon} reports free pages already; only watching (--force hints all the same)"
            );
        }
        let ledger = Ledger::open(&roots)?;
        let leftover = Leftover::new(!ledger.is_empty());
        let alarm = StallAlarm::new(&roots);
        match &alarm {
            Err(e) => tracing::info!("memory pressure is not reported: {e}; the reserve alone protects this guest"),
            Ok(alarm) => {
                if let Some((late, capability)) = alarm.is_late() {
                    tracing::info!("memory pressure is reported up to {late:?} late: {capability} is missing");
                }
            }
        }
        let flags = FlagSampler::open(&roots).map_err(GuestError::io("open /proc/kpageflags"))?;
        let free = free_memory(&roots).map_err(GuestError::io("read how much memory is free"))?;
        let reserve = settings.reserve.unwrap_or_else(|| default_reserve(free.total, &roots));
        let mut isolator = KernelIsolator::new(&roots, ledger);
        let ways = settings.wish.find(&mut isolator, reserve)?;
        let now = monotonic_ns();
        let agent = format!("isotherm {} on {}", env!("CARGO_PKG_VERSION"), kernel_release().unwrap_or_default());
        let hello = session::hello(map.areas.clone(), guest_id(&roots), agent);
        let mut agent = Self {
            signals,
            ways: ways.iter().map(|config| config.way).collect(),
            driver: Driver::new(
                hinter::Settings {
                    ways,
                    reserve,
                    look_ns: nanos(settings.interval),
                    once: settings.once,
                    cpu_budget: settings.cpu_budget,
                    compact: settings.compact,
                    seed: random()?,
                },
                free,
                now,
            ),
            machine: Machine {
                roots,
                flags,
                isolator,
                link: Link::new(settings.address.clone()),
                session: GuestSession::new(hello, settings.key.clone()),
                most_ranges: 1,
                shown: String::new(),
            },
            settings,
            map,
            map_file,
            reserve,
            alarm: alarm.ok(),
            alarm_rang: false,
            leftover,
            watching,
            nobody: false,
            start_ns: now,
            next_open_ns: 0,
            open_pause_ns: RETRY_NS,
            next_seldom_ns: 0,
            stop_by_ns: None,
        };
        agent.set_memory();
        Ok(agent)
    }

    /// What it is about to do, for people.
    pub fn introduction(&self) -> String {
        let left = if self.leftover.is_there() {
            "; a predecessor left memory isolated, which waits for the host"
        } else {
            ""
        };
        let ways: Vec<&str> = self.ways.iter().map(|way| way.name()).collect();
        introduction(self.watching, &ways, self.reserve, &self.settings.address) + left
    }

    /// Runs until a signal comes, or one pass is done if that was asked for. `tell` is given the state at each
    /// interval.
    pub fn run(&mut self, mut tell: impl FnMut(&Status)) -> Result<Ended, GuestError> {
        let result = self.turn(&mut tell);
        let put_back = self.put_back_if_safe();
        self.machine.session.bye("the agent ends");
        let _ = self.machine.link.write(self.machine.session.out());
        let ended = result?;
        put_back?;
        Ok(ended)
    }

    fn turn(&mut self, tell: &mut impl FnMut(&Status)) -> Result<Ended, GuestError> {
        loop {
            let now = monotonic_ns();
            if self.signals.received().is_some() && self.stop_by_ns.is_none() {
                self.stop_by_ns = Some(now + STOP_PATIENCE_NS);
                self.event(Event::Stop);
            }
            if self.alarm_rang || self.alarm.as_ref().is_some_and(StallAlarm::rang) {
                self.alarm_rang = false;
                self.event(Event::Pressure);
            }
            self.keep_link(now)?;
            self.receive(now)?;
            let looked = self.look(now)?;
            let until = self.driver.act(&mut self.machine)?;
            self.flush();
            if looked {
                tell(&self.status());
            }
            let now = monotonic_ns();
            if let Some(by) = self.stop_by_ns
                && (self.driver.passes().is_stopped() && !self.leftover.is_there() || now >= by)
            {
                return Ok(Ended::Stopped);
            }
            if self.settings.once {
                if self.driver.is_done() || self.watching {
                    tell(&self.status());
                    return Ok(Ended::Done);
                }
                if !self.machine.session.is_welcome() && now >= self.start_ns + ONCE_PATIENCE_NS {
                    return Err(GuestError::NoHost(self.settings.address.to_string(), ONCE_PATIENCE_NS / 1000 / MS));
                }
            }
            self.sleep(now, until)?;
        }
    }

    /// Opens the stream if it is closed.
    fn keep_link(&mut self, now: u64) -> Result<(), GuestError> {
        if self.machine.link.is_open() || now < self.next_open_ns {
            return Ok(());
        }
        match self.machine.link.open() {
            Ok(()) => {
                self.open_pause_ns = RETRY_NS;
                self.machine.session.connected(random::bytes().map_err(GuestError::io(RANDOM))?);
                self.machine.session.begin(random()?, now);
            }
            Err(e) => {
                self.machine
                    .trouble(format_args!("cannot reach the host at {}: {e}; trying again", self.settings.address));
                self.next_open_ns = now + self.open_pause_ns;
                self.open_pause_ns = (self.open_pause_ns * 2).min(LONGEST_RETRY_NS);
            }
        }
        Ok(())
    }

    /// Reads what has come and acts on it.
    fn receive(&mut self, now: u64) -> Result<(), GuestError> {
        while self.machine.link.is_open() {
            let decoder = self.machine.session.decoder();
            let read = self.machine.link.read(|mut stream: &mut dyn Read| decoder.fill(&mut stream));
            if matches!(read, Ok(Incoming::Bytes(_) | Incoming::Nothing)) && std::mem::take(&mut self.nobody) {
                self.machine.session.begin(random()?, now);
            }
            match read {
                Ok(Incoming::Bytes(_)) => {
                    self.machine.session.heard_bytes(now);
                    while let Some(heard) = self.machine.session.hear(random()?, now) {
                        self.on_heard(heard, now)?;
                    }
                }
                Ok(Incoming::Nothing) => break,
                Ok(Incoming::Ended) => {
                    self.on_end(now);
                    break;
                }
                Err(e) => {
                    // Not the other side's doing: what is on its way may still arrive.
                    self.machine.trouble(format_args!("the connection to the host broke: {e}"));
                    self.cut(now);
                    break;
                }
            }
        }
        Ok(())
    }

    /// The other side has closed, or so it seems.
    fn on_end(&mut self, now: u64) {
        if !self.nobody {
            // A port is the one channel that there is.
            if self.machine.link.is_port() || self.machine.session.end_is_final() {
                self.event(Event::Void);
            }
            self.event(Event::Silent);
            self.machine.session.disconnected();
        }
        if self.machine.link.is_port() {
            // The one channel that there is: a predecessor's reports ended with it, too.
            self.nobody = true;
            self.leftover.settled();
        } else {
            self.machine.link.close();
            self.next_open_ns = self.next_open_ns.max(now + self.open_pause_ns);
        }
    }

    fn on_heard(&mut self, heard: Heard, now: u64) -> Result<(), GuestError> {
        match heard {
            Heard::Welcome { limits, new_host } => {
                self.machine.trouble(format_args!("reporting to {}", self.settings.address));
                // By the protocol nothing that was reported before will be acted upon any more.
                self.leftover.settled();
                self.leftover.welcomed(Greeting { ranges: usize::from(limits.ranges), new_host });
                self.begin_work(now)?;
            }
            Heard::Lost => self.event(Event::Silent),
            Heard::Acked { batch, fates, wait_ns } => self.event(Event::Acked { batch, fates, wait_ns }),
            Heard::Refused(code, text) => {
                if self.settings.once {
                    return Err(GuestError::Refused(format!("{text} ({code:?})")));
                }
                self.machine.trouble(format_args!("the host refuses: {text} ({code:?}); trying again now and then"));
                self.next_open_ns = now + REFUSED_RETRY_NS;
            }
            Heard::Mistrusted(why) => {
                if self.settings.once {
                    return Err(GuestError::Mistrusted(why));
                }
                self.machine.trouble(format_args!("{why}; trying again now and then"));
                self.cut(now);
                self.next_open_ns = now + REFUSED_RETRY_NS;
            }
            Heard::Bye(reason) => self.machine.trouble(format_args!("the host goes: {reason}")),
        }
        Ok(())
    }

    /// Puts back what a predecessor left, if it may be and is due, and begins with the host that has welcomed us once that is
    /// done.
    fn begin_work(&mut self, now: u64) -> Result<(), GuestError> {
        match self.leftover.put_back(now, || self.machine.isolator.put_back()) {
            None => {}
            Some(Ok(())) => {
                self.machine.isolator.memory_changed();
                tracing::info!("what a predecessor had left isolated is back in use");
            }
            Some(Err(e)) if self.settings.once && now >= self.start_ns + ONCE_PATIENCE_NS => return Err(e.into()),
            Some(Err(e)) => self.machine.trouble(format_args!("{e}; trying again")),
        }
        if !self.watching
            && self.machine.session.is_welcome()
            && let Some(Greeting { ranges, new_host }) = self.leftover.begin()
        {
            self.machine.most_ranges = ranges;
            self.driver.welcome(ranges, new_host, now);
        }
        Ok(())
    }

    /// At each interval: looks at free memory. Whether it was time.
    fn look(&mut self, now: u64) -> Result<bool, GuestError> {
        self.begin_work(now)?;
        if now >= self.next_seldom_ns {
            self.next_seldom_ns = now + SELDOM_NS;
            self.follow_map(now)?;
            let stat = self.stat();
            self.machine.session.stat(stat);
        }
        self.driver.look(&mut self.machine)
    }

    /// Memory may have come or gone.
    fn follow_map(&mut self, now: u64) -> Result<(), GuestError> {
        let map = self.map_file.read().map_err(GuestError::io("read the memory map"))?;
        if map == self.map {
            return Ok(());
        }
        self.machine.session.set_memory(map.areas.clone());
        self.map = map;
        self.set_memory();
        if self.machine.link.is_open() && !self.nobody {
            self.event(Event::Silent);
            self.machine.session.begin(random()?, now);
        }
        Ok(())
    }

    fn flush(&mut self) {
        if self.nobody {
            return;
        }
        if let Err(e) = self.machine.link.write(self.machine.session.out()) {
            // Reading tells what is the matter.
            self.machine.trouble(format_args!("cannot write to the host: {e}"));
            if !self.machine.link.is_port() {
                self.cut(monotonic_ns());
            }
        }
    }

    /// Closes the stream from this side: what is on its way may still arrive.
    fn cut(&mut self, now: u64) {
        self.event(Event::Silent);
        self.machine.session.disconnected();
        self.machine.link.close();
        self.next_open_ns = now + self.open_pause_ns;
    }

    /// Waits for something to happen, until the next thing is due at the latest.
    fn sleep(&mut self, now: u64, until: Option<u64>) -> Result<(), GuestError> {
        let mut due = self.driver.next_look_ns().min(self.next_seldom_ns);
        for at in [until, self.stop_by_ns, self.leftover.due_ns()].into_iter().flatten() {
            due = due.min(at);
        }
        if !self.machine.link.is_open() {
            due = due.min(self.next_open_ns);
        } else if self.nobody {
            due = due.min(now + RETRY_NS);
        } else if let Some(at) = self.machine.session.tick(now) {
            due = due.min(at);
            self.flush();
        }
        let mut files = Vec::with_capacity(3);
        // Readable from now on, once a signal has come.
        if self.stop_by_ns.is_none() {
            files.push((self.signals.as_fd(), Interest::Read));
        }
        if let Some(fd) = self.machine.link.fd().filter(|_| !self.nobody) {
            let writes = self.machine.session.has_out();
            files.push((fd, if writes { Interest::ReadWrite } else { Interest::Read }));
        }
        if let Some(alarm) = &self.alarm {
            files.push((alarm.as_fd(), Interest::Alarm));
        }
        let limit = Duration::from_nanos(due.saturating_sub(now).max(MS));
        let ready = ready::wait(&files, Some(limit)).map_err(GuestError::io("wait"))?;
        // The kernel tells it once.
        self.alarm_rang |= self.alarm.is_some() && ready.last() == Some(&true);
        Ok(())
    }

    fn stat(&self) -> GuestStat {
        let stats = self.driver.passes().stats();
        GuestStat {
            free: self.driver.free().free,
            isolated: self.machine.isolator.isolated(),
            reported: stats.dropped * BLOCK_BYTES,
            passes: stats.passes,
            cpu_us: process_cpu_ns() / 1000,
        }
    }

    fn status(&self) -> Status {
        let passes = self.driver.passes();
        let (blocks, free) = (passes.blocks(), self.driver.free());
        Status {
            ms: (monotonic_ns() - self.start_ns) / MS,
            way: if self.watching { "watch" } else { self.driver.way().name() },
            host: self.machine.session.is_welcome(),
            free: free.free,
            free_huge: free.free_huge,
            fresh_blocks: blocks.nr_free(),
            dropped_blocks: blocks.nr_reported(),
            isolated: self.machine.isolator.isolated(),
            reserve: self.reserve,
            rest: if self.watching { "the balloon does it".into() } else { passes.rest().to_string() },
            rss: own_rss(),
            cpu_us: process_cpu_ns() / 1000,
            longest_step_us: self.driver.longest_step_ns() / 1000,
            counters: passes.stats(),
            compaction: self.driver.compaction_stats(),
        }
    }

    fn event(&mut self, event: Event) {
        self.driver.event(event, &mut self.machine);
    }

    /// The memory map is another one.
    fn set_memory(&mut self) {
        self.machine.isolator.memory_changed();
        if !self.watching {
            self.driver.set_memory(self.map.ram());
        }
    }

    /// At the end: gives back what no report can be on its way of.
    fn put_back_if_safe(&mut self) -> Result<(), GuestError> {
        if self.leftover.may_be_dropped() {
            return Err(GuestError::Unanswered("what a predecessor isolated".to_owned()));
        }
        if !self.driver.passes().on_the_way().is_empty() {
            return Err(GuestError::Unanswered(format_size(self.machine.isolator.isolated())));
        }
        Ok(self.machine.isolator.put_back()?)
    }
}

/// What an agent is about to do, for people.
fn introduction(watching: bool, ways: &[&str], reserve: u64, address: &Address) -> String {
    if watching {
        return format!("watching free memory, for {address}");
    }
    format!("hinting by {}, keeping {} free, to {address}", ways.join(", then "), format_size(reserve))
}

/// Who this guest is, for people: its machine-id, or else a number of this boot.
fn guest_id(roots: &Roots) -> [u8; 16] {
    let text = roots.line("/etc/machine-id").or_else(|| roots.line("/proc/sys/kernel/random/boot_id"));
    let digits: String = text.unwrap_or_default().chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

const RANDOM: &str = "get random numbers";

fn random() -> Result<u64, GuestError> {
    random::number().map_err(GuestError::io(RANDOM))
}

#[cfg(test)]
mod tests;
