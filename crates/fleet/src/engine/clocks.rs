//! Windows of agents, and those that cover a time twice because a clock was set back.

use super::columns::{count, ints, text, texts};
use super::{queries, rows_of};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::common::JoinType;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// By how much a window may reach into the next one, s: times are rounded.
const ROUNDED_S: u64 = 1;

/// A window of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentWindow {
    pub host: String,
    pub cluster: Option<String>,
    pub boot_id: String,
    pub kernel: String,
    pub version: String,
    pub source: String,
    /// Seconds since 1970.
    pub start_s: u64,
    pub window_s: u64,
    pub rows: u64,
    /// CPU time of watching the machine, microseconds; `None`: not known.
    pub monitor_cpu_us: Option<u64>,
    /// What that cost those watched, microseconds.
    pub target_cost_us: Option<u64>,
}

/// Windows of all machines, by host and time.
pub async fn agent_windows(session: &SessionContext) -> Result<Vec<AgentWindow>> {
    let mut all = Vec::new();
    for batch in rows_of(session, queries::AGENTS).await? {
        let names = ["host", "cluster_name", "boot_id", "kernel", "isotherm_version", "source"];
        let columns = names.map(|name| texts(&batch, name));
        let [host, cluster, boot, kernel, version, source] = columns;
        let (host, cluster, boot, kernel, version, source) = (host?, cluster?, boot?, kernel?, version?, source?);
        let (start, length, rows) = (ints(&batch, "start_s")?, ints(&batch, "window_s")?, ints(&batch, "rows_held")?);
        let (cpu, cost) = (ints(&batch, "monitor_cpu_us")?, ints(&batch, "target_cost_us")?);
        let owned = |column: &StringArray, i| text(column, i).unwrap_or_default().to_owned();
        all.extend((0..batch.num_rows()).map(|i| AgentWindow {
            host: owned(&host, i),
            cluster: text(&cluster, i).map(str::to_owned),
            boot_id: owned(&boot, i),
            kernel: owned(&kernel, i),
            version: owned(&version, i),
            source: owned(&source, i),
            start_s: count(&start, i).unwrap_or(0),
            window_s: count(&length, i).unwrap_or(0),
            rows: count(&rows, i).unwrap_or(0),
            monitor_cpu_us: count(&cpu, i),
            target_cost_us: count(&cost, i),
        }));
    }
    // Of windows that begin at once, the longest counts.
    all.sort_by(|a, b| a.host.cmp(&b.host).then(a.start_s.cmp(&b.start_s)).then(b.window_s.cmp(&a.window_s)));
    Ok(all)
}

/// Takes windows away that begin before the one before has ended, and returns them.
pub fn take_overlapping(windows: &mut Vec<AgentWindow>) -> Vec<AgentWindow> {
    let mut last: Option<(String, u64)> = None;
    windows
        .extract_if(.., |window| {
            let end_s = window.start_s + window.window_s;
            match &mut last {
                Some((host, ends_s)) if *host == window.host => {
                    if window.start_s + ROUNDED_S < *ends_s {
                        return true;
                    }
                    *ends_s = end_s;
                }
                _ => last = Some((window.host.clone(), end_s)),
            }
            false
        })
        .collect()
}

/// The table `windows` without these.
pub async fn leave_out(session: &SessionContext, out: &[AgentWindow]) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let text =
        |of: fn(&AgentWindow) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(out.iter().map(of))) };
    let number = |of: fn(&AgentWindow) -> u64| -> ArrayRef {
        Arc::new(out.iter().map(|window| i64::try_from(of(window)).ok()).collect::<Int64Array>())
    };
    let batch = RecordBatch::try_from_iter([
        ("out_host", text(|window| &window.host)),
        ("out_boot_id", text(|window| &window.boot_id)),
        ("out_start_s", number(|window| window.start_s)),
        ("out_window_s", number(|window| window.window_s)),
    ])?;
    let (here, there) =
        (["host", "boot_id", "start_s", "window_s"], ["out_host", "out_boot_id", "out_start_s", "out_window_s"]);
    let rest =
        session.table("windows").await?.join(session.read_batch(batch)?, JoinType::LeftAnti, &here, &there, None)?;
    session.deregister_table("windows")?;
    session.register_table("windows", rest.into_view())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(host: &str, start_s: u64, window_s: u64) -> AgentWindow {
        let text = String::new;
        AgentWindow {
            host: host.to_owned(),
            cluster: None,
            boot_id: text(),
            kernel: text(),
            version: text(),
            source: text(),
            start_s,
            window_s,
            rows: 1,
            monitor_cpu_us: None,
            target_cost_us: None,
        }
    }

    #[test]
    fn a_time_counts_once_and_rounding_is_no_overlap() {
        let mut windows =
            vec![window("a", 0, 300), window("a", 299, 300), window("a", 450, 300), window("a", 600, 300)];
        windows.extend([window("b", 100, 300), window("b", 350, 300), window("b", 400, 300)]);
        let starts = |windows: &[AgentWindow]| windows.iter().map(|w| w.start_s).collect::<Vec<_>>();
        assert_eq!(starts(&take_overlapping(&mut windows)), [450, 350]);
        assert_eq!(starts(&windows), [0, 299, 600, 100, 400]);
    }
}
