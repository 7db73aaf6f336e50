//! Asks what a grid of policies would have done, host by host.

use super::grid::{Answer, Grid};
use super::outcome::Outcomes;
use crate::engine::columns::{count, floats, ints, text, texts};
use crate::engine::hosts::{self, Hosts};
use crate::engine::{Engine, queries, rows_of};
use crate::input::judge::Inventory;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// Rows that are worked on at a time: they are sorted by group and time.
const BATCH_ROWS: u64 = 600_000;
/// Replays all files.
pub async fn replay(engine: &Engine, inventory: &mut Inventory, grid: &Grid) -> anyhow::Result<Outcomes> {
    let mut outcomes = Outcomes::new(grid);
    let batch_rows = (BATCH_ROWS / grid.percentiles.len().max(1) as u64).max(1);
    let ask = async |hosts: &Hosts| {
        register(&hosts.session, grid)?;
        let mut all = Vec::new();
        for batch in rows_of(&hosts.session, queries::WHAT_IF).await? {
            all.extend(answers_of(&batch)?);
        }
        Ok(all)
    };
    let take = |hosts: &Hosts, answers: Vec<Answer>| outcomes.add(&hosts.windows, &hosts.set_back, answers);
    hosts::each(engine, inventory, batch_rows, ask, take).await?;
    Ok(outcomes)
}

/// The tables `policy` and `percentiles`.
fn register(session: &SessionContext, grid: &Grid) -> Result<()> {
    let int = |n: u64| -> ArrayRef { Arc::new(Int64Array::from(vec![i64::try_from(n).unwrap_or(i64::MAX)])) };
    let rate: ArrayRef = Arc::new(Float64Array::from(vec![grid.rate]));
    let mut policy = vec![("rate".to_owned(), rate), ("split_s".to_owned(), int(grid.split_s))];
    policy.extend(grid.warmups_s.iter().enumerate().map(|(i, s)| (format!("warmup_{}", i + 1), int(*s))));
    session.register_batch("policy", RecordBatch::try_from_iter(policy)?)?;
    let k: ArrayRef = Arc::new(Float64Array::from(grid.percentiles.clone()));
    session.register_batch("percentiles", RecordBatch::try_from_iter([("k", k)])?)?;
    Ok(())
}

fn answers_of(batch: &RecordBatch) -> Result<Vec<Answer>> {
    let (k, host, job) = (floats(batch, "k")?, texts(batch, "host")?, texts(batch, "job")?);
    let names = ["part", "window_s", "warmup", "threshold", "windows", "resident_bytes", "possible_bytes"];
    let names = names.into_iter().chain(["saved_bytes", "promoted_bytes", "accessed_bytes", "broken", "judged"]);
    let numbers = names.map(|name| ints(batch, name)).collect::<Result<Vec<_>>>()?;
    let answer = |i: usize| {
        let known = |column: usize| count(&numbers[column], i);
        let number = |column: usize| known(column).unwrap_or(0);
        Answer {
            k: k.value(i),
            host: text(&host, i).unwrap_or_default().to_owned(),
            job: text(&job, i).unwrap_or_default().to_owned(),
            part: number(0) as usize,
            window_s: number(1),
            warmup: number(2) as usize,
            threshold: known(3).map(|threshold| threshold as usize),
            windows: number(4),
            resident: number(5),
            possible: number(6),
            saved: number(7),
            promoted: number(8),
            accessed: number(9),
            broken: number(10),
            judged: number(11),
        }
    };
    Ok((0..batch.num_rows()).map(answer).collect())
}
