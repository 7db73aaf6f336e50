//! `make bench-accuracy`: how true the picture is, on real and on simulated memory, for several monitors at one budget.

use anyhow::Context;
use clap::Parser;
use isotherm_bench::figures::{Figures, median_or_worst};
use isotherm_bench::monitors::{MONITORS, MonitorChoice};
use isotherm_bench::programs::{self, RunningWorkload};
use isotherm_bench::table::{Table, kernel, percent};
use isotherm_bench::walks::{self, HistoryFigures, Walks};
use isotherm_core::tuning::figures::median;
use isotherm_core::units::parse_size;
use isotherm_record::Record;
use isotherm_sim::accuracy::{GOOD, HOLD, HOT_TOUCHES};
use isotherm_sim::workload::truth::Truth;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How true the picture of the hot memory is.
#[derive(Debug, Parser)]
struct Args {
    /// More and longer runs
    #[arg(long)]
    full: bool,
    /// Share of one core that a monitor may cost
    #[arg(long, value_name = "P", default_value = "1%")]
    cpu_budget: String,
    /// Only cases whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Leave out real memory
    #[arg(long)]
    no_real: bool,
    /// Leave out simulations
    #[arg(long)]
    no_simulated: bool,
    /// Touches per page and interval from which a range counts as truly hot
    #[arg(long, value_name = "N", default_value_t = HOT_TOUCHES)]
    hot_touches: f64,
    /// Also print every run as a line of JSON on stderr
    #[arg(long)]
    verbose: bool,
}

/// A workload to watch.
#[derive(Debug, Clone, Copy)]
struct Case {
    pattern: &'static str,
    size: &'static str,
    /// Empty: all of it, in whatever shares the pattern gives to pages.
    hot: &'static str,
    /// Further options of the pattern.
    more: &'static [&'static str],
    /// Touches per second of a simulation; `None`: real memory, as fast as one core can.
    rate: Option<f64>,
}

/// About what one core manages that touches pages all over its memory.
const ONE_CORE: f64 = 20e6;
/// A core for every 24 GiB of 5 TiB.
const CORES_214: f64 = 214.0 * ONE_CORE;

const fn case(pattern: &'static str, size: &'static str, hot: &'static str, rate: Option<f64>) -> Case {
    Case { pattern, size, hot, more: &[], rate }
}

/// Zipf-distributed pages that lie all over the memory.
const fn scrambled(size: &'static str, more: &'static [&'static str], rate: Option<f64>) -> Case {
    Case { pattern: "zipf", size, hot: "", more, rate }
}

/// Slow enough that a few percent of the pages are touched between two walks, and that each touch can be distinguished.
const SLOW_ZIPF: &[&str] = &["--scattered", "--rate", "1000"];

const CASES: [Case; 25] = [
    case("hotspot", "1G", "10%", None),
    case("hotspot", "8G", "10%", None),
    case("stairs", "1G", "10%", None),
    case("stairs", "8G", "10%", None),
    case("hotspot", "100G", "0.1%", Some(ONE_CORE)),
    case("hotspot", "100G", "10%", Some(ONE_CORE)),
    case("hotspot", "5T", "0.1%", Some(ONE_CORE)),
    // 10 GiB of 5 TiB, the case that others measured DAMON with.
    case("hotspot", "5T", "0.2%", Some(ONE_CORE)),
    case("hotspot", "5T", "10%", Some(CORES_214)),
    case("stairs", "100G", "0.1%", Some(ONE_CORE)),
    case("stairs", "100G", "10%", Some(ONE_CORE)),
    case("stairs", "5T", "0.1%", Some(ONE_CORE)),
    case("stairs", "5T", "10%", Some(CORES_214)),
    case("random", "1G", "2%", None),
    case("random", "8G", "2%", None),
    case("every", "1G", "2%", None),
    case("every", "8G", "2%", None),
    scrambled("1G", SLOW_ZIPF, None),
    scrambled("8G", SLOW_ZIPF, None),
    case("random", "100G", "2%", Some(ONE_CORE)),
    case("random", "5T", "2%", Some(CORES_214)),
    case("every", "100G", "2%", Some(ONE_CORE)),
    case("every", "5T", "2%", Some(CORES_214)),
    scrambled("100G", &["--scattered"], Some(ONE_CORE / 100.0)),
    scrambled("5T", &["--scattered"], Some(ONE_CORE)),
];

/// The row of the page history alone, on real memory; the monitors of [`MONITORS`] have the numbers before.
const WALKS: usize = MONITORS.len();
const WALKS_NAME: &str = "page walks";

impl Case {
    fn name(&self) -> String {
        let kind = match self.rate {
            None => "real".to_owned(),
            Some(rate) => format!("sim {}M/s", rate / 1e6),
        };
        let hot = if self.hot.is_empty() { "scrambled" } else { self.hot };
        format!("{} {} {hot} {kind}", self.pattern, self.size)
    }

    /// Whether single pages are hot.
    fn is_scattered(&self) -> bool {
        matches!(self.pattern, "random" | "every" | "zipf")
    }

    /// Pattern, size and shares for the command line.
    fn arguments(&self) -> Vec<String> {
        let hot: &[&str] = if self.hot.is_empty() { &[] } else { &["--hot", self.hot] };
        [&[self.pattern, "--size", self.size], hot, self.more].concat().into_iter().map(str::to_owned).collect()
    }

    fn gib(&self) -> f64 {
        parse_size(self.size).map_or(f64::NAN, |bytes| bytes as f64 / (1u64 << 30) as f64)
    }
}

/// Length of the runs.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Touches per page and interval from which a range is truly hot.
    hot_touches: f64,
    runs: u64,
    /// Length of a record; twice that for scans.
    real_seconds: u64,
    /// Whether each monitor gets a process that nobody has watched before. Otherwise they take turns on one, each seed
    /// another being the first.
    fresh: bool,
    simulated_seconds: u64,
    /// The same where single pages are hot: walks of 100 GiB and more are 6 to 10 s apart, and several are judged.
    scattered_seconds: u64,
    /// A simulation goes on until there are so many snapshots, ...
    snapshots: u32,
    /// ... or so many of a scan, whose intervals are long.
    scans: u32,
    /// Runs of a scan that is simulated, which takes long and hardly differs from run to run.
    scan_runs: u64,
    /// Time between the steps of `stairs`.
    stairs_period: &'static str,
}

