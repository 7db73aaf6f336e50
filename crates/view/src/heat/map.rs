//! A target's heatmap, ready to be drawn.

use super::axis::{Axis, Layout};
use super::gapless::{GaplessSpace, NamedPart, SpaceBuilder, named_parts};
use super::grid::Grid;
use super::profile::Profile;
use super::scale::RateScale;
use crate::error::ViewError;
use crate::overview::{Overview, TargetOverview};
use crate::replay::Replay;
use crate::units::{format_hz, format_us, hz};
use isotherm_core::addr::AddrRange;
use isotherm_core::event::Event;
use isotherm_core::history::frame::PageFrame;
use isotherm_core::snapshot::Snapshot;
use isotherm_core::units::format_time;

/// What part of a record to draw, and how finely.
#[derive(Debug, Clone, Copy)]
pub struct HeatOptions {
    /// Rows of addresses, at most.
    pub rows: usize,
    pub cols: usize,
    /// Begin and end, ns after the begin of the record.
    pub time_range: Option<(u64, u64)>,
    /// Only these addresses; nothing mapped in them is folded.
    pub address_range: Option<AddrRange>,
    /// How rows are shared out.
    pub layout: Layout,
}

/// What a heatmap is drawn from.
enum Reported<'a> {
    Regions(&'a Snapshot),
    Pages(&'a PageFrame),
}

#[derive(Debug, Clone)]
pub struct HeatMap {
    /// Whose memory it is.
    pub target: TargetOverview,
    /// Begin of the record, ns: time zero of the axis.
    pub base_ns: u64,
    pub space: GaplessSpace,
    /// Names along the space.
    pub names: Vec<NamedPart>,
    pub axis: Axis,
    pub grid: Grid,
    pub scale: RateScale,
    /// What rates are a share of.
    pub measure: Measure,
}

/// What rates are a share of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Of a cell's pages: those accessed within about this time, ns.
    Pages(u64),
    /// Of sampling intervals, of which these are the shortest and the longest, microseconds: those in which a page was
    /// accessed.
    Intervals(u64, u64),
}

impl HeatMap {
    /// Reads the events three times: for the address space, for what was accessed in it, and for the cells.
    pub fn build(
        events: &(impl Replay + ?Sized),
        overview: &Overview,
        target: &TargetOverview,
        options: &HeatOptions,
    ) -> Result<Self, ViewError> {
        Self::drawn(events, overview, target, options, time_range(overview, options)?, Some(target.end_ns))
    }

    /// Like [`build`](Self::build), over `[start, end)` in ns of CLOCK_MONOTONIC, also where the record has not begun
    /// or has ended; the options' time range is not looked at.
    pub fn between(
        events: &(impl Replay + ?Sized),
        overview: &Overview,
        target: &TargetOverview,
        options: &HeatOptions,
        time: (u64, u64),
    ) -> Result<Self, ViewError> {
        Self::drawn(events, overview, target, options, time, None)
    }

