//! Text of `perf script` or `trace-cmd report` with `damon_aggregated` events, a line per region.
//!
//! Both layouts of the event are read: `target_id=N nr_regions=N START-END: NR AGE`, and the first one, which had
//! `pid=N` and no age. A line's time stands before the event's name; a snapshot's time is its first line's.

use super::Notes;
use super::lines::{Lines, TextLine};
use super::timeline::{Ended, Survey, Timeline};
use crate::error::{ReadError, Warning};
use crate::format::MAX_REGIONS;
use crate::input::{Input, Sink};
use isotherm_core::snapshot::RegionInfo;

/// What a line of use tells.
#[derive(Debug, PartialEq)]
enum Reported {
    Region {
        time_ns: u64,
        id: u64,
        is_pid: bool,
        nr_regions: usize,
        region: RegionInfo,
    },
    /// The kernel tuned its intervals.
    Sample {
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
    let mut sample_us = None;
    let mut open: Option<(Ended, usize, u64)> = None;
    while let Some((number, line)) = lines.next().map_err(|error| ReadError::Io { origin: origin.clone(), error })? {
        let reported = match line {
            TextLine::Text(text) => parse_line(&text),
            TextLine::TooLong => Err("it is too long"),
        };
        let (time_ns, id, nr_regions, region) = match reported {
            Ok(Some(Reported::Region { time_ns, id, is_pid, nr_regions, region })) => {
                if *pids.get_or_insert(is_pid) != is_pid {
                    notes.skip(number, "it tells a pid where others tell a target id, or the other way round");
                    continue;
                }
                (time_ns, id, nr_regions, region)
            }
            Ok(Some(Reported::Sample { sample_us: s })) => {
                sample_us = Some(s);
                continue;
            }
            // Comments and other events are no fault.
            Ok(None) => continue,
            Err(why) => {
                notes.skip(number, why);
                continue;
            }
        };
        // Lost lines: the snapshot in hand is not complete, yet this line belongs to another.
        let foreign = |e: &Ended| e.id != id || e.regions.last().is_some_and(|last| region.start < last.end);
        if let Some((ended, expected, first)) = open.take_if(|(e, n, _)| foreign(e) || *n != nr_regions) {
            incomplete(&ended, expected, first, notes);
            each(ended, notes)?;
        }
        let (ended, expected, _) = open
            .get_or_insert_with(|| (Ended { id, end_ns: time_ns, sample_us, regions: Vec::new() }, nr_regions, number));
        ended.regions.push(region);
        if ended.regions.len() >= *expected
            && let Some((ended, _, _)) = open.take()
        {
            each(ended, notes)?;
        }
    }
    if let Some((ended, expected, first)) = open.take() {
        incomplete(&ended, expected, first, notes);
        each(ended, notes)?;
    }
    Ok(pids)
}

fn incomplete(ended: &Ended, expected: usize, first: u64, notes: &mut Notes) {
    let missing = expected.saturating_sub(ended.regions.len());
    notes.skip(first, &format!("of the snapshot that begins here {missing} of {expected} regions are missing"));
}

/// `Ok(None)`: the line is of another kind.
fn parse_line(line: &str) -> Result<Option<Reported>, &'static str> {
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
        return sample.map(|sample_us| Some(Reported::Sample { sample_us })).ok_or("the tuned interval is missing");
    }
    let time_ns = before
        .and_then(|w| parse_seconds(w.strip_suffix(':').unwrap_or(w)))
        .ok_or("the time before the event's name is missing or no number of seconds")?;
    let (id, is_pid) = match rest.next().and_then(|w| w.split_once('=')) {
        Some(("target_id", n)) => (n.parse().ok(), false),
        Some(("pid", n)) => (n.parse::<u32>().ok().map(u64::from), true),
        _ => (None, false),
    };
    let id = id.ok_or("the target is missing")?;
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
    Ok(Some(Reported::Region { time_ns, id, is_pid, nr_regions, region }))
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
        let expected = |id, is_pid, age| Reported::Region {
            time_ns: 82_877_315_633_000,
            id,
            is_pid,
            nr_regions: 17,
            region: region(4096, 8192, 5, age),
        };
        for begin in [
            "kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated:",
            "kdamond.x xxxx xxxx 82877.315633: damon:damon_aggregated:",
            "kdamond.0-129062 [005] ..... 82877.315633: damon_aggregated:    ",
            " my thread 4452 [000] 82877.315633000: damon:damon_aggregated:",
        ] {
            assert_eq!(reported(&format!("{begin} target_id=3 nr_regions=17 4096-8192: 5 7")), expected(3, false, 7));
        }
        assert_eq!(
            reported("kdamond.0 4452 [000] 82877.315633: damon:damon_aggregated: pid=42 nr_regions=17 4096-8192: 5"),
            expected(42, true, 0)
        );
        assert_eq!(
            reported("a 1 [0] 1.0: damon:damon_monitor_intervals_tune: sample_us=80000"),
            Reported::Sample { sample_us: 80_000 }
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
