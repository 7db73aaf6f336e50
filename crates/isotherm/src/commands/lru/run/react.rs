//! What is done when a working set does not fit: `--on-thrash`.

use super::OnThrash;
use isotherm_core::target::TargetId;
use isotherm_core::units::format_size;
use isotherm_core::units::nanos;
use isotherm_linux::lru::freeze::{Frozen, is_stopped, kill};
use isotherm_linux::lru::page_out::LivePageOut;
use isotherm_linux::roots::Roots;
use std::process::Command;
use std::time::Duration;

/// Carries it out.
#[derive(Debug)]
pub struct Reaction {
    what: OnThrash,
    frozen: Frozen,
    thaw_at_ns: Option<u64>,
    freeze_ns: u64,
}

/// A process that could give way.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Its target.
    pub target: TargetId,
    /// Its id.
    pub pid: u32,
    /// What it has in memory, bytes.
    pub bytes: u64,
}

impl Reaction {
    /// Nothing has been done yet.
    pub fn new(what: OnThrash, freeze: Duration) -> Self {
        let freeze_ns = nanos(freeze);
        Self { what, frozen: Frozen::default(), thaw_at_ns: None, freeze_ns }
    }

    /// Reacts: `who` are processes that could give way. Says on stderr what was done.
    pub fn react(&mut self, domain: &str, ttl: &str, who: &[Candidate], out: &mut LivePageOut, now_ns: u64) {
        let plight = format!("{domain} is thrashing: its working set of the last {ttl} does not fit below its limit");
        let mut who: Vec<Candidate> = who.iter().copied().filter(|c| !is_spared(c.pid)).collect();
        who.sort_by_key(|c| std::cmp::Reverse(c.bytes));
        let stopped = self.frozen.pids();
        let Some(victim) = who.iter().find(|c| !stopped.contains(&c.pid) && !is_stopped(c.pid)) else {
            eprintln!("isotherm: {plight}");
            return;
        };
        let name = format!("pid {} ({} in memory)", victim.pid, format_size(victim.bytes));
        let done = match self.what {
            OnThrash::Notify => Ok("raise the limit or end a program".to_owned()),
            OnThrash::Freeze => out.process(victim.target).and_then(|process| {
                let mut guard = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
                self.frozen.freeze(&process, guard.args(["lru", "guard"])).map_err(|e| e.to_string())?;
                self.thaw_at_ns = Some(now_ns.saturating_add(self.freeze_ns));
                let seconds = self.freeze_ns as f64 / 1e9;
                Ok(format!("stopped {name} for {seconds} s; if isotherm is killed, its guard lets it go on"))
            }),
            OnThrash::Kill => out
                .process(victim.target)
                .and_then(|p| kill(&p).map_err(|e| e.to_string()))
                .map(|()| format!("killed {name}")),
        };
        match done {
            Ok(done) => eprintln!("isotherm: {plight}; {done}"),
            Err(why) => eprintln!("isotherm: {plight}; {name} could not be made to give way: {why}"),
        }
    }

    /// Lets stopped processes go on when their time is over; whether it did.
    pub fn thaw_in_time(&mut self, now_ns: u64) -> bool {
        let due = self.thaw_at_ns.is_some_and(|at| now_ns >= at);
        if due {
            self.frozen.thaw();
            self.thaw_at_ns = None;
        }
        due
    }

    /// Processes that are stopped now.
    pub fn frozen(&self) -> Vec<u32> {
        self.frozen.pids()
    }
}

/// Processes that the system's administrator has exempted from being killed for memory (`oom_score_adj` -1000).
fn is_spared(pid: u32) -> bool {
    Roots::system().line(format!("/proc/{pid}/oom_score_adj")).is_some_and(|text| text == "-1000")
}
