//! A guest: its allocator, its programs, and what tells its host what is free.

use super::agent::Agent;
use super::buddy::Buddy;
use super::host::Host;
use super::params::{Hints, Params};
use super::reporting::Reporting;

/// What tells the host.
#[derive(Debug)]
enum HintSource {
    None,
    Agent(Box<Agent>),
    /// The kernel's own reporting.
    Reporting(Reporting),
}

#[derive(Debug)]
pub struct Guest {
    /// Its number on the host.
    pub number: usize,
    pub buddy: Buddy,
    /// What tells its host.
    hints: HintSource,
    /// CPU time in the guest that hints took, ns.
    pub cpu_ns: u64,
}

impl Guest {
    /// A guest of `memory` bytes is started; it has nothing of its own yet.
    pub fn start(memory: u64, way: Hints, params: &Params, host: &mut Host, now_ns: u64) -> Self {
        let pages = (memory / 4096) as u32 & !((1 << super::buddy::MAX_ORDER) - 1);
        let number = host.add(pages, params.vmm_own / 4096);
        let buddy = Buddy::new(pages);
        let hints = match way {
            Hints::None => HintSource::None,
            Hints::Isotherm => HintSource::Agent(Box::new(Agent::new(&buddy, pages, params, now_ns))),
            Hints::Reporting => HintSource::Reporting(Reporting::new(pages, params, now_ns)),
        };
        Self { number, buddy, hints, cpu_ns: 0 }
    }

    /// Gives out a page. If there is none, the kernel ends who holds memory that the host has answered for.
    pub(crate) fn alloc(&mut self, host: &mut Host, now_ns: u64) -> Option<u32> {
        self.buddy.alloc(0).or_else(|| {
            let HintSource::Agent(agent) = &mut self.hints else { return None };
            agent.out_of_memory(&mut self.buddy, host, self.number, now_ns);
            self.buddy.alloc(0)
        })
    }

    /// When something is due.
    pub fn wanted_ns(&self) -> Option<u64> {
        match &self.hints {
            HintSource::None => None,
            HintSource::Agent(agent) => Some(agent.wanted_ns()),
            HintSource::Reporting(reporting) => Some(reporting.wanted_ns()),
        }
    }

    /// Does what is due by now.
    pub fn hint(&mut self, host: &mut Host, now_ns: u64) {
        self.cpu_ns += match &mut self.hints {
            HintSource::None => 0,
            HintSource::Agent(agent) => agent.run(&mut self.buddy, host, self.number, now_ns),
            HintSource::Reporting(reporting) => reporting.run(&mut self.buddy, host, self.number, now_ns),
        };
    }
}
