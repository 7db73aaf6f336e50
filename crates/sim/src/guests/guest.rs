//! A guest: its allocator, its programs, and who tells its host what is free.

use super::buddy::Buddy;
use super::hints::Agent;
use super::host::Host;
use super::params::{Params, Way};
use super::reporting::Reporting;

/// What tells the host.
#[derive(Debug)]
pub enum Teller {
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
    /// Who tells its host.
    pub teller: Teller,
    /// CPU time in the guest that telling took, ns.
    pub cpu_ns: u64,
}

impl Guest {
    /// A guest of `memory` bytes is started; it has nothing of its own yet.
    pub fn start(memory: u64, way: Way, params: &Params, host: &mut Host, now_ns: u64) -> Self {
        let pages = (memory / 4096) as u32 & !((1 << super::buddy::MAX_ORDER) - 1);
        let number = host.add(pages, params.vmm_own / 4096);
        let teller = match way {
            Way::None => Teller::None,
            Way::Isotherm => Teller::Agent(Box::new(Agent::new(pages, params, now_ns))),
            Way::Reporting => Teller::Reporting(Reporting::new(pages, params, now_ns)),
        };
        Self { number, buddy: Buddy::new(pages), teller, cpu_ns: 0 }
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
