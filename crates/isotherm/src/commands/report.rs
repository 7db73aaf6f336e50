//! `isotherm report`: what a record shows.

mod heatmap;
mod record_file;
mod series;

use crate::args::units;
use crate::output;
use clap::Subcommand;
use isotherm_view::access::{self, AccessOptions};
use isotherm_view::raw;
use record_file::RecordFile;
use std::path::PathBuf;
use std::time::Duration;

/// Show what a record holds.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
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
}

#[derive(Debug, clap::Args)]
struct RawArgs {
    #[command(flatten)]
    common: Common,
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

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.kind {
        Kind::Raw(a) => {
            let record = RecordFile::open(&a.common.file)?;
            let target = a.common.target;
            output::to_stdout(|out| match a.common.json {
                true => raw::write_json(&record, target, out),
                false => raw::write_text(&record, target, out),
            })
        }
        Kind::Access(a) => {
            let record = RecordFile::open(&a.common.file)?;
            let at_ns = a.at.map(|t| t.as_nanos() as u64);
            let options = AccessOptions { target: a.common.target, at_ns, limit: a.limit };
            output::to_stdout(|out| match a.common.json {
                true => access::write_json(&record, &options, out),
                false => access::write_text(&record, &options, out),
            })
        }
        Kind::Heatmap(a) => heatmap::run(a),
        Kind::Wss(a) => series::run_wss(a),
        Kind::Regions(a) => series::run_regions(a),
    }
}
