//! The truth about a workload: per time slice, which ranges were touched how often.

use super::members::Members;
use super::{Area, Plan, Workload};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, normalize};
use serde::{Deserialize, Serialize};

/// A range that was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    /// First address (or arena offset) in bytes.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
    /// Touches, spread evenly over the pages of the range: as often as the pattern goes through it in rounds, each page
    /// got this number divided by the pages, rounded down or up.
    pub touches: u64,
    /// Only these pages of the range were touched; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<Members>,
}

impl Touched {
    /// A range of which every page was touched.
    pub const fn all(range: AddrRange, touches: u64) -> Self {
        Self { start: range.start, end: range.end, touches, pages: None }
    }

    /// How many pages were touched.
    fn count(&self) -> u64 {
        let pages = self.end.saturating_sub(self.start) / PAGE_SIZE;
        self.pages.map_or(pages, |members| members.count(pages))
    }

    /// Calls `visit` for the runs of pages that were touched, in order.
    fn for_each_run(&self, mut visit: impl FnMut(AddrRange)) {
        let Some(members) = self.pages else { return visit(AddrRange::new(self.start, self.end)) };
        let pages = self.end.saturating_sub(self.start) / PAGE_SIZE;
        for page in (0..members.count(pages)).map(|i| self.start + members.page(i, pages) * PAGE_SIZE) {
            visit(AddrRange::new(page, page + PAGE_SIZE));
        }
    }
}

/// What was touched during some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Begin, ns of CLOCK_MONOTONIC (or of virtual time).
    pub start_ns: u64,
    /// End, ns.
    pub end_ns: u64,
    /// Name of the stage in force.
    pub stage: String,
    /// Ranges in no particular order; disjoint unless a phase file's areas overlap.
    pub touched: Vec<Touched>,
}

/// The truth about one run of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// What the run was.
    #[serde(flatten)]
    pub header: Header,
    /// Time slices in order, without gaps as long as the workload ran.
    pub slices: Vec<Slice>,
}

/// What a run was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Always 1.
    pub version: u32,
    pub pattern: String,
    pub seed: u64,
    /// The process; `None` if simulated.
    pub pid: Option<u32>,
    /// Clock of the times: `CLOCK_MONOTONIC` or `virtual`.
    pub clock: String,
    pub arena: AddrRange,
    /// Whether the run ended in good order, so that `slices` tells everything.
    pub complete: bool,
}

impl Truth {
    /// Whether single pages are reported, so that ranges tell little.
    pub fn is_scattered(&self) -> bool {
        let touched = || self.slices.iter().flat_map(|s| &s.touched);
        touched().any(|t| t.pages.is_some() || t.end - t.start == PAGE_SIZE)
    }

    /// The hot pages of `[from_ns, to_ns)`: those that were touched at least `min_touches` times each (on average over
    /// the range that they were reported in). A slice that lies only partly in that time counts in proportion.
    pub fn hot(&self, from_ns: u64, to_ns: u64, min_touches: f64) -> Vec<AddrRange> {
        hot(&self.slices, from_ns, to_ns, min_touches)
    }
}

/// See [`Truth::hot`]. Sorted, disjoint.
pub fn hot(slices: &[Slice], from_ns: u64, to_ns: u64, min_touches: f64) -> Vec<AddrRange> {
    let mut changes: Vec<(u64, f64)> = Vec::new();
    for s in slices.iter().filter(|s| s.start_ns < to_ns && from_ns < s.end_ns) {
        let inside = s.end_ns.min(to_ns) - s.start_ns.max(from_ns);
        let part = inside as f64 / (s.end_ns - s.start_ns) as f64;
        for t in s.touched.iter().filter(|t| t.end > t.start) {
            let per_page = part * t.touches as f64 / t.count() as f64;
            t.for_each_run(|run| {
                changes.push((run.start, per_page));
                changes.push((run.end, -per_page));
            });
        }
    }
    changes.sort_unstable_by_key(|c| c.0);
    // Sums of floating point numbers that should cancel do so only nearly.
    let enough = min_touches - 1e-6 * min_touches.max(1.0);
    let (mut out, mut per_page) = (Vec::new(), 0.0);
    for pair in changes.windows(2) {
        per_page += pair[0].1;
        if per_page >= enough {
            out.push(AddrRange::new(pair[0].0, pair[1].0));
        }
    }
    normalize(&mut out);
    out
}

/// Most ranges that an area with random draws is described by.
const MAX_BINS: u64 = 256;

/// In how many bins of equal size an area of `pages` with random draws is reported.
pub(super) fn bins(pages: u64) -> u64 {
    pages.clamp(1, MAX_BINS)
}

/// The bin of `page` in an area of `pages`.
pub(super) fn bin_of(page: u64, pages: u64) -> u64 {
    (u128::from(page) * u128::from(bins(pages)) / u128::from(pages.max(1))) as u64
}

/// First page of bin `bin`.
fn bin_start(bin: u64, pages: u64) -> u64 {
    (u128::from(bin) * u128::from(pages)).div_ceil(u128::from(bins(pages))) as u64
}

