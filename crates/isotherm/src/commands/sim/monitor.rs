//! `isotherm sim monitor`: watches simulated memory of any size, and says how true the picture is.

use super::LEAST_RATE;
use super::metered::Metered;
use crate::args::monitor::{AlgorithmName, MonitorArgs, SourceName, simulated};
use crate::args::units;
use crate::args::workload::WorkloadArgs;
use crate::exit::Usage;
use crate::output::{keep_apart, to_stdout};
use isotherm_core::addr::AddrRange;
use isotherm_core::clock::Clock;
use isotherm_core::engine::{Engine, Progress};
use isotherm_core::event::{Event, Mode, MonitorStats, Step, Subscriber, SubscriberError};
use isotherm_core::history::pages::PageHistory;
use isotherm_core::monitor::Monitor;
use isotherm_core::source::AccessSource;
use isotherm_core::units::nanos;
use isotherm_core::units::{format_size, format_time};
use isotherm_files::apart::Output;
use isotherm_linux::clock::thread_cpu_ns;
use isotherm_linux::signals::StopSignals;
use isotherm_record::{Options, Writer};
use isotherm_sim::accuracy::by_page::{self, Simulated};
use isotherm_sim::accuracy::{Accuracy, HOT_TOUCHES, Score, steady_share};
use isotherm_sim::experiment::ARENA_START;
use isotherm_sim::machine::activity::Activity;
use isotherm_sim::machine::{CostModel, Process, SimClock, SimSource};
use isotherm_sim::workload::Workload;
use isotherm_sim::workload::truth::{Header, predicted};
use isotherm_sim::workload::truth_file::TruthFile;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Watch a workload on a simulated machine of any size, in virtual time, and compare the picture with the truth.
///
/// Costs are modelled: what reading and clearing page tables took on a real machine. The monitor's own computing is
/// measured on this one and reported, but the CPU budget does not see it.
#[derive(Debug, clap::Args)]
#[command(mut_args(simulated))]
pub struct Args {
    /// How long to run, in virtual time
    #[arg(long, value_name = "T", default_value = "30s", value_parser = units::time)]
    duration: Duration,
    /// Run on until there are so many snapshots
    #[arg(long, value_name = "N", default_value_t = 0)]
    min_snapshots: usize,
    /// Touches per second over the whole memory; the default is about what one core manages
    #[arg(long, value_name = "N", default_value_t = 20e6)]
    rate: f64,
    /// Share of the memory backed by 2 MiB pages
    #[arg(long, value_name = "P", default_value = "0%", value_parser = units::percent)]
    huge: f64,
    /// Write a record
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write which ranges were touched when, as JSON
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Touches per page and interval from which a range counts as truly hot
    #[arg(long, value_name = "N", default_value_t = HOT_TOUCHES)]
    hot_touches: f64,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
}

/// The figures of a run.
#[derive(Debug, Serialize)]
struct Figures {
    pattern: String,
    size: u64,
    seed: u64,
    rate: f64,
    algorithm: &'static str,
    cpu_budget: Option<f64>,
    #[serde(flatten)]
    accuracy: Accuracy,
    /// Whether each page was judged on its own; else ranges.
    by_page: bool,
    /// The page history, if it was what said which pages are hot.
    history: Option<HistoryFigures>,
    /// Virtual time that the run took, s.
    seconds: f64,
    checks_per_second: f64,
    /// Modelled cost of looking, as a share of one core.
    monitor_share: f64,
    /// Modelled loss of the target, as a share of one core.
    target_share: f64,
    /// The monitor's computing as measured on this machine, as a share of one core.
    computing_share: f64,
    /// Modelled cost of both sides in the second half of the run, as a share of one core.
    steady_share: Option<f64>,
    regions: usize,
    mode: Option<Mode>,
    sample_us: u64,
    aggr_us: u64,
}

