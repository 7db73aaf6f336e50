//! Text of `perf script` or `trace-cmd report` with `damon_aggregated` events, a line per region.
//!
//! Both layouts of the event are read: `target_id=N nr_regions=N START-END: NR AGE`, and the first one, which had
//! `pid=N` and no age. A line's time stands before the event's name; a snapshot's time is its first line's. A thread named
//! `kdamond.N` tells which kdamond's targets they are.

use super::lines::{Lines, TextLine};
use super::open::{Open, OpenSnapshots};
use super::timeline::{Ended, Survey, Timeline};
use super::{Notes, TargetKey};
use crate::error::{ReadError, Warning};
use crate::format::MAX_REGIONS;
use crate::input::{Input, Sink};
use isotherm_core::snapshot::RegionInfo;
use std::collections::HashMap;

/// What a line of use tells.
#[derive(Debug, PartialEq)]
enum Reported {
    Region {
        time_ns: u64,
        key: TargetKey,
        is_pid: bool,
        nr_regions: usize,
        region: RegionInfo,
    },
    /// The kernel tuned its intervals.
    Sample {
        kdamond: Option<u32>,
        sample_us: u64,
    },
}

/// Hands out the events of such a text.
pub(crate) fn read(input: Input, sink: &mut Sink<'_>) -> Result<Vec<Warning>, ReadError> {
    let input = input.make_seekable()?;
    let origin = input.origin().to_owned();
    let mut survey = Survey::default();
    let is_pid = parse(input.again()?, &mut Notes::default(), &mut |e, _| {
        survey.add(&e);
        Ok(())
    })?;
    let Some(is_pid) = is_pid else {
        return Err(ReadError::Foreign { origin, looks_like: "a text without damon_aggregated events".into() });
    };
    let mut timeline = Timeline::new(survey, is_pid);
    let mut notes = Notes::default();
    parse(input, &mut notes, &mut |e, notes| timeline.add(e, notes, sink).map_err(ReadError::Sink))?;
    Ok(notes.finish())
}

type Each<'a> = dyn FnMut(Ended, &mut Notes) -> Result<(), ReadError> + 'a;

/// Returns whether targets are named by pid; `None` if there is no event.
fn parse(input: Input, notes: &mut Notes, each: &mut Each<'_>) -> Result<Option<bool>, ReadError> {
    let origin = input.origin().to_owned();
    let mut lines = Lines::new(input.into_stream()?);
    let mut pids = None;
    let mut sample_us: HashMap<Option<u32>, u64> = HashMap::new();
    let mut open = OpenSnapshots::default();
    while let Some((number, line)) = lines.next().map_err(|error| ReadError::Io { origin: origin.clone(), error })? {
        let reported = match line {
            TextLine::Text(text) => parse_line(&text),
            TextLine::TooLong => Err("it is too long"),
        };
        let (time_ns, key, nr_regions, region) = match reported {
            Ok(Some(Reported::Region { time_ns, key, is_pid, nr_regions, region })) => {
                if *pids.get_or_insert(is_pid) != is_pid {
                    notes.skip(number, "it tells a pid where others tell a target id, or the other way round");
                    continue;
                }
                (time_ns, key, nr_regions, region)
            }
            Ok(Some(Reported::Sample { kdamond, sample_us: tuned })) => {
                sample_us.insert(kdamond, tuned);
                continue;
            }
            // Comments and other events are no fault.
            Ok(None) => continue,
            Err(why) => {
                notes.skip(number, why);
                continue;
            }
        };
        let sample_us = sample_us.get(&key.kdamond).copied();
        let begun = Ended { key, end_ns: time_ns, sample_us, regions: Vec::new() };
        for done in open.add(Open { ended: begun, expected: nr_regions, first: number }, region) {
            hand_out(done, notes, each)?;
        }
    }
    for left in open.finish() {
        hand_out(left, notes, each)?;
    }
    Ok(pids)
}

fn hand_out(open: Open, notes: &mut Notes, each: &mut Each<'_>) -> Result<(), ReadError> {
    let Open { expected, first, .. } = open;
    if !open.is_whole() {
        let missing = expected - open.ended.regions.len();
        notes.skip(first, &format!("of the snapshot that begins here {missing} of {expected} regions are missing"));
    }
    each(open.ended, notes)
}

/// Whether a line tells of a tracepoint: a time and the event's name, each with a colon behind it.
pub(crate) fn is_event(line: &str) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let is_time = |word: &str| word.strip_suffix(':').is_some_and(|time| parse_seconds(time).is_some());
    words.windows(2).any(|pair| is_time(pair[0]) && pair[1].ends_with(':'))
}

