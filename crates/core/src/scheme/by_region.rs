//! A turn of a scheme whose victims are regions: memory by how often it is accessed, and everything where nobody keeps
//! a page history.

use super::action::{Action, Preference};
use super::apply::{Go, LOOK_AT_ONCE, LOOK_PER_TURN, Turn};
use super::filter::{FilteredRange, Verdict, split};
use super::look::{dense_blocks, passing_pages};
use super::page_rule::PageRule;
use super::pattern::{age_us, rate_bp};
use super::priority::{Histogram, score};
use super::target_view::TargetView;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, total_len};
use crate::pages::PageSet;
use crate::snapshot::{RegionInfo, Snapshot};
use crate::target::TargetId;
use std::collections::BTreeSet;

impl Turn<'_, '_> {
    fn score(&self, region: &RegionInfo, snapshot: &Snapshot) -> u32 {
        let scheme = &self.runner.scheme;
        let rate = rate_bp(region, snapshot.max_nr_accesses);
        let (preference, weights) = (scheme.action.preference(), scheme.quota.weights);
        score(preference, weights, region.len(), rate, age_us(region, snapshot))
    }

    /// The lowest priority that the quota of the window that begins suffices for.
    pub(super) fn cut_off(&self, open: &BTreeSet<TargetId>) -> u32 {
        let quota = self.runner.quota.effective();
        if quota == u64::MAX || self.runner.scheme.action.preference() == Preference::None {
            return 0;
        }
        let mut histogram = Histogram::default();
        let mut pieces = Vec::new();
        for t in open.iter().filter_map(|id| self.world.targets.get(id)) {
            let Some(snapshot) = &t.snapshot else { continue };
            let subject = t.subject();
            for region in &snapshot.regions {
                if self.runner.scheme.pattern.check(region, snapshot).is_err() {
                    continue;
                }
                pieces.clear();
                split(&self.runner.scheme.filters, &subject, range_of(region), &mut pieces);
                let passing = pieces.iter().filter(|p| p.verdict != Verdict::Reject).map(|p| p.range.len()).sum();
                histogram.add(self.score(region, snapshot), present_of(region, passing));
            }
        }
        histogram.cut_off(quota)
    }

    /// Serves regions in order of their addresses, from where the last window stopped.
    pub(super) fn all_regions(&mut self, open: &BTreeSet<TargetId>) -> Go {
        let targets = self.world.targets;
        let from = self.runner.quota.resume.take();
        let order: Vec<TargetId> = match from {
            Some((target, _)) => open.range(target..).chain(open.range(..target)).copied().collect(),
            None => open.iter().copied().collect(),
        };
        let start_at = |id: TargetId| from.filter(|f| f.0 == id).map_or(0, |f| f.1);
        let mut go = Go::On;
        for &id in &order {
            go = self.target(&targets[&id], start_at(id), u64::MAX);
            if go == Go::Stop {
                break;
            }
        }
        // The first target was begun in its middle: now its lower part.
        if let Some((id, addr)) = from.filter(|f| f.1 > 0 && go == Go::On && open.contains(&f.0)) {
            go = self.target(&targets[&id], 0, addr);
        }
        go
    }

    /// The parts of `within` in regions that match and rank high enough.
    pub(super) fn matching(&mut self, t: &TargetView, within: AddrRange) -> Vec<AddrRange> {
        let mut out = Vec::new();
        let Some(snapshot) = &t.snapshot else { return out };
        for region in &snapshot.regions {
            let Some(part) = range_of(region).intersect(&within) else { continue };
            if let Err(why) = self.runner.scheme.pattern.check(region, snapshot) {
                self.tally.near.add(why, age_us(region, snapshot), &self.runner.scheme.pattern);
                continue;
            }
            self.tally.near.regions += 1;
            self.tally.matched += 1;
            if self.score(region, snapshot) < self.runner.cut_off {
                self.tally.below_cut_off += 1;
            } else {
                out.push(part);
            }
        }
        out
    }

