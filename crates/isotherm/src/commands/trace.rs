//! `isotherm trace`.

use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::{Unsupported, Usage};
use crate::output::is_stdout;
use crate::session::Session;
use anyhow::Context as _;
use isotherm_core::clock::{Clock, Wake};
use isotherm_core::trace::{TraceEvent, Tracepoint, Tracer};
use isotherm_core::units::nanos;
use isotherm_linux::clock::{MonotonicClock, monotonic_ns};
use isotherm_linux::proc::pidfd::PidFd;
use isotherm_linux::roots::Roots;
use isotherm_linux::signals::StopSignals;
use isotherm_linux::usdt::{Heard, ListenError, Listener};
use isotherm_record::TraceLine;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// This program.
const OURSELVES: &str = "/proc/self/exe";
/// How often what was heard is taken out of the kernel's buffers, ns.
const COLLECT_EVERY_NS: u64 = 20_000_000;

/// Print what is seen and done as the events of DAMON's tracepoints, in the kernel's text form.
///
/// With a target, watches it. Without one, listens to every isotherm that runs (record, schemes, mount, ...), through
/// their probes (USDT), and disturbs none; what listens to such probes, perf or bpftrace, can do so, too. The text is
/// that of `perf script`: `isotherm convert` and `isotherm report` read it as a record, and so does damo.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Listen to this isotherm only, and until it ends
    #[arg(long, value_name = "PID", conflicts_with_all = ["pids", "names", "cgroups", "all", "children", "command", "physical"])]
    of: Option<u32>,
    /// Only events of this name (repeatable): damon_aggregated, damon_monitor_intervals_tune, damos_before_apply,
    /// damos_esz, damos_stat_after_apply_interval
    #[arg(long = "event", value_name = "NAME", value_parser = tracepoint)]
    events: Vec<Tracepoint>,
    /// The text to write ("-": standard output)
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Stop after this time
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
}

/// A tracepoint by its name, with or without `damon:`.
fn tracepoint(name: &str) -> Result<Tracepoint, Usage> {
    let bare = name.strip_prefix("damon:").unwrap_or(name);
    Tracepoint::ALL.into_iter().find(|t| t.name() == bare).ok_or_else(|| {
        Usage(format!("no such event; choose one of {}", Tracepoint::ALL.map(Tracepoint::name).join(", ")))
    })
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if args.duration.is_some_and(|d| d.is_zero()) {
        return Err(Usage("--duration 0 shows nothing; leave it out to go on until Ctrl-C".into()).into());
    }
    let events = if args.events.is_empty() { Tracepoint::ALL.to_vec() } else { args.events.clone() };
    if args.target.is_given() || args.monitor.physical {
        return watch(&args, events);
    }
    if args.target.children || args.monitor != MonitorArgs::defaults() {
        return Err(Usage(
            "--children and the options of how to watch (--source, --sample, ...) need a target: give --pid N, --name NAME, \
             --cgroup PATH, --all, or -- COMMAND ARG..., or leave them out to listen to what others watch"
                .into(),
        )
        .into());
    }
    listen(&args, &events)
}

/// Watches a target.
fn watch(args: &Args, events: Vec<Tracepoint>) -> anyhow::Result<()> {
    let target = args.target.keeping_stdout(is_stdout(&args.output));
    let mut session = Session::open(&target, &args.monitor)?;
    let printer = Rc::new(RefCell::new(Printer::open(args)?));
    session.trace(Box::new(Printing { events, printer: Rc::clone(&printer) }));
    let result = session.run(args.duration, &mut (), |_, _| {
        printer.borrow_mut().flush()?;
        Ok(true)
    });
    let flushed = printer.borrow_mut().flush();
    let finished = session.finish();
    result?;
    flushed?;
    finished
}

