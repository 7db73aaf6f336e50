//! Isotherm's agent in a simulated guest: the same [`Hinter`] as in a real one.

use super::buddy::{Buddy, HINT_ORDER};
use super::host::Host;
use super::params::Params;
use isotherm_core::addr::AddrRange;
use isotherm_core::hint::{Block, BlockSize, Config, Event, Fate, Hinter, Isolation, Isolator, Reporter, drive};
use std::collections::VecDeque;

/// The agent, and the host side that answers it.
#[derive(Debug)]
pub struct Agent {
    hinter: Hinter,
    look_ns: u64,
    look_cost_ns: u64,
    isolate_ns: u64,
    answer_ns: u64,
    drop_ns: u64,
    next_look_ns: u64,
    /// When the hinter wants to go on by itself.
    wait_ns: Option<u64>,
    line: Line,
}

/// A connection: reports on their way, and answers with the time at which they arrive.
#[derive(Debug, Default)]
struct Line {
    reports: Vec<(u64, Vec<Block>)>,
    answers: VecDeque<(u64, Event)>,
    now_ns: u64,
}

impl Reporter for Line {
    fn report(&mut self, batch: u64, blocks: &[Block]) {
        self.reports.push((batch, blocks.to_vec()));
    }

    fn poll(&mut self) -> Option<Event> {
        if self.answers.front()?.0 > self.now_ns {
            return None;
        }
        self.answers.pop_front().map(|(_, event)| event)
    }
}

/// The allocator as the hinter takes from it.
struct Allocator<'a> {
    buddy: &'a mut Buddy,
    cost_ns: u64,
    isolate_ns: u64,
}

impl Isolator for Allocator<'_> {
    fn isolate(&mut self, wanted: &[Block]) -> Isolation {
        let mut blocks = Vec::with_capacity(wanted.len());
        for block in wanted {
            self.cost_ns += self.isolate_ns;
            if self.buddy.take(block.0 as u32) {
                blocks.push(*block);
            }
        }
        Isolation { blocks, written: false }
    }

    fn release(&mut self, blocks: &[Block]) {
        blocks.iter().for_each(|block| self.buddy.free_pages((block.0 as u32) << HINT_ORDER, HINT_ORDER));
    }

    fn free_bytes(&mut self) -> u64 {
        self.buddy.free() * 4096
    }
}

impl Agent {
    /// One for a guest of so many pages.
    pub fn new(pages: u32, params: &Params, now_ns: u64) -> Self {
        let config = Config { reserve: params.reserve, ..Config::default() };
        // The defaults make sense, whatever the reserve.
        let mut hinter = Hinter::new(config).unwrap_or_else(|e| unreachable!("{e}"));
        hinter.add_memory(AddrRange::new(0, u64::from(pages) * 4096));
        hinter.event(Event::Ready, now_ns);
        let blocks = u64::from(pages) * 4096 / BlockSize::huge().bytes();
        Self {
            hinter,
            look_ns: params.look_ns,
            look_cost_ns: params.look_block_ns * blocks,
            isolate_ns: params.isolate_ns,
            answer_ns: params.answer_ns,
            drop_ns: params.drop_ns,
            next_look_ns: now_ns + params.look_ns,
            wait_ns: None,
            line: Line::default(),
        }
    }

    /// When it has something to do.
    pub fn wanted_ns(&self) -> u64 {
        let answer = self.line.answers.front().map(|(at, _)| *at);
        [answer, self.wait_ns].into_iter().flatten().fold(self.next_look_ns, u64::min)
    }

    /// Does it; the CPU time that it took in the guest, ns.
    pub fn run(&mut self, buddy: &mut Buddy, host: &mut Host, guest: usize, now_ns: u64) -> u64 {
        let mut cost_ns = 0;
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns + self.look_ns;
            cost_ns += self.look_cost_ns;
            self.look(buddy, now_ns);
        }
        self.line.now_ns = now_ns;
        let mut allocator = Allocator { buddy, cost_ns: 0, isolate_ns: self.isolate_ns };
        self.wait_ns = drive::step(&mut self.hinter, &mut allocator, &mut self.line, now_ns);
        cost_ns += allocator.cost_ns;
        for (batch, blocks) in std::mem::take(&mut self.line.reports) {
            // Nobody writes to an isolated block, so that it is all the same when the host drops it until it answers.
            blocks.iter().for_each(|block| host.drop_block(guest, block.0 as u32));
            let took_ns = allocator.cost_ns + self.answer_ns + self.drop_ns * blocks.len() as u64;
            let fates = vec![Fate::Dropped; blocks.len()];
            self.line.answers.push_back((now_ns + took_ns, Event::Acked { batch, fates, wait_ns: 0 }));
        }
        cost_ns
    }

    /// What came free and what was used since the last look. A real agent sees it in /proc/kpageflags.
    fn look(&mut self, buddy: &mut Buddy, now_ns: u64) {
        let (used, freed) = buddy.news();
        used.into_iter().for_each(|block| self.hinter.used(Block(u64::from(block))));
        freed.into_iter().for_each(|block| self.hinter.freed(Block(u64::from(block)), now_ns));
    }
}
