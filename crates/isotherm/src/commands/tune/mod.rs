//! `isotherm tune`: which parameters suit a command best, found by running it.

mod candidates;
mod grid;
mod history;
mod learned;
mod measure;
mod propose;
mod report;

use crate::args::monitor::{AlgorithmName, MonitorArgs};
use crate::exit::Usage;
use crate::output::{keep_apart, write_file};
use crate::schemes::preset::{age_us, rate};
use crate::schemes::{SchemeArgs, to_toml};
use anyhow::Context;
use history::{Entry, History, Known, Subject};
use isotherm_core::scheme::Scheme;
use isotherm_core::tuning::figures::{Figures, Measured};
use isotherm_core::tuning::parameters::Parameters;
use isotherm_core::tuning::score::Scored;
use isotherm_core::tuning::search::Wish;
use isotherm_core::units::format_size;
use isotherm_files::apart::Output;
use isotherm_linux::clock::{kernel_release, unix_us};
use isotherm_linux::roots::Roots;
use learned::{Learned, Next};
use std::ffi::OsString;
use std::path::PathBuf;

/// Find the parameters of a scheme that suit a command best, by running it.
///
/// Runs the command at most --runs times: alone now and then, because the machine may become faster or slower, and under
/// the scheme with the least age (and access rate, where it matters) that all runs so far make most worth trying. Prints
/// what each set costs and saves compared with the command alone, and writes the scheme that needs the least memory among
/// those within --max-slowdown. The command must do the same work each time, end by itself, and succeed; what it prints is
/// thrown away. With --ages, --rates or --repeats it tries every combination instead.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    schemes: SchemeArgs,
    /// How often the command runs at most, alone and under the scheme
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000),
          conflicts_with_all = ["ages", "rates", "repeats"], help_heading = "Tuning")]
    runs: u32,
    /// How much longer than alone the command may take
    #[arg(long, value_name = "P", default_value = "5%", value_parser = crate::args::units::percent, help_heading = "Tuning")]
    max_slowdown: f64,
    /// How much runtime counts in the score that is maximised within --max-slowdown; the rest is memory. DAMOOS has 50%
    #[arg(long, value_name = "P", default_value = "0%", value_parser = crate::args::units::share, help_heading = "Tuning")]
    runtime_weight: f64,
    /// Which scheme is tuned, if there are several; the others stay as they are
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Tuning")]
    nth: usize,
    /// Keep every run in this file, and begin with what it knows of the same command, scheme, machine and kernel
    #[arg(long, value_name = "FILE", help_heading = "Tuning")]
    history: Option<PathBuf>,
    /// Try all of these least ages, for example 2s,5s,10s [default with --rates or --repeats: a quarter of the scheme's to
    /// four times of it]
    #[arg(long, value_name = "T,...", value_delimiter = ',', value_parser = age_us, help_heading = "Trying all")]
    ages: Vec<u64>,
    /// Try all of these access rates, for example 0%,5%: the highest ones, or the least ones of a scheme that asks for a
    /// least rate [default with --ages or --repeats: 0% and the scheme's]
    #[arg(long, value_name = "P,...", value_delimiter = ',', value_parser = rate, help_heading = "Trying all")]
    rates: Vec<u32>,
    /// Runs of each combination [default with --ages or --rates: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Trying all")]
    repeats: Option<u32>,
    /// Run nothing: tell as JSON what to run next, and write its scheme to --output; for what is no single command. COMMAND
    /// is any name for it
    #[arg(long, requires = "history", conflicts_with_all = ["ages", "rates", "repeats", "svg", "json"],
          help_heading = "Running it yourself")]
    propose: bool,
    /// With --propose: first add a run to the history that took so many seconds and so much memory, for example 12.5,430M
    #[arg(long, value_name = "SECONDS,SIZE", requires = "propose", value_parser = propose::figures,
          help_heading = "Running it yourself")]
    record: Option<Figures>,
    /// With --record: the run was under the schemes of this file [default: without any]
    #[arg(long, value_name = "FILE", requires = "record", help_heading = "Running it yourself")]
    ran: Option<PathBuf>,
    /// Where the best scheme is written
    #[arg(short, long, value_name = "FILE", default_value = "tuned.toml", help_heading = "Output")]
    output: PathBuf,
    /// Draw runtime against memory
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
    /// Print JSON lines instead of the table
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    monitor: MonitorArgs,
    /// The command
    #[arg(last = true, value_name = "COMMAND", required = true)]
    command: Vec<OsString>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let task = Task::of(args)?;
    if task.args.propose {
        return propose::run(&task);
    }
    let all = !task.args.ages.is_empty() || !task.args.rates.is_empty() || task.args.repeats.is_some();
    let outcome = if all { grid::run(&task)? } else { learn(&task)? };
    outcome.report(&task)
}

/// What is tuned, for what.
struct Task {
    args: Args,
    monitor: MonitorArgs,
    schemes: Vec<Scheme>,
    wish: Wish,
}

impl Task {
    fn of(args: Args) -> anyhow::Result<Self> {
        // The file of --ran may well be replaced: it is the scheme that was to be run, as --output is.
        let mut inputs = args.schemes.files();
        inputs.extend(args.history.clone());
        let svg = args.svg.iter().map(|path| Output::new("--svg", path));
        let outputs: Vec<Output> = svg.chain([Output::new("--output", &args.output)]).collect();
        keep_apart(&inputs, &outputs)?;
        let loaded = args.schemes.load(&args.monitor)?;
        if loaded.target.is_some() {
            return Err(
                Usage("the file names a [target], but tune runs the command; leave the table out".into()).into()
            );
        }
        let wish = Wish { max_slowdown: args.max_slowdown, runtime_weight: args.runtime_weight };
        let task = Self { args, monitor: loaded.monitor, schemes: loaded.schemes, wish };
        if task.schemes.len() <= task.args.nth {
            let why = format!("--nth {}: there are {} schemes, counted from 0", task.args.nth, task.schemes.len());
            return Err(Usage(why).into());
        }
        Ok(task)
    }

