//! Work on whole hosts at a time, and what is done where a file turns out to be damaged in the middle.

use super::Engine;
use super::batches::by_hosts;
use super::clocks::{AgentWindow, agent_windows, leave_out, take_overlapping};
use crate::input::judge::{Fault, Inventory, LeftOut, WindowFile};
use crate::progress::Progress;
use anyhow::bail;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use futures_util::StreamExt;

/// Some hosts, with all their files.
#[allow(missing_debug_implementations)] // A session has none.
pub struct Hosts {
    /// Has the table `windows`.
    pub session: SessionContext,
    /// By host and time.
    pub windows: Vec<AgentWindow>,
    /// Those that cover a time twice.
    pub set_back: Vec<AgentWindow>,
}

/// Asks `ask` of all hosts, about `batch_rows` rows at a time, and hands the answers to `take` once they are whole. A file that
/// cannot be read in its middle moves to those left out, and the rest of its hosts' files are asked again.
pub async fn each<A>(
    engine: &Engine,
    inventory: &mut Inventory,
    batch_rows: u64,
    ask: impl AsyncFn(&Hosts) -> Result<A>,
    mut take: impl FnMut(&Hosts, A),
) -> anyhow::Result<()> {
    let files = std::mem::take(&mut inventory.files);
    let progress = Progress::new("rows read", files.iter().map(|file| file.footer.rows).sum());
    for batch in by_hosts(&files, batch_rows) {
        let rows = batch.iter().map(|file| file.footer.rows).sum();
        let mut batch = batch.to_vec();
        let mut damage_was_found = false;
        while !batch.is_empty() {
            let answered = async {
                let hosts = open(engine, &batch).await?;
                let answer = ask(&hosts).await?;
                Ok((hosts, answer))
            };
            let answered: Result<(Hosts, A)> = answered.await;
            match answered {
                Ok((hosts, answer)) => {
                    take(&hosts, answer);
                    break;
                }
                Err(e) => {
                    let damaged = if damage_was_found { Vec::new() } else { take_damaged(engine, &mut batch).await };
                    if damaged.is_empty() {
                        let (first, last) = (&batch[0].footer.host, &batch[batch.len() - 1].footer.host);
                        bail!("the files of {first} to {last}: {}", e.strip_backtrace());
                    }
                    damage_was_found = true;
                    inventory.left_out.extend(damaged);
                }
            }
        }
        inventory.files.extend(batch);
        progress.add(rows);
    }
    progress.end();
    inventory.left_out.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

async fn open(engine: &Engine, files: &[WindowFile]) -> Result<Hosts> {
    let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let session = engine.open(&paths).await?;
    let mut windows = agent_windows(&session).await?;
    let set_back = take_overlapping(&mut windows);
    leave_out(&session, &set_back).await?;
    Ok(Hosts { session, windows, set_back })
}

/// Reads each file by itself, and takes those out that cannot be read to their end.
async fn take_damaged(engine: &Engine, files: &mut Vec<WindowFile>) -> Vec<LeftOut> {
    let (mut good, mut damaged) = (Vec::new(), Vec::new());
    for file in files.drain(..) {
        match read_through(engine, &file).await {
            Ok(()) => good.push(file),
            Err(e) => {
                let fault = Fault::Damaged(e.strip_backtrace());
                damaged.push(LeftOut { path: file.path, fault, rows: Some(file.footer.rows) });
            }
        }
    }
    *files = good;
    damaged
}

async fn read_through(engine: &Engine, file: &WindowFile) -> Result<()> {
    let session = engine.open(std::slice::from_ref(&file.path)).await?;
    let mut rows = session.table("windows").await?.execute_stream().await?;
    while let Some(batch) = rows.next().await {
        batch?;
    }
    Ok(())
}