const QUICK: Plan = Plan {
    hot_touches: HOT_TOUCHES,
    runs: 3,
    real_seconds: 3,
    fresh: false,
    simulated_seconds: 6,
    scattered_seconds: 60,
    snapshots: 40,
    scans: 3,
    scan_runs: 1,
    stairs_period: "2s",
};
const FULL: Plan = Plan {
    hot_touches: HOT_TOUCHES,
    runs: 5,
    real_seconds: 15,
    fresh: true,
    simulated_seconds: 40,
    scattered_seconds: 120,
    snapshots: 100,
    scans: 6,
    scan_runs: 3,
    stairs_period: "5s",
};

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

/// Watches a real workload with `monitors` (numbers in [`MONITORS`]), one after the other.
fn real(
    case: &Case,
    monitors: &[usize],
    seed: u64,
    plan: &Plan,
    budget: &str,
) -> anyhow::Result<Vec<(usize, Figures)>> {
    let dir = tempfile::tempdir()?;
    let truth_path = dir.path().join("truth.json");
    let seed = seed.to_string();
    // Short runs have short slices in their account, which is what single pages are judged by.
    let duration = if case.is_scattered() { "100s" } else { "10m" };
    let mut arguments = case.arguments();
    #[rustfmt::skip]
    arguments.extend(strings(&[
        "--seed", &seed, "--thp", "no", "--duration", duration, "--period", plan.stairs_period,
    ]));
    let workload = RunningWorkload::start(&arguments, &truth_path)?;
    let (mut records, mut walked): (_, Option<Walks>) = (Vec::new(), None);
    for &m in monitors.iter().filter(|m| **m != WALKS) {
        let monitor = &MONITORS[m];
        let path = dir.path().join(format!("{}.iso", monitor.name));
        // A scan's intervals are long.
        let seconds = plan.real_seconds * if is_scan(monitor) { 2 } else { 1 };
        let (pid, duration) = (workload.pid.to_string(), format!("{seconds}s"));
        let mut arguments = strings(&["record", "--pid", &pid, "--duration", &duration, "--seed", &seed]);
        arguments.extend(monitor.arguments(budget));
        arguments.extend(["-o".to_owned(), path.display().to_string()]);
        programs::run(&arguments)?;
        records.push((m, Record::load(&path).with_context(|| format!("the record of {}", monitor.name))?));
    }
    if monitors.contains(&WALKS) {
        let share = budget.trim_end_matches('%').parse::<f64>().unwrap_or(1.0) / 100.0;
        walked = Some(walks::walk(workload.pid, workload.arena, share, plan.real_seconds)?);
        // The account of the last moments must be written, too.
        std::thread::sleep(std::time::Duration::from_millis(1500));
    }
    drop(workload);
    let text = std::fs::read_to_string(&truth_path).context("the workload's truth")?;
    let truth: Truth = serde_json::from_str(&text).context("the workload's truth")?;
    let of_walks = walked.iter().map(|w| Ok((WALKS, Figures::of_walks(w, &truth))));
    records.iter().map(|(m, r)| Ok((*m, Figures::of_record(r, &truth, plan.hot_touches)?))).chain(of_walks).collect()
}

