//! Several choices of schemes side by side, over patterns and seeds.

use super::report::Ratios;
use super::{Args, Choice, check_whole, speed};
use crate::exit::Usage;
use crate::output::{to_stdout, write_file};
use isotherm_linux::signals::StopSignals;
use isotherm_sim::experiment::{Experiment, Figures};
use isotherm_view::picture::tradeoff;
use isotherm_view::plot::tradeoff::{Tradeoff, TradeoffPoint};
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const MOST_RUNS: u32 = 1000;

/// A pattern with a seed.
struct Case {
    pattern: String,
    seed: u64,
}

/// One run: which case, and which choice (`None`: no scheme).
struct Job {
    case: usize,
    choice: Option<usize>,
    experiment: Experiment,
}

#[derive(Serialize)]
struct CaseLine<'a> {
    schemes: &'a str,
    pattern: &'a str,
    seed: u64,
    #[serde(flatten)]
    figures: &'a Figures,
    #[serde(flatten)]
    ratios: Ratios,
}

/// The geometric mean over all cases.
#[derive(Serialize)]
struct MeanLine<'a> {
    schemes: &'a str,
    cases: usize,
    geometric_mean: Ratios,
}

/// Runs everything and prints it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if !(1..=MOST_RUNS).contains(&args.runs) {
        return Err(Usage(format!("--runs must lie between 1 and {MOST_RUNS}")).into());
    }
    args.keep_apart(1)?;
    let each = args.schemes.each();
    let choices: Vec<Choice> = each.into_iter().map(|(name, s)| args.choice(name, &s)).collect::<Result<_, _>>()?;
    let mut patterns = vec![args.workload.pattern];
    args.also.iter().for_each(|p| {
        if !patterns.contains(p) {
            patterns.push(*p)
        }
    });
    let (mut cases, mut jobs) = (Vec::new(), Vec::new());
    for pattern in patterns {
        for seed in (0..u64::from(args.runs)).map(|i| args.monitor.seed.wrapping_add(i)) {
            let workload = args.workload(pattern, seed)?;
            let case = cases.len();
            cases.push(Case { pattern: workload.name().to_owned(), seed });
            for (i, choice) in choices.iter().enumerate() {
                let experiment = args.experiment(workload.clone(), choice, seed)?;
                if i == 0 {
                    let experiment = experiment.without_schemes();
                    jobs.push(Job { case, choice: None, experiment });
                }
                jobs.push(Job { case, choice: Some(i), experiment });
            }
        }
    }
    let began = Instant::now();
    let results = run_all(&jobs)?;
    say!("{}", speed(results.iter().map(|f| f.runtime_s).sum(), began.elapsed()));
    let figures = |case: usize, choice: Option<usize>| {
        let found = jobs.iter().position(|j| j.case == case && j.choice == choice);
        found.map(|i| &results[i]).expect("every case was run with every choice")
    };
    let ratios = |case, choice| Ratios::new(figures(case, Some(choice)), figures(case, None));
    let means: Vec<Ratios> = (0..choices.len())
        .map(|c| geometric_mean(&(0..cases.len()).map(|i| ratios(i, c)).collect::<Vec<_>>()))
        .collect();
    // Before stdout, whose reader may leave.
    if let Some(path) = &args.svg {
        write_file(path, picture(&choices, &means, cases.len()).as_bytes())?;
    }
    to_stdout(|out| {
        if args.json {
            for (i, case) in cases.iter().enumerate() {
                for (c, choice) in choices.iter().enumerate() {
                    let line = CaseLine {
                        schemes: &choice.name,
                        pattern: &case.pattern,
                        seed: case.seed,
                        figures: figures(i, Some(c)),
                        ratios: ratios(i, c),
                    };
                    serde_json::to_writer(&mut *out, &line).map_err(io::Error::from)?;
                    writeln!(out)?;
                }
            }
            for (choice, mean) in choices.iter().zip(&means) {
                let line = MeanLine { schemes: &choice.name, cases: cases.len(), geometric_mean: *mean };
                serde_json::to_writer(&mut *out, &line).map_err(io::Error::from)?;
                writeln!(out)?;
            }
        } else {
            let mut table = Table::new();
            for (i, case) in cases.iter().enumerate() {
                let name = if args.runs > 1 { format!("{} {}", case.pattern, case.seed) } else { case.pattern.clone() };
                for (c, choice) in choices.iter().enumerate() {
                    table.row(&name, &choice.name, &ratios(i, c), Some(figures(i, Some(c))));
                }
            }
            if cases.len() > 1 {
                for (choice, mean) in choices.iter().zip(&means) {
                    table.row("geometric mean", &choice.name, mean, None);
                }
            }
            table.write(out)?;
        }
        Ok(())
    })
}