/// What the page history took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct HistoryFigures {
    walks: u64,
    /// Time between the last two walks.
    walk_ns: u64,
    /// One page table in so many was watched.
    one_in: u32,
    memory_bytes: u64,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let usage = |text: &str| anyhow::Error::from(Usage(text.into()));
    let duration_ns = nanos(args.duration);
    if duration_ns == 0 {
        return Err(usage("--duration is 0; give for example 30s"));
    }
    if !(0.0..=1.0).contains(&args.huge) {
        return Err(usage("--huge must lie between 0% and 100%"));
    }
    let record = args.output.iter().map(|path| Output::new("--output", path));
    let outputs: Vec<Output> = record.chain(args.truth.iter().map(|path| Output::new("--truth", path))).collect();
    keep_apart(args.workload.file.as_slice(), &outputs)?;
    let workload = args.workload.build(args.monitor.seed)?;
    let rate = args.rate;
    if !(LEAST_RATE..=1e15).contains(&rate) {
        return Err(usage("--rate must be at least 0.001 and at most 1e15"));
    }
    if !(args.hot_touches.is_finite() && args.hot_touches > 0.0) {
        return Err(usage("--hot-touches must be a number above 0"));
    }
    if args.monitor.source != SourceName::Auto {
        return Err(usage("--source makes no sense here: the simulated page table is the source"));
    }
    let config = args.monitor.config("simulated".into(), 0)?;
    let arena = AddrRange::new(ARENA_START, ARENA_START + workload.size());
    let clock = SimClock::new(0);
    let activity = Activity::new(workload.clone(), rate);
    let process = Process::running(1, arena.start, activity.clone())?.with_huge_leaves(args.huge);
    let source = Metered::new(SimSource::new(clock.clone(), CostModel::default(), vec![process]));
    let mut monitor = Monitor::new(source, config.clone());
    let mut judge = Judge {
        workload: &workload,
        truly: workload.is_scattered().then_some(Simulated { activity: &activity, arena_start: arena.start }),
        judged: by_page::judged(arena, None),
        rate,
        hot_touches: args.hot_touches,
        arena,
        record: args.output.as_deref().map(|path| Writer::create(path, Options::default())).transpose()?,
        truth: args.truth.as_deref().map(|path| TruthFile::create(path, header(&workload, arena))).transpose()?,
        scores: Vec::new(),
        walked: Vec::new(),
        history: None,
        regions: 0,
        stats: Vec::new(),
        own_ns: 0,
    };
    let signals = StopSignals::catch()?;
    let cpu_before = thread_cpu_ns();
    let mut driver = clock.clone();
    while (clock.now_ns() < duration_ns || judge.scores.len() < args.min_snapshots) && signals.received().is_none() {
        if monitor.run_interval(&mut driver, &mut judge)? != Progress::Aggregated {
            break;
        }
        if let Some(history) = monitor.page_history(0) {
            judge.look_at(history);
        }
    }
    let computing_ns = (thread_cpu_ns() - cpu_before).saturating_sub(monitor.source().inside_ns() + judge.own_ns);
    if let Some(record) = judge.record.take() {
        record.finish()?;
    }
    if let Some(truth) = judge.truth.take() {
        truth.finish()?;
    }
    let cost = monitor.source().cost();
    let elapsed_ns = clock.now_ns().max(1);
    let share = |ns: u64| ns as f64 / elapsed_ns as f64;
    let figures = Figures {
        pattern: workload.name().into(),
        size: workload.size(),
        seed: workload.seed(),
        rate,
        algorithm: match args.monitor.algorithm {
            AlgorithmName::Isotherm => "isotherm",
            AlgorithmName::Damon => "damon",
        },
        cpu_budget: config.cpu_budget,
        accuracy: Accuracy::new(0, if judge.walked.is_empty() { &judge.scores } else { &judge.walked }),
        by_page: judge.truly.is_some(),
        history: judge.history,
        seconds: elapsed_ns as f64 / 1e9,
        checks_per_second: cost.pages_read as f64 / (elapsed_ns as f64 / 1e9),
        monitor_share: share(cost.monitor_ns),
        target_share: share(cost.target_ns),
        computing_share: share(computing_ns),
        steady_share: steady_share(&judge.stats),
        regions: judge.regions,
        mode: judge.stats.last().map(|s| s.mode),
        sample_us: monitor.attrs().sample_us,
        aggr_us: monitor.attrs().aggr_us,
    };
    to_stdout(|out| Ok(print(out, &figures, args.json)?))
}

fn header(workload: &Workload, arena: AddrRange) -> Header {
    Header {
        version: 1,
        pattern: workload.name().into(),
        seed: workload.seed(),
        pid: None,
        clock: "virtual".into(),
        arena,
        complete: false,
    }
}

