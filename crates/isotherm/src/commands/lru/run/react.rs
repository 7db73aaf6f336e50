//! Carries out what `--on-thrash` says.

use super::OnThrash;
use anyhow::Context;
use isotherm_core::keeper::limit::Candidate;
use isotherm_core::units::format_size;
use isotherm_linux::guard::{Guard, Purpose};
use isotherm_linux::lru::freeze::{Frozen, is_stopped, kill};
use isotherm_linux::lru::page_out::LivePageOut;
use isotherm_linux::roots::Roots;
use std::time::Duration;

/// Acts on processes when a working set does not fit.
#[derive(Debug)]
pub struct Reaction {
    what: OnThrash,
    freeze_time: Duration,
    /// Only where processes are stopped.
    frozen: Option<Frozen>,
}

impl Reaction {
    /// Nothing has been done yet.
    pub fn new(what: OnThrash, freeze_time: Duration) -> anyhow::Result<Self> {
        let guard = (what == OnThrash::Freeze).then(|| Guard::start(Purpose::Processes)).transpose();
        let guard = guard.context("cannot start the guard of stopped processes")?;
        Ok(Self { what, freeze_time, frozen: guard.map(Frozen::new) })
    }

    /// Makes the first of `who` give way that may: says on stderr what was done. Whether a process was stopped.
    pub fn react(&mut self, plight: &str, who: &[Candidate], out: &mut LivePageOut) -> bool {
        let Some(victim) = self.victim(who) else {
            tracing::warn!("{plight}");
            return false;
        };
        let name = format!("pid {} ({} in memory)", victim.pid, format_size(victim.bytes));
        let done = match self.what {
            OnThrash::Notify => Ok("raise the limit or end a program".to_owned()),
            OnThrash::Freeze => self.freeze(victim, out).map(|()| {
                let seconds = self.freeze_time.as_secs_f64();
                format!("stopped {name} for {seconds} s; it goes on before that if isotherm ends")
            }),
            OnThrash::Kill => out
                .process(victim.target)
                .map_err(anyhow::Error::msg)
                .and_then(|process| Ok(kill(&process)?))
                .map(|()| format!("killed {name}")),
        };
        match &done {
            Ok(done) => tracing::warn!("{plight}; {done}"),
            Err(why) => tracing::warn!("{plight}; {name} could not be made to give way: {why}"),
        }
        done.is_ok() && self.what == OnThrash::Freeze
    }

    /// The first that may be stopped or killed. Never pid 1, which takes the system or the container with it, nor
    /// Isotherm and its guard, which would not let the others go on.
    fn victim<'a>(&self, who: &'a [Candidate]) -> Option<&'a Candidate> {
        let guard = self.frozen.as_ref().map(Frozen::guard_pid);
        let is_vital = |pid: u32| pid == 1 || pid == std::process::id() || Some(pid) == guard;
        let may = |c: &&Candidate| {
            !is_vital(c.pid) && !is_spared(c.pid) && !self.frozen().contains(&c.pid) && !is_stopped(c.pid)
        };
        who.iter().find(may)
    }

    fn freeze(&mut self, victim: &Candidate, out: &mut LivePageOut) -> anyhow::Result<()> {
        let process = out.process(victim.target).map_err(anyhow::Error::msg)?;
        let frozen = self.frozen.as_mut().context("nobody is to be stopped")?;
        Ok(frozen.freeze(&process)?)
    }

    /// Lets stopped processes go on.
    pub fn thaw(&mut self) {
        self.frozen.iter_mut().for_each(Frozen::thaw);
    }

    /// Processes that are stopped now.
    pub fn frozen(&self) -> &[u32] {
        self.frozen.as_ref().map(Frozen::pids).unwrap_or_default()
    }
}

/// Processes that the system's administrator has exempted from being killed for memory (`oom_score_adj` -1000).
fn is_spared(pid: u32) -> bool {
    Roots::system().line(format!("/proc/{pid}/oom_score_adj")).is_some_and(|text| text == "-1000")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn neither_the_first_process_nor_ourselves_are_made_to_give_way() {
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        let who: Vec<Candidate> = [(0, 1), (1, std::process::id()), (2, other.id())]
            .map(|(target, pid)| Candidate { target, pid, bytes: 100 - u64::from(target) })
            .to_vec();
        for what in [OnThrash::Notify, OnThrash::Kill] {
            let reaction = Reaction::new(what, Duration::from_secs(1)).unwrap();
            assert_eq!(reaction.victim(&who).map(|victim| victim.pid), Some(other.id()));
            assert_eq!(reaction.victim(&who[..2]), None, "though they are the largest");
        }
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
