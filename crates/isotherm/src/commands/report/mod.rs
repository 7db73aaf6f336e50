//! `isotherm report`: what a record shows.

mod files;
mod heatmap;
pub(super) mod record_file;
mod schemes;
mod series;

use crate::args::units;
use crate::exit::Usage;
use crate::output;
use clap::Subcommand;
use files::Html;
use isotherm_files::apart::Output;
use isotherm_view::access::{self, AccessOptions};
use isotherm_view::error::ViewError;
use isotherm_view::html::PageOptions;
use isotherm_view::overview::Overview;
use isotherm_view::raw;
use isotherm_view::summary::{self, Summaries};
use record_file::RecordFile;
use std::path::PathBuf;
use std::time::Duration;

/// Show what a record holds.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    kind: Report,
}

#[derive(Debug, Subcommand)]
enum Report {
    /// Every snapshot as it was recorded
    Raw(RawArgs),
    /// One snapshot: its regions by size, rate and age, hot first
    Access(AccessArgs),
    /// Access rate over time and address
    Heatmap(heatmap::HeatmapArgs),
    /// Working set size: percentiles, over time or by size
    Wss(series::WssArgs),
    /// Number of regions, in the same form
    Regions(series::RegionsArgs),
    /// What schemes did over time: memory, quota, goals, and why they were idle
    Schemes(schemes::SchemesArgs),
    /// One page to read first: working set, cold memory, mappings, cost; of several targets their total first
    Summary(SummaryArgs),
}

/// What every report takes.
#[derive(Debug, clap::Args)]
struct Common {
    /// The record
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only this target (default: all)
    #[arg(long, value_name = "N")]
    target: Option<u32>,
    /// Print JSON, one line each
    #[arg(long)]
    json: bool,
    /// Leave out the arguments of command lines: they may hold passwords
    #[arg(long)]
    no_args: bool,
}

impl Common {
    fn open(&self) -> Result<RecordFile, ViewError> {
        RecordFile::open(&self.file, !self.no_args)
    }

    /// Refuses files to write that are a part of the record, or the same as another output, printed JSON included.
    fn keep_apart(&self, record: &RecordFile, mut outputs: Vec<Output>) -> Result<(), Usage> {
        outputs.extend(self.json.then(|| Output::new("--json", "-")));
        output::keep_apart(&record.files(), &outputs)
    }
}

#[derive(Debug, clap::Args)]
struct RawArgs {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct SummaryArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    html: Html,
}

#[derive(Debug, clap::Args)]
struct AccessArgs {
    #[command(flatten)]
    common: Common,
    /// The snapshot at this time after the begin of the record (default: the last one)
    #[arg(long, value_name = "T", value_parser = units::time)]
    at: Option<Duration>,
    /// At most so many regions of each target
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    match args.kind {
        Report::Raw(a) => {
            let record = a.common.open()?;
            let target = a.common.target;
            match a.common.json {
                true => output::to_stdout(|out| raw::write_json(&record, target, out)),
                false => output::text_to_stdout(|out| raw::write_text(&record, target, out)),
            }
        }
        Report::Access(a) => {
            let record = a.common.open()?;
            let at_ns = a.at.map(|t| t.as_nanos() as u64);
            let options = AccessOptions { target: a.common.target, at_ns, limit: a.limit };
            match a.common.json {
                true => output::to_stdout(|out| access::write_json(&record, &options, out)),
                false => output::text_to_stdout(|out| access::write_text(&record, &options, out)),
            }
        }
        Report::Heatmap(a) => heatmap::run(a),
        Report::Wss(a) => series::run_wss(a),
        Report::Regions(a) => series::run_regions(a),
        Report::Schemes(a) => schemes::run(a),
        Report::Summary(a) => summarize(a),
    }
}

fn summarize(args: SummaryArgs) -> anyhow::Result<()> {
    let record = args.common.open()?;
    args.common.keep_apart(&record, args.html.output().into_iter().collect())?;
    args.html.write(&record, &PageOptions { target: args.common.target, ..Default::default() })?;
    if args.html.any() && !args.common.json {
        return Ok(());
    }
    let overview = Overview::read(&record)?;
    let summaries = Summaries::read(&record, &overview, &overview.select(args.common.target)?)?;
    match args.common.json {
        true => output::to_stdout(|out| summary::write_json(&summaries, out)),
        false => output::text_to_stdout(|out| summary::text::write(&summaries, out)),
    }
}
