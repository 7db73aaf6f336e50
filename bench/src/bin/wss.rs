//! `make bench-wss`: the working-set test of the kernel's own DAMON selftests. Two areas are touched in turn; the
//! working set is one of them at any time.
//!
//! The estimate is what a snapshot calls accessed at all, within the workload's memory: what the process touches
//! besides has no truth to compare with. Upstream counts memory of the whole process that was accessed at a rate of at
//! least 25 % for at least 200 ms; that is shown, too, but tells more about how much CPU time the workload got than
//! about the monitor when the machine is busy.

use anyhow::Context;
use clap::Parser;
use isotherm_bench::programs::{self, RunningWorkload};
use isotherm_bench::table::{Table, kernel, percent};
use isotherm_core::addr::AddrRange;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_core::tuning::figures::median;
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

/// Least access rate that counts, as a share of the largest possible one.
const LEAST_RATE: f64 = 0.25;
/// Least time for which it must have been so, us.
const LEAST_AGE_US: u64 = 200_000;

/// The working set by upstream's rule, bytes.
fn by_upstream_rule(s: &Snapshot) -> u64 {
    let counts = |r: &&RegionInfo| {
        f64::from(r.nr_accesses) >= LEAST_RATE * f64::from(s.max_nr_accesses)
            && u64::from(r.age) * s.aggr_us >= LEAST_AGE_US
    };
    s.regions.iter().filter(counts).map(RegionInfo::len).sum()
}

/// What of `arena` was accessed, bytes.
fn within(s: &Snapshot, arena: AddrRange) -> u64 {
    let accessed = s.regions.iter().filter(|r| r.nr_accesses >= 1);
    accessed.filter_map(|r| AddrRange::new(r.start, r.end).intersect(&arena)).map(|r| r.len()).sum()
}

/// The estimate at percentile `p` (0 to 1) over the snapshots, bytes.
fn percentile(sorted: &[u64], p: f64) -> u64 {
    sorted[((sorted.len() - 1) as f64 * p).round() as usize]
}

/// Errors of one run, as shares of the truth.
#[derive(Debug, Clone, Copy)]
struct Errors {
    p50: f64,
    p75: f64,
    /// At p50, if all memory of the process counts.
    process: f64,
    /// At p50, by upstream's rule.
    upstream: f64,
}

fn run(mib: u64, seed: u64, seconds: u64, monitor: &[&str]) -> anyhow::Result<Errors> {
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
    anyhow::ensure!(!record.snapshots.is_empty(), "the record holds no snapshot");
    let sorted = |of: &dyn Fn(&Snapshot) -> u64| {
        let mut estimates: Vec<u64> = record.snapshots.iter().map(of).collect();
        estimates.sort_unstable();
        estimates
    };
    let truth = (mib << 20) as f64;
    let error = |sorted: &[u64], p| (percentile(sorted, p) as f64 - truth).abs() / truth;
    let estimates = sorted(&|s| within(s, workload.arena));
    Ok(Errors {
        p50: error(&estimates, 0.5),
        p75: error(&estimates, 0.75),
        process: error(&sorted(&|s| s.working_set(1)), 0.5),
        upstream: error(&sorted(&by_upstream_rule), 0.5),
    })
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut table = Table::new(&[
        "area",
        "monitor",
        "error at p50",
        "error at p75",
        "within 5%",
        "p50, whole process",
        "p50, upstream's rule",
    ]);
    let (mut passed, mut all) = (0, 0);
    for mib in SIZES_MIB {
        for (name, options) in MONITORS {
            let errors: Vec<Errors> = (1..=args.runs.max(1))
                .map(|seed| run(mib, seed, args.seconds, options).with_context(|| format!("{mib} MiB, {name}")))
                .collect::<anyhow::Result<_>>()?;
            let of = |f: fn(&Errors) -> f64| median(errors.iter().map(f)).unwrap_or(f64::INFINITY);
            let (p50, p75) = (of(|e| e.p50), of(|e| e.p75));
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
                percent(Some(of(|e| e.process)), 2),
                percent(Some(of(|e| e.upstream)), 2),
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