/// Appends the account of an area whose touches per bin are `counts`.
pub(super) fn binned(area: &Area, counts: &[u64], out: &mut Vec<Touched>) {
    let (start, pages) = (area.range().start, area.pages());
    for (bin, &touches) in counts.iter().enumerate().filter(|(_, c)| **c > 0) {
        let range = [bin as u64, bin as u64 + 1].map(|b| start + bin_start(b, pages) * PAGE_SIZE);
        out.push(Touched::all(AddrRange::new(range[0], range[1]), touches));
    }
}

/// Appends the account of an area of which `pages` were touched: sorted, each as often as it was.
pub(super) fn single(area: &Area, pages: &[u64], out: &mut Vec<Touched>) {
    for same in pages.chunk_by(|a, b| a == b) {
        let start = area.range().start + same[0] * PAGE_SIZE;
        out.push(Touched::all(AddrRange::new(start, start + PAGE_SIZE), same.len() as u64));
    }
}

/// Appends the account of the touches `from..to` (counted since the stage began) of an area that is gone through in
/// rounds. In address order the very pages are reported; scattered touches are reported for all of the area that is
/// touched.
pub(super) fn rounds(area: &Area, from: u64, to: u64, out: &mut Vec<Touched>) {
    let Plan::Round(sweep) = area.plan() else { return };
    let (range, pages) = (area.range(), area.pages());
    if to <= from {
        return;
    }
    let sparse = Some(area.members()).filter(|m| *m != Members::All);
    if sparse.is_some() || !sweep.is_sequential() || (to - from).is_multiple_of(pages) {
        out.push(Touched { pages: sparse, ..Touched::all(range, to - from) });
        return;
    }
    let whole = (to - from) / pages;
    // From `first` for `more` pages, around the end, each page got one more than the whole rounds.
    let (first, more) = (from % pages, (to - from) % pages);
    let wrapped = (first + more).saturating_sub(pages);
    let mut part = |a: u64, b: u64, per_page: u64| {
        if a < b && per_page > 0 {
            let [start, end] = [a, b].map(|p| range.start + p * PAGE_SIZE);
            out.push(Touched::all(AddrRange::new(start, end), (b - a) * per_page));
        }
    };
    part(0, wrapped, whole + 1);
    part(wrapped, first, whole);
    part(first, (first + more).min(pages), whole + 1);
    part((first + more).min(pages), pages, whole);
}

/// Touches that an area with `share` of `rate` touches a second has had `ns` after its stage began.
pub fn touches_after(rate: f64, share: f64, ns: u64) -> u64 {
    (rate * share * ns as f64 / 1e9) as u64
}

/// What `workload` at `rate` touches a second does during `[from_ns, to_ns)` since its start, in slices of at most
/// `slice_ns`, with addresses in an arena at `arena_start`. Random draws are reported by their expectation.
pub fn predicted(
    workload: &Workload,
    rate: f64,
    arena_start: u64,
    (from_ns, to_ns): (u64, u64),
    slice_ns: u64,
) -> Vec<Slice> {
    let mut slices = Vec::new();
    for (current, mut start_ns, part_end) in workload.during(from_ns, to_ns) {
        while start_ns < part_end {
            let end_ns = part_end.min(start_ns.saturating_add(slice_ns.max(1)));
            let mut touched = Vec::new();
            for (i, area) in current.stage.areas.iter().enumerate() {
                let share = current.stage.share(i);
                let [from, to] = [start_ns, end_ns].map(|t| touches_after(rate, share, t - current.start_ns));
                match area.plan() {
                    Plan::Round(_) => rounds(area, from, to, &mut touched),
                    Plan::Draw { .. } => binned(area, &expected_bins(area, to - from), &mut touched),
                }
            }
            for t in &mut touched {
                t.start += arena_start;
                t.end += arena_start;
            }
            slices.push(Slice { start_ns, end_ns, stage: current.stage.name.clone(), touched });
            start_ns = end_ns;
        }
    }
    slices
}

