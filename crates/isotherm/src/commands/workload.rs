//! `isotherm workload`: touches real memory in a known pattern and tells the truth about it.

use crate::args::units;
use crate::args::workload::{WorkloadArgs, YesNo};
use crate::exit::Usage;
use crate::output::{is_stdout, keep_apart};
use isotherm_core::addr::AddrRange;
use isotherm_core::clock::{Clock, Wake};
use isotherm_core::units::nanos;
use isotherm_core::units::{format_size, format_time};
use isotherm_files::apart::Output;
use isotherm_linux::arena::{Arena, ArenaError, HugePages};
use isotherm_linux::clock::MonotonicClock;
use isotherm_linux::signals::StopSignals;
use isotherm_sim::workload::generator::{Generator, MAX_BATCH};
use isotherm_sim::workload::truth::{Header, Slice};
use isotherm_sim::workload::truth_file::TruthFile;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Access memory in a known pattern and tell the truth about it.
///
/// Prints a line of JSON with the process and the addresses as soon as the memory is populated.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seed: the same seed gives the same workload
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How long to run
    #[arg(long, value_name = "T", default_value = "60s", value_parser = units::time)]
    duration: Duration,
    /// Touches per second [default: as fast as possible]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// With --rate, how often to wake up for the touches that are due: longer costs less where waking up is expensive, as under emulation
    #[arg(long, value_name = "T", default_value = "1ms", requires = "rate", value_parser = units::time)]
    tick: Duration,
    /// Write which ranges were touched when, as JSON
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Back the memory by transparent huge pages [default: as the system is set]
    #[arg(long, value_enum, value_name = "YES|NO")]
    thp: Option<YesNo>,
    /// Touch every page once before the pattern begins
    #[arg(long, value_enum, default_value = "yes", value_name = "YES|NO")]
    prefault: YesNo,
    #[command(flatten)]
    workload: WorkloadArgs,
}

/// Shortest time slice of the truth.
const SLICE_NS: u64 = 100_000_000;
/// Most slices that a truth file holds (stage changes come on top), and times that it is written.
const MAX_SLICES: u64 = 1000;

pub fn run(args: Args) -> anyhow::Result<()> {
    let duration_ns = nanos(args.duration);
    if duration_ns == 0 {
        return Err(Usage("--duration is 0; give for example 10s".into()).into());
    }
    if args.rate.is_some_and(|r| !(r.is_finite() && r > 0.0)) {
        return Err(Usage("--rate must be above 0".into()).into());
    }
    let tick_ns = nanos(args.tick);
    if !(1..=SLICE_NS).contains(&tick_ns) {
        return Err(Usage("--tick must be above 0 and at most 100ms, a slice of the truth".into()).into());
    }
    if args.truth.as_deref().is_some_and(is_stdout) {
        return Err(
            Usage("--truth is a file, which is replaced again and again; give a name other than -".into()).into()
        );
    }
    args.workload.refuse_other_patterns_options()?;
    let truth: Vec<Output> = args.truth.iter().map(|path| Output::new("--truth", path)).collect();
    keep_apart(args.workload.file.as_slice(), &truth)?;
    let workload = args.workload.build(args.seed)?;
    let huge = match args.thp {
        None => HugePages::System,
        Some(YesNo::Yes) => HugePages::Yes,
        Some(YesNo::No) => HugePages::No,
    };
    let signals = StopSignals::catch()?;
    let mut arena = Arena::new(workload.size(), huge).map_err(|e| match e {
        e @ (ArenaError::TooLarge { .. } | ArenaError::BadSize(_)) => anyhow::Error::from(Usage(e.to_string())),
        e => e.into(),
    })?;
    let range = arena.range();
    let pid = std::process::id();
    say!("pid {pid}, {} at {:#x}-{:#x}, pattern {}", format_size(range.len()), range.start, range.end, workload.name());
    let header = Header {
        version: 1,
        pattern: workload.name().into(),
        seed: workload.seed(),
        pid: Some(pid),
        clock: "CLOCK_MONOTONIC".into(),
        arena: range,
        complete: false,
    };
    let truth = args.truth.as_deref().map(|path| TruthFile::create(path, header)).transpose()?;
    if args.prefault == YesNo::Yes {
        populate(&mut arena, &signals);
    }
    announce(pid, range)?;
    // A slow rate is spread over time rather than spent in bursts.
    let batch = args.rate.map_or(MAX_BATCH, |rate| (rate / 1000.0).clamp(1.0, MAX_BATCH as f64) as u64);
    Run {
        generator: Generator::new(workload, batch),
        arena,
        truth,
        rate: args.rate,
        tick_ns,
        duration_ns,
        slice_ns: SLICE_NS.max(duration_ns / MAX_SLICES),
        next_write_ns: 0,
        start_ns: MonotonicClock::new().now_ns(),
        signals: &signals,
        touches: 0,
    }
    .drive()
}

