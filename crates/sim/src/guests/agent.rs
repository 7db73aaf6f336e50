//! Isotherm's agent in a simulated guest: the same [`Driver`] as in a real one, with the same ways of isolating memory.
//!
//! Memory blocks go offline only where they are free as a whole; nothing is moved out of them. Huge pages are cleared,
//! which makes the host back them again.

use super::buddy::{Buddy, HINT_ORDER};
use super::host::Host;
use super::params::Params;
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::hinter::{
    BLOCK_BYTES, Block, Config, Driver, Event, Fate, FreeMemory, Guest, IsolateError, Isolator, Settings, Way,
};
use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::io;

/// As `isotherm hint guest` has it.
const CPU_BUDGET: f64 = 0.01;
/// Pages of a block that a look sees at most.
const SAMPLES: u64 = 3;

/// The agent, and the host side that answers it.
#[derive(Debug)]
pub struct Agent {
    driver: Driver,
    params: Params,
    isolated: Isolated,
    /// When an answer arrives, and the answer.
    answer: Option<(u64, Event)>,
    /// When the driver wants to go on by itself.
    wait_ns: Option<u64>,
    busy_until_ns: u64,
    /// CPU time that it has taken, ns.
    cpu_ns: u64,
}

#[derive(Debug, Default)]
struct Isolated {
    blocks: Vec<Block>,
    /// So many of the first were answered for.
    answered: usize,
    offline: bool,
    /// The kernel took some of it back.
    taken_back: bool,
}

/// The guest that the agent runs in, while it runs.
struct Inside<'a> {
    buddy: &'a mut Buddy,
    host: &'a mut Host,
    guest: usize,
    params: &'a Params,
    isolated: &'a mut Isolated,
    answer: &'a mut Option<(u64, Event)>,
    begin_ns: u64,
    now_ns: Cell<u64>,
    /// CPU time that the agent had taken before.
    cpu_ns: u64,
}

impl Inside<'_> {
    fn spend(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
    }

    /// All of a memory block, or nothing.
    fn take_offline(&mut self, range: AddrRange) -> Option<Vec<Block>> {
        self.spend(self.params.offline_ns);
        let mut taken = Vec::new();
        for block in Block::inside(range) {
            if !self.buddy.take(block.0 as u32) {
                taken.into_iter().for_each(|block| self.give(block, false));
                return None;
            }
            taken.push(block);
        }
        Some(taken)
    }

    fn take_huge_page(&mut self) -> Option<Block> {
        let page = self.buddy.alloc(HINT_ORDER)?;
        let before = self.host.stats().resident;
        let swap_ns: u64 = (page..page + (1 << HINT_ORDER)).map(|page| self.host.touch(self.guest, page)).sum();
        let backed = self.host.stats().resident.saturating_sub(before);
        self.spend(self.params.isolate_ns + swap_ns + backed * self.params.touch_ns);
        Some(Block(u64::from(page >> HINT_ORDER)))
    }

    fn give(&mut self, block: Block, offline: bool) {
        let page = (block.0 as u32) << HINT_ORDER;
        if offline { self.buddy.online(page, HINT_ORDER) } else { self.buddy.free_pages(page, HINT_ORDER) }
    }
}

impl Isolator for Inside<'_> {
    fn isolate(&mut self, way: Way, wanted: &[AddrRange]) -> Result<Vec<AddrRange>, IsolateError> {
        self.isolated.offline = way == Way::Offline;
        let taken: Vec<Block> = match way {
            Way::Offline => wanted.iter().filter_map(|range| self.take_offline(*range)).flatten().collect(),
            Way::Touch => (0..wanted.len()).map_while(|_| self.take_huge_page()).collect(),
        };
        self.isolated.blocks.extend(&taken);
        Ok(taken.into_iter().map(Block::range).collect())
    }

    fn check(&mut self, _reported: &[AddrRange]) -> Result<(), IsolateError> {
        if std::mem::take(&mut self.isolated.taken_back) { Err(IsolateError::Taken) } else { Ok(()) }
    }

    fn release(&mut self) -> Result<(), IsolateError> {
        let Isolated { blocks, offline, .. } = std::mem::take(self.isolated);
        blocks.into_iter().for_each(|block| self.give(block, offline));
        Ok(())
    }

    fn acked(&mut self) {
        self.isolated.answered = self.isolated.blocks.len();
    }

    fn release_answered(&mut self) {
        if !self.isolated.offline {
            let answered = std::mem::take(&mut self.isolated.answered);
            let blocks: Vec<Block> = self.isolated.blocks.drain(..answered).collect();
            blocks.into_iter().for_each(|block| self.give(block, false));
        }
    }

    fn isolated(&self) -> u64 {
        self.isolated.blocks.len() as u64 * BLOCK_BYTES
    }
}