    /// `watched_to_ns`: until then the target was watched; what came after the last frame of pages was not seen. `None`: it still is.
    fn drawn(
        events: &(impl Replay + ?Sized),
        overview: &Overview,
        target: &TargetOverview,
        options: &HeatOptions,
        (start_ns, end_ns): (u64, u64),
        watched_to_ns: Option<u64>,
    ) -> Result<Self, ViewError> {
        let id = target.info.target;
        let in_time = |start: u64, end: u64| start < end_ns && start_ns < end;

        let mut builder = SpaceBuilder::default();
        let mut sample_us: Option<(u64, u64)> = None;
        // Frames of pages, and the time that they cover.
        let mut pages = (0u64, 0u64);
        events.replay(&mut |event| {
            match event {
                Event::Mappings { target, mappings, .. } if *target == id => builder.add_mappings(mappings),
                Event::Snapshot(s) if s.target == id && in_time(s.start_ns, s.end_ns) => {
                    builder.add_regions(&s.regions);
                    let (low, high) = sample_us.unwrap_or((s.sample_us, s.sample_us));
                    sample_us = Some((low.min(s.sample_us), high.max(s.sample_us)));
                }
                Event::Pages(f) if f.target == id && in_time(f.since_ns, f.time_ns) && !f.tables.is_empty() => {
                    builder.add_pages(&f.mappings);
                    pages = (pages.0 + 1, pages.1.saturating_add(f.time_ns.saturating_sub(f.since_ns)));
                }
                _ => {}
            }
            Ok(())
        })?;
        let measure = match (pages.1.checked_div(pages.0), sample_us) {
            (Some(mean_ns), _) => Measure::Pages(mean_ns),
            (None, Some((shortest, longest))) => Measure::Intervals(shortest, longest),
            (None, None) => return Err(not_watched(overview, target)),
        };
        let (space, mappings) = builder.finish(options.address_range);
        if space.total() == 0 {
            let target = target.title();
            return Err(match options.address_range {
                Some(_) => ViewError::EmptyRange {
                    target: Some(target),
                    what: "address range",
                    have: "it holds only addresses outside it".into(),
                },
                None => ViewError::NoMemory { target },
            });
        }
        let names = named_parts(&space, &mappings);
        let each = |sink: &mut dyn FnMut(Reported<'_>)| {
            events.replay(&mut |event| {
                match (event, measure) {
                    (Event::Snapshot(s), Measure::Intervals(..)) if s.target == id && in_time(s.start_ns, s.end_ns) => {
                        sink(Reported::Regions(s));
                    }
                    (Event::Pages(f), Measure::Pages(_)) if f.target == id && in_time(f.since_ns, f.time_ns) => {
                        sink(Reported::Pages(f));
                    }
                    _ => {}
                }
                Ok(())
            })
        };

        let mut profile = Profile::new(&space);
        each(&mut |reported| match reported {
            Reported::Regions(s) => profile.add(&space, s),
            Reported::Pages(f) => profile.add_pages(&space, f),
        })?;
        let layout = if options.address_range.is_some() { Layout::Everything } else { options.layout };
        let axis = Axis::new(&space, &profile.runs(&space), options.rows, layout);

        let mut grid = Grid::new(axis.rows, options.cols, start_ns, end_ns);
        let mut last_frame: Option<PageFrame> = None;
        each(&mut |reported| match reported {
            Reported::Regions(s) => grid.add(&space, &axis, s),
            Reported::Pages(f) => {
                grid.add_pages(&space, &axis, f);
                match &mut last_frame {
                    Some(last) => last.clone_from(f),
                    None => last_frame = Some(f.clone()),
                }
            }
        })?;
        if let (Some(last), Some(until_ns)) = (last_frame, watched_to_ns) {
            grid.end_unseen(&space, &axis, &last, until_ns);
        }
        let scale = RateScale::fitting(grid.rates());
        Ok(Self { target: target.clone(), base_ns: overview.start_ns, space, names, axis, grid, scale, measure })
    }

    /// A time of CLOCK_MONOTONIC as seconds after the begin of the record.
    pub fn seconds(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.base_ns) as f64 / 1e9
    }

    /// What a rate means in accesses per second: `200 Hz`, `50 to 200 Hz` where the sampling interval changed. `None`
    /// for a share of pages.
    pub(crate) fn hz_text(&self, rate: f64) -> Option<String> {
        let Measure::Intervals(shortest, longest) = self.measure else { return None };
        let (low, high) = (format_hz(hz(rate, longest)), format_hz(hz(rate, shortest)));
        // Intervals that differ by less than is shown are one.
        Some(if low == high { high } else { format!("{} to {high}", low.trim_end_matches(" Hz")) })
    }

    /// What a rate is: `share of the pages accessed in 1.00 s`, `share of 5.00 ms intervals in which a page was
    /// accessed`.
    pub(crate) fn rate_text(&self) -> String {
        match self.measure {
            Measure::Pages(ns) => format!("share of the pages accessed in {}", format_time(ns)),
            Measure::Intervals(shortest, longest) => {
                let (low, high) = (format_us(shortest), format_us(longest));
                let interval = if low == high { low } else { format!("{low} to {high}") };
                format!("share of {interval} intervals in which a page was accessed")
            }
        }
    }

    /// The name that most of a part of the space goes by.
    pub(crate) fn name_at(&self, from: u64, to: u64) -> Option<&NamedPart> {
        let first = self.names.partition_point(|n| n.to <= from);
        let common = |n: &NamedPart| n.to.min(to).saturating_sub(n.from.max(from));
        self.names[first..].iter().take_while(|n| n.from < to).max_by_key(|n| common(n))
    }

    /// Bytes drawn compressed, and bytes folded because no page of them was ever present.
    pub fn hidden(&self) -> (u64, u64) {
        let compressed = self.axis.stretches.iter().filter(|s| s.compressed).map(|s| s.to - s.from).sum();
        (compressed, self.axis.folds.iter().map(|f| f.absent).sum())
    }
}

fn time_range(overview: &Overview, options: &HeatOptions) -> Result<(u64, u64), ViewError> {
    let (start, end) = (overview.start_ns, overview.end_ns);
    let Some((from, to)) = options.time_range else { return Ok((start, end)) };
    let (from, to) = (start.saturating_add(from), start.saturating_add(to).min(end));
    let length = format_time(overview.end_ns - overview.start_ns);
    let have = format!("the record holds 0 to {length}");
    if from < to { Ok((from, to)) } else { Err(ViewError::EmptyRange { target: None, what: "time range", have }) }
}

