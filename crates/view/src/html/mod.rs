//! A report as one HTML file that needs nothing else: summary, heatmap to zoom into, working-set curve, tables.

use crate::draw::base64;
pub use crate::draw::svg::escape;
use crate::error::ViewError;
use crate::heat;
use crate::heat::axis::Layout;
use crate::heat::grid::{Cell, Shown};
use crate::heat::map::{HeatMap, HeatOptions};
use crate::heat::palette::{self, Rgb};
use crate::overview::{Overview, told};
use crate::replay::Replay;
use crate::series::{self, Measure, SeriesOptions};
use crate::summary::confidence::Confidence;
use crate::summary::cost::Cost;
use crate::summary::idle::Idle;
use crate::summary::pages::ResidentPages;
use crate::summary::total::Shared;
use crate::summary::working_set::WorkingSet;
use crate::summary::{Mappings, Resident, Rest, Summaries, Summary};
use isotherm_core::addr::AddrRange;
use serde::Serialize;
use std::io::Write;

/// How pages of reports look.
pub const STYLE: &str = include_str!("style.css");

/// Most rows and columns of cells in the file: enough to zoom in, and some hundred KiB at most.
const MAX_CELLS: (usize, usize) = (1200, 2400);
/// Most points of the working-set curve.
const MAX_POINTS: usize = 4000;
/// Codes of cells below those of rates.
const NOTHING: u8 = 0;
const BLIND: u8 = 1;
const COLD: u8 = 2;
/// The code of the lowest rate above zero; 255 is the highest.
const LOWEST_RATE: u8 = 3;
/// Ages are stored as `log2(1 + 10 s) * 12`: steps of 6 %, up to 68 hours; 0 where nothing was observed.
const AGE_STEPS: f64 = 12.0;

/// What part of the record to show.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageOptions {
    /// Only this target.
    pub target: Option<u32>,
    /// Begin and end of the heatmap, ns after the begin of the record.
    pub time_range: Option<(u64, u64)>,
    /// Addresses of the heatmap.
    pub address_range: Option<AddrRange>,
    /// How its rows are shared out.
    pub layout: Layout,
}

#[derive(Serialize)]
struct PageData {
    /// CLOCK_REALTIME at the begin of the record, ms; `None` for a record that does not tell.
    wall_ms: Option<i64>,
    run: Option<RunData>,
    /// Colours of codes 0 to 255.
    colours: Vec<String>,
    /// All targets together; `None` if there is only one.
    total: Option<TotalData>,
    /// Targets that are not shown one by one; `--target` shows one.
    rest: Option<Rest>,
    targets: Vec<TargetData>,
}

#[derive(Serialize)]
struct TotalData {
    targets: usize,
    /// Those that had ended before the end of the record, which are not among them.
    gone: usize,
    working_set: WorkingSet,
    resident: Option<Resident>,
    pages: Option<ResidentPages>,
    idle: Idle,
    shared: Shared,
}

#[derive(Serialize)]
struct RunData {
    source: Option<String>,
    algorithm: Option<String>,
    kernel: Option<String>,
}

#[derive(Serialize)]
struct TargetData {
    title: String,
    snapshots: u64,
    seconds: f64,
    working_set: WorkingSet,
    resident: Option<Resident>,
    pages: Option<ResidentPages>,
    idle: Idle,
    mappings: Mappings,
    cost: Option<Cost>,
    above_budget: bool,
    confidence: Option<Confidence>,
    /// Seconds after the begin of the record and bytes.
    wss: Vec<(f64, u64)>,
    /// `None`: nothing of it was recorded where the page was asked to look.
    map: Option<MapData>,
    /// Why there is no map.
    no_map: Option<String>,
}

#[derive(Serialize)]
struct MapData {
    rows: usize,
    cols: usize,
    from: f64,
    to: f64,
    /// Base64 of deflated bytes: a code for each cell, row by row from the lowest addresses.
    codes: String,
    /// The same for ages.
    ages: String,
    top_rate: f64,
    decades: i32,
    lowest_rate_code: u8,
    age_steps: f64,
    /// Sampling intervals that rates are a share of; null: of pages.
    sample_us: Option<(u64, u64)>,
    /// What a rate is.
    rate_text: String,
    mapped: u64,
    compressed: u64,
    absent: u64,
    stretches: Vec<StretchData>,
    folds: Vec<(usize, u64, u64)>,
    /// First row, row after the last, name.
    names: Vec<(f64, f64, String)>,
}