/// Compares snapshots with the truth as they come, and passes events on to the record.
struct Judge<'a> {
    workload: &'a Workload,
    /// What is touched page by page, where ranges tell little.
    truly: Option<Simulated<'a>>,
    /// Where regions are judged page by page.
    judged: Vec<AddrRange>,
    rate: f64,
    hot_touches: f64,
    arena: AddrRange,
    record: Option<Writer>,
    truth: Option<TruthFile>,
    scores: Vec<Score>,
    /// Those of the page history's walks.
    walked: Vec<Score>,
    history: Option<HistoryFigures>,
    regions: usize,
    stats: Vec<MonitorStats>,
    /// CPU time spent here, which is not the monitor's.
    own_ns: u64,
}

impl Judge<'_> {
    /// Judges what the page history says after a walk, where single pages count.
    fn look_at(&mut self, history: &PageHistory) {
        let judged_already = self.history.is_some_and(|h| h.walks == history.walks());
        if judged_already || history.epochs().is_walking() {
            return;
        }
        let start = thread_cpu_ns();
        self.history = Some(HistoryFigures {
            walks: history.walks(),
            walk_ns: history.walk_ns(),
            one_in: history.one_in(),
            memory_bytes: history.memory_bytes() as u64,
        });
        let judged = by_page::judged(self.arena, Some(history));
        if let Some(truth) = &self.truly
            && let Some(said) = by_page::by_history(history, &judged)
        {
            self.walked.push(by_page::score(&said.hot, &said.clear_part(truth), truth, said.time));
        }
        self.own_ns += thread_cpu_ns() - start;
    }

    fn take(&mut self, event: &Event) -> Result<(), SubscriberError> {
        match event {
            Event::Snapshot(s) => {
                let time = (s.start_ns, s.end_ns);
                let slices = || predicted(self.workload, self.rate, self.arena.start, time, u64::MAX);
                self.scores.push(match &self.truly {
                    Some(truth) => by_page::score(&by_page::hot_by_regions(s), &self.judged, truth, time),
                    None => Score::new(s, self.arena, &slices(), self.hot_touches),
                });
                self.regions = s.regions.len();
                if let Some(truth) = &mut self.truth {
                    slices().iter().try_for_each(|slice| truth.add(slice))?;
                }
            }
            Event::Stats(stats) => self.stats.push(*stats),
            _ => {}
        }
        if let Some(record) = &mut self.record {
            record.write(event)?;
        }
        Ok(())
    }
}

impl Subscriber for Judge<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        let start = thread_cpu_ns();
        let result = self.take(event);
        self.own_ns += thread_cpu_ns() - start;
        result
    }

    fn step(&mut self, step: Step, now_ns: u64) {
        if let Some(record) = &mut self.record {
            record.step(step, now_ns);
        }
    }
}

fn print(out: &mut dyn Write, f: &Figures, json: bool) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, f)?;
        return writeln!(out);
    }
    let percent = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{:.1} %", v * 100.0));
    let a = &f.accuracy;
    writeln!(out, "{} of {}, {:.0} touches/s, seed {}", f.pattern, format_size(f.size), f.rate, f.seed)?;
    writeln!(out, "precision          {}", percent(a.precision))?;
    writeln!(out, "recall             {}", percent(a.recall))?;
    writeln!(out, "working-set error  {}", percent(a.wss_error))?;
    match (a.converged_intervals, a.converged_s) {
        (Some(n), Some(s)) => {
            writeln!(out, "converged          after {n} intervals, {}", format_time((s * 1e9) as u64))?
        }
        _ => writeln!(out, "converged          never in {} intervals", a.intervals)?,
    }
    writeln!(out, "checks per second  {:.0}", f.checks_per_second)?;
    writeln!(
        out,
        "cost               {:.3} % of a core looking, {:.3} % lost by the target, {:.3} % computing",
        f.monitor_share * 100.0,
        f.target_share * 100.0,
        f.computing_share * 100.0
    )?;
    writeln!(
        out,
        "intervals          {} sampling, {} aggregation",
        format_time(f.sample_us * 1000),
        format_time(f.aggr_us * 1000)
    )?;
    writeln!(out, "regions            {}", f.regions)?;
    if let Some(h) = &f.history {
        let (every, memory) = (format_time(h.walk_ns), format_size(h.memory_bytes));
        writeln!(
            out,
            "page history       {} walks, the last after {every}, 1 table in {}, {memory}",
            h.walks, h.one_in
        )?;
    }
    Ok(())
}