fn simulated(
    case: &Case,
    rate: f64,
    monitor: &MonitorChoice,
    seed: u64,
    plan: &Plan,
    budget: &str,
) -> anyhow::Result<Figures> {
    let seconds = if case.is_scattered() { plan.scattered_seconds } else { plan.simulated_seconds };
    let (duration, seed, rate) = (format!("{seconds}s"), seed.to_string(), rate.to_string());
    let snapshots = if is_scan(monitor) { plan.scans } else { plan.snapshots }.to_string();
    let mut arguments = strings(&["sim", "monitor"]);
    arguments.extend(case.arguments());
    arguments.extend(strings(&[
        "--rate",
        &rate,
        "--seed",
        &seed,
        "--duration",
        &duration,
        "--min-snapshots",
        &snapshots,
        "--period",
        plan.stairs_period,
        "--hot-touches",
        &plan.hot_touches.to_string(),
        "--json",
    ]));
    arguments.extend(monitor.arguments(budget));
    Figures::of_simulation(&programs::run(&arguments)?)
}

fn name_of(monitor: usize) -> &'static str {
    MONITORS.get(monitor).map_or(WALKS_NAME, |m| m.name)
}

fn is_scan(monitor: &MonitorChoice) -> bool {
    monitor.name == "scan"
}

