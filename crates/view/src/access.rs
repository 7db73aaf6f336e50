//! One snapshot of each target: its regions, hot first.

use crate::basis::Basis;
use crate::error::ViewError;
use crate::keyed::Keyed;
use crate::names;
use crate::overview::{Overview, TargetOverview};
use crate::replay::Replay;
use crate::summary::mapping_pages::{MappingUse, mapping_uses};
use crate::summary::pages::PageFigures;
use crate::summary::text::threshold;
use crate::temperature::temperature;
use crate::units::{age_ns, format_hz, format_percent, format_us, hz, rate};
use isotherm_core::addr::AddrRange;
use isotherm_core::event::Event;
use isotherm_core::history::frame::PageFrame;
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_core::units::NS_PER_S;
use isotherm_core::units::{format_size, format_time};
use serde::Serialize;
use std::cmp::Reverse;
use std::io::Write;

/// Mappings listed with their pages.
const MAPPINGS: usize = 10;

/// Which snapshot, and how much of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct AccessOptions {
    /// Only this target.
    pub target: Option<u32>,
    /// Time since the begin of the record, ns: the snapshot in force then. `None`: the last one.
    pub at_ns: Option<u64>,
    /// At most so many regions of each target; totals count all.
    pub limit: Option<usize>,
}

/// A target's chosen snapshot with what is needed to explain it.
struct Chosen {
    overview: TargetOverview,
    snapshot: Option<Snapshot>,
    /// Position among the target's snapshots, from 1.
    number: u64,
    mappings: Vec<Mapping>,
    /// The pages in force then, without their tables; `None` where only regions are known.
    pages: Option<PageFrame>,
}

/// A region as `isotherm report access --json` shows it.
#[derive(Debug, Serialize)]
struct AccessRegion<'a> {
    start: u64,
    end: u64,
    size: u64,
    nr_accesses: u32,
    /// Fraction of one; null where the region was not seen.
    rate: Option<f64>,
    hz: Option<f64>,
    age: u32,
    age_us: u64,
    temperature: Option<u32>,
    mapping: Option<&'a str>,
}

/// Bytes by what is known about them.
#[derive(Debug, Serialize)]
struct Totals {
    basis: Basis,
    /// Accessed within this time, where pages tell; else within the aggregation interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    within_ns: Option<u64>,
    accessed: u64,
    not_accessed: u64,
    not_observable: u64,
    /// Not looked at yet; of pages, those of which nobody knows when they were accessed.
    not_visited: u64,
}

#[derive(Debug, Serialize)]
struct AccessReport<'a> {
    target: u32,
    pid: Option<u32>,
    name: &'a str,
    start_ns: u64,
    end_ns: u64,
    sample_us: u64,
    aggr_us: u64,
    max_nr_accesses: u32,
    totals: Totals,
    /// What is known of the pages of each mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<Vec<MappingUse>>,
    regions: Vec<AccessRegion<'a>>,
}

