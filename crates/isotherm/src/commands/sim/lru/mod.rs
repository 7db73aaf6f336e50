//! `isotherm sim lru`: which page replacement policy misses how often, on a trace.

mod groups;
mod table;

use crate::args::units;
use crate::commands::report::record_file::warn_of_missing;
use crate::exit::Usage;
use crate::output::{keep_apart, to_stdout, write_file};
use anyhow::Context;
use groups::{FairnessName, GroupSpec};
use isotherm_core::units::{format_time, parse_percent, parse_size};
use isotherm_files::apart::Output;
use isotherm_record::parts;
use isotherm_sim::policy::PolicyName;
use isotherm_sim::policy::kernel_lru::Variant;
use isotherm_sim::predict::Machine;
use isotherm_sim::replay::{Figures, Job, Replay};
use isotherm_sim::trace::{Format, Generator, Manner, Selection, Trace, TraceError, generate, read, save_oracle};
use isotherm_view::plot::curves::{Curve, miss_ratio_svg};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Compare page replacement policies on a trace of requests, for many sizes at once, on all cores.
///
/// A trace is a file (--trace) or made up (--generate). Every request counts, also the first for a page, which every
/// policy misses. The same trace gives the same figures.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("requests").required(true).args(["trace", "generate"])))]
pub struct Args {
    /// A trace: CSV with a column `page`, libCacheSim's oracleGeneral, output of valgrind's lackey, or a record; each
    /// may be packed with zstd
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Make a trace up: uniform, exponential, zipf, scan, loop, phases, ycsb-a to ycsb-f, with settings behind a colon,
    /// for example zipf:pages=1M,requests=20M,theta=0.9,seed=1
    #[arg(long, value_name = "SPEC")]
    generate: Option<String>,
    /// Format of the trace
    #[arg(long, value_name = "F", default_value = "auto", conflicts_with = "generate")]
    format: FormatName,
    /// Policies, separated by commas: lru, fifo, clock, 2q, arc, lirs, s3fifo, sieve, wtinylfu, classic, mglru and
    /// mglru-6.12 (those of Linux, the last in its form up to 6.12), opt (knows the future) [default: all; with --group, mglru]
    #[arg(long, value_name = "P,...", value_delimiter = ',', value_parser = policy)]
    policy: Vec<PolicyName>,
    /// Sizes in pages (K and M are 1024 and 1024 * 1024), or as a share of all pages in the trace, such as 10%
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1%,2%,5%,10%,20%,50%", value_parser = size)]
    size: Vec<Size>,
    /// Look at this share of the pages only (1% or 10% do for long traces) and tell how far off the miss ratios may be
    #[arg(long, value_name = "R", value_parser = units::percent)]
    sample_rate: Option<f64>,
    /// End after the first N requests
    #[arg(long, value_name = "N", value_parser = units::size)]
    limit: Option<u64>,
    /// Take all requests to be made this way, whatever the trace says
    #[arg(long, value_name = "C")]
    channel: Option<ChannelName>,
    /// Bounds of a group that the trace names, in pages or as a share of all pages, such as web:max=10%,low=1000; keys
    /// are min, low, soft and max, as in a control group. Only mglru and mglru-6.12 know groups
    #[arg(long, value_name = "NAME:KEY=N,...", value_parser = groups::group)]
    group: Vec<GroupSpec>,
    /// Who gives way when the groups together fill the memory
    #[arg(long, value_name = "F", default_value = "memcg-lru")]
    fairness: FairnessName,
    /// Predict throughput and pressure on a machine with swap on zram, zram-lz4, zram-zstd or ssd, or with a slower
    /// tier of memory (tier); with settings behind a colon, for example zram:ratio=2.5,tasks=8,work=20us
    #[arg(long, value_name = "SPEC", value_parser = Machine::parse)]
    machine: Option<Machine>,
    /// Write the trace, as libCacheSim's oracleGeneral
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print a line of JSON per policy and size
    #[arg(long)]
    json: bool,
    /// Draw miss ratios over sizes
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Args {
    /// The files to write.
    fn outputs(&self) -> Vec<Output> {
        let save = self.save.iter().map(|path| Output::new("--save", path));
        save.chain(self.svg.iter().map(|path| Output::new("--svg", path))).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FormatName {
    /// Recognized by its content
    Auto,
    /// A header line that names columns: page (required), op (r, w), channel (map, fd), type (anon, file)
    Csv,
    /// libCacheSim's oracleGeneral
    Oracle,
    /// valgrind --tool=lackey --trace-mem=yes
    Lackey,
    /// A record of `isotherm record`, or any that `isotherm report` reads
    Isotherm,
}

impl FormatName {
    const fn format(self) -> Format {
        match self {
            Self::Auto => Format::Auto,
            Self::Csv => Format::Csv,
            Self::Oracle => Format::Oracle,
            Self::Lackey => Format::Lackey,
            Self::Isotherm => Format::Isotherm,
        }
    }
}

/// How requests are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ChannelName {
    /// Through a page table, to anonymous memory
    Map,
    /// Through a file descriptor
    Fd,
}

/// How many pages fit, as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Size {
    Pages(u32),
    Share(f64),
}

impl Size {
    fn pages(self, footprint: u64) -> u32 {
        match self {
            Self::Pages(n) => n,
            // A share of what is there is below the largest number of pages, also where it is estimated.
            Self::Share(share) => (footprint as f64 * share).round().clamp(1.0, f64::from(u32::MAX)) as u32,
        }
    }
}

fn policy(text: &str) -> Result<PolicyName, Usage> {
    PolicyName::parse(text).ok_or_else(|| {
        let names: Vec<_> = PolicyName::ALL.iter().map(|p| p.name()).collect();
        Usage(format!("known are {}", names.join(", ")))
    })
}

fn size(text: &str) -> Result<Size, Usage> {
    if text.trim_end().ends_with('%') {
        let share = parse_percent(text).map_err(|e| Usage(e.to_string()))?;
        return if share > 0.0 && share.is_finite() {
            Ok(Size::Share(share))
        } else {
            Err("nothing fits in 0 %".into())
        };
    }
    if text.contains('.') && text.trim_end().ends_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(
            "there is no part of a page: write a whole number of pages such as 1000, or a share such as 10%".into()
        );
    }
    match parse_size(text).map_err(|_| "write a number of pages such as 1000, or a share such as 10%")? {
        0 => Err("nothing fits in 0 pages".into()),
        n => u32::try_from(n).map(Size::Pages).map_err(|_| Usage(format!("at most {} pages", u32::MAX))),
    }
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if let Some(rate) = args.sample_rate
        && !(rate > 0.0 && rate <= 1.0)
    {
        return Err(Usage("--sample-rate must lie above 0% and at most at 100%".into()).into());
    }
    if args.machine.is_some() && args.sample_rate.is_some_and(|rate| rate < 1.0) {
        let text =
            "--machine cannot predict from a sample: leave --sample-rate out, and shorten the trace with --limit";
        return Err(Usage(text.into()).into());
    }
    let knows_groups = |p: &PolicyName| matches!(p, PolicyName::MgLru(_));
    if let Some(other) = args.policy.iter().find(|p| !args.group.is_empty() && !knows_groups(p)) {
        return Err(Usage(format!(
            "--group: {} knows no bounds of groups, only mglru and mglru-6.12 do",
            other.name()
        ))
        .into());
    }
    if args.limit == Some(0) {
        return Err(Usage("--limit 0 leaves no request".into()).into());
    }
    keep_apart(&args.trace.as_deref().map(parts).unwrap_or_default(), &args.outputs())?;
    let start = Instant::now();
    let trace = load(&args)?;
    let loading = start.elapsed();
    if let Some(path) = &args.save {
        save_oracle(&trace, path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut replay = Replay::new(trace);
    let groups = groups::resolve(&args.group, args.fairness, replay.trace(), replay.footprint())?;
    replay = replay.with_groups(groups);
    if let Some(machine) = &args.machine {
        replay = replay.with_machine(machine.clone());
    }
    if replay.trace().pages().is_empty() {
        // Without what rounding to binary leaves.
        let rate = (args.sample_rate.unwrap_or(1.0) * 1e11).round() / 1e9;
        return Err(
            Usage(format!("--sample-rate of {rate} % is too low: no page of the trace is in the sample")).into()
        );
    }
    let asked = asked(&args, &replay)?;
    let jobs = distinct(&asked);
    let terminal = std::io::stderr().is_terminal() && !crate::stderr::is_quiet();
    let done = AtomicUsize::new(0);
    let figures = replay.run_all(&jobs, &|_| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if terminal {
            crate::stderr::status_line(&[&format!("{done} of {} runs", jobs.len())]);
        }
    });
    if terminal {
        crate::stderr::clear_status();
    }
    // Before stdout, whose reader may leave.
    if let Some(path) = &args.svg {
        write_file(path, picture(&args, &replay, &figures).as_bytes())?;
    }
    let of = |job: &Job| jobs.iter().zip(&figures).find(|(j, _)| *j == job).map(|(_, figures)| figures.clone());
    let results: Vec<Figures> = asked.iter().filter_map(of).collect();
    to_stdout(|out| {
        if args.json {
            return Ok(json_lines(out, &results)?);
        }
        writeln!(out, "{}, read in {}", summary(&replay), format_time(loading.as_nanos() as u64))?;
        Ok(table::write(out, &results)?)
    })
}

fn json_lines(out: &mut dyn Write, results: &[Figures]) -> io::Result<()> {
    results.iter().try_for_each(|figures| {
        serde_json::to_writer(&mut *out, figures)?;
        writeln!(out)
    })
}

fn load(args: &Args) -> anyhow::Result<Trace> {
    let manner = args.channel.map(|channel| match channel {
        ChannelName::Map => Manner::MAPPED,
        ChannelName::Fd => Manner::FD,
    });
    let selection = Selection { sample_rate: args.sample_rate, limit: args.limit, manner };
    let terminal = std::io::stderr().is_terminal() && !crate::stderr::is_quiet();
    let mut progress = |requests: u64| {
        if terminal {
            crate::stderr::status_line(&[&format!("{} M requests read", requests >> 20)]);
        }
    };
    let trace = match (&args.trace, &args.generate) {
        (Some(path), _) => {
            warn_of_missing(path);
            read(path, args.format.format(), selection, &mut progress)
        }
        (None, spec) => {
            let spec = spec.as_deref().unwrap_or_default();
            Generator::parse(spec).and_then(|g| generate(&g, selection, &mut progress))
        }
    };
    if terminal {
        crate::stderr::clear_status();
    }
    trace.map_err(|error| match error {
        TraceError::Spec { .. } => Usage(format!("--generate: {error}")).into(),
        error => error.into(),
    })
}

/// Each policy with each size, in the order in which they were asked for.
fn asked(args: &Args, replay: &Replay) -> Result<Vec<Job>, Usage> {
    let sizes: Vec<u32> = args.size.iter().map(|s| s.pages(replay.footprint())).collect();
    if let Some(rate) = replay.trace().sample_rate()
        && let Some(small) = sizes.iter().find(|s| f64::from(**s) * rate < 1.0)
    {
        return Err(Usage(format!("{small} pages are less than one page of the sample; use a higher --sample-rate")));
    }
    let all: &[PolicyName] =
        if args.group.is_empty() { &PolicyName::ALL } else { &[PolicyName::MgLru(Variant::V6_14)] };
    let policies = if args.policy.is_empty() { all } else { &args.policy };
    Ok(policies.iter().flat_map(|&policy| sizes.iter().map(move |&size| Job { policy, size })).collect())
}

/// The same without what was asked for before: it need not run again.
fn distinct(asked: &[Job]) -> Vec<Job> {
    let is_first = |&(n, job): &(usize, &Job)| !asked[..n].contains(job);
    asked.iter().enumerate().filter(is_first).map(|(_, job)| *job).collect()
}

fn summary(replay: &Replay) -> String {
    let trace = replay.trace();
    let pages = replay.footprint();
    match trace.sample_rate() {
        None => format!("{} requests for {pages} pages", trace.seen()),
        Some(rate) => format!(
            "{} requests for about {pages} pages; a sample of {} % of the pages with {} requests",
            trace.seen(),
            table::short(rate * 100.0),
            trace.pages().len()
        ),
    }
}

fn picture(args: &Args, replay: &Replay, results: &[Figures]) -> String {
    let mut curves: Vec<Curve> = Vec::new();
    for f in results {
        let point = (f64::from(f.size), f.miss_ratio);
        match curves.last_mut().filter(|c| c.name == f.policy) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { name: f.policy.to_owned(), points: vec![point] }),
        }
    }
    for curve in &mut curves {
        curve.points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    }
    let source = match (&args.trace, &args.generate) {
        (Some(path), _) => path.display().to_string(),
        (None, spec) => spec.clone().unwrap_or_default(),
    };
    miss_ratio_svg("Miss ratio by size", &format!("{source}: {}", summary(replay)), &curves)
}