/// Runs the jobs on all cores; the results are in their order.
fn run_all(jobs: &[Job]) -> anyhow::Result<Vec<Figures>> {
    let signals = StopSignals::catch()?;
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<anyhow::Result<Figures>>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(i) else { return };
                    let figures = job.experiment.run(&mut |_, _| Ok(signals.received().is_none()));
                    if let Ok(mut results) = results.lock() {
                        results[i] = Some(figures.map_err(Into::into));
                    }
                }
            });
        }
    });
    check_whole(&signals)?;
    let results = results.into_inner().unwrap_or_default();
    results.into_iter().map(|r| r.unwrap_or_else(|| Err(anyhow::anyhow!("a run has ended early")))).collect()
}

fn geometric_mean(all: &[Ratios]) -> Ratios {
    let mean = |figure: fn(&Ratios) -> f64| {
        let logs: f64 = all.iter().map(|r| figure(r).max(f64::MIN_POSITIVE).ln()).sum();
        (logs / all.len().max(1) as f64).exp()
    };
    Ratios {
        rss_ratio: mean(|r| r.rss_ratio),
        rss_fast_ratio: mean(|r| r.rss_fast_ratio),
        memory_ratio: mean(|r| r.memory_ratio),
        runtime_ratio: mean(|r| r.runtime_ratio),
    }
}

fn picture(choices: &[Choice], means: &[Ratios], cases: usize) -> String {
    let mut points = vec![TradeoffPoint { runtime: 1.0, memory: 1.0, label: "no scheme".into(), best: false }];
    points.extend(choices.iter().zip(means).map(|(choice, m)| TradeoffPoint {
        runtime: m.runtime_ratio,
        memory: m.rss_ratio,
        label: choice.name.clone(),
        best: false,
    }));
    let of = if cases > 1 { format!(", geometric mean of {cases} runs") } else { String::new() };
    tradeoff(&Tradeoff { title: format!("Simulated: runtime and resident memory{of}"), points, limit: None }).svg()
}

/// Rows of text in columns.
struct Table {
    rows: Vec<[String; 9]>,
}

impl Table {
    fn new() -> Self {
        let heads = ["workload", "schemes", "RSS", "memory", "runtime", "waiting", "faults", "watching", "moving"]
            .map(String::from);
        Self { rows: vec![heads] }
    }

    fn row(&mut self, workload: &str, schemes: &str, r: &Ratios, f: Option<&Figures>) {
        let percent = |share: Option<f64>| share.map_or(String::new(), |s| format!("{:.2} %", s * 100.0));
        let given_up = if f.is_some_and(|f| !f.finished) { "+" } else { "" };
        self.rows.push([
            workload.to_owned(),
            schemes.to_owned(),
            format!("{:.3}", r.rss_ratio),
            format!("{:.3}", r.memory_ratio),
            format!("{:.3}{given_up}", r.runtime_ratio),
            percent(f.map(|f| f.some_psi)),
            f.map_or(String::new(), |f| f.major_faults.to_string()),
            percent(f.map(|f| f.monitor_share + f.target_share)),
            percent(f.map(|f| f.action_share)),
        ]);
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| self.rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 9] = std::array::from_fn(width);
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(i, (cell, width))| if i < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") })
                .collect();
            writeln!(out, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios(rss: f64, runtime: f64) -> Ratios {
        Ratios { rss_ratio: rss, rss_fast_ratio: rss, memory_ratio: rss, runtime_ratio: runtime }
    }

    #[test]
    fn the_mean_is_geometric() {
        let mean = geometric_mean(&[ratios(0.5, 1.0), ratios(2.0, 1.0)]);
        assert!((mean.rss_ratio - 1.0).abs() < 1e-12 && (mean.runtime_ratio - 1.0).abs() < 1e-12);
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let mut table = Table { rows: Vec::new() };
        table.row("zipf", "a", &ratios(0.5, 1.0), None);
        table.row("hotspot", "bc", &ratios(0.25, 1.5), None);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "zipf     a   0.500  0.500  1.000\nhotspot  bc  0.250  0.250  1.500\n"
        );
    }
}