/// Listens to what others watch.
fn listen(args: &Args, events: &[Tracepoint]) -> anyhow::Result<()> {
    let signals = StopSignals::catch().context("cannot catch signals")?;
    let mut one = None;
    let mut program = PathBuf::from(OURSELVES);
    if let Some(pid) = args.of {
        one = Some(PidFd::open(pid).with_context(|| format!("there is no process {pid}"))?);
        program = format!("/proc/{pid}/exe").into();
    }
    let mut listener = Listener::new(&Roots::system(), &program, events).map_err(|error| match error {
        ListenError::NoUprobes(_) => Unsupported(format!("{error}; give a target to watch it here")).into(),
        error => anyhow::Error::from(error),
    })?;
    let mut printer = Printer::open(args)?;
    tracing::info!("listening; Ctrl-C ends it");
    let mut clock = MonotonicClock::stopped_by(&signals);
    let end_ns = args.duration.map_or(u64::MAX, |d| monotonic_ns().saturating_add(nanos(d)));
    let mut heard = Vec::new();
    let mut known_lost = 0;
    loop {
        let wake = clock.sleep_until_ns(end_ns.min(monotonic_ns() + COLLECT_EVERY_NS));
        let last = wake == Wake::Interrupted || monotonic_ns() >= end_ns || one.as_ref().is_some_and(PidFd::has_exited);
        listener.collect(&mut heard, last);
        heard.drain(..).filter(|h| args.of.is_none_or(|pid| h.pid == pid)).for_each(|h| printer.print(&h));
        printer.flush()?;
        let lost = listener.lost();
        if lost > std::mem::replace(&mut known_lost, lost) {
            tracing::warn!("events were lost: they came faster than they could be taken");
        }
        if last {
            return Ok(());
        }
    }
}

/// Prints what happens in this process.
struct Printing {
    events: Vec<Tracepoint>,
    printer: Rc<RefCell<Printer>>,
}

impl Tracer for Printing {
    fn trace(&mut self, event: &TraceEvent) -> bool {
        let wanted = self.events.contains(&event.tracepoint());
        if wanted {
            self.printer.borrow_mut().print(&Heard::now(*event));
        }
        wanted
    }
}

/// Writes lines.
struct Printer {
    out: BufWriter<Box<dyn Write>>,
    name: PathBuf,
    /// Threads in the order in which they were heard first: what monitors in each is a kdamond.
    threads: Vec<u32>,
    /// The first thing that went wrong since the last [`flush`](Self::flush).
    error: io::Result<()>,
}

impl Printer {
    fn open(args: &Args) -> anyhow::Result<Self> {
        let out: Box<dyn Write> = match is_stdout(&args.output) {
            true => Box::new(io::stdout()),
            false => {
                Box::new(File::create(&args.output).with_context(|| format!("cannot write {}", args.output.display()))?)
            }
        };
        let out = BufWriter::with_capacity(64 << 10, out);
        Ok(Self { out, name: args.output.clone(), threads: Vec::new(), error: Ok(()) })
    }

    fn print(&mut self, heard: &Heard) {
        let &Heard { time_ns, tid, cpu, event, .. } = heard;
        let kdamond = self.threads.iter().position(|&known| known == tid).unwrap_or_else(|| {
            self.threads.push(tid);
            self.threads.len() - 1
        });
        if self.error.is_ok() {
            self.error = writeln!(self.out, "{}", TraceLine { kdamond, tid, cpu, time_ns, event });
        }
    }

    /// Writes all, or tells what went wrong.
    fn flush(&mut self) -> anyhow::Result<()> {
        let error = std::mem::replace(&mut self.error, Ok(()));
        error.and_then(|()| self.out.flush()).with_context(|| format!("cannot write {}", self.name.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_named_as_perf_or_the_kernel_does() {
        for t in Tracepoint::ALL {
            assert_eq!(tracepoint(t.name()), Ok(t));
            assert_eq!(tracepoint(&format!("damon:{}", t.name())), Ok(t));
        }
        assert!(tracepoint("sched_switch").is_err());
    }
}