/// Touches every page once; ends early if somebody asks to stop.
fn populate(arena: &mut Arena, signals: &StopSignals) {
    const CHUNK: u64 = 1 << 14;
    let mut pages = Vec::with_capacity(CHUNK as usize);
    let mut first = 0;
    while first < arena.pages() && signals.received().is_none() {
        let end = arena.pages().min(first + CHUNK);
        pages.clear();
        pages.extend(first..end);
        arena.touch(&pages);
        first = end;
    }
}

fn announce(pid: u32, range: AddrRange) -> anyhow::Result<()> {
    let line = serde_json::json!({ "event": "READY", "pid": pid, "start": range.start, "end": range.end });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

/// A workload under way.
struct Run<'a> {
    generator: Generator,
    arena: Arena,
    truth: Option<TruthFile>,
    /// Touches per second; `None`: no limit.
    rate: Option<f64>,
    /// Sleep while the limit holds touches back.
    tick_ns: u64,
    duration_ns: u64,
    slice_ns: u64,
    /// When the truth is written next, ns since the pattern began. Slices that stage changes have cut short wait.
    next_write_ns: u64,
    /// CLOCK_MONOTONIC at which the pattern began.
    start_ns: u64,
    signals: &'a StopSignals,
    touches: u64,
}

impl Run<'_> {
    fn drive(mut self) -> anyhow::Result<()> {
        let mut slice_start = 0;
        let mut stopped = false;
        while slice_start < self.duration_ns && !stopped {
            let until = (slice_start + self.slice_ns).min(self.duration_ns).min(self.generator.stage_end_ns());
            stopped = self.touch_until(until);
            let slice_end = self.elapsed_ns().max(slice_start + 1);
            let stage = self.generator.stage_name().to_owned();
            let touched = self.generator.account();
            if slice_end >= self.generator.stage_end_ns() {
                self.generator.enter(slice_end);
            }
            self.save(Slice { start_ns: slice_start, end_ns: slice_end, stage, touched })?;
            slice_start = slice_end;
        }
        if let Some(truth) = self.truth {
            truth.finish()?;
        }
        say!("{} touches in {}", self.touches, format_time(slice_start));
        Ok(())
    }

    /// Touches pages until `until_ns` after the start. True: somebody asked to stop.
    fn touch_until(&mut self, until_ns: u64) -> bool {
        let mut pages = Vec::with_capacity(MAX_BATCH as usize);
        let mut clock = MonotonicClock::stopped_by(self.signals);
        loop {
            let now = self.elapsed_ns();
            // First: where slices are shorter than what is done after each, this one is over as soon as it begins.
            if self.signals.received().is_some() {
                return true;
            }
            if now >= until_ns {
                return false;
            }
            let due = self.rate.is_none_or(|rate| (self.touches as f64) < rate * now as f64 / 1e9);
            if due {
                self.generator.next_batch(&mut pages);
            } else {
                pages.clear();
            }
            if pages.is_empty() {
                // Nothing is due before the nap is over, or at all in a stage that touches nothing.
                let wake = if due { until_ns } else { until_ns.min(now + self.tick_ns) };
                if clock.sleep_until_ns(self.start_ns + wake) == Wake::Interrupted {
                    return true;
                }
                continue;
            }
            self.arena.touch(&pages);
            self.touches += pages.len() as u64;
        }
    }

    fn elapsed_ns(&self) -> u64 {
        MonotonicClock::new().now_ns().saturating_sub(self.start_ns)
    }

    /// Adds a slice, whose times and ranges are relative to the start and the arena, to the truth.
    fn save(&mut self, mut slice: Slice) -> anyhow::Result<()> {
        let Some(truth) = &mut self.truth else { return Ok(()) };
        let is_due = slice.end_ns >= self.next_write_ns;
        if is_due {
            self.next_write_ns = slice.end_ns + self.slice_ns;
        }
        slice.start_ns += self.start_ns;
        slice.end_ns += self.start_ns;
        for t in &mut slice.touched {
            t.start += self.arena.range().start;
            t.end += self.arena.range().start;
        }
        if is_due {
            truth.push(&slice)?
        } else {
            truth.add(&slice)?
        }
        Ok(())
    }
}