#[derive(Serialize)]
struct StretchData {
    from_row: usize,
    to_row: usize,
    bytes: u64,
    compressed: bool,
    /// Address ranges that the rows stand for, in order.
    ranges: Vec<(u64, u64)>,
}

pub fn page(events: &impl Replay, options: &PageOptions) -> Result<String, ViewError> {
    let overview = Overview::read(events)?;
    let targets = overview.select(options.target)?;
    let title = match targets.as_slice() {
        [one] => one.title(),
        many => format!("{} and {} more", many[0].title(), many.len() - 1),
    };
    let run = overview.run.as_ref();
    let summaries = Summaries::read(events, &overview, &targets)?;
    // A heatmap to zoom into takes its room: those that hold most cold memory have one.
    let (shown, rest) = summaries.shown();
    let mut shown: Vec<(TargetData, Option<ViewError>)> = shown
        .into_iter()
        .map(|summary| target_data(events, &overview, summary.clone(), options))
        .collect::<Result<_, ViewError>>()?;
    // The first is the one that is shown first.
    shown.sort_by_key(|(data, _)| data.map.is_none());
    let (shown, mut without): (Vec<TargetData>, Vec<Option<ViewError>>) = shown.into_iter().unzip();
    if without.iter().all(Option::is_some)
        && let Some(Some(error)) = without.pop()
    {
        return Err(error);
    }
    let total = &summaries.total;
    let data = PageData {
        wall_ms: run
            .filter(|r| r.realtime_offset_ns != 0)
            .map(|r| (overview.start_ns as i128 + i128::from(r.realtime_offset_ns)).div_euclid(1_000_000) as i64),
        run: run.map(|r| RunData {
            source: told(&r.source).map(str::to_owned),
            algorithm: told(&r.algorithm).map(str::to_owned),
            kernel: told(&r.kernel).map(str::to_owned),
        }),
        colours: (0..=255).map(|code| colour(code).hex()).collect(),
        total: (targets.len() > 1).then_some(TotalData {
            targets: total.targets,
            gone: summaries.gone(),
            working_set: total.working_set,
            resident: total.resident,
            pages: total.pages,
            idle: total.idle,
            shared: total.shared,
        }),
        rest,
        targets: shown,
    };
    // Inside a script element only `</` and `<!--` could end or confuse it.
    let json = serde_json::to_string(&data)?.replace('<', "\\u003c");
    Ok(filled(
        include_str!("page.html"),
        &[
            ("title", &escape(&title)),
            ("style", STYLE),
            ("script", concat!(include_str!("heatmap.js"), include_str!("page.js"))),
            ("data", &json),
        ],
    ))
}

/// `template` with a value in the place of each `{{name}}`. What stands in a value stays as it is: a program may be
/// called anything.
fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("our own template");
        page += values.iter().find(|value| value.0 == name).expect("all are given").1;
        page += rest;
    }
    page
}

/// A target's data, and why there is no map where there is none.
fn target_data(
    events: &impl Replay,
    overview: &Overview,
    summary: Summary,
    options: &PageOptions,
) -> Result<(TargetData, Option<ViewError>), ViewError> {
    let target = &summary.target;
    let built = HeatMap::build(
        events,
        overview,
        target,
        &HeatOptions {
            rows: MAX_CELLS.0,
            // Intervals are not all alike: two columns each keep their edges sharp.
            cols: MAX_CELLS.1.min(2 * target.snapshots.max(1) as usize),
            time_range: options.time_range,
            address_range: options.address_range,
            layout: options.layout,
        },
    );
    let (map, no_map) = match built {
        Ok(map) => (Some(map_data(&map)?), None),
        Err(error) if error.is_of_one_target() => (None, Some(error)),
        Err(error) => return Err(error),
    };
    let wss = series::read(
        events,
        &SeriesOptions {
            measure: Measure::WorkingSet { min_rate: 0.0 },
            target: Some(target.info.target),
            skip: Some(0),
        },
    )?;
    let seconds = |ns: u64| ns.saturating_sub(overview.start_ns) as f64 / 1e9;
    let points = wss.first().map_or(&[][..], |s| &s.points);
    let data = TargetData {
        title: target.title(),
        snapshots: target.snapshots,
        seconds: target.end_ns.saturating_sub(target.start_ns) as f64 / 1e9,
        working_set: summary.working_set,
        resident: summary.resident,
        pages: summary.pages,
        idle: summary.idle,
        mappings: summary.mappings,
        above_budget: summary.cost.is_some_and(|c| c.is_above_budget()),
        cost: summary.cost,
        confidence: summary.confidence,
        wss: series::envelope(points, MAX_POINTS / 2).map(|p| (seconds(p.time_ns), p.value)).collect(),
        map,
        no_map: no_map.as_ref().map(ToString::to_string),
    };
    Ok((data, no_map))
}

