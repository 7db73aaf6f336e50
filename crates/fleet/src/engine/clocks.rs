//! Windows of agents, and those that cover a time twice because a clock was set back.

use super::columns::{count, ints, text, texts};
use super::{queries, rows_of};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::prelude::{DataFrame, SessionContext};
use std::cmp::Reverse;
use std::sync::Arc;

/// By how much a window may reach into the next one, microseconds: a clock that is corrected slowly makes windows a little
/// longer or shorter than they were. Of a short window it is half at most.
const CORRECTED_US: u64 = 1_000_000;

/// A window of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentWindow {
    pub host: String,
    pub cluster: Option<String>,
    pub boot_id: String,
    pub kernel: String,
    pub version: String,
    pub source: String,
    /// Microseconds since 1970.
    pub start_us: u64,
    pub window_s: u64,
    pub rows: u64,
    /// CPU time of watching the machine, microseconds; `None`: not known.
    pub monitor_cpu_us: Option<u64>,
    /// What that cost those watched, microseconds.
    pub target_cost_us: Option<u64>,
}

impl AgentWindow {
    /// Seconds since 1970.
    pub fn start_s(&self) -> u64 {
        self.start_us / 1_000_000
    }

    fn length_us(&self) -> u64 {
        self.window_s.saturating_mul(1_000_000)
    }

    /// From when on the next window may begin.
    fn next_us(&self) -> u64 {
        let length_us = self.length_us();
        self.start_us.saturating_add(length_us - CORRECTED_US.min(length_us / 2))
    }

    /// What of it an answer's columns tell apart, besides its host, time and length.
    fn agent(&self) -> [Option<&str>; 5] {
        [self.cluster.as_deref(), Some(&self.boot_id), Some(&self.kernel), Some(&self.version), Some(&self.source)]
    }
}

/// Windows of all machines, by host and time.
pub async fn agent_windows(session: &SessionContext) -> Result<Vec<AgentWindow>> {
    let mut all = Vec::new();
    for batch in rows_of(session, queries::AGENTS).await? {
        let names = ["host", "cluster_name", "boot_id", "kernel", "isotherm_version", "source"];
        let columns = names.map(|name| texts(&batch, name));
        let [host, cluster, boot, kernel, version, source] = columns;
        let (host, cluster, boot, kernel, version, source) = (host?, cluster?, boot?, kernel?, version?, source?);
        let (start, length, rows) = (ints(&batch, "start_us")?, ints(&batch, "window_s")?, ints(&batch, "rows_held")?);
        let (cpu, cost) = (ints(&batch, "monitor_cpu_us")?, ints(&batch, "target_cost_us")?);
        let owned = |column: &StringArray, i| text(column, i).unwrap_or_default().to_owned();
        all.extend((0..batch.num_rows()).map(|i| AgentWindow {
            host: owned(&host, i),
            cluster: text(&cluster, i).map(str::to_owned),
            boot_id: owned(&boot, i),
            kernel: owned(&kernel, i),
            version: owned(&version, i),
            source: owned(&source, i),
            start_us: count(&start, i).unwrap_or(0),
            window_s: count(&length, i).unwrap_or(0),
            rows: count(&rows, i).unwrap_or(0),
            monitor_cpu_us: count(&cpu, i),
            target_cost_us: count(&cost, i),
        }));
    }
    // Of windows that begin at once, the longest counts, and of those the one with most rows.
    all.sort_by(|a, b| {
        let key = |window: &AgentWindow| (window.start_us, Reverse(window.window_s), Reverse(window.rows));
        a.host.cmp(&b.host).then_with(|| key(a).cmp(&key(b))).then_with(|| a.agent().cmp(&b.agent()))
    });
    Ok(all)
}

/// Takes windows away that begin before the one before has ended, and returns them.
pub fn take_overlapping(windows: &mut Vec<AgentWindow>) -> Vec<AgentWindow> {
    let mut last: Option<(String, u64)> = None;
    windows
        .extract_if(.., |window| {
            match &mut last {
                Some((host, next_us)) if *host == window.host => {
                    if window.start_us < *next_us {
                        return true;
                    }
                    *next_us = window.next_us();
                }
                _ => last = Some((window.host.clone(), window.next_us())),
            }
            false
        })
        .collect()
}

/// The columns that tell windows of agents apart, as `agents.sql` groups by them.
const APART: [&str; 8] =
    ["host", "cluster_name", "boot_id", "kernel", "isotherm_version", "source", "start_us", "window_s"];

