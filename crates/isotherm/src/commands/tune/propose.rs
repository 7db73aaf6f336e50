//! Tuning of what the user runs: what to run next, from a history that the user fills.

use super::history::Entry;
use super::learned::Next;
use super::{Task, to_toml, write_file};
use crate::exit::Usage;
use crate::output::is_stdout;
use crate::schemes::file::{parse_file, read_file};
use anyhow::Context;
use isotherm_core::tuning::figures::Figures;
use isotherm_core::tuning::parameters::Parameters;
use isotherm_core::units::parse_size;
use isotherm_files::NewFile;
use serde_json::json;
use std::io::Write;
use std::path::Path;

/// The tuning that runs of the user belong to.
const OF_THE_USER: i64 = 0;

/// `12.5,430M`: seconds and memory of a run.
pub fn figures(text: &str) -> anyhow::Result<Figures> {
    let (seconds, memory) = text.split_once(',').context("seconds and a size are wanted, for example 12.5,430M")?;
    let seconds: f64 = seconds.trim().parse().ok().with_context(|| format!("'{seconds}' is no number of seconds"))?;
    let memory = parse_size(memory.trim())? as f64;
    let both = seconds.is_finite() && seconds > 0.0 && memory > 0.0;
    anyhow::ensure!(both, "a run takes time and memory: both must be above 0");
    Ok(Figures { seconds, memory })
}

/// Adds a run to the history, if there is one to add, and tells what to run next.
pub fn run(task: &Task) -> anyhow::Result<()> {
    // Before the history is touched: what is wrong with the file must not leave half a run there.
    let ran = task.args.ran.as_deref().map(|path| parameters_of(task, path)).transpose()?;
    let (history, mut known) = task.history()?;
    let mut run = None;
    if let Some(figures) = task.args.record {
        let entry = Entry {
            subject: task.subject(&task.schemes),
            tuning: OF_THE_USER,
            parameters: ran,
            seconds: figures.seconds,
            memory_bytes: figures.memory,
            applied_bytes: None,
        };
        known.entries.push(entry.clone());
        run = Some(entry);
    }
    let learned = task.learned(&known, OF_THE_USER);
    let output = &task.args.output;
    if learned.next() != Next::Alone && !is_stdout(output) {
        // Before the run is added: who repeats a call that has failed would add it twice.
        drop(NewFile::create(output, NewFile::READABLE).with_context(|| format!("cannot write {}", output.display()))?);
    }
    if let (Some(mut history), Some(run)) = (history, run) {
        history.add(&run)?;
    }
    let (done, runs) = learned.turn();
    let mut answer = json!({ "run": (done + 1).min(runs), "runs": runs });
    let scheme = match learned.next() {
        Next::Alone => {
            answer["do"] = json!("alone");
            None
        }
        Next::Try(parameters) => {
            answer["do"] = json!("try");
            Some(parameters)
        }
        Next::Done => {
            answer["do"] = json!("done");
            let best = learned.best().context("no set is likely to keep to --max-slowdown, so nothing was written")?;
            if let Some(s) = learned.scored().iter().find(|s| s.parameters == best) {
                answer["runtime"] = json!(s.runtime);
                answer["memory"] = json!(s.memory);
                answer["expected_runtime"] = json!(s.expected.map(|e| e.0));
                answer["expected_memory"] = json!(s.expected.map(|e| e.1));
            }
            Some(best)
        }
    };
    if let Some(parameters) = scheme {
        answer["parameters"] = json!(parameters);
        write_file(output, to_toml(&task.with(parameters)).as_bytes())?;
        answer["scheme"] = json!(output);
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}").and_then(|()| out.flush()).with_context(|| match task.args.record {
        Some(_) => "cannot write to standard output; the run is in the history, so ask again without --record",
        None => "cannot write to standard output",
    })
}

/// The parameters that a scheme file has, which must be the tuned schemes otherwise.
fn parameters_of(task: &Task, path: &Path) -> anyhow::Result<Parameters> {
    let name = path.display().to_string();
    let parsed = parse_file(&name, &read_file(path)?, &task.monitor.attrs()?).map_err(|e| Usage(e.to_string()))?;
    match parsed.schemes.get(task.args.nth) {
        Some(scheme) if task.subject(&parsed.schemes) == task.subject(&task.schemes) => Ok(Parameters::of(scheme)),
        _ => Err(Usage(format!("{name}: these are other schemes than those that are tuned")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_seconds_and_a_size() {
        assert_eq!(figures("12.5,430M").unwrap(), Figures { seconds: 12.5, memory: 450_887_680.0 });
        for wrong in ["", "5", "5,", ",5M", "0,5M", "-1,5M", "5,0", "nan,5M", "inf,5M", "1e999,5M", "5,5X", "5,5M,6"] {
            assert!(figures(wrong).is_err(), "{wrong}");
        }
    }
}
