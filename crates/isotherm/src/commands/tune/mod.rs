//! `isotherm tune`: which parameters suit a command best, found by running it.

mod candidates;
mod measure;
mod report;
mod score;

use crate::args::monitor::MonitorArgs;
use crate::exit::Usage;
use crate::output::write_file;
use crate::schemes::preset::{rate, time_us};
use crate::schemes::{SchemeArgs, to_toml};
use anyhow::Context;
use candidates::{Parameters, around};
use isotherm_core::scheme::Scheme;
use isotherm_core::units::format_size;
use measure::Measured;
use score::{Scored, best, score};
use std::ffi::OsString;
use std::path::PathBuf;

/// Find the parameters of a scheme that suit a command best, by running it.
///
/// Runs the command alone and under the scheme with several least ages and access rates, several times each, in turns,
/// so that a change of the machine's load meets all alike. Prints what each costs and saves compared with the command
/// alone in the same round, and writes the scheme that needs the least memory among those within --max-slowdown. The
/// command must do the same work each time, end by itself, and succeed; what it prints is thrown away.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    schemes: SchemeArgs,
    /// Least ages to try, for example 2s,5s,10s [default: a quarter of the scheme's to four times of it]
    #[arg(long, value_name = "T,...", value_delimiter = ',', value_parser = time_us, help_heading = "Tuning")]
    ages: Vec<u64>,
    /// Access rates to try, for example 0%,5%: the highest ones, or the least ones of a scheme that asks for a least
    /// rate [default: 0% and the scheme's]
    #[arg(long, value_name = "P,...", value_delimiter = ',', value_parser = rate, help_heading = "Tuning")]
    rates: Vec<u32>,
    /// Which scheme is tuned, if there are several; the others stay as they are
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Tuning")]
    nth: usize,
    /// Runs of each set
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000),
          help_heading = "Tuning")]
    repeats: u32,
    /// How much longer than alone the command may take
    #[arg(long, value_name = "P", default_value = "5%", value_parser = crate::args::units::percent, help_heading = "Tuning")]
    max_slowdown: f64,
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
    let mut monitor = args.monitor.clone();
    let loaded = args.schemes.load(&monitor.attrs()?)?;
    if let Some(settings) = &loaded.monitor {
        settings.fill(&mut monitor);
    }
    if loaded.target.is_some() {
        return Err(Usage("the file names a [target], but tune runs the command; leave the table out".into()).into());
    }
    let schemes = loaded.schemes;
    let Some(own) = schemes.get(args.nth) else {
        let why = format!("--nth {}: there are {} schemes, counted from 0", args.nth, schemes.len());
        return Err(Usage(why).into());
    };
    let sets = around(own, &args.ages, &args.rates);
    if sets.is_empty() {
        return Err(Usage("none of these ages and rates fits the scheme's other bounds".into()).into());
    }
    let with = |p: &Parameters| {
        let mut all = schemes.clone();
        if let (Some(slot), Some(tuned)) = (all.get_mut(args.nth), p.applied_to(own)) {
            *slot = tuned;
        }
        all
    };
    let runs = Runs::make(&args, &monitor, &sets, with)?;
    let scored: Vec<Scored> =
        sets.iter().zip(&runs.with).map(|(&parameters, with)| score(parameters, &runs.alone, with)).collect();
    let idle = runs.nothing_done();
    let best = best(&scored, args.max_slowdown).filter(|_| idle.is_none());
    let summary = report::Summary { alone: &runs.alone, scored: &scored, best, max_slowdown: args.max_slowdown };
    if args.json {
        summary.print_json()?;
    } else {
        summary.print_table()?;
    }
    if let Some(path) = &args.svg {
        write_file(path, summary.svg().as_bytes())?;
    }
    if let Some(why) = idle {
        anyhow::bail!("the scheme never did anything, so there is nothing to choose: {why}");
    }
    let best = best.with_context(|| {
        format!(
            "no set keeps the command within {:.1} % of its runtime alone, so nothing was written; try greater --ages, or more \
             --max-slowdown",
            args.max_slowdown * 100.0
        )
    })?;
    say!("the best: {}", best.parameters.words());
    write_file(&args.output, to_toml(&with(&best.parameters)).as_bytes())
}

/// All runs, by round.
struct Runs {
    alone: Vec<Measured>,
    /// By parameter set, then by round.
    with: Vec<Vec<Measured>>,
}

impl Runs {
    fn make(
        args: &Args,
        monitor: &MonitorArgs,
        sets: &[Parameters],
        with: impl Fn(&Parameters) -> Vec<Scheme>,
    ) -> anyhow::Result<Self> {
        let mut runs = Self { alone: Vec::new(), with: vec![Vec::new(); sets.len()] };
        let total = (sets.len() + 1) * args.repeats as usize;
        let mut done = 0;
        let mut tell = |what: &str, m: &Measured| {
            done += 1;
            say!("run {done} of {total}, {what}: {:.2} s, {}", m.seconds, format_size(m.memory as u64));
        };
        for _ in 0..args.repeats {
            let measured = measure::run(&args.command, &[], monitor, args.nth)?;
            tell("alone", &measured);
            runs.alone.push(measured);
            for (set, all) in sets.iter().zip(&mut runs.with) {
                let measured = measure::run(&args.command, &with(set), monitor, args.nth)?;
                tell(&set.words(), &measured);
                all.push(measured);
            }
        }
        Ok(runs)
    }

    /// Why no run did anything, if none did.
    fn nothing_done(&self) -> Option<&str> {
        let mut all = self.with.iter().flatten();
        if all.clone().any(|m| m.applied > 0) {
            return None;
        }
        Some(all.find_map(|m| m.idle.as_deref()).unwrap_or("the command ended before its first turn"))
    }
}
