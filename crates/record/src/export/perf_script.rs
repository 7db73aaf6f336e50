//! The text that `perf script` prints for `damon_aggregated` events.

use super::{Export, Out};
use crate::error::WriteError;
use crate::trace_line::{Head, TraceLine};
use isotherm_core::event::Event;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::trace::{TraceEvent, Tracepoint};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Writes perf-script text. Only ends of snapshots are reported, so a target with a single snapshot gets a false one,
/// `[0, 0)` with figures -1, that tells the interval.
pub(crate) struct PerfScript {
    out: Out,
    text: String,
    /// Targets with one snapshot so far: its end, and the end of the false one.
    lone: BTreeMap<u32, Option<(u64, u64)>>,
}

impl PerfScript {
    pub(crate) fn new(out: Out) -> Self {
        Self { out, text: String::new(), lone: BTreeMap::new() }
    }

    fn add(&mut self, s: &Snapshot) {
        for r in &s.regions {
            let event = TraceEvent::aggregated(s, r);
            let _ = writeln!(self.text, "{}", TraceLine { kdamond: 0, tid: 0, cpu: 0, time_ns: s.end_ns, event });
        }
    }
}

impl Export for PerfScript {
    fn write(&mut self, event: &Event) -> Result<(), WriteError> {
        let Event::Snapshot(s) = event else { return Ok(()) };
        if s.regions.is_empty() {
            return Ok(());
        }
        let end_of_false = s.end_ns.saturating_add(s.end_ns - s.start_ns);
        self.lone.entry(s.target).and_modify(|l| *l = None).or_insert(Some((s.end_ns, end_of_false)));
        self.text.clear();
        self.add(s);
        self.out.put(self.text.as_bytes())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        self.text.clear();
        let mut false_ones: Vec<(u64, u32)> =
            self.lone.iter().filter_map(|(t, l)| l.map(|(_, end)| (end, *t))).collect();
        false_ones.sort_unstable();
        for (end, target) in false_ones {
            let head = Head { time_ns: end, of: Tracepoint::Aggregated };
            let _ = writeln!(self.text, "kdamond.0 0 [000] {head}target_id={target} nr_regions=1 0-0: -1 -1");
        }
        let text = std::mem::take(&mut self.text);
        self.out.put(text.as_bytes())?;
        self.out.finish()
    }
}