    fn target(&mut self, t: &TargetView, from: u64, to: u64) -> Go {
        let subject = t.subject();
        let (mut pieces, mut passing) = (Vec::new(), Vec::<FilteredRange>::new());
        // What is done block by block must not depend on where the monitor happens to cut a region in two.
        let blocks = self.by_whole_blocks() || self.runner.scheme.min_density_bp > 0;
        for part in self.matching(t, AddrRange::new(from, to)) {
            pieces.clear();
            split(&self.runner.scheme.filters, &subject, part, &mut pieces);
            for piece in &pieces {
                if piece.verdict == Verdict::Reject {
                    self.tally.filtered += piece.range.len();
                    self.runner.stats.sz_filtered += piece.range.len();
                    continue;
                }
                let joins = |w: &FilteredRange| w.verdict == piece.verdict && w.range.end == piece.range.start;
                match passing.last_mut().filter(|w| blocks && joins(w)) {
                    Some(last) => last.range.end = piece.range.end,
                    None => passing.push(*piece),
                }
            }
        }
        let stopped = passing.into_iter().any(|piece| self.parts(t, piece) == Go::Stop);
        if stopped { Go::Stop } else { Go::On }
    }

    /// The parts of a piece that were not treated lately.
    fn parts(&mut self, t: &TargetView, piece: FilteredRange) -> Go {
        let mut parts = Vec::new();
        self.untreated(t.live.target, piece.range, &mut parts);
        self.tally.treated += piece.range.len() - total_len(&parts);
        for range in parts {
            if self.piece(t, FilteredRange { range, verdict: piece.verdict }) == Go::Stop {
                return Go::Stop;
            }
        }
        Go::On
    }

    fn untreated(&mut self, target: TargetId, range: AddrRange, out: &mut Vec<AddrRange>) {
        self.expire(target);
        match self.runner.left_out.get(&target) {
            Some(left_out) => left_out.untreated(range, out),
            None => out.push(range),
        }
    }

    /// A part of a matching region that the filters on mappings let pass.
    fn piece(&mut self, t: &TargetView, mut piece: FilteredRange) -> Go {
        if self.by_whole_blocks() {
            let AddrRange { start, end } = piece.range;
            piece.range = AddrRange::new(start.next_multiple_of(TABLE_SPAN), end / TABLE_SPAN * TABLE_SPAN);
            if piece.range.is_empty() {
                return Go::On;
            }
        }
        let scheme = &self.runner.scheme;
        let per_page = matches!(piece.verdict, Verdict::Undecided { .. });
        let looks = scheme.action.harms_hot_pages() || per_page || scheme.min_density_bp > 0;
        if !looks || self.world.source.is_none() {
            return self.whole(t, piece.range);
        }
        let mut at = piece.range.start;
        while at < piece.range.end {
            if self.runner.quota.left() == 0 || self.tally.looked >= LOOK_PER_TURN {
                return self.stop(t, at);
            }
            let chunk = AddrRange::new(at, piece.range.end.min((at / LOOK_AT_ONCE + 1) * LOOK_AT_ONCE));
            let mut pages = self.pages(t, FilteredRange { range: chunk, verdict: piece.verdict });
            if let Some(left_out) = self.runner.left_out.get(&t.live.target).filter(|l| !l.in_flight.is_empty()) {
                let mut free = PageSet::of(&pages);
                free.subtract(&left_out.in_flight);
                pages = free.ranges();
            }
            let (now, rest) = self.clip(&pages);
            if !now.is_empty() && self.submit(t, now) == Go::Stop {
                return self.stop(t, at);
            }
            if let Some(rest) = rest {
                return self.stop(t, rest);
            }
            at = chunk.end;
        }
        Go::On
    }

    fn stop(&mut self, t: &TargetView, at: u64) -> Go {
        self.runner.quota.resume = Some((t.live.target, at));
        Go::Stop
    }

    /// Acts on all of a range, as far as the quota goes.
    fn whole(&mut self, t: &TargetView, range: AddrRange) -> Go {
        let (now, rest) = self.clip(&[range]);
        if now.is_empty() {
            return self.stop(t, range.start);
        }
        if self.submit(t, now) == Go::Stop {
            return self.stop(t, range.start);
        }
        match rest {
            Some(rest) => self.stop(t, rest),
            None => Go::On,
        }
    }

    /// Whether what is done to blocks of 2 MiB cannot be done to a part of one, or would split a huge page that is there.
    fn by_whole_blocks(&self) -> bool {
        matches!(self.runner.scheme.action, Action::Collapse | Action::HugePage | Action::NoHugePage)
    }

