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
pub use text::{percent, size};

use crate::engine::{Engine, batches, clocks, queries, rows_of};
use crate::input::{self, place::Place};
use crate::options::Resources;
use crate::output;
use crate::progress::Progress;
use anyhow::Context;
use fleet::Fleet;
use input::judge::{Inventory, WindowFile};
use std::path::PathBuf;

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
    /// Write a page with pictures, which needs no other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a table of comma-separated values: the whole, clusters, namespaces, jobs
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
    let (fleet, inventory) = args.resources.runtime()?.block_on(read(args))?;
    if let Some(path) = &args.csv {
        output::write_file(path, csv::csv(&fleet).as_bytes())?;
    }
    if let Some(path) = &args.html {
        output::write_file(path, page::page(&fleet, &inventory, args.top).as_bytes())?;
    }
    if args.json {
        output::print_lines(&json::lines(&fleet, &inventory))
    } else {
        output::print(&text::text(&fleet, &inventory, args.top))
    }
}

async fn read(args: &Args) -> anyhow::Result<(Fleet, Inventory)> {
    let place = Place::parse(&args.place)?;
    let inventory = input::find_some(&place).await?;
    let engine = Engine::new(place, args.resources.memory, args.resources.threads())?;
    let mut fleet = Fleet::default();
    let rows: u64 = inventory.files.iter().map(|file| file.footer.rows).sum();
    let progress = Progress::new("rows read", rows);
    for batch in batches::by_hosts(&inventory.files, BATCH_ROWS) {
        add_batch(&engine, batch, &mut fleet).await.with_context(|| {
            format!("the files of {} to {}", batch[0].footer.host, batch[batch.len() - 1].footer.host)
        })?;
        progress.add(batch.iter().map(|file| file.footer.rows).sum());
    }
    progress.end();
    Ok((fleet, inventory))
}

async fn add_batch(engine: &Engine, files: &[WindowFile], fleet: &mut Fleet) -> anyhow::Result<()> {
    let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let session = engine.open(&paths).await?;
    let mut windows = clocks::agent_windows(&session).await?;
    let left_out = clocks::take_overlapping(&mut windows);
    clocks::leave_out(&session, &left_out).await?;
    let mut usages = Vec::new();
    for batch in rows_of(&session, queries::USAGE).await? {
        usages.extend(usage::usages(&batch)?);
    }
    fleet.add(&windows, &left_out, usages);
    Ok(())
}