/// Writes one line of JSON per target.
pub fn write_json(
    events: &(impl Replay + ?Sized),
    options: &AccessOptions,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    for chosen in choose(events, &Overview::read(events)?, options)? {
        let Some(s) = &chosen.snapshot else { continue };
        let report = AccessReport {
            target: s.target,
            pid: s.pid,
            name: &chosen.overview.info.name,
            start_ns: s.start_ns,
            end_ns: s.end_ns,
            sample_us: s.sample_us,
            aggr_us: s.aggr_us,
            max_nr_accesses: s.max_nr_accesses,
            totals: chosen.totals(s),
            mappings: chosen.uses(),
            regions: hot_first(s)
                .into_iter()
                .take(options.limit.unwrap_or(usize::MAX))
                .map(|r| access_region(r, s, &chosen.mappings))
                .collect(),
        };
        serde_json::to_writer(&mut *out, &report)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes a table for people.
pub fn write_text(
    events: &(impl Replay + ?Sized),
    options: &AccessOptions,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let overview = Overview::read(events)?;
    let length = overview.end_ns.saturating_sub(overview.start_ns);
    for (i, chosen) in choose(events, &overview, options)?.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        if options.at_ns.is_some_and(|at| at > length) {
            writeln!(
                out,
                "# the record ends after {}, before the time asked for: its last snapshot",
                format_time(length)
            )?;
        }
        writeln!(out, "# target {}: {}", chosen.overview.info.target, chosen.overview.title())?;
        match &chosen.snapshot {
            Some(s) => write_snapshot(chosen, s, overview.start_ns, options, out)?,
            None => writeln!(out, "# no snapshot yet at that time")?,
        }
    }
    Ok(())
}

/// What the rates of a snapshot are.
fn rate_words(s: &Snapshot) -> String {
    // A source that looks at each page once an aggregation interval, and tells how much it found, as refs does.
    if s.max_nr_accesses > 1 && s.sample_us >= s.aggr_us {
        let interval = format_us(s.sample_us);
        return format!(
            "share of the resident memory that was found accessed by the one look of the interval of {interval}"
        );
    }
    let (count, interval) = (s.max_nr_accesses, format_us(s.sample_us));
    format!("share of the {count} sampling intervals of {interval} in which a page was found accessed")
}

fn write_snapshot(
    chosen: &Chosen,
    s: &Snapshot,
    base_ns: u64,
    options: &AccessOptions,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    writeln!(
        out,
        "# snapshot {} of {}, {} to {} after the begin of the record",
        chosen.number,
        chosen.overview.snapshots,
        format_time(s.start_ns.saturating_sub(base_ns)),
        format_time(s.end_ns.saturating_sub(base_ns)),
    )?;
    writeln!(out, "# rate: {} (100 % is {})", rate_words(s), format_hz(hz(1.0, s.sample_us)))?;
    writeln!(out, "# age: for how long the rate has been about the same; temp: 99 hot to 0 cold")?;
    writeln!(out, "#     size      rate        Hz         age  temp  {:<25}  mapping", "addresses")?;
    let regions = hot_first(s);
    let shown = options.limit.unwrap_or(usize::MAX).min(regions.len());
    for r in &regions[..shown] {
        let row = access_region(r, s, &chosen.mappings);
        let (rate, hz) = match (row.rate, row.hz) {
            (Some(rate), Some(hz)) => (format_percent(rate), format_hz(hz)),
            _ => ("not seen".to_owned(), "-".to_owned()),
        };
        let temperature = row.temperature.map_or_else(|| "-".to_owned(), |t| t.to_string());
        writeln!(
            out,
            "{:>10} {rate:>9} {hz:>9} {:>11} {temperature:>5}  {:<25}  {}",
            format_size(row.size),
            format_us(row.age_us),
            format!("{:x}-{:x}", row.start, row.end),
            row.mapping.map_or("-", names::short),
        )?;
    }
    if shown < regions.len() {
        writeln!(out, "# and {} more regions", regions.len() - shown)?;
    }
    write_totals(&chosen.totals(s), out)?;
    match chosen.uses() {
        Some(uses) => write_mappings(&uses, out),
        None => Ok(()),
    }
}

fn write_totals(t: &Totals, out: &mut dyn Write) -> Result<(), ViewError> {
    let within = t.within_ns.map_or(String::new(), |ns| format!(" within {}", threshold(ns)));
    write!(out, "# accessed{within} {}, not accessed {}", format_size(t.accessed), format_size(t.not_accessed))?;
    if t.not_observable > 0 {
        write!(out, ", could not be observed {}", format_size(t.not_observable))?;
    }
    if t.not_visited > 0 {
        let why = if t.basis == Basis::Pages { "not resolved" } else { "not looked at yet" };
        write!(out, ", {why} {}", format_size(t.not_visited))?;
    }
    writeln!(out)?;
    Ok(())
}

fn write_mappings(uses: &[MappingUse], out: &mut dyn Write) -> Result<(), ViewError> {
    writeln!(out, "# pages:    size   resident   accessed       cold  not seen  mapping, most cold memory first")?;
    let (shown, rest) = uses.split_at(MAPPINGS.min(uses.len()));
    for u in shown {
        let p = &u.pages;
        let [size, resident, accessed, cold, unseen] =
            [u.bytes, p.resident, p.accessed, p.cold, p.not_observable + p.not_resolved].map(format_size);
        let name = names::short(&u.name);
        writeln!(out, "# {size:>14} {resident:>10} {accessed:>10} {cold:>10} {unseen:>9}  {name}")?;
    }
    if !rest.is_empty() {
        writeln!(out, "# and {} more mappings", rest.len())?;
    }
    Ok(())
}

impl Chosen {
    /// By the pages in force, where they are known; else by regions.
    fn totals(&self, s: &Snapshot) -> Totals {
        let figures = self.pages.as_ref().and_then(|f| PageFigures::of(std::iter::once(&f.total())));
        let Some(p) = figures.map(|f| f.divided(NS_PER_S)) else { return totals(s) };
        Totals {
            basis: Basis::Pages,
            within_ns: Some(p.within_ns),
            accessed: p.accessed,
            not_accessed: p.cold,
            not_observable: p.not_observable,
            not_visited: p.not_resolved,
        }
    }

    fn uses(&self) -> Option<Vec<MappingUse>> {
        self.pages.as_ref().map(|f| mapping_uses(&f.mappings, &self.mappings, NS_PER_S))
    }
}

fn choose(
    events: &(impl Replay + ?Sized),
    overview: &Overview,
    options: &AccessOptions,
) -> Result<Vec<Chosen>, ViewError> {
    let limit_ns = options.at_ns.map_or(u64::MAX, |at| overview.start_ns.saturating_add(at));
    let mut chosen = Keyed::new();
    for t in overview.select(options.target)? {
        let nothing = || Chosen { overview: t.clone(), snapshot: None, number: 0, mappings: Vec::new(), pages: None };
        chosen.entry(t.info.target, nothing);
    }
    events.replay(&mut |event| {
        let (target, time_ns) = match event {
            Event::Snapshot(s) => (s.target, s.start_ns),
            Event::Mappings { target, time_ns, .. } => (*target, *time_ns),
            Event::Pages(f) => (f.target, f.since_ns),
            _ => return Ok(()),
        };
        let Some(c) = chosen.get_mut(&target) else { return Ok(()) };
        match event {
            // The first mappings may be a little younger than the first snapshot's begin.
            Event::Mappings { mappings, .. } if time_ns <= limit_ns || c.mappings.is_empty() => {
                c.mappings.clone_from(mappings);
            }
            Event::Snapshot(s) if time_ns <= limit_ns => {
                c.number += 1;
                c.snapshot = Some(s.clone());
            }
            Event::Pages(f) if time_ns <= limit_ns => c.pages = Some(PageFrame { tables: Vec::new(), ..f.clone() }),
            _ => {}
        }
        Ok(())
    })?;
    Ok(chosen.into_items())
}

fn hot_first(s: &Snapshot) -> Vec<&RegionInfo> {
    let mut regions: Vec<&RegionInfo> = s.regions.iter().collect();
    regions.sort_by_key(|r| (Reverse(temperature(r, s)), Reverse(r.nr_accesses), r.start));
    regions
}

fn access_region<'a>(r: &RegionInfo, s: &Snapshot, mappings: &'a [Mapping]) -> AccessRegion<'a> {
    let rate = rate(r, s);
    AccessRegion {
        start: r.start,
        end: r.end,
        size: r.len(),
        nr_accesses: r.nr_accesses,
        rate,
        hz: rate.map(|rate| hz(rate, s.sample_us)),
        age: r.age,
        age_us: age_ns(r, s) / 1000,
        temperature: temperature(r, s),
        mapping: names::mapping_of(mappings, &AddrRange::new(r.start, r.end)).map(names::full),
    }
}

