//! Reads windows of whole hosts at a time, and replays policies over them.

use super::grid::Grid;
use super::groups::{Groups, THRESHOLDS, Window};
use super::outcome::Outcomes;
use crate::engine::Engine;
use crate::engine::columns::{count, ints, text, texts};
use crate::engine::hosts::{self, Hosts};
use crate::input::judge::Inventory;
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use futures_util::StreamExt;
use isotherm_core::scheme::threshold::SHORTEST;
use std::fmt::Write;

/// Rows that are held at a time, of about 350 bytes each.
const BATCH_ROWS: u64 = 400_000;

/// Replays all files.
pub async fn replay(engine: &Engine, inventory: &mut Inventory, grid: &Grid) -> anyhow::Result<Outcomes> {
    let mut outcomes = Outcomes::new(grid);
    let ask = async |hosts: &Hosts| Ok(read(&hosts.session).await?.replay(grid));
    let take = |hosts: &Hosts, answers| outcomes.add(&hosts.windows, &hosts.set_back, answers);
    hosts::each(engine, inventory, BATCH_ROWS, ask, take).await?;
    Ok(outcomes)
}

/// All rows of the table `windows`.
pub async fn read(session: &SessionContext) -> Result<Groups> {
    let mut sql =
        "SELECT host, boot_id, cgroup, inode, job, start_us, window_s, resident_bytes, accessed_bytes".to_owned();
    for entry in SHORTEST..SHORTEST + THRESHOLDS {
        let _ = write!(sql, ", cold_{entry}, promoted_{entry}");
    }
    sql.push_str(" FROM windows");
    let mut groups = Groups::default();
    let mut batches = session.sql(&sql).await?.execute_stream().await?;
    while let Some(batch) = batches.next().await {
        add(&mut groups, &batch?)?;
    }
    Ok(groups)
}

fn add(groups: &mut Groups, batch: &RecordBatch) -> Result<()> {
    let [host, boot, cgroup, job] = ["host", "boot_id", "cgroup", "job"].map(|name| texts(batch, name));
    let (host, boot, cgroup, job) = (host?, boot?, cgroup?, job?);
    let (inode, start, length) = (ints(batch, "inode")?, ints(batch, "start_us")?, ints(batch, "window_s")?);
    let (resident, accessed) = (ints(batch, "resident_bytes")?, ints(batch, "accessed_bytes")?);
    let (cold, promoted) = (entries(batch, "cold")?, entries(batch, "promoted")?);
    let mut key = String::new();
    for i in 0..batch.num_rows() {
        let name = text(&host, i).unwrap_or_default();
        key.clear();
        let _ = write!(
            key,
            "{name}\0{}\0{}\0{}",
            text(&boot, i).unwrap_or_default(),
            text(&cgroup, i).unwrap_or_default(),
            count(&inode, i).unwrap_or(0)
        );
        let window = Window {
            job: groups.job(name, text(&job, i).unwrap_or_default()),
            start_us: count(&start, i).unwrap_or(0),
            window_s: count(&length, i).unwrap_or(0),
            resident: count(&resident, i).unwrap_or(0),
            accessed: count(&accessed, i),
            cold: std::array::from_fn(|entry| count(&cold[entry], i)),
            promoted: std::array::from_fn(|entry| count(&promoted[entry], i)),
        };
        groups.add(&key, window);
    }
    Ok(())
}

/// The columns of a list, by threshold.
fn entries(batch: &RecordBatch, of: &str) -> Result<Vec<Int64Array>> {
    (SHORTEST..SHORTEST + THRESHOLDS).map(|entry| ints(batch, &format!("{of}_{entry}"))).collect()
}