/// `Ok(None)`: the line is of another kind.
fn parse_line(line: &str) -> Result<Option<Reported>, &'static str> {
    let kdamond = kdamond_of(line);
    let mut words = line.split_ascii_whitespace();
    let (mut before, mut event) = (None, None);
    for word in words.by_ref() {
        let name = word.rsplit(':').find(|part| !part.is_empty()).unwrap_or_default();
        if word.ends_with(':') && matches!(name, "damon_aggregated" | "damon_monitor_intervals_tune") {
            event = Some(name);
            break;
        }
        before = Some(word);
    }
    let Some(event) = event else { return Ok(None) };
    let mut rest = words.peekable();
    if event == "damon_monitor_intervals_tune" {
        let sample = rest.next().and_then(|w| w.strip_prefix("sample_us=")).and_then(|n| n.parse().ok());
        return sample
            .map(|sample_us| Some(Reported::Sample { kdamond, sample_us }))
            .ok_or("the tuned interval is missing");
    }
    let time_ns = before
        .and_then(|w| parse_seconds(w.strip_suffix(':').unwrap_or(w)))
        .ok_or("the time before the event's name is missing or no number of seconds")?;
    let (id, is_pid) = match rest.next().and_then(|w| w.split_once('=')) {
        Some(("target_id", n)) => (n.parse().ok(), false),
        Some(("pid", n)) => (n.parse::<u32>().ok().map(u64::from), true),
        _ => (None, false),
    };
    let key = TargetKey { kdamond, ..TargetKey::of_id(id.ok_or("the target is missing")?) };
    let nr_regions = rest.next().and_then(|w| w.strip_prefix("nr_regions=")).and_then(|n| n.parse().ok());
    let nr_regions = nr_regions.filter(|n| (1..=MAX_REGIONS).contains(n)).ok_or("the number of regions is wrong")?;
    let range = rest.next().and_then(|w| w.strip_suffix(':')).and_then(|w| w.split_once('-'));
    let (start, end) = range
        .and_then(|(a, b)| Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?)))
        .filter(|(a, b)| a <= b)
        .ok_or("the address range is wrong")?;
    let nr: i64 = rest.next().and_then(|n| n.parse().ok()).ok_or("the number of accesses is missing")?;
    let age: i64 = match rest.next() {
        None | Some("None") => 0,
        Some(n) => n.parse().map_err(|_| "the age is no number")?,
    };
    // -1 stands in false snapshots and for ages that are not known.
    let figure = |n: i64| u32::try_from(n.max(0)).map_err(|_| "a figure is too large");
    let region = RegionInfo { start, end, nr_accesses: figure(nr)?, age: figure(age)?, evidence: None, accessed: None };
    Ok(Some(Reported::Region { time_ns, key, is_pid, nr_regions, region }))
}

/// The number of the kdamond whose thread wrote a line: `kdamond.N PID` or `kdamond.N-PID`.
fn kdamond_of(line: &str) -> Option<u32> {
    let thread = line.split_ascii_whitespace().next()?.strip_prefix("kdamond.")?;
    thread.split_once('-').map_or(thread, |(number, _)| number).parse().ok()
}

/// Nanoseconds of `sec.fraction`, exactly.
fn parse_seconds(text: &str) -> Option<u64> {
    let (sec, fraction) = text.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let scale = 10u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let nanos = fraction.parse::<u64>().ok()? * scale;
    sec.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(line: &str) -> Reported {
        parse_line(line).unwrap().unwrap()
    }

    fn region(start: u64, end: u64, nr_accesses: u32, age: u32) -> RegionInfo {
        RegionInfo { start, end, nr_accesses, age, evidence: None, accessed: None }
    }

    #[test]
    fn all_layouts_of_the_line_are_read() {
        let expected = |kdamond, id, is_pid, age| Reported::Region {
            time_ns: 82_877_315_633_000,
            key: TargetKey { kdamond, ..TargetKey::of_id(id) },
            is_pid,
            nr_regions: 17,
            region: region(4096, 8192, 5, age),
        };
        for (begin, kdamond) in [
            ("kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated:", Some(0)),
            ("kdamond.x xxxx xxxx 82877.315633: damon:damon_aggregated:", None),
            ("kdamond.12-129062 [005] ..... 82877.315633: damon_aggregated:    ", Some(12)),
            (" my thread 4452 [000] 82877.315633000: damon:damon_aggregated:", None),
        ] {
            let line = format!("{begin} target_id=3 nr_regions=17 4096-8192: 5 7");
            assert_eq!(reported(&line), expected(kdamond, 3, false, 7));
        }
        assert_eq!(
            reported("kdamond.0 4452 [000] 82877.315633: damon:damon_aggregated: pid=42 nr_regions=17 4096-8192: 5"),
            expected(Some(0), 42, true, 0)
        );
        assert_eq!(
            reported("a 1 [0] 1.0: damon:damon_monitor_intervals_tune: sample_us=80000"),
            Reported::Sample { kdamond: None, sample_us: 80_000 }
        );
    }

    #[test]
    fn other_lines_are_passed_over_and_broken_ones_named() {
        assert_eq!(parse_line("# comment"), Ok(None));
        assert_eq!(parse_line("x 1 [0] 1.0: sched:sched_switch: a ==> b"), Ok(None));
        for broken in [
            "damon:damon_aggregated:",
            "k 1 [0] x: damon:damon_aggregated: target_id=0 nr_regions=1 0-1: 0 0",
            "k 1 [0] 1.0: damon:damon_aggregated: target_id=0 nr_regions=0 0-1: 0 0",
            "k 1 [0] 1.0: damon:damon_aggregated: target_id=0 nr_regions=1 9-1: 0 0",
            "k 1 [0] 1.0: damon:damon_aggregated: target_id=0 nr_regions=1 0-1: 99999999999 0",
            "k 1 [0] 99999999999.0: damon:damon_aggregated: target_id=0 nr_regions=1 0-1: 0 0",
        ] {
            assert!(parse_line(broken).is_err(), "{broken}");
        }
    }
}
