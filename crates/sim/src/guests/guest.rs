//! A guest: its allocator, its programs, and what tells its host what is free.

use super::agent::Agent;
use super::buddy::Buddy;
use super::host::Host;
use super::params::{Hints, Params};
use super::reporting::Reporting;

/// What tells the host.
#[derive(Debug)]
enum Teller {
    /// Nothing.
    None,
    /// Isotherm's agent.
    Agent(Box<Agent>),
    /// The kernel's own reporting.
    Reporting(Reporting),
}

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    /// Its number on the host.
    pub number: usize,
    /// Its free memory.
    pub buddy: Buddy,
    /// What tells its host.
    teller: Teller,
    /// CPU time in the guest that telling took, ns.
    pub cpu_ns: u64,
}

impl Guest {
    /// A guest of `memory` bytes is started; it has nothing of its own yet.
    pub fn start(memory: u64, way: Hints, params: &Params, host: &mut Host, now_ns: u64) -> Self {
        let pages = (memory / 4096) as u32 & !((1 << super::buddy::MAX_ORDER) - 1);
        let number = host.add(pages, params.vmm_own / 4096);
        let buddy = Buddy::new(pages);
        let teller = match way {
            Hints::None => Teller::None,
            Hints::Isotherm => Teller::Agent(Box::new(Agent::new(&buddy, pages, params, now_ns))),
            Hints::Reporting => Teller::Reporting(Reporting::new(pages, params, now_ns)),
        };
        Self { number, buddy, teller, cpu_ns: 0 }
    }

    /// Gives out a page. If there is none, the kernel ends who holds memory that the host has answered for.
    pub fn alloc(&mut self, host: &mut Host, now_ns: u64) -> Option<u32> {
        self.buddy.alloc(0).or_else(|| {
            let Teller::Agent(agent) = &mut self.teller else { return None };
            agent.out_of_memory(&mut self.buddy, host, self.number, now_ns);
            self.buddy.alloc(0)
        })
    }

    /// When there is something to tell, at the latest.
    pub fn wanted_ns(&self) -> Option<u64> {
        match &self.teller {
            Teller::None => None,
            Teller::Agent(agent) => Some(agent.wanted_ns()),
            Teller::Reporting(reporting) => Some(reporting.wanted_ns()),
        }
    }

    /// Tells what is to be told by now.
    pub fn tell(&mut self, host: &mut Host, now_ns: u64) {
        self.cpu_ns += match &mut self.teller {
            Teller::None => 0,
            Teller::Agent(agent) => agent.run(&mut self.buddy, host, self.number, now_ns),
            Teller::Reporting(reporting) => reporting.run(&mut self.buddy, host, self.number, now_ns),
        };
    }
}
