//! `make bench-wss`: the working-set test of the kernel's own DAMON selftests. Two areas are touched in turn; the working set
//! is one of them at any time.

use anyhow::Context;
use clap::Parser;
use isotherm_bench::figures::median;
use isotherm_bench::programs::{self, RunningWorkload};
use isotherm_bench::table::{Table, kernel, percent};
use isotherm_record::Record;

/// How exact the estimated working set is.
#[derive(Debug, Parser)]
struct Args {
    /// Runs per size
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// How long each run is recorded, s
    #[arg(long, default_value_t = 8)]
    seconds: u64,
}

/// Sizes of an area, MiB.
const SIZES_MIB: [u64; 5] = [10, 20, 40, 80, 160];
/// The error that passes here; upstream accepts 20 %.
const ACCEPTED: f64 = 0.05;
const MONITORS: [(&str, &[&str]); 2] =
    [("isotherm", &["--algorithm", "isotherm"]), ("damon", &["--algorithm", "damon", "--cpu-budget", "none"])];

/// The estimate at percentile `p` (0 to 1) over the snapshots, bytes.
fn percentile(sorted: &[u64], p: f64) -> u64 {
    sorted[((sorted.len() - 1) as f64 * p).round() as usize]
}

/// Errors at p50 and p75 of one run.
fn run(mib: u64, seed: u64, seconds: u64, monitor: &[&str]) -> anyhow::Result<[f64; 2]> {
    let dir = tempfile::tempdir()?;
    let owned = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<String>>();
    let size = format!("{}M", 2 * mib);
    let workload = RunningWorkload::start(
        &owned(&["alternate", "--size", &size, "--period", "2s", "--duration", "10m"]),
        &dir.path().join("truth.json"),
    )?;
    let path = dir.path().join("record.iso");
    let (pid, duration, seed) = (workload.pid.to_string(), format!("{seconds}s"), seed.to_string());
    let mut arguments = owned(&["record", "--pid", &pid, "--duration", &duration, "--seed", &seed]);
    arguments.extend(owned(monitor));
    arguments.extend(["-o".to_owned(), path.display().to_string()]);
    programs::run(&arguments)?;
    let record = Record::load(&path)?;
    let mut estimates: Vec<u64> = record.snapshots.iter().map(|s| s.working_set(1)).collect();
    estimates.sort_unstable();
    anyhow::ensure!(!estimates.is_empty(), "the record holds no snapshot");
    let truth = (mib << 20) as f64;
    Ok([0.5, 0.75].map(|p| (percentile(&estimates, p) as f64 - truth).abs() / truth))
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut table = Table::new(&["area", "monitor", "error at p50", "error at p75", "within 5%"]);
    let (mut passed, mut all) = (0, 0);
    for mib in SIZES_MIB {
        for (name, options) in MONITORS {
            let errors: Vec<[f64; 2]> = (1..=args.runs.max(1))
                .map(|seed| run(mib, seed, args.seconds, options).with_context(|| format!("{mib} MiB, {name}")))
                .collect::<anyhow::Result<_>>()?;
            let [p50, p75] = [0, 1].map(|i| median(errors.iter().map(|e| e[i])).unwrap_or(f64::INFINITY));
            let good = p50 <= ACCEPTED && p75 <= ACCEPTED;
            if name == "isotherm" {
                all += 1;
                passed += u32::from(good);
            }
            let verdict = if good { "yes" } else { "no" };
            table.push(vec![
                format!("{mib} MiB"),
                name.into(),
                percent(Some(p50), 2),
                percent(Some(p75), 2),
                verdict.into(),
            ]);
            eprintln!("{mib} MiB, {name}: done");
        }
    }
    println!(
        "Working set of two areas touched in turn for 2 s each, kernel {}, medians over {} runs\n",
        kernel(),
        args.runs.max(1)
    );
    println!("{table}");
    println!("isotherm is within 5% at p50 and p75 for {passed} of {all} sizes (upstream's test accepts 20%).");
    anyhow::ensure!(passed == all, "the working set is off by more than 5%");
    Ok(())
}