fn expected_bins(area: &Area, touches: u64) -> Vec<u64> {
    // Popular pages that are scattered are placed one by one; the long tail is even.
    const PLACED: u64 = 4096;
    let Plan::Draw { ranks, order } = area.plan() else { return Vec::new() };
    let (pages, count) = (area.pages(), bins(area.pages()));
    let mut share = vec![0.0; count as usize];
    if order.is_sequential() {
        for (bin, s) in share.iter_mut().enumerate() {
            let [from, to] = [bin as u64, bin as u64 + 1].map(|b| ranks.probability_below(bin_start(b, pages)));
            *s = to - from;
        }
    } else {
        let placed = pages.min(PLACED);
        for rank in 0..placed {
            share[bin_of(area.page(order.page_at(rank)), pages) as usize] += ranks.probability(rank);
        }
        let tail = (1.0 - ranks.probability_below(placed)) / count as f64;
        share.iter_mut().for_each(|s| *s += tail);
    }
    share.into_iter().map(|s| (s * touches as f64).round() as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::super::patterns::{Parameters, Pattern};
    use super::super::{Order, Stage};
    use super::*;
    use proptest::prelude::*;

    fn slice(start_ns: u64, end_ns: u64, touched: Vec<Touched>) -> Slice {
        Slice { start_ns, end_ns, stage: String::new(), touched }
    }

    #[test]
    fn hot_means_touched_often_enough_in_the_window() {
        let t = |pages: std::ops::Range<u64>, touches| {
            Touched::all(AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE), touches)
        };
        let slices = [slice(0, 100, vec![t(0..10, 20), t(50..60, 5)]), slice(100, 200, vec![t(5..15, 10)])];
        let pages = |r: Vec<AddrRange>| r.iter().map(|r| (r.start / PAGE_SIZE, r.end / PAGE_SIZE)).collect::<Vec<_>>();
        assert_eq!(pages(hot(&slices, 0, 100, 1.0)), [(0, 10)]);
        assert_eq!(pages(hot(&slices, 0, 200, 1.0)), [(0, 15)]);
        assert_eq!(pages(hot(&slices, 0, 200, 3.0)), [(5, 10)]);
        assert_eq!(pages(hot(&slices, 50, 100, 1.0)), [(0, 10)]);
        assert_eq!(pages(hot(&slices, 75, 100, 1.0)), []);
        assert_eq!(pages(hot(&slices, 200, 300, 0.1)), []);
    }

    #[test]
    fn a_truth_survives_json() {
        let header = Header {
            version: 1,
            pattern: "scan".into(),
            seed: u64::MAX,
            pid: Some(1),
            clock: "CLOCK_MONOTONIC".into(),
            arena: AddrRange::new(4096, 8192),
            complete: true,
        };
        let truth = Truth { header, slices: vec![slice(1, 2, vec![Touched::all(AddrRange::new(4096, 8192), 3)])] };
        let text = serde_json::to_string(&truth).unwrap();
        assert_eq!(serde_json::from_str::<Truth>(&text).unwrap(), truth);
    }

    #[test]
    fn predictions_are_cut_at_stages() {
        let p = Parameters { period_ns: Some(1_500_000), ..Parameters::new(8 * PAGE_SIZE) };
        let w = Pattern::Alternate.build(&p).unwrap();
        let slices = predicted(&w, 1e6, 1 << 20, (0, 3_000_000), 1_000_000);
        let shape: Vec<_> =
            slices.iter().map(|s| (s.start_ns, s.end_ns, s.touched[0].start, s.touched[0].touches)).collect();
        assert_eq!(
            shape,
            [
                (0, 1_000_000, 1 << 20, 1000),
                (1_000_000, 1_500_000, 1 << 20, 500),
                (1_500_000, 2_500_000, (1 << 20) + 4 * PAGE_SIZE, 1000),
                (2_500_000, 3_000_000, (1 << 20) + 4 * PAGE_SIZE, 500),
            ]
        );
    }

    #[test]
    fn expected_draws_add_up() {
        for scattered in [false, true] {
            let p = Parameters { scattered, ..Parameters::new(1 << 30) };
            let w = Pattern::Zipf.build(&p).unwrap();
            let slices = predicted(&w, 1e9, 0, (0, 1_000_000_000), 1_000_000_000);
            let sum: u64 = slices[0].touched.iter().map(|t| t.touches).sum();
            assert!(sum.abs_diff(1_000_000_000) < 300, "{sum}");
        }
    }

    proptest! {
        #[test]
        fn a_sequential_account_is_exact(pages in 1u64..40, from in 0u64..100, len in 0u64..100) {
            let area = Area::new(AddrRange::new(0, pages * PAGE_SIZE), 1.0, Order::Sequential);
            let mut out = Vec::new();
            rounds(&area, from, from + len, &mut out);
            for page in 0..pages {
                let walked = (from..from + len).filter(|k| k % pages == page).count() as u64;
                let reported: u64 = out
                    .iter()
                    .filter(|t| t.start <= page * PAGE_SIZE && page * PAGE_SIZE < t.end)
                    .map(|t| t.touches / ((t.end - t.start) / PAGE_SIZE))
                    .sum();
                prop_assert_eq!(reported, walked);
            }
        }

        #[test]
        fn bins_tile_an_area(pages in 1u64..5000) {
            for page in 0..pages {
                let bin = bin_of(page, pages);
                prop_assert!(bin_start(bin, pages) <= page && page < bin_start(bin + 1, pages));
            }
            prop_assert_eq!(bin_start(bins(pages), pages), pages);
        }

        #[test]
        fn predictions_lose_no_touch(slice_ns in 1u64..500, rate in 1e6f64..1e10) {
            let stages = [30, 70].map(|duration_ns| Stage {
                name: String::new(),
                duration_ns,
                areas: vec![Area::new(AddrRange::new(0, 5 * PAGE_SIZE), 1.0, Order::Scattered)],
            });
            let w = Workload::new("t", 1 << 20, 0, stages.into()).unwrap();
            let sum: u64 = predicted(&w, rate, 0, (0, 300), slice_ns).iter().flat_map(|s| &s.touched).map(|t| t.touches).sum();
            prop_assert_eq!(sum, 3 * (touches_after(rate, 1.0, 30) + touches_after(rate, 1.0, 70)));
        }
    }
}
