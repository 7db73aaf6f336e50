//! All combinations of ages and rates, in rounds.

use super::candidates::around;
use super::{Outcome, Runner, Task, nothing_done};
use crate::exit::Usage;
use isotherm_core::tuning::parameters::Parameters;
use isotherm_core::tuning::score::{best, score};
use isotherm_linux::clock::unix_us;

/// Runs of each combination, unless said otherwise.
const REPEATS: u32 = 3;

/// Tries every combination once in each round, after the command alone, so that a change of the machine's load meets all
/// alike.
pub fn run(task: &Task) -> anyhow::Result<Outcome> {
    let args = &task.args;
    let own = Parameters::of(task.own());
    if task.own().chooses_pages(task.by_region()) && args.rates.iter().any(|rate| *rate != own.rate_bp) {
        let why = "--rates: this scheme chooses pages by their age, and rates mean nothing to it; leave --rates out, or give --algorithm damon";
        return Err(Usage(why.into()).into());
    }
    let sets = around(task.own(), &args.ages, &args.rates, task.by_region());
    if sets.is_empty() {
        return Err(Usage("none of these ages and rates fits the scheme's other bounds".into()).into());
    }
    let (history, _) = task.history()?;
    let repeats = args.repeats.unwrap_or(REPEATS) as usize;
    let mut runner = Runner { task, history, this: unix_us(), done: 0, total: (sets.len() + 1) * repeats };
    let (mut alone, mut with) = (Vec::new(), vec![Vec::new(); sets.len()]);
    for _ in 0..repeats {
        alone.push(runner.run(None)?);
        for (&set, all) in sets.iter().zip(&mut with) {
            all.push(runner.run(Some(set))?);
        }
    }
    let idle = nothing_done(with.iter().flatten());
    let scored: Vec<_> = sets.iter().zip(&with).filter_map(|(&set, with)| score(set, &alone, with)).collect();
    let best = best(&scored, task.wish).map(|s| s.parameters);
    Ok(Outcome { alone, scored, best, idle })
}
