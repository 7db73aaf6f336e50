//! Estimates from a sample of the pages (SHARDS: Waldspurger et al., FAST'15).
//!
//! The requests for a share R of the pages, chosen by hash, behave in a cache of R times the size like all requests in
//! the whole one. A page more or less among the hottest makes the sample's number of requests differ from R times the
//! whole; those requests are nearly all hits, so misses are divided by the number that is expected (the paper's
//! adjustment).
//!
//! The error is found by dividing the sample into eight parts, by hash again, and simulating each in a cache of an
//! eighth: from how much these differ follows the spread of their mean, and twice that or so is the 95 % interval.

use super::watch::{GroupFigures, Watch};
use super::{Figures, Future, Groups, Job, Replay};
use crate::policy::Work;
use crate::policy::kernel_lru::machine::Bounds;

const PARTS: u64 = 8;
/// Student's t for 95 % and seven degrees of freedom.
const STUDENT: f64 = 2.365;
/// Smallest cache of a part that is taken seriously, pages.
const SMALLEST: f64 = 4.0;

fn scaled(size: u32, rate: f64) -> u32 {
    (f64::from(size) * rate).round().max(1.0) as u32
}

/// What chance adds to a number of sampled pages is below so many times its root.
const CHANCE: f64 = 3.0;

impl Replay {
    pub(super) fn estimate(&self, job: Job, rate: f64) -> Figures {
        let requests = self.trace().seen();
        let mut watch = Watch::new(self.trace(), None);
        let groups = self.scaled_groups(rate);
        let count = self.whole.count(Job { size: scaled(job.size, rate), ..job }, &groups, watch.as_mut());
        let expected = requests as f64 * rate;
        let ratio = (count.misses as f64 / expected).min(1.0);
        let up = |n: u64| (n as f64 / rate).round() as u64;
        Figures {
            policy: job.policy.name(),
            size: job.size,
            requests,
            misses: (ratio * requests as f64).round() as u64,
            miss_ratio: ratio,
            miss_ratio_error: self.error(job, rate, expected),
            sample_rate: Some(rate),
            evictions: up(count.evictions),
            refaults: up(count.refaults),
            work: Work {
                pages_scanned: count.work.pages_scanned.map(up),
                ptes_read: count.work.ptes_read.map(up),
                rmap_walks: count.work.rmap_walks.map(up),
                tables_skipped: count.work.tables_skipped.map(up),
                list_moves: count.work.list_moves.map(up),
                // As many as of the whole: what fits shrinks with what is asked for.
                agings: count.work.agings,
            },
            groups: watch.map(|watch| self.whole_groups(watch.finish().0, rate)).unwrap_or_default(),
            machine: None,
            seconds: 0.0,
        }
    }

    /// What figures of the sample's groups say of the whole, by the same rules as the totals.
    fn whole_groups(&self, mut groups: Vec<GroupFigures>, rate: f64) -> Vec<GroupFigures> {
        let up = |n: u64| (n as f64 / rate).round() as u64;
        for (at, group) in groups.iter_mut().enumerate() {
            let requests = self.trace().groups().seen(at);
            let most = self.groups.bounds.get(at).map_or(u64::MAX, |b| b.max);
            let expected = requests as f64 * rate;
            // Each page misses once before it can miss again. Requests that differ from what is expected by no more than the number
            // of pages explains say nothing of pages that are asked for most.
            let pages = group.misses.saturating_sub(group.refaults).max(1) as f64;
            let is_chance = (group.requests as f64 / expected - 1.0).abs() <= CHANCE / pages.sqrt();
            let asked = if is_chance { group.requests as f64 } else { expected };
            group.miss_ratio = (requests > 0).then(|| (group.misses as f64 / asked.max(1.0)).min(1.0));
            group.requests = requests;
            group.misses = group.miss_ratio.map_or(0, |ratio| (ratio * requests as f64).round() as u64);
            group.refaults = up(group.refaults);
            group.evictions = group.evictions.map(up);
            // A bound that was raised to a page of the sample must not show.
            group.resident = group.resident.map(|n| up(n).min(most));
            // They depend on the sizes of batches and groups: no factor makes them those of the whole.
            group.low_events = None;
        }
        groups
    }

    /// Bounds of groups at the sample's scale. One of a page or more stays at least one: 0 would shut a group out.
    fn scaled_groups(&self, rate: f64) -> Groups {
        let pages = |n: u64| match n {
            0 | u64::MAX => n,
            n => (n as f64 * rate).round().max(1.0) as u64,
        };
        let bounds =
            |b: &Bounds| Bounds { min: pages(b.min), low: pages(b.low), soft: pages(b.soft), max: pages(b.max) };
        Groups { bounds: self.groups.bounds.iter().map(bounds).collect(), fairness: self.groups.fairness }
    }

    fn error(&self, job: Job, rate: f64, expected: f64) -> Option<f64> {
        let rate = rate / PARTS as f64;
        if f64::from(job.size) * rate < SMALLEST {
            return None;
        }
        let parts = self.parts.get_or_init(|| (0..PARTS).map(|i| Future::new(self.trace().part(i, PARTS))).collect());
        let size = scaled(job.size, rate);
        let groups = self.scaled_groups(rate);
        let misses = |part: &Future| part.count(Job { size, ..job }, &groups, None).misses;
        let ratio = |part: &Future| misses(part) as f64 / (expected / PARTS as f64);
        let ratios: Vec<f64> = parts.iter().map(ratio).collect();
        let mean = ratios.iter().sum::<f64>() / PARTS as f64;
        let variance = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (PARTS - 1) as f64;
        Some(STUDENT * (variance / PARTS as f64).sqrt())
    }
}
