//! One run of a command: how long it took, and how much memory it had.

use crate::args::monitor::MonitorArgs;
use crate::commands::schemes::run::engine;
use crate::session::{Ended, Session};
use anyhow::{Context, bail};
use isotherm_core::scheme::Scheme;
use isotherm_core::tuning::figures::Measured;
use isotherm_linux::proc::children::ChildFinder;
use isotherm_linux::proc::status::Status;
use isotherm_linux::proc::{PidFd, ProcessDir};
use isotherm_linux::roots::Roots;
use isotherm_linux::signals::StopSignals;
use isotherm_linux::targets::{Command, Streams};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often memory is looked at.
const SAMPLE: Duration = Duration::from_millis(50);
/// How long what a command leaves behind may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// Runs `words`, under `schemes` if there are any. What the command prints is thrown away.
pub fn run(words: &[OsString], schemes: &[Scheme], monitor: &MonitorArgs, nth: usize) -> anyhow::Result<Measured> {
    let command = Command::prepare_with(words, Streams::Silent)?;
    if schemes.is_empty() {
        let signals = StopSignals::catch().context("cannot catch signals")?;
        let sampler = Sampler::start(&command)?;
        while !sampler.is_finished() {
            if signals.received().is_some() {
                bail!("interrupted");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let seen = sampler.finish()?;
        check_end(&command, words)?;
        let (seconds, memory) = seen.figures(words)?;
        return Ok(Measured { seconds, memory, applied: None, idle: None });
    }
    let mut session = Session::of_command(command.clone(), monitor)?.with_schemes(engine(schemes.to_vec(), false)?);
    let sampler = Sampler::start(&command)?;
    let mut idle = None;
    // What the command left behind is not waited for.
    let ended = session.run(None, &mut (), |(), context| {
        if sampler.is_finished() {
            return Ok(false);
        }
        idle = context.schemes().and_then(|s| s.status().get(nth).and_then(|s| s.idle).map(ToString::to_string));
        Ok(true)
    })?;
    if ended == Ended::Interrupted {
        bail!("interrupted");
    }
    session.settle();
    let seen = sampler.finish()?;
    check_end(&command, words)?;
    let (seconds, memory) = seen.figures(words)?;
    let applied = session.schemes().and_then(|s| s.status().get(nth).map(|s| s.stats.sz_applied));
    session.finish()?;
    Ok(Measured { seconds, memory, applied, idle })
}

/// Figures of a command that failed would mean nothing.
fn check_end(command: &Command, words: &[OsString]) -> anyhow::Result<()> {
    let end = command.finish(GRACE)?;
    match end {
        Some(end) if end.status.success() => Ok(()),
        Some(end) => {
            bail!("'{}' failed ({}): a run that fails cannot be compared", words[0].to_string_lossy(), end.status)
        }
        None => bail!("'{}' could not be executed", words[0].to_string_lossy()),
    }
}

/// What was seen of a command that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    seconds: f64,
    /// The mean of its memory, bytes; `None`: it had ended before the first look.
    memory: Option<f64>,
}

impl Seen {
    /// Runtime and mean memory.
    fn figures(self, words: &[OsString]) -> anyhow::Result<(f64, f64)> {
        let Some(memory) = self.memory else {
            bail!(
                "'{}' ended after {:.3} s, before its memory could be looked at, so there is nothing to compare; give a command that runs for a second at least",
                words[0].to_string_lossy(),
                self.seconds
            );
        };
        Ok((self.seconds, memory))
    }
}

/// Watches a command's memory from its start to its end, in a thread of its own.
struct Sampler {
    thread: Option<JoinHandle<Seen>>,
    stop: Arc<AtomicBool>,
}

impl Sampler {
    fn start(command: &Command) -> anyhow::Result<Self> {
        let pid = command.pid();
        let pidfd = PidFd::open(pid).context("cannot watch the command")?;
        command.start()?;
        let begun = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("isotherm-rss".to_owned())
            .spawn(move || sample(pid, &pidfd, begun, &stopped))
            .context("cannot start a thread")?;
        Ok(Self { thread: Some(thread), stop })
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What was seen, once the command has ended.
    fn finish(mut self) -> anyhow::Result<Seen> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(seen)) => Ok(seen),
            _ => bail!("the thread that watches the command's memory has failed"),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it found is not wanted any more.
            drop(thread.join());
        }
    }
}

fn sample(pid: u32, pidfd: &PidFd, begun: Instant, stop: &AtomicBool) -> Seen {
    let mut children = ChildFinder::new(Roots::system());
    let mut family = BTreeSet::from([pid]);
    let mut buf = Vec::new();
    let (mut sum, mut samples) = (0.0, 0u32);
    loop {
        let parents: Vec<u32> = family.iter().copied().collect();
        if let Ok(found) = children.poll(&parents) {
            family.extend(found.into_iter().filter(|(_, parent)| parents.contains(parent)).map(|(child, _)| child));
        }
        let mut rss = |pid: &u32| Status::read(&ProcessDir::live(*pid), &mut buf).ok().and_then(|s| s.vm_rss);
        let sizes: Vec<(u32, u64)> = family.iter().filter_map(|pid| rss(pid).map(|size| (*pid, size))).collect();
        if sizes.iter().any(|&(p, _)| p == pid) {
            sum += sizes.iter().map(|&(_, size)| size as f64).sum::<f64>();
            samples += 1;
        }
        family = sizes.iter().map(|&(p, _)| p).chain([pid]).collect();
        if pidfd.wait_exit(SAMPLE) || stop.load(Ordering::Relaxed) {
            let memory = (sum > 0.0).then(|| sum / f64::from(samples));
            return Seen { seconds: begun.elapsed().as_secs_f64(), memory };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_look_there_is_no_figure() {
        let words = [OsString::from("/bin/true")];
        let error = Seen { seconds: 0.004, memory: None }.figures(&words).unwrap_err().to_string();
        assert!(error.contains("'/bin/true' ended after 0.004 s") && error.contains("a second at least"), "{error}");
        assert_eq!(Seen { seconds: 2.0, memory: Some(4096.0) }.figures(&words).unwrap(), (2.0, 4096.0));
    }
}
