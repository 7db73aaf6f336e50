//! Draws the pages to touch, one batch at a time, and counts what was drawn.

use super::truth::{self, Touched};
use super::{Area, Plan, Workload};

/// Most pages drawn at a time from one area.
pub const MAX_BATCH: u64 = 64;

#[derive(Debug, Clone)]
struct AreaState {
    share: f64,
    /// Touches that the area is owed; the area with the most is served next.
    credit: f64,
    /// Touches since the stage began.
    drawn: u64,
    /// `drawn` when the last account was taken.
    accounted: u64,
    /// The area's next page and the stride to the one after, for plans that go in rounds.
    next_page: u64,
    /// What was drawn since the last account, for plans that draw at random.
    draws: Draws,
}

/// Pages drawn at random: the very pages while they are few, else how many fell into each bin.
#[derive(Debug, Clone, Default)]
struct Draws {
    pages: Vec<u64>,
    bins: Vec<u64>,
}

impl Draws {
    /// Most draws that are reported page by page.
    const FEW: usize = 4096;

    fn add(&mut self, page: u64, pages: u64) {
        self.bins[truth::bin_of(page, pages) as usize] += 1;
        // One more than are reported marks that there were too many.
        if self.pages.len() <= Self::FEW {
            self.pages.push(page);
        }
    }

    /// Appends what was drawn, and begins anew.
    fn account(&mut self, area: &Area, out: &mut Vec<Touched>) {
        if self.pages.len() <= Self::FEW {
            self.pages.sort_unstable();
            truth::single(area, &self.pages, out);
        } else {
            truth::binned(area, &self.bins, out);
        }
        self.pages.clear();
        self.bins.fill(0);
    }
}

/// Turns a workload into page numbers, as fast as they are asked for.
///
/// Areas get their shares by smooth weighted round robin, so that each share is exact to one batch at any time.
#[derive(Debug, Clone)]
pub struct Generator {
    workload: Workload,
    batch: u64,
    rng: fastrand::Rng,
    stage: usize,
    end_ns: u64,
    areas: Vec<AreaState>,
}

impl Generator {
    /// A generator at the start of `workload` that yields `batch` pages at a time, 1 to [`MAX_BATCH`].
    pub fn new(workload: Workload, batch: u64) -> Self {
        let rng = fastrand::Rng::with_seed(workload.seed());
        let mut g = Self { workload, batch: batch.clamp(1, MAX_BATCH), rng, stage: 0, end_ns: 0, areas: Vec::new() };
        g.enter(0);
        g
    }

    pub const fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Name of the stage entered last.
    pub fn stage_name(&self) -> &str {
        &self.workload.stages()[self.stage].name
    }

    /// When the stage entered last ends, ns since the workload's start.
    pub const fn stage_end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Begins the stage in force `elapsed_ns` after the workload's start. Its areas are touched from their first page
    /// on; call [`account`](Self::account) before, or what was drawn since is not accounted for.
    pub fn enter(&mut self, elapsed_ns: u64) {
        let current = self.workload.at(elapsed_ns);
        self.stage = current.index;
        self.end_ns = current.end_ns;
        self.areas = (0..current.stage.areas.len())
            .map(|i| AreaState {
                share: current.stage.share(i),
                credit: 0.0,
                drawn: 0,
                accounted: 0,
                next_page: 0,
                draws: match current.stage.areas[i].plan() {
                    Plan::Round(_) => Draws::default(),
                    Plan::Draw { .. } => {
                        let bins = vec![0; truth::bins(current.stage.areas[i].pages()) as usize];
                        Draws { pages: Vec::new(), bins }
                    }
                },
            })
            .collect();
    }

    /// Replaces `pages` by the next pages to touch, counted from the arena's first; empty if the stage touches nothing.
    pub fn next_batch(&mut self, pages: &mut Vec<u64>) {
        pages.clear();
        let areas = &self.workload.stages()[self.stage].areas;
        let mut chosen = None;
        for (i, a) in self.areas.iter_mut().enumerate() {
            a.credit += a.share;
            if chosen.is_none_or(|(_, credit)| a.credit > credit) {
                chosen = Some((i, a.credit));
            }
        }
        let Some((index, _)) = chosen else { return };
        let (area, state) = (&areas[index], &mut self.areas[index]);
        state.credit -= 1.0;
        state.drawn += self.batch;
        let first = area.range().start / isotherm_core::addr::PAGE_SIZE;
        match area.plan() {
            Plan::Round(sweep) => {
                let mut page = state.next_page;
                for _ in 0..self.batch {
                    pages.push(first + area.page(page));
                    page += sweep.stride();
                    if page >= sweep.pages() {
                        page -= sweep.pages();
                    }
                }
                state.next_page = page;
            }
            Plan::Draw { ranks, order } => {
                for _ in 0..self.batch {
                    let page = area.page(order.page_at(ranks.draw(|| self.rng.f64())));
                    state.draws.add(page, area.pages());
                    pages.push(first + page);
                }
            }
        }
    }