fn totals(s: &Snapshot) -> Totals {
    let mut t = Totals {
        basis: Basis::Regions,
        within_ns: None,
        accessed: 0,
        not_accessed: 0,
        not_observable: 0,
        not_visited: 0,
    };
    for r in &s.regions {
        if r.is_blind() {
            t.not_observable += r.len();
        } else if r.is_unvisited() {
            t.not_visited += r.len();
        } else {
            t.accessed += r.working_set();
            t.not_accessed += r.len() - r.working_set();
        }
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, paged_record, region, seen, small_record, snapshot, unvisited};
    use isotherm_core::target::TargetInfo;

    fn text(count: u64, options: &AccessOptions) -> String {
        let mut out = Vec::new();
        write_text(&small_record(count), options, &mut out).expect("writes to memory");
        String::from_utf8(out).expect("is text")
    }

    #[test]
    fn one_look_an_interval_is_a_share_of_memory() {
        let looks = snapshot(0, 0, Vec::new());
        assert!(rate_words(&looks).starts_with("share of the 20 sampling intervals of 5.00 ms"));
        let look = Snapshot { sample_us: 100_000, aggr_us: 100_000, ..looks };
        let words = "share of the resident memory that was found accessed by the one look of the interval of 100 ms";
        assert_eq!(rate_words(&look), words);
    }

    #[test]
    fn the_last_snapshot_hot_first() {
        let expected = "\
# target 0: server --port 1 (pid 4242)
# snapshot 30 of 30, 2.90 s to 3.00 s after the begin of the record
# rate: share of the 20 sampling intervals of 5.00 ms in which a page was found accessed (100 % is 200 Hz)
# age: for how long the rate has been about the same; temp: 99 hot to 0 cold
#     size      rate        Hz         age  temp  addresses                  mapping
  4.00 MiB     100 %    200 Hz      2.90 s    75  550000000000-550000400000  [heap]
  2.00 MiB       5 %     10 Hz        0 ns    26  7f8000000000-7f8000200000  libdemo.so.1
  12.0 MiB       0 %      0 Hz      2.90 s    22  550000400000-550001000000  [heap]
  64.0 MiB       0 %      0 Hz      2.90 s    22  7f0000000000-7f0004000000  anon
  1.00 MiB  not seen         -      2.90 s     -  7f9000000000-7f9000100000  [anon:locked]
# accessed 6.00 MiB, not accessed 76.0 MiB, could not be observed 1.00 MiB
";
        assert_eq!(text(30, &AccessOptions::default()), expected);
    }

    #[test]
    fn what_nobody_looked_at_has_no_rate() {
        let regions = vec![unvisited(region(0, 3 * MIB, 0, 0)), seen(region(3 * MIB, 4 * MIB, 0, 0), 10, 0)];
        let events = [
            Event::Target(TargetInfo { target: 0, pid: Some(1), name: "x".into() }),
            Event::Snapshot(snapshot(0, 0, regions)),
        ];
        let (mut text, mut json) = (Vec::new(), Vec::new());
        write_text(&events[..], &AccessOptions::default(), &mut text).expect("writes to memory");
        let text = String::from_utf8(text).expect("is text");
        assert!(text.contains("  3.00 MiB  not seen         -"), "{text}");
        assert!(text.contains("  1.00 MiB       0 %      0 Hz"), "{text}");
        assert!(text.ends_with("# accessed 0 B, not accessed 1.00 MiB, not looked at yet 3.00 MiB\n"), "{text}");
        write_json(&events[..], &AccessOptions::default(), &mut json).expect("writes to memory");
        let v: serde_json::Value = serde_json::from_slice(&json).expect("one line of JSON");
        assert_eq!(v["totals"]["not_visited"], 3 << 20);
        assert!(v["regions"][1]["rate"].is_null() && v["regions"][1]["nr_accesses"] == 0, "{v}");
    }

    #[test]
    fn a_time_and_a_limit() {
        let options = AccessOptions { at_ns: Some(350_000_000), limit: Some(1), ..Default::default() };
        let text = text(30, &options);
        assert!(text.contains("# snapshot 4 of 30, 300 ms to 400 ms"), "{text}");
        assert!(text.contains("  6.00 MiB     100 %"), "{text}");
        assert!(text.contains("# and 4 more regions"), "{text}");
    }

    #[test]
    fn json_says_null_for_what_was_not_seen() {
        let mut out = Vec::new();
        write_json(&small_record(2), &AccessOptions::default(), &mut out).expect("writes to memory");
        let v: serde_json::Value = serde_json::from_slice(&out).expect("one line of JSON");
        assert_eq!(v["totals"]["not_observable"], 1 << 20);
        assert_eq!(v["regions"][0]["mapping"], "[heap]");
        assert_eq!(v["regions"][0]["hz"], 200.0);
        assert!(v["regions"][4]["rate"].is_null());
    }

    #[test]
    fn a_time_past_the_end_is_not_passed_over_in_silence() {
        let of = |at_ns| {
            let mut out = Vec::new();
            let options = AccessOptions { at_ns, ..Default::default() };
            write_text(&paged_record(1, 3), &options, &mut out).expect("writes to memory");
            String::from_utf8(out).expect("is text")
        };
        assert!(of(Some(3_600_000_000_000)).starts_with("# the record ends after 3.00 s"));
        assert!(!of(Some(1_500_000_000)).contains("the record ends"));
        assert!(!of(None).contains("the record ends"));
    }

    #[test]
    fn each_target_has_its_own_snapshot_in_order_of_their_numbers() {
        let events: Vec<Event> = [9, 4, 7, 4, 9, 9]
            .into_iter()
            .zip(0..)
            .map(|(target, i)| Event::Snapshot(snapshot(target, i, vec![region(0, (i + 1) * MIB, 0, 0)])))
            .collect();
        let overview = Overview::read(&events).expect("has snapshots");
        let chosen = choose(&events, &overview, &AccessOptions::default()).expect("has snapshots");
        let figures = |c: &Chosen| {
            let bytes = c.snapshot.as_ref().map(|s| s.regions[0].len() / MIB);
            (c.overview.info.target, c.number, bytes)
        };
        let figures: Vec<_> = chosen.iter().map(figures).collect();
        assert_eq!(figures, [(4, 2, Some(4)), (7, 1, Some(3)), (9, 3, Some(6))]);
    }

    #[test]
    fn totals_are_those_of_the_pages_in_force() {
        let at = |at_ns| {
            let mut out = Vec::new();
            let options = AccessOptions { at_ns, ..Default::default() };
            write_text(&paged_record(1, 3), &options, &mut out).expect("writes to memory");
            String::from_utf8(out).expect("is text")
        };
        let last = at(None);
        let tail: Vec<&str> = last.lines().skip_while(|l| !l.starts_with("# accessed")).collect();
        assert_eq!(
            tail,
            [
                "# accessed within 1 s 5.25 MiB, not accessed 76.8 MiB, could not be observed 1.00 MiB",
                "# pages:    size   resident   accessed       cold  not seen  mapping, most cold memory first",
                "#       64.0 MiB   64.0 MiB   1.25 MiB   62.8 MiB       0 B  7f0000000000-7f0004000000",
                "#       16.0 MiB   16.0 MiB   4.00 MiB   12.0 MiB       0 B  [heap]",
                "#       2.00 MiB   2.00 MiB        0 B   2.00 MiB       0 B  libdemo.so.1",
                "#       1.00 MiB   1.00 MiB        0 B        0 B  1.00 MiB  [anon:locked]",
            ]
        );
        assert!(
            at(Some(1_500_000_000)).contains("# accessed within 1 s 6.25 MiB"),
            "the second second uses the library"
        );
    }
}
