//! The page history on real memory, judged page by page: all page tables of a process are walked every now and then, as
//! seldom as the budget asks for.
//!
//! It is driven here and not read from a record, because records tell how many pages are hot, and not which.

use anyhow::{Context, bail};
use isotherm_core::addr::{AddrRange, normalize};
use isotherm_core::clock::Clock;
use isotherm_core::history::tracked::{Allowance, Tracked};
use isotherm_core::source::AccessSource;
use isotherm_linux::clock::{MonotonicClock, thread_cpu_ns};
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::targets::{TargetSpec, TargetTracker};
use isotherm_sim::accuracy::HOLD;
use isotherm_sim::accuracy::by_page::{self, ByHistory};
use serde::{Deserialize, Serialize};

/// What a page history took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HistoryFigures {
    /// Time between the last two walks.
    pub walk_ns: u64,
    /// One page table in so many was watched.
    pub one_in: u32,
    /// Its size.
    pub memory_bytes: u64,
}

/// What the walks of one run said, and took.
#[derive(Debug)]
pub struct Walks {
    /// When the first walk began, ns.
    pub start_ns: u64,
    /// After each walk but the first.
    pub said: Vec<ByHistory>,
    /// CPU time of looking, as a share of one core, without the first walk, which clears everything.
    pub monitor_share: f64,
    /// The target's estimated loss, likewise.
    pub target_share: f64,
    /// The history.
    pub history: HistoryFigures,
}

/// Least time between two walks.
const SHORTEST_NS: u64 = 1_000_000_000;

/// Walks the page tables of process `pid` for `seconds`, at a cost of `budget` (a share of one core), but often enough
/// to be judged. Of what it finds, `arena` counts.
pub fn walk(pid: u32, arena: AddrRange, budget: f64, seconds: u64) -> anyhow::Result<Walks> {
    let tracker = TargetTracker::new(TargetSpec::Pids { pids: vec![pid], children: false })?;
    let source = PageTableSource::new(tracker);
    let source = source.map_err(|e| anyhow::anyhow!("page tables cannot be read here: {}; {}", e.reason, e.remedy))?;
    let mut source = Tracked::new(source);
    let Some(target) = source.poll_targets()?.first().map(|t| t.target) else { bail!("process {pid} is not there") };
    let mut clock = MonotonicClock::new();
    let start_ns = clock.now_ns();
    let end_ns = start_ns + seconds * 1_000_000_000;
    let (mut said, mut begun) = (Vec::new(), None);
    let (mut walks, mut next_ns) = (0, start_ns);
    while said.len() < HOLD || next_ns <= end_ns {
        clock.sleep_until_ns(next_ns);
        let (now, cpu_before, lost_before) = (clock.now_ns(), thread_cpu_ns(), source.cost().target_ns);
        let mut mappings = Vec::new();
        source.mappings(target, &mut mappings)?;
        let mut mapped: Vec<AddrRange> = mappings.iter().map(|m| m.range).collect();
        normalize(&mut mapped);
        while !source.walk(target, &mapped, Some(Allowance::UNLIMITED), &mut clock)?.complete {}
        walks += 1;
        let (cpu, lost) = (thread_cpu_ns() - cpu_before, source.cost().target_ns - lost_before);
        let history = source.page_history(target).context("a walked process has a history")?;
        said.extend(by_page::by_history(history, &[arena]));
        // The first walk clears all that was ever used; no later one does.
        let price = if walks == 1 { 0 } else { cpu + lost };
        next_ns = now + SHORTEST_NS.max((price as f64 / budget) as u64);
        match &mut begun {
            None => begun = Some((now, 0, 0)),
            Some((_, monitor, target)) => (*monitor, *target) = (*monitor + cpu, *target + lost),
        }
    }
    let (from_ns, monitor_ns, target_ns) = begun.unwrap_or_default();
    // The last walk is paid for by the time until the next.
    let elapsed = (next_ns - from_ns) as f64;
    let history = source.page_history(target).context("a walked process has a history")?;
    Ok(Walks {
        start_ns,
        said,
        monitor_share: monitor_ns as f64 / elapsed,
        target_share: target_ns as f64 / elapsed,
        history: HistoryFigures {
            walk_ns: history.walk_ns(),
            one_in: history.one_in(),
            memory_bytes: history.memory_bytes() as u64,
        },
    })
}
