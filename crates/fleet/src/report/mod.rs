//! `isotherm-fleet report`: who holds how much memory that nobody uses, over many machines.
//!
//! * [`usage`]: what the query answers; [`account`], [`fleet`]: sums; [`text`], [`json`], [`csv`], [`page`]: for whom.

mod account;
mod csv;
mod fleet;
mod json;
mod page;
mod text;
mod usage;

pub use account::short_time;
pub use text::{fit, percent, size};

use crate::engine::hosts::{self, Hosts};
use crate::engine::{Engine, queries, rows_of};
use crate::input::{self, location::Location};
use crate::options::{self, Resources};
use crate::output;
use datafusion::error::Result;
use fleet::Fleet;
use input::judge::Inventory;
use isotherm_files::apart::{Output, keep_apart};
use std::path::{Path, PathBuf};
use usage::Usage;

/// Rows that are worked on at a time.
const BATCH_ROWS: u64 = 2_000_000;

/// Show how much memory of many machines nobody uses, for how long, and whose it is
///
/// Reads the files that `isotherm node --parquet` has written. Means are over the time that each host was watched; what
/// was not watched for long enough is not known, never zero. Files that cannot be used are named and left out.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A folder with the files, however deep; or s3://BUCKET/PREFIX, gs://, az://, http:// with settings from the environment
    #[arg(value_name = "PLACE")]
    place: String,
    /// A line of JSON for the whole, each cluster, namespace, job and file left out, instead of the table
    #[arg(long)]
    json: bool,
    /// Write a page with pictures, which needs no other file ("-": to standard output, in place of the report)
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a table of comma-separated values: the whole, clusters, namespaces, jobs ("-": as for --html)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// How many jobs and namespaces are listed
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    resources: Resources,
}

/// Prints the report.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let is_stdout = |path: &&PathBuf| path.as_os_str() == "-";
    let there = args.csv.iter().chain(&args.html).filter(is_stdout).count();
    if there + usize::from(args.json) > 1 {
        return Err(options::Usage("only one of --csv -, --html - and --json can go to standard output".into()).into());
    }
    let csv = args.csv.iter().map(|path| Output::new("--csv", path));
    let outputs: Vec<Output> = csv.chain(args.html.iter().map(|path| Output::new("--html", path))).collect();
    keep_apart::<&Path>(&[], &outputs).map_err(|e| options::Usage(e.to_string()))?;
    let (fleet, inventory) = args.resources.runtime()?.block_on(read(args))?;
    if let Some(path) = &args.csv {
        output::write_file(path, csv::csv(&fleet).as_bytes())?;
    }
    if let Some(path) = &args.html {
        output::write_file(path, page::page(&fleet, &inventory, args.top).as_bytes())?;
    }
    if there > 0 {
        Ok(())
    } else if args.json {
        output::print_lines(&json::lines(&fleet, &inventory))
    } else {
        output::print(&text::text(&fleet, &inventory, args.top))
    }
}

async fn read(args: &Args) -> anyhow::Result<(Fleet, Inventory)> {
    let place = Location::parse(&args.place)?;
    let mut inventory = input::find_some(&place).await?;
    let engine = Engine::new(place, args.resources.memory, args.resources.threads())?;
    let mut fleet = Fleet::default();
    let take = |hosts: &Hosts, usages| fleet.add(&hosts.windows, &hosts.set_back, usages);
    hosts::each(&engine, &mut inventory, BATCH_ROWS, ask, take).await?;
    Ok((fleet, inventory))
}

async fn ask(hosts: &Hosts) -> Result<Vec<Usage>> {
    let mut usages = Vec::new();
    for batch in rows_of(&hosts.session, queries::USAGE).await? {
        usages.extend(usage::usages(&batch)?);
    }
    Ok(usages)
}