/// Why there is nothing of a target in a time that the record covers.
fn not_watched(overview: &Overview, target: &TargetOverview) -> ViewError {
    let [from, to] = [target.start_ns, target.end_ns].map(|ns| format_time(ns.saturating_sub(overview.start_ns)));
    let have = format!("it was watched from {from} to {to}");
    ViewError::EmptyRange { target: Some(target.title()), what: "time range", have }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::grid::Shown;
    use crate::testdata::{MIB, small_record};

    fn options() -> HeatOptions {
        HeatOptions { rows: 83, cols: 10, time_range: None, address_range: None, layout: Layout::Linear }
    }

    fn build(options: &HeatOptions) -> Result<HeatMap, ViewError> {
        let events = small_record(20);
        let overview = Overview::read(&events)?;
        HeatMap::build(&events, &overview, &overview.targets[0], options)
    }

    #[test]
    fn one_row_a_mebibyte() {
        let map = build(&options()).expect("has snapshots");
        assert_eq!(map.space.total(), 83 * MIB);
        assert_eq!(map.axis.rows, 83);
        let shown = |row| map.grid.cell(row, 0).shown();
        assert_eq!(shown(0), Shown::Rate(1.0));
        assert_eq!(shown(10), Shown::Rate(0.0));
        assert!(matches!(shown(80), Shown::Rate(r) if (r - 0.025).abs() < 1e-6), "{:?}", shown(80));
        assert_eq!(shown(82), Shown::Blind);
        let name = |row| map.name_at(map.axis.offsets(row).0, map.axis.offsets(row).1).map(|n| n.name.as_str());
        assert_eq!(
            [0, 20, 81, 82].map(name),
            [Some("[heap]"), Some("anon"), Some("/usr/lib/libdemo.so.1"), Some("[anon:locked]")]
        );
        assert_eq!(map.axis.folds.iter().map(|f| f.row).collect::<Vec<_>>(), [16, 80, 82]);
    }

    #[test]
    fn ranges_that_hold_nothing_say_so() {
        let o = HeatOptions { time_range: Some((90_000_000_000, 91_000_000_000)), ..options() };
        let text = build(&o).expect_err("nothing there").to_string();
        assert_eq!(text, "nothing was recorded in the time range asked for; the record holds 0 to 2.00 s");
        let o = HeatOptions { address_range: Some(AddrRange::new(0, 4096)), ..options() };
        assert!(matches!(build(&o), Err(ViewError::EmptyRange { what: "address range", .. })));
    }

    #[test]
    fn a_target_without_anything_to_show_is_told_from_an_empty_range() {
        let mut events = small_record(20);
        for event in &mut events {
            match event {
                Event::Snapshot(s) => s.regions.clear(),
                Event::Mappings { mappings, .. } => mappings.clear(),
                _ => {}
            }
        }
        let overview = Overview::read(&events).expect("has snapshots");
        let error = HeatMap::build(&events, &overview, &overview.targets[0], &options()).expect_err("is empty");
        assert!(error.is_of_one_target());
        let text = error.to_string();
        assert_eq!(text, "server --port 1 (pid 4242): no memory of it was recorded: all of its snapshots are empty");

        let mut events = small_record(20);
        events.extend(small_record(5).into_iter().map(|mut event| {
            match &mut event {
                Event::Target(info) => info.target = 1,
                Event::Snapshot(s) => s.target = 1,
                Event::Mappings { target, .. } => *target = 1,
                _ => {}
            }
            event
        }));
        let overview = Overview::read(&events).expect("has snapshots");
        let late = HeatOptions { time_range: Some((1_000_000_000, 2_000_000_000)), ..options() };
        let build = |target: usize| HeatMap::build(&events, &overview, &overview.targets[target], &late);
        assert!(build(0).is_ok());
        let error = build(1).expect_err("it had ended");
        assert!(
            error.is_of_one_target() && error.to_string().ends_with("it was watched from 0 ns to 500 ms"),
            "{error}"
        );
    }

    #[test]
    fn rows_are_named_by_pages() {
        let map = build(&HeatOptions { rows: 7, ..options() }).expect("has snapshots");
        let offsets: Vec<u64> = (0..map.axis.rows).map(|row| map.axis.offsets(row).0).collect();
        assert!(
            offsets.iter().any(|&o| !map.space.addr(o).is_multiple_of(4096)),
            "rows begin within pages: {offsets:x?}"
        );
        assert!(offsets.iter().all(|&o| map.space.page_addr(o).is_multiple_of(4096)));
    }

    #[test]
    fn an_address_range_is_drawn_as_asked() {
        let o = HeatOptions {
            rows: 8,
            address_range: Some(AddrRange::new(0x5500_0000_0000, 0x5500_0080_0000)),
            ..options()
        };
        let map = build(&o).expect("has snapshots");
        assert_eq!(map.space.total(), 8 * MIB);
        assert_eq!(map.grid.cell(0, 0).shown(), Shown::Rate(1.0));
        assert_eq!(map.grid.cell(7, 0).shown(), Shown::Rate(0.0));
    }
}