/// The table `windows` without these.
pub async fn leave_out(session: &SessionContext, out: &[AgentWindow]) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let number = |of: fn(&AgentWindow) -> u64| -> ArrayRef {
        Arc::new(out.iter().map(|window| i64::try_from(of(window)).ok()).collect::<Int64Array>())
    };
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from_iter_values(out.iter().map(|window| &window.host)))];
    for i in 0..5 {
        columns.push(Arc::new(out.iter().map(|window| window.agent()[i]).collect::<StringArray>()));
    }
    columns.extend([number(|window| window.start_us), number(|window| window.window_s)]);
    let there = APART.map(|name| format!("out_{name}"));
    let batch = RecordBatch::try_from_iter_with_nullable(there.iter().zip(columns).map(|(name, c)| (name, c, true)))?;
    let (state, windows) = session.table("windows").await?.into_parts();
    let keys = (APART.to_vec(), there.to_vec());
    let out = session.read_batch(batch)?.into_unoptimized_plan();
    // A machine without a cluster is one, too: null is null here.
    let rest = LogicalPlanBuilder::from(windows).join_detailed(
        out,
        JoinType::LeftAnti,
        keys,
        None,
        NullEquality::NullEqualsNull,
    )?;
    session.deregister_table("windows")?;
    session.register_table("windows", DataFrame::new(state, rest.build()?).into_view())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(host: &str, start_us: u64, window_s: u64) -> AgentWindow {
        let text = String::new;
        AgentWindow {
            host: host.to_owned(),
            cluster: None,
            boot_id: text(),
            kernel: text(),
            version: text(),
            source: text(),
            start_us,
            window_s,
            rows: 1,
            monitor_cpu_us: None,
            target_cost_us: None,
        }
    }

    fn starts(windows: &[AgentWindow]) -> Vec<u64> {
        windows.iter().map(|window| window.start_us).collect()
    }

    #[test]
    fn a_time_counts_once_and_a_clock_that_is_corrected_makes_no_overlap() {
        let at = |host: &str, s: u64| window(host, s * 1_000_000, 300);
        let mut windows = vec![at("a", 0), at("a", 299), at("a", 450), at("a", 600)];
        windows.extend([at("b", 100), at("b", 350), at("b", 400)]);
        let s = 1_000_000;
        assert_eq!(starts(&take_overlapping(&mut windows)), [450 * s, 350 * s]);
        assert_eq!(starts(&windows), [0, 299 * s, 600 * s, 100 * s, 400 * s]);
    }

    #[test]
    fn windows_that_begin_in_the_same_second_are_two() {
        let mut windows = vec![window("a", 2000, 300), window("a", 4000, 300), window("a", 299_900_000, 300)];
        assert_eq!(starts(&take_overlapping(&mut windows)), [4000]);
        // However short they are.
        let mut windows = vec![window("a", 0, 1), window("a", 100_000, 1), window("a", 900_000, 1)];
        assert_eq!(starts(&take_overlapping(&mut windows)), [100_000]);
    }

    /// Two agents on one machine, of which one has no cluster; what one of them saw stays.
    #[test]
    fn only_the_windows_that_are_left_out_go() {
        let mut windows =
            vec![window("a", 0, 300), AgentWindow { cluster: Some("x".to_owned()), ..window("a", 0, 300) }];
        windows.push(AgentWindow { source: "refs".to_owned(), ..window("a", 0, 300) });
        windows.push(window("a", 1, 300));
        let text = |of: &dyn Fn(&AgentWindow) -> Option<String>| -> ArrayRef {
            Arc::new(windows.iter().map(of).collect::<StringArray>())
        };
        let number = |of: &dyn Fn(&AgentWindow) -> u64| -> ArrayRef {
            Arc::new(windows.iter().map(|window| of(window) as i64).collect::<Int64Array>())
        };
        let empty = || text(&|_| Some(String::new()));
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("host", text(&|window| Some(window.host.clone())), true),
            ("cluster_name", text(&|window| window.cluster.clone()), true),
            ("boot_id", empty(), true),
            ("kernel", empty(), true),
            ("isotherm_version", empty(), true),
            ("source", text(&|window| Some(window.source.clone())), true),
            ("start_us", number(&|window| window.start_us), true),
            ("window_s", number(&|window| window.window_s), true),
            ("monitor_cpu_us", number(&|_| 1), true),
            ("target_cost_us", number(&|_| 2), true),
        ]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let session = SessionContext::new();
            session.register_batch("windows", batch.unwrap()).unwrap();
            let mut all = agent_windows(&session).await.unwrap();
            assert_eq!(all.len(), 4);
            let out = take_overlapping(&mut all);
            assert_eq!((all.len(), out.len()), (1, 3));
            leave_out(&session, &out).await.unwrap();
            assert_eq!(agent_windows(&session).await.unwrap(), all);
        });
    }
}