    /// What was drawn since the last account or the beginning of the stage, as byte offsets in the arena.
    pub fn account(&mut self) -> Vec<Touched> {
        let mut out = Vec::new();
        for (area, state) in self.workload.stages()[self.stage].areas.iter().zip(&mut self.areas) {
            match area.plan() {
                Plan::Round(_) => truth::rounds(area, state.accounted, state.drawn, &mut out),
                Plan::Draw { .. } => state.draws.account(area, &mut out),
            }
            state.accounted = state.drawn;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::patterns::{Parameters, Pattern};
    use super::*;
    use isotherm_core::addr::PAGE_SIZE;
    use std::collections::HashMap;

    fn draw(g: &mut Generator, batches: usize) -> HashMap<u64, u64> {
        let (mut counts, mut pages) = (HashMap::new(), Vec::new());
        for _ in 0..batches {
            g.next_batch(&mut pages);
            for &p in &pages {
                *counts.entry(p).or_default() += 1;
            }
        }
        counts
    }

    fn per_page(touched: &[Touched], page: u64) -> u64 {
        let at = page * PAGE_SIZE;
        touched.iter().filter(|t| t.start <= at && at < t.end).map(|t| t.touches).sum()
    }

    #[test]
    fn a_hot_spot_is_all_that_is_touched() {
        let p = Parameters { hot: Some(0.25), seed: 3, ..Parameters::new(1000 * PAGE_SIZE) };
        let w = Pattern::Hotspot.build(&p).unwrap();
        let hot = w.stages()[0].areas[0].range();
        let mut g = Generator::new(w, 64);
        let counts = draw(&mut g, 250);
        assert_eq!(counts.len(), 250);
        assert!(counts.iter().all(|(page, n)| hot.contains(page * PAGE_SIZE) && *n == 64));
        let account = g.account();
        assert_eq!(account, [Touched::all(hot, 250 * 64)]);
        assert_eq!(g.account(), []);
    }

    #[test]
    fn background_gets_its_share() {
        let p = Parameters { hot: Some(0.1), background: 0.25, ..Parameters::new(4096 * PAGE_SIZE) };
        let mut g = Generator::new(Pattern::Hotspot.build(&p).unwrap(), 64);
        draw(&mut g, 1000);
        let account = g.account();
        let all: u64 = account.iter().map(|t| t.touches).sum();
        assert_eq!(all, 64_000);
        let hot = account[0].touches;
        assert!(hot.abs_diff(48_000) <= 64, "{hot}");
    }

    #[test]
    fn a_scan_accounts_for_the_very_pages() {
        let w = Pattern::Scan.build(&Parameters::new(100 * PAGE_SIZE)).unwrap();
        let mut g = Generator::new(w, 64);
        for batches in [1, 1, 3, 7] {
            let counts = draw(&mut g, batches);
            let account = g.account();
            for page in 0..100 {
                let reported: u64 = account
                    .iter()
                    .filter(|t| t.start <= page * PAGE_SIZE && page * PAGE_SIZE < t.end)
                    .map(|t| t.touches * PAGE_SIZE / (t.end - t.start))
                    .sum();
                assert_eq!(reported, counts.get(&page).copied().unwrap_or(0), "page {page} of {batches} batches");
            }
        }
    }

    #[test]
    fn few_draws_are_accounted_for_page_by_page() {
        let p = Parameters { scattered: true, ..Parameters::new(1 << 30) };
        let mut g = Generator::new(Pattern::Zipf.build(&p).unwrap(), 64);
        for batches in [10, 64] {
            let counts = draw(&mut g, batches);
            let account = g.account();
            let reported: u64 = account.iter().map(|t| (t.end - t.start) / PAGE_SIZE).sum();
            assert_eq!(reported, counts.len() as u64);
            assert!(counts.iter().all(|(page, n)| per_page(&account, *page) == *n));
        }
        draw(&mut g, 65);
        assert!(g.account().iter().all(|t| t.end - t.start > PAGE_SIZE));
    }

    #[test]
    fn scattered_pages_are_touched_in_rounds_and_told_by_rule() {
        for pattern in [Pattern::Random, Pattern::Every] {
            let p = Parameters { hot: Some(0.02), seed: 3, ..Parameters::new(1000 * PAGE_SIZE) };
            let w = pattern.build(&p).unwrap();
            let mut g = Generator::new(w, 20);
            let counts = draw(&mut g, 5);
            assert_eq!(counts.len(), 20);
            assert!(counts.values().all(|n| *n == 5));
            let slice = truth::Slice { start_ns: 0, end_ns: 1, stage: String::new(), touched: g.account() };
            let hot = truth::hot(&[slice], 0, 1, 5.0);
            assert_eq!(isotherm_core::addr::total_len(&hot), 20 * PAGE_SIZE);
            assert!(counts.keys().all(|page| hot.iter().any(|r| r.contains(page * PAGE_SIZE))));
        }
    }

    #[test]
    fn zipf_accounts_for_all_draws() {
        let p = Parameters { theta: 1.2, seed: 5, ..Parameters::new(64 * PAGE_SIZE) };
        let mut g = Generator::new(Pattern::Zipf.build(&p).unwrap(), 64);
        let counts = draw(&mut g, 500);
        let account = g.account();
        assert_eq!(account.iter().map(|t| t.touches).sum::<u64>(), 32_000);
        assert_eq!(per_page(&account, 0), counts[&0]);
        assert!(counts[&0] > counts.get(&40).copied().unwrap_or(0) * 10);
    }

    #[test]
    fn a_new_stage_starts_at_its_first_page() {
        let p = Parameters { hot: Some(0.5), period_ns: Some(1_000_000), ..Parameters::new(128 * PAGE_SIZE) };
        let mut g = Generator::new(Pattern::Alternate.build(&p).unwrap(), 64);
        let first = draw(&mut g, 5);
        assert!(first.keys().all(|&p| p < 64));
        assert_eq!(g.stage_end_ns(), 1_000_000);
        g.enter(1_000_000);
        assert_eq!(g.stage_name(), "second");
        let second = draw(&mut g, 5);
        assert!(second.keys().all(|&p| p >= 64));
    }

    #[test]
    fn idle_touches_nothing() {
        let mut g = Generator::new(Pattern::Idle.build(&Parameters::new(1 << 20)).unwrap(), 64);
        assert!(draw(&mut g, 3).is_empty());
        assert!(g.account().is_empty());
    }
}
