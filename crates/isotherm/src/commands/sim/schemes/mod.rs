//! `isotherm sim schemes`: what schemes would save and cost, in virtual time.

mod compare;
mod machine;
mod report;

use super::LEAST_RATE;
use crate::args::monitor::{MonitorArgs, SourceName, simulated};
use crate::args::units;
use crate::args::workload::WorkloadArgs;
use crate::commands::schemes::stats;
use crate::exit::Usage;
use crate::output::{is_stdout, keep_apart, one_of, open_stats, to_stdout, write_file};
use crate::schemes::{Loaded, SchemeArgs};
use isotherm_core::scheme::Scheme;
use isotherm_core::units::format_time;
use isotherm_core::units::nanos;
use isotherm_files::apart::Output;
use isotherm_linux::signals::StopSignals;
use isotherm_sim::experiment::{Experiment, ExperimentError, Figures};
use isotherm_sim::machine::CostModel;
use isotherm_sim::workload::Workload;
use isotherm_view::picture::scheme;
use machine::MachineArgs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Try schemes on a simulated machine: memory saved, slowdown, pressure, in virtual time.
///
/// Monitor and scheme engine are those of `isotherm schemes`; the program, its memory, swap, a slower node and the
/// kernel's huge pages are simulated, with costs that docs/sim-schemes.md lists. The program does a fixed amount of
/// work, once left alone and once under the schemes. The same seed gives the same run.
#[derive(Debug, clap::Args)]
#[command(mut_args(simulated))]
pub struct Args {
    /// How much work the program does: the time that it takes left alone
    #[arg(long, value_name = "T", default_value = "60s", value_parser = units::time)]
    duration: Duration,
    /// Touches per second over the whole memory; the default is about what one core manages
    #[arg(long, value_name = "N", default_value_t = 20e6)]
    rate: f64,
    /// Compare: each file and each line is a choice of its own; prints a table
    #[arg(long)]
    compare: bool,
    /// With --compare: another pattern with the same parameters, for the mean (repeatable)
    #[arg(long, value_enum, value_name = "PATTERN", requires = "compare")]
    also: Vec<crate::args::workload::PatternName>,
    /// With --compare: so many seeds, from that of --seed on
    #[arg(long, value_name = "N", default_value_t = 1, requires = "compare")]
    runs: u32,
    /// Write a JSON line per scheme every second of virtual time and at the end ("-": standard output)
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    stats: Option<PathBuf>,
    /// Draw memory and pressure over time, a picture for each scheme; with --compare runtime against memory
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    schemes: SchemeArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

/// A run is given up after this many times the work: what thrashes so badly need not be watched to its end.
const MOST_SLOWDOWN: u64 = 10;

pub fn run(args: Args) -> anyhow::Result<()> {
    if args.compare { compare::run(&args) } else { run_one(&args) }
}

/// A choice of schemes with all that belongs to it.
struct Choice {
    name: String,
    schemes: Vec<Scheme>,
    monitor: MonitorArgs,
}

impl Args {
    /// Refuses files to write that are read, or the same; `pictures`: how many there are.
    fn keep_apart(&self, pictures: usize) -> Result<(), Usage> {
        let mut inputs = self.schemes.files();
        inputs.extend(self.workload.file.clone());
        let mut outputs: Vec<Output> = self.stats.iter().map(|path| Output::new("--stats", path)).collect();
        if let Some(path) = &self.svg {
            outputs.extend((0..pictures).map(|i| Output::new("--svg", one_of(path, &i.to_string(), pictures))));
        }
        keep_apart(&inputs, &outputs)
    }

    /// Reads schemes; a file may say how to watch.
    fn choice(&self, name: String, schemes: &SchemeArgs) -> anyhow::Result<Choice> {
        let Loaded { schemes, monitor, target } = schemes.load(&self.monitor)?;
        if target.is_some() {
            tracing::warn!("the [target] of the file is left alone: the schemes are tried on a simulated program");
        }
        if monitor.source != SourceName::Auto {
            return Err(Usage("a source makes no sense here: the simulated page table is the source".into()).into());
        }
        Ok(Choice { name, schemes, monitor })
    }