    /// As much of `ranges` as the quota has left, and where the rest begins.
    fn clip(&mut self, ranges: &[AddrRange]) -> (Vec<AddrRange>, Option<u64>) {
        let unit = if self.by_whole_blocks() { TABLE_SPAN } else { PAGE_SIZE };
        let clipped = clip(ranges, self.runner.quota.left(), unit);
        self.tally.too_large |= clipped.0.is_empty() && !ranges.is_empty();
        clipped
    }

    /// The pages of a chunk that may be acted on: present, observable, and passing the filters that look at pages.
    fn pages(&mut self, t: &TargetView, chunk: FilteredRange) -> Vec<AddrRange> {
        let target = t.live.target;
        let Some(source) = self.world.source.as_deref_mut() else { return Vec::new() };
        let scheme = &self.runner.scheme;
        let mut pages = Vec::new();
        let rejected = if scheme.min_density_bp > 0 {
            dense_blocks(source, target, chunk.range, scheme.min_density_bp, &mut pages)
        } else {
            let rule = PageRule::of(&scheme.filters, chunk.verdict);
            passing_pages(source, target, &[chunk.range], rule, &mut pages).map(|present| {
                self.tally.looked += present;
                present - total_len(&pages).min(present)
            })
        };
        // A target that has just gone is the monitor's to notice.
        let Ok(rejected) = rejected else { return Vec::new() };
        self.tally.filtered += rejected;
        self.runner.stats.sz_filtered += rejected;
        pages
    }
}

/// How much of `bytes` of a region is in memory, as far as the monitor saw. What is out already must not take the place
/// of what could go; DAMOS has it sink by setting its age to 0.
fn present_of(region: &RegionInfo, bytes: u64) -> u64 {
    match region.evidence {
        Some(e) if e.pages > 0 => (u128::from(bytes) * u128::from(e.present) / u128::from(e.pages)) as u64,
        _ => bytes,
    }
}

fn range_of(region: &RegionInfo) -> AddrRange {
    AddrRange::new(region.start, region.end)
}

/// The first `bytes` of `ranges`, and where the rest begins: at a multiple of `unit`, since what is done to blocks of 2 MiB cannot be
/// done to a part of one.
fn clip(ranges: &[AddrRange], bytes: u64, unit: u64) -> (Vec<AddrRange>, Option<u64>) {
    let mut left = bytes;
    let mut out = Vec::new();
    for r in ranges {
        let cut = if r.len() <= left { r.end } else { (r.start + left) / unit * unit };
        if cut <= r.start {
            return (out, Some(r.start));
        }
        out.push(AddrRange::new(r.start, cut));
        left -= cut - r.start;
        if cut < r.end {
            return (out, Some(cut));
        }
    }
    (out, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Evidence;

    #[test]
    fn a_quota_cuts_between_blocks_where_blocks_are_wanted() {
        let (page, block) = (PAGE_SIZE, TABLE_SPAN);
        let r = |from: u64, to: u64| AddrRange::new(from, to);
        let ranges = [r(page, 2 * block), r(3 * block, 9 * block)];
        assert_eq!(
            clip(&ranges, 3 * block, block),
            (vec![r(page, 2 * block), r(3 * block, 4 * block)], Some(4 * block))
        );
        assert_eq!(clip(&ranges, block / 2, block), (vec![], Some(page)), "not one whole block");
        assert_eq!(clip(&ranges[1..], block - page, block), (vec![], Some(3 * block)));
        assert_eq!(clip(&ranges, block / 2, page), (vec![r(page, page + block / 2)], Some(page + block / 2)));
        assert_eq!(clip(&ranges, u64::MAX, block), (ranges.to_vec(), None));
        assert_eq!(clip(&ranges, 0, page), (vec![], Some(page)));
    }

    #[test]
    fn what_is_not_in_memory_takes_no_place_in_the_quota() {
        let region = |evidence| RegionInfo { start: 0, end: 4096, nr_accesses: 0, age: 0, evidence, accessed: None };
        let seen = |pages, present| region(Some(Evidence { checks: pages, pages, present, blind: 0 }));
        assert_eq!(present_of(&seen(16, 0), 1 << 30), 0);
        assert_eq!(present_of(&seen(16, 4), 1 << 30), 1 << 28);
        assert_eq!(present_of(&seen(0, 0), 1 << 30), 1 << 30, "nobody looked: all of it counts");
        assert_eq!(present_of(&region(None), 1 << 30), 1 << 30);
    }
}