    /// The scheme that is tuned.
    fn own(&self) -> &Scheme {
        &self.schemes[self.args.nth]
    }

    /// All schemes, the tuned one with these parameters.
    fn with(&self, parameters: Parameters) -> Vec<Scheme> {
        let mut all = self.schemes.clone();
        if let Some(tuned) = parameters.applied_to(self.own()) {
            all[self.args.nth] = tuned;
        }
        all
    }

    /// What must be the same in the history: everything but the parameters.
    fn subject(&self, schemes: &[Scheme]) -> Subject {
        let mut schemes = schemes.to_vec();
        if let Some(scheme) = schemes.get_mut(self.args.nth) {
            Parameters::of(scheme).taken_from(scheme);
        }
        Subject {
            command: self.args.command.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
            scheme: to_toml(&schemes),
            nth: self.args.nth,
            machine: Roots::system().line("/proc/sys/kernel/hostname").unwrap_or_default(),
            kernel: kernel_release().unwrap_or_default(),
        }
    }

    /// The history, if there is to be one, and what it knows.
    fn history(&self) -> anyhow::Result<(Option<History>, Known)> {
        let Some(path) = &self.args.history else { return Ok((None, Known::default())) };
        let (history, known) = History::open(path, &self.subject(&self.schemes))?;
        say!("{}: {}", path.display(), known.words());
        Ok((Some(history), known))
    }

    fn by_region(&self) -> bool {
        self.monitor.algorithm == AlgorithmName::Damon
    }

    /// A tuning that learns; `this`: its name in the history.
    fn learned(&self, known: &Known, this: i64) -> Learned {
        Learned::new(self.own(), self.by_region(), self.wish, self.args.runs as usize, known, this)
    }
}

/// Runs the command, tells how far it is, and keeps the run.
struct Runner<'a> {
    task: &'a Task,
    history: Option<History>,
    this: i64,
    done: usize,
    total: usize,
}

impl Runner<'_> {
    /// One run: alone, or with these parameters.
    fn run(&mut self, parameters: Option<Parameters>) -> anyhow::Result<Measured> {
        let args = &self.task.args;
        let schemes = parameters.map_or_else(Vec::new, |p| self.task.with(p));
        let measured = measure::run(&args.command, &schemes, &self.task.monitor, args.nth)?;
        self.done += 1;
        let what = parameters.map_or_else(|| "alone".to_owned(), Parameters::words);
        let memory = format_size(measured.memory as u64);
        say!("run {} of {}, {what}: {:.2} s, {memory}", self.done, self.total, measured.seconds);
        if let Some(history) = &mut self.history {
            history.add(&Entry {
                subject: self.task.subject(&self.task.schemes),
                tuning: self.this,
                parameters,
                seconds: measured.seconds,
                memory_bytes: measured.memory,
                applied_bytes: measured.applied,
            })?;
        }
        Ok(measured)
    }
}

/// What came out.
struct Outcome {
    alone: Vec<Measured>,
    scored: Vec<Scored>,
    best: Option<Parameters>,
    /// Why no run did anything, if none did.
    idle: Option<String>,
}

impl Outcome {
    fn report(&self, task: &Task) -> anyhow::Result<()> {
        let args = &task.args;
        let best = self.best.filter(|_| self.idle.is_none());
        let best = self.scored.iter().find(|s| Some(s.parameters) == best);
        let summary = report::Summary { alone: &self.alone, scored: &self.scored, best, wish: task.wish };
        if args.json {
            summary.print_json()?;
        } else {
            summary.print_table()?;
        }
        if let Some(path) = &args.svg {
            write_file(path, summary.svg().as_bytes())?;
        }
        if let Some(why) = &self.idle {
            anyhow::bail!("the scheme never did anything, so there is nothing to choose: {why}");
        }
        let best = best.with_context(|| {
            format!(
                "no set keeps the command within {:.1} % of its runtime alone, so nothing was written; begin with a greater \
                 age, or allow more with --max-slowdown",
                args.max_slowdown * 100.0
            )
        })?;
        say!("the best: {}", best.words());
        write_file(&args.output, to_toml(&task.with(best.parameters)).as_bytes())
    }
}

/// Why no run did anything, if none did.
fn nothing_done<'a>(with: impl Iterator<Item = &'a Measured> + Clone) -> Option<String> {
    if with.clone().any(|m| m.applied > Some(0)) {
        return None;
    }
    let why = with.clone().find_map(|m| m.idle.as_deref());
    Some(why.unwrap_or("the command ended before its first turn").to_owned())
}

/// Tries what all runs so far make most worth trying.
fn learn(task: &Task) -> anyhow::Result<Outcome> {
    let (history, known) = task.history()?;
    let this = unix_us();
    let mut learned = task.learned(&known, this);
    let mut runner = Runner { task, history, this, done: 0, total: task.args.runs as usize };
    let (mut alone, mut with) = (Vec::new(), Vec::new());
    loop {
        let parameters = match learned.next() {
            Next::Alone => None,
            Next::Try(parameters) => Some(parameters),
            Next::Done => break,
        };
        let measured = runner.run(parameters)?;
        learned.learn(parameters, &measured);
        if parameters.is_some() { with.push(measured) } else { alone.push(measured) }
    }
    let scored = learned.scored();
    let idle = if scored.iter().any(|s| s.applied > Some(0)) { None } else { nothing_done(with.iter()) };
    Ok(Outcome { alone, scored, best: learned.best(), idle })
}