fn map_data(map: &HeatMap) -> Result<MapData, ViewError> {
    let (compressed, absent) = map.hidden();
    let cells = map.grid.cells();
    let sample_us = match map.measure {
        heat::map::Measure::Pages(_) => None,
        heat::map::Measure::Intervals(shortest, longest) => Some((shortest, longest)),
    };
    let names = map.names.iter().map(|n| (map.axis.row(n.from), map.axis.row(n.to), n.name.clone()));
    Ok(MapData {
        rows: map.grid.rows,
        cols: map.grid.cols,
        from: map.seconds(map.grid.start_ns),
        to: map.seconds(map.grid.end_ns),
        codes: pack(cells.iter().map(|c| code(c, map)))?,
        // Pages have no age at which their rate began.
        ages: pack(cells.iter().map(|c| if sample_us.is_some() { age_code(c) } else { 0 }))?,
        top_rate: map.scale.top,
        decades: map.scale.decades,
        lowest_rate_code: LOWEST_RATE,
        age_steps: AGE_STEPS,
        sample_us,
        rate_text: map.rate_text(),
        mapped: map.space.total(),
        compressed,
        absent,
        stretches: map
            .axis
            .stretches
            .iter()
            .map(|s| StretchData {
                from_row: s.rows.start,
                to_row: s.rows.end,
                bytes: s.to - s.from,
                compressed: s.compressed,
                ranges: map.space.addresses(s.from, s.to).iter().map(|r| (r.start, r.end)).collect(),
            })
            .collect(),
        folds: map.axis.folds.iter().map(|f| (f.row, f.unmapped, f.absent)).collect(),
        names: names.filter(|(low, high, _)| high > low).collect(),
    })
}

fn code(cell: &Cell, map: &HeatMap) -> u8 {
    match cell.shown() {
        Shown::Nothing => NOTHING,
        Shown::Blind => BLIND,
        Shown::Rate(0.0) => COLD,
        Shown::Rate(rate) => LOWEST_RATE + (map.scale.position(rate) * f64::from(255 - LOWEST_RATE)).round() as u8,
    }
}

fn colour(code: u8) -> Rgb {
    match code {
        NOTHING => palette::BACKGROUND,
        BLIND => palette::BLIND,
        COLD => palette::COLD,
        rate => {
            let position = f64::from(rate - LOWEST_RATE) / f64::from(255 - LOWEST_RATE);
            palette::colour((1.0 + position * 254.0).round() as u8)
        }
    }
}

fn age_code(cell: &Cell) -> u8 {
    cell.age_s().map_or(0, |age| ((1.0 + age * 10.0).log2() * AGE_STEPS).round().clamp(1.0, 255.0) as u8)
}