impl Guest for Inside<'_> {
    type Error = Infallible;
    type Isolator = Self;

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn free_memory(&self) -> Result<FreeMemory, Infallible> {
        Ok(self.buddy.free_memory())
    }

    fn page_is_free(&self, addr: u64) -> Result<bool, Infallible> {
        self.spend(self.params.look_block_ns / SAMPLES);
        Ok(self.buddy.is_free((addr / PAGE_SIZE) as u32))
    }

    fn idle_ns(&self) -> Option<u64> {
        None
    }

    fn cpu_ns(&self) -> u64 {
        self.cpu_ns + self.now_ns.get() - self.begin_ns
    }

    fn compact(&mut self) -> io::Result<()> {
        // There are no pages in this guest that could be moved: it is not asked for.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn isolator(&mut self) -> &mut Self {
        self
    }

    fn report(&mut self, batch: u64, blocks: &[Block], _unit: u64) {
        // Nobody writes to an isolated block, so that it is all the same when the host drops it until it answers.
        blocks.iter().for_each(|block| self.host.drop_block(self.guest, block.0 as u32));
        let at_ns = self.now_ns.get() + self.params.answer_ns + self.params.drop_ns * blocks.len() as u64;
        let fates = vec![Fate::Dropped; blocks.len()];
        *self.answer = Some((at_ns, Event::Acked { batch, fates, wait_ns: 0 }));
    }

    fn trouble(&mut self, what: fmt::Arguments<'_>) {
        unreachable!("nothing fails in a simulated guest: {what}");
    }
}

impl Agent {
    /// One for a guest with so much memory, of so many pages.
    pub fn new(buddy: &Buddy, pages: u32, params: &Params, now_ns: u64) -> Self {
        let ways = vec![Config::offline(params.memory_block, params.reserve), Config::touch(params.reserve)];
        let settings = Settings {
            ways,
            reserve: params.reserve,
            look_ns: params.look_ns,
            once: false,
            cpu_budget: Some(CPU_BUDGET),
            compact: false,
            seed: 1,
        };
        let mut driver = Driver::new(settings, buddy.free_memory(), now_ns);
        driver.set_memory(vec![AddrRange::new(0, u64::from(pages) * PAGE_SIZE)]);
        driver.welcome(usize::MAX, true, now_ns);
        Self {
            driver,
            params: *params,
            isolated: Isolated::default(),
            answer: None,
            wait_ns: None,
            busy_until_ns: now_ns,
            cpu_ns: 0,
        }
    }

    /// When it has something to do.
    pub fn wanted_ns(&self) -> u64 {
        let answer = self.answer.as_ref().map(|(at, _)| *at);
        let next = [answer, self.wait_ns].into_iter().flatten().fold(self.driver.next_look_ns(), u64::min);
        next.max(self.busy_until_ns)
    }

    /// Does it; the CPU time that it took in the guest, ns.
    pub fn run(&mut self, buddy: &mut Buddy, host: &mut Host, guest: usize, now_ns: u64) -> u64 {
        let answer = self.answer.take_if(|(at, _)| *at <= now_ns);
        self.inside(buddy, host, guest, now_ns, |driver, inside| {
            if let Some((_, event)) = answer {
                driver.event(event, inside);
            }
            let Ok(_) = driver.look(inside);
            let Ok(wait_ns) = driver.act(inside);
            (wait_ns, inside.now_ns() - now_ns)
        })
    }

    /// The guest wants memory and has none: what the host has answered for is its own again.
    pub fn out_of_memory(&mut self, buddy: &mut Buddy, host: &mut Host, guest: usize, now_ns: u64) {
        self.isolated.taken_back = !self.isolated.offline && !self.isolated.blocks.is_empty();
        self.inside(buddy, host, guest, now_ns, |driver, inside| {
            driver.event(Event::Pressure, inside);
            (Some(now_ns), 0)
        });
    }

    fn inside(
        &mut self,
        buddy: &mut Buddy,
        host: &mut Host,
        guest: usize,
        now_ns: u64,
        run: impl FnOnce(&mut Driver, &mut Inside<'_>) -> (Option<u64>, u64),
    ) -> u64 {
        let mut inside = Inside {
            buddy,
            host,
            guest,
            params: &self.params,
            isolated: &mut self.isolated,
            answer: &mut self.answer,
            begin_ns: now_ns,
            now_ns: Cell::new(now_ns),
            cpu_ns: self.cpu_ns,
        };
        let (wait_ns, took_ns) = run(&mut self.driver, &mut inside);
        self.wait_ns = wait_ns;
        self.cpu_ns += took_ns;
        self.busy_until_ns = self.busy_until_ns.max(now_ns + took_ns);
        took_ns
    }
}