    /// The workload of this pattern and seed.
    fn workload(&self, pattern: crate::args::workload::PatternName, seed: u64) -> anyhow::Result<Workload> {
        WorkloadArgs { pattern, ..self.workload.clone() }.build(seed)
    }

    /// What is to be simulated.
    fn experiment(&self, workload: Workload, choice: &Choice, seed: u64) -> anyhow::Result<Experiment> {
        let work_ns = nanos(self.duration);
        if work_ns == 0 {
            return Err(Usage("--duration is 0; give for example 60s".into()).into());
        }
        if !(LEAST_RATE..=1e12).contains(&self.rate) {
            return Err(Usage("--rate must be at least 0.001 and at most 1e12".into()).into());
        }
        let hardware = self.machine.hardware(workload.size())?;
        let monitor = MonitorArgs { seed, ..choice.monitor.clone() };
        Ok(Experiment {
            workload,
            rate: self.rate,
            work_ns,
            limit_ns: work_ns.saturating_mul(MOST_SLOWDOWN),
            hardware,
            costs: CostModel::default(),
            monitor: monitor.config("simulated".into(), 0)?,
            schemes: choice.schemes.clone(),
        })
    }
}

fn run_one(args: &Args) -> anyhow::Result<()> {
    if args.json && args.stats.as_deref().is_some_and(is_stdout) {
        let text = "--stats - and --json both write to standard output, lines of two kinds; give --stats a file";
        return Err(Usage(text.into()).into());
    }
    let choice = args.choice(String::new(), &args.schemes)?;
    if args.svg.as_deref().is_some_and(is_stdout) && choice.schemes.len() > 1 {
        let count = choice.schemes.len();
        return Err(Usage(format!("--svg - takes one picture, and there are {count}: name a file")).into());
    }
    args.keep_apart(choice.schemes.len())?;
    let workload = args.workload(args.workload.pattern, args.monitor.seed)?;
    let experiment = args.experiment(workload, &choice, args.monitor.seed)?;
    let mut stats_file = args.stats.as_deref().map(open_stats).transpose()?;
    let signals = StopSignals::catch()?;
    let began = Instant::now();
    let alone = experiment.without_schemes().run(&mut |_, _| Ok(signals.received().is_none()))?;
    check_whole(&signals)?;
    let mut course = Vec::new();
    let mut last = report::Last::default();
    let figures = experiment.run(&mut |now_ns, engine| {
        if let Some(out) = &mut stats_file {
            stats::write_lines(out, engine, None, now_ns)?;
        }
        if args.svg.is_some() {
            stats::write_lines(&mut course, engine, None, now_ns)?;
        }
        last.take(engine, now_ns)?;
        Ok(signals.received().is_none())
    });
    let figures = reported(figures, args)?;
    check_whole(&signals)?;
    say!("{}", speed(figures.runtime_s, began.elapsed()));
    if let Some(path) = &args.svg {
        let histories = isotherm_view::schemes::read(course.as_slice())?.0;
        for h in &histories {
            write_file(&one_of(path, &h.name(), histories.len()), scheme(h).svg().as_bytes())?;
        }
    }
    to_stdout(|out| Ok(report::print(out, args, &experiment, &figures, &alone, &last)?))
}

/// Figures of a run that was cut short would be compared with those of a whole one.
fn check_whole(signals: &StopSignals) -> anyhow::Result<()> {
    anyhow::ensure!(
        signals.received().is_none(),
        "interrupted: a run that has not come to its end cannot be compared with another"
    );
    Ok(())
}

/// A failure to write names the file.
fn reported(figures: Result<Figures, ExperimentError>, args: &Args) -> anyhow::Result<Figures> {
    figures.map_err(|e| match (e, &args.stats) {
        (ExperimentError::Visitor(e), Some(path)) => {
            anyhow::Error::from(e).context(format!("cannot write statistics to {}", path.display()))
        }
        (e, _) => e.into(),
    })
}

fn speed(simulated_s: f64, took: Duration) -> String {
    let real_s = took.as_secs_f64().max(1e-9);
    let simulated = format_time((simulated_s * 1e9) as u64);
    let real = format_time(took.as_nanos() as u64);
    format!("simulated {simulated} in {real}: {:.0} times as fast as real time", simulated_s / real_s)
}
