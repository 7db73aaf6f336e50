//! Every snapshot as it was recorded: damo's raw text, or a line of JSON each.

use crate::error::ViewError;
use crate::exact;
use crate::replay::{Replay, for_each_snapshot};
use isotherm_core::snapshot::{Evidence, Snapshot};
use serde::Serialize;
use std::io::Write;

/// A snapshot as `isotherm report raw --json` prints it: a contract with programs that read it.
#[derive(Debug, Serialize)]
struct RawSnapshot<'a> {
    target: u32,
    pid: Option<u32>,
    start_ns: u64,
    end_ns: u64,
    sample_us: u64,
    aggr_us: u64,
    max_nr_accesses: u32,
    regions: Vec<RawRegion<'a>>,
}

#[derive(Debug, Serialize)]
struct RawRegion<'a> {
    start: u64,
    end: u64,
    nr_accesses: u32,
    age: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<&'a Evidence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accessed: Option<u64>,
}

impl<'a> From<&'a Snapshot> for RawSnapshot<'a> {
    fn from(s: &'a Snapshot) -> Self {
        let regions = s.regions.iter().map(|r| RawRegion {
            start: r.start,
            end: r.end,
            nr_accesses: r.nr_accesses,
            age: r.age,
            evidence: r.evidence.as_ref(),
            accessed: r.accessed,
        });
        Self {
            target: s.target,
            pid: s.pid,
            start_ns: s.start_ns,
            end_ns: s.end_ns,
            sample_us: s.sample_us,
            aggr_us: s.aggr_us,
            max_nr_accesses: s.max_nr_accesses,
            regions: regions.collect(),
        }
    }
}

/// Writes one line of JSON per snapshot of `target` (or of all).
pub fn write_json(events: &dyn Replay, target: Option<u32>, out: &mut dyn Write) -> Result<(), ViewError> {
    for_each_snapshot(events, target, &mut |s| {
        serde_json::to_writer(&mut *out, &RawSnapshot::from(s))?;
        out.write_all(b"\n")?;
        Ok(())
    })
}

/// Writes the snapshots of `target` (or of all) in damo's raw form. Times are relative to `base_time_absolute`, the
/// begin of the first snapshot on CLOCK_MONOTONIC.
pub fn write_text(events: &dyn Replay, target: Option<u32>, out: &mut dyn Write) -> Result<(), ViewError> {
    let mut base_ns = None;
    for_each_snapshot(events, target, &mut |s| {
        if base_ns.is_none() {
            writeln!(out, "base_time_absolute: {}\ndata source: isotherm\n", exact::time(s.start_ns))?;
        }
        let base = *base_ns.get_or_insert(s.start_ns);
        let since = |ns: u64| exact::time(ns.saturating_sub(base));
        writeln!(out, "monitoring_start:    {:>16}", since(s.start_ns))?;
        writeln!(out, "monitoring_end:      {:>16}", since(s.end_ns))?;
        writeln!(out, "monitoring_duration: {:>16}", exact::time(s.end_ns.saturating_sub(s.start_ns)))?;
        writeln!(out, "target_id: {}\nnr_regions: {}", s.target, s.regions.len())?;
        writeln!(out, "# start_addr     end_addr        length  nr_accesses   age")?;
        for r in &s.regions {
            let length = exact::size(r.len());
            writeln!(out, "{:012x}-{:012x} ({length:>12}) {:>11} {:>5}", r.start, r.end, r.nr_accesses, r.age)?;
        }
        writeln!(out)?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, region, small_record, snapshot};
    use isotherm_core::event::Event;

    #[test]
    fn text_is_damos_raw_form() {
        let base = 0x7f00_0000_0000;
        let regions = |nr, age| {
            vec![region(base, base + 12 * MIB, 0, age), region(base + 12 * MIB, base + 12 * MIB + 4096, nr, 1)]
        };
        let events =
            vec![Event::Snapshot(snapshot(0, 0, regions(12, 31))), Event::Snapshot(snapshot(0, 1, regions(1, 32)))];
        let mut out = Vec::new();
        write_text(&events, None, &mut out).expect("writes to memory");
        // The layout was compared with what damo 3.4.3 prints for the same snapshots.
        let expected = "\
base_time_absolute: 1 m 1.900 s
data source: isotherm

monitoring_start:                0 ns
monitoring_end:                100 ms
monitoring_duration:           100 ms
target_id: 0
nr_regions: 2
# start_addr     end_addr        length  nr_accesses   age
7f0000000000-7f0000c00000 (  12.000 MiB)           0    31
7f0000c00000-7f0000c01000 (   4.000 KiB)          12     1

monitoring_start:              100 ms
monitoring_end:                200 ms
monitoring_duration:           100 ms
target_id: 0
nr_regions: 2
# start_addr     end_addr        length  nr_accesses   age
7f0000000000-7f0000c00000 (  12.000 MiB)           0    32
7f0000c00000-7f0000c01000 (   4.000 KiB)           1     1

";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn json_lines_hold_the_contract() {
        let events = vec![Event::Snapshot(snapshot(0, 0, vec![region(4096, 8192, 3, 7)]))];
        let mut out = Vec::new();
        write_json(&events, Some(0), &mut out).expect("writes to memory");
        let expected = concat!(
            r#"{"target":0,"pid":4242,"start_ns":61900000000,"end_ns":62000000000,"sample_us":5000,"#,
            r#""aggr_us":100000,"max_nr_accesses":20,"regions":[{"start":4096,"end":8192,"nr_accesses":3,"age":7}]}"#,
            "\n"
        );
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn what_is_missing_is_said() {
        let nothing: Vec<Event> = small_record(0);
        let mut out = Vec::new();
        assert!(matches!(write_json(&nothing, None, &mut out), Err(ViewError::NoSnapshot)));
        let error = write_json(&small_record(1), Some(7), &mut out).expect_err("no such target");
        assert_eq!(error.to_string(), "the record has no target 7; it has 0");
        assert!(out.is_empty());
    }
}