/// Runs all simulations, as many at a time as there are CPUs; `tell` hears of each.
fn simulate_all(
    cases: &[Case],
    plan: &Plan,
    budget: &str,
    tell: &(dyn Fn(&Case, &str, &Figures) + Sync),
) -> anyhow::Result<Vec<(usize, usize, Figures)>> {
    let mut jobs = Vec::new();
    for (c, case) in cases.iter().enumerate() {
        let Some(rate) = case.rate else { continue };
        for seed in 1..=plan.runs {
            // A scan of scattered pages takes minutes to simulate, and finds what walks find.
            let wanted = |m: &usize| !is_scan(&MONITORS[*m]) || (seed <= plan.scan_runs && !case.is_scattered());
            jobs.extend((0..MONITORS.len()).filter(wanted).map(|m| (c, m, rate, seed)));
        }
    }
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&(c, m, rate, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = simulated(&cases[c], rate, &MONITORS[m], seed, plan, budget);
                    if let Ok(f) = &result {
                        tell(&cases[c], MONITORS[m].name, f);
                    }
                    if let Ok(mut all) = results.lock() {
                        all.push(result.map(|f| (c, m, f)));
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_default().into_iter().collect()
}

fn row(case: &Case, name: &str, runs: &[Figures]) -> Vec<String> {
    let of = |f: &dyn Fn(&Figures) -> f64| median(runs.iter().map(f)).unwrap_or(0.0);
    let accuracy = |f: &dyn Fn(&Figures) -> Option<f64>| median(runs.iter().filter_map(f));
    let converged: Vec<Option<f64>> = runs.iter().map(|r| r.accuracy.converged_intervals.map(|n| n as f64)).collect();
    let seconds: Vec<Option<f64>> = runs.iter().map(|r| r.accuracy.converged_s).collect();
    let reached = converged.iter().flatten().count();
    let computing = of(&|r| r.computing_share);
    let of_history = |f: &dyn Fn(&HistoryFigures) -> f64| median(runs.iter().filter_map(|r| r.history.as_ref().map(f)));
    vec![
        case.name(),
        name.to_owned(),
        percent(accuracy(&|r| r.accuracy.precision), 1),
        percent(accuracy(&|r| r.accuracy.recall), 1),
        percent(accuracy(&|r| r.accuracy.wss_error), 1),
        median_or_worst(&converged).map_or("never".into(), |n| format!("{n:.0}")),
        median_or_worst(&seconds).map_or("-".into(), |s| format!("{s:.1} s")),
        format!("{reached}/{}", runs.len()),
        format!("{:.0}", of(&|r| r.checks_per_second)),
        percent(Some(of(&|r| r.monitor_share) + computing), 2),
        percent(Some(of(&|r| r.target_share)), 2),
        percent(accuracy(&|r| r.steady_share.map(|s| s + r.computing_share)), 2),
        format!("{:.1} s", of(&|r| r.aggr_us as f64) / 1e6),
        percent(Some((of(&|r| r.monitor_share + r.target_share) + computing) / case.gib()), 4),
        of_history(&|h| h.memory_bytes as f64)
            .map_or("-".into(), |bytes| format!("{:.0} K", bytes / case.gib() / 1024.0)),
        of_history(&|h| h.walk_ns as f64).map_or("-".into(), |ns| format!("{:.1} s", ns / 1e9)),
        of_history(&|h| f64::from(h.one_in)).map_or("-".into(), |n| format!("{n:.0}")),
    ]
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let plan = Plan { hot_touches: args.hot_touches, ..if args.full { FULL } else { QUICK } };
    let cases: Vec<Case> = CASES
        .into_iter()
        .filter(|c| c.name().contains(&args.only))
        .filter(|c| if c.rate.is_some() { !args.no_simulated } else { !args.no_real })
        .collect();
    let tell = |case: &Case, monitor: &str, f: &Figures| {
        if args.verbose {
            eprintln!("{} {monitor}: {}", case.name(), serde_json::to_string(f).unwrap_or_default());
        } else {
            eprintln!("{} {monitor}: done", case.name());
        }
    };
    let mut runs: Vec<Vec<Vec<Figures>>> = vec![vec![Vec::new(); WALKS + 1]; cases.len()];
    for (c, case) in cases.iter().enumerate().filter(|(_, c)| c.rate.is_none()) {
        for seed in 1..=plan.runs {
            let first = seed as usize;
            let number = if case.is_scattered() { WALKS + 1 } else { WALKS };
            let order: Vec<usize> = (first..first + number).map(|m| m % number).collect();
            for monitors in order.chunks(if plan.fresh { 1 } else { number }) {
                let figures = real(case, monitors, seed, &plan, &args.cpu_budget).with_context(|| case.name())?;
                for (m, figures) in figures {
                    tell(case, name_of(m), &figures);
                    runs[c][m].push(figures);
                }
            }
        }
    }
    for (c, m, figures) in simulate_all(&cases, &plan, &args.cpu_budget, &tell)? {
        runs[c][m].push(figures);
    }
    let mut table = Table::new(&[
        "workload",
        "monitor",
        "precision",
        "recall",
        "WSS error",
        "intervals",
        "time",
        "reached",
        "checks/s",
        "CPU",
        "target",
        "steady",
        "aggr",
        "CPU/GiB",
        "bytes/GiB",
        "walks",
        "1 table in",
    ]);
    let (mut met, mut all, mut met_by_page, mut all_by_page) = (0, 0, 0, 0);
    for (case, by_monitor) in cases.iter().zip(&runs) {
        for (m, figures) in by_monitor.iter().enumerate().filter(|(_, f)| !f.is_empty()) {
            table.push(row(case, name_of(m), figures));
            let intervals: Vec<_> = figures.iter().map(|f| f.accuracy.converged_intervals.map(|n| n as f64)).collect();
            let within = |most: f64| usize::from(median_or_worst(&intervals).is_some_and(|n| n <= most));
            match (name_of(m), case.is_scattered()) {
                ("isotherm", false) => (met, all) = (met + within(20.0), all + 1),
                // Regions judged page by page never get there, whatever their first intervals say.
                ("isotherm", true) if case.rate.is_some() => {
                    let by_history = usize::from(figures.iter().all(|f| f.history.is_some()));
                    (met_by_page, all_by_page) = (met_by_page + by_history * within(1.0), all_by_page + 1);
                }
                (WALKS_NAME, true) => (met_by_page, all_by_page) = (met_by_page + within(1.0), all_by_page + 1),
                _ => {}
            }
        }
    }
    println!(
        "Accuracy, kernel {}, budget {} of one core, medians over {} runs\n",
        kernel(),
        args.cpu_budget,
        plan.runs
    );
    println!("{table}");
    println!(
        "hot: ranges whose pages were touched at least {} times each in the snapshot's time; reported: nr_accesses >= 1.",
        plan.hot_touches
    );
    println!("precision, recall, WSS error: means over the second half of each run.");
    println!(
        "intervals, time: until both are at least {GOOD} for {HOLD} snapshots in a row; reached: in how many of the runs."
    );
    println!(
        "CPU: of the monitor (simulated: modelled looking and measured computing); target: its estimated loss. Shares of one core."
    );
    println!("steady: both in the second half of the run, without what the start took.");
    println!("damon keeps its default intervals and has no budget; the others keep to it.");
    println!(
        "random, every, zipf: judged page by page, terabytes by a sample of their page tables. {WALKS_NAME}: the page history alone, all \
         page tables every now and then, as seldom as the budget asks for; walks: time between two; 1 table in: so many are watched."
    );
    println!(
        "CPU/GiB, bytes/GiB: what monitor and target lose, and what the page history takes, for each GiB that is watched."
    );
    println!("\nisotherm reaches {GOOD} within 20 intervals in {met} of {all} cases.");
    println!("The page history reaches it within one walk interval in {met_by_page} of {all_by_page} cases.");
    Ok(())
}