fn pack(bytes: impl Iterator<Item = u8>) -> Result<String, ViewError> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&bytes.collect::<Vec<u8>>())?;
    Ok(base64::encode(&encoder.finish()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{paged_record, small_record};
    use isotherm_core::event::Event;

    fn json_of(page: &str) -> serde_json::Value {
        let begin = "<script type=\"application/json\" id=\"data\">";
        let from = page.find(begin).expect("has data") + begin.len();
        let to = from + page[from..].find("</script>").expect("ends");
        serde_json::from_str(&page[from..to]).expect("valid JSON")
    }

    #[test]
    fn a_program_may_be_called_as_a_placeholder() {
        let mut record = small_record(20);
        let named = |event: &mut Event| {
            if let Event::Target(info) = event {
                info.name = "{{data}}{{script}}".into();
            }
        };
        record.iter_mut().for_each(named);
        let page = page(&record, &PageOptions::default()).expect("has snapshots");
        assert!(page.contains("<title>{{data}}{{script}}"), "{}", &page[..400]);
        let title = json_of(&page)["targets"][0]["title"].clone();
        assert!(title.as_str().is_some_and(|title| title.contains("{{data}}{{script}}")), "{title}");
    }

    #[test]
    fn the_page_holds_everything_and_asks_for_nothing() {
        let page = page(&small_record(20), &PageOptions::default()).expect("has snapshots");
        assert!(!page.contains("{{"), "every placeholder is filled");
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            let found = page.find(outside).map(|at| &page[at.saturating_sub(40)..(at + 60).min(page.len())]);
            assert_eq!(found, None, "{outside}");
        }
        let v = json_of(&page);
        let map = &v["targets"][0]["map"];
        assert_eq!(map["cols"], 40);
        assert_eq!(v["targets"][0]["wss"].as_array().map(Vec::len), Some(20));
        assert_eq!(map["names"][0][2], "[heap]");
        assert_eq!(v["colours"].as_array().map(Vec::len), Some(256));
    }

    #[test]
    fn pages_have_shares_and_no_hertz() {
        let v = json_of(&page(&paged_record(2, 3), &PageOptions::default()).expect("has snapshots"));
        assert_eq!((&v["total"]["targets"], &v["total"]["shared"]), (&2.into(), &"counted_for_each_target".into()));
        let target = &v["targets"][1];
        assert!(target["map"]["sample_us"].is_null());
        assert_eq!(target["map"]["rate_text"], "share of the pages accessed in 1.00 s");
        assert_eq!(target["mappings"][0]["name"], "7f0000000000-7f0004000000");
        assert_eq!(target["wss"].as_array().map(Vec::len), Some(3));
        assert_eq!(target["above_budget"], false);
    }

    #[test]
    fn of_many_targets_those_with_most_cold_memory_are_drawn() {
        let v = json_of(&page(&paged_record(12, 12), &PageOptions::default()).expect("has snapshots"));
        assert_eq!(v["targets"].as_array().map(Vec::len), Some(10));
        assert_eq!((&v["total"]["targets"], &v["rest"]["targets"]), (&12.into(), &2.into()));
        let cold = |v: &serde_json::Value| v["idle"]["cold"][0]["bytes"].as_u64();
        let rest = v["rest"]["cold"].as_u64().expect("is reported");
        assert_eq!(cold(&v["total"]).expect("is reported"), rest + 10 * cold(&v["targets"][0]).expect("is reported"));
    }

    #[test]
    fn targets_that_had_ended_are_told_and_what_is_not_known_is_null() {
        let mut events = paged_record(12, 5);
        let ended = Event::End {
            time_ns: crate::testdata::BASE_NS + 1_000_000_000,
            target: 3,
            why: isotherm_core::target::TargetEnd::Exited,
        };
        events.retain(|event| !matches!(event, Event::Snapshot(s) if s.target == 3 && s.end_ns > crate::testdata::BASE_NS + 1_000_000_000));
        events.push(ended);
        let v = json_of(&page(&events, &PageOptions::default()).expect("has snapshots"));
        assert_eq!((&v["total"]["targets"], &v["total"]["gone"]), (&11.into(), &1.into()));
        assert!(v["total"]["idle"]["cold"][0]["bytes"].is_null() && v["rest"]["cold"].is_null(), "{}", v["rest"]);
    }

    #[test]
    fn a_target_of_which_nothing_was_recorded_there_has_no_map() {
        let events = paged_record(2, 5);
        let early = |event: &Event| match event {
            Event::Snapshot(s) => s.target == 0 || s.end_ns < crate::testdata::BASE_NS + 2_000_000_000,
            Event::Pages(f) => f.target == 0,
            _ => true,
        };
        let events: Vec<Event> = events.into_iter().filter(early).collect();
        let late = PageOptions { time_range: Some((3_000_000_000, 5_000_000_000)), ..Default::default() };
        let v = json_of(&page(&events, &late).expect("one has"));
        let of = |map: bool| v["targets"].as_array().into_iter().flatten().find(|t| t["map"].is_null() != map);
        assert!(of(true).is_some_and(|t| t["no_map"].is_null()), "{v}");
        assert!(of(false).is_some_and(|t| t["no_map"].as_str().is_some_and(|why| why.contains("it was watched"))));
        let error = page(&events, &PageOptions { target: Some(1), ..late }).expect_err("nothing of any");
        assert!(error.is_of_one_target(), "{error}");
    }

    #[test]
    fn names_cannot_break_out() {
        let mut events = small_record(2);
        for e in &mut events {
            if let Event::Target(t) = e {
                t.name = "x </script><script>alert(1)</script> <b>".into();
            }
        }
        let page = page(&events, &PageOptions::default()).expect("has snapshots");
        assert!(!page.contains("alert(1)</script>"));
        assert!(json_of(&page)["targets"][0]["title"].as_str().is_some_and(|t| t.contains("</script>")));
    }
}
