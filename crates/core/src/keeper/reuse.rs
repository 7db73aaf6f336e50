//! The controller: how likely a page comes back, learnt from all pages whether they are in memory or out.
//!
//! As in the kernel's controller there is a proportional part (the share of a group's pages that were used between the
//! last two walks) and an integral part (a moving average in which each older walk weighs half), and no differential
//! part. The kernel knows such shares of evicted pages only, by four tiers of accesses through file descriptors. Here
//! every page is seen at every walk, evicted ones included (they are used when they come back), so groups can be finer:
//! by age *and* by frequency. Which of both counts is not laid down: where recency tells the future, old groups come
//! back least; where frequency does, seldom used ones; in a loop, those that were used last.

use super::page::{GROUPS, expected, older};
use super::page_kind::PageKind;

/// Pages that must have been seen in a group until what was learnt counts as much as what is expected.
const DOUBT: f64 = 64.0;
/// What a use counts that comes a walk later.
const PATIENCE: f64 = 0.9;

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    used: f64,
    seen: f64,
}

/// Shares of pages used between two walks, per kind and group.
#[derive(Debug, Clone)]
pub struct ReuseModel {
    learnt: Box<[[Count; GROUPS]; 2]>,
    now: Box<[[(u32, u32); GROUPS]; 2]>,
}

impl Default for ReuseModel {
    fn default() -> Self {
        Self { learnt: Box::new([[Count::default(); GROUPS]; 2]), now: Box::new([[(0, 0); GROUPS]; 2]) }
    }
}

impl ReuseModel {
    /// A walk has found `used` of `seen` pages of this group used.
    pub fn note(&mut self, kind: PageKind, group: usize, used: u32, seen: u32) {
        let (hits, all) = &mut self.now[kind as usize][group];
        *hits = hits.saturating_add(used);
        *all = all.saturating_add(seen);
    }

    /// A walk is complete.
    pub fn carry_over(&mut self) {
        for (learnt, now) in self.learnt.iter_mut().flatten().zip(self.now.iter_mut().flatten()) {
            learnt.used = (learnt.used + f64::from(now.0)) / 2.0;
            learnt.seen = (learnt.seen + f64::from(now.1)) / 2.0;
            *now = (0, 0);
        }
    }

    /// How likely a page of this group is used until the next walk.
    pub fn of(&self, kind: PageKind, group: usize) -> f64 {
        let Count { used, seen } = self.learnt[kind as usize][group];
        // A few pages may only correct the expectation.
        (used + DOUBT * expected(group)) / (seen + DOUBT)
    }

    /// What losing a page of each group costs: the chance that it is used soon. A use after the next walk counts for
    /// less the later it comes; so of pages that are all unused until the next walk, those go that will not be needed
    /// for longest.
    fn costs(&self, kind: PageKind) -> Vec<f64> {
        let mut costs = vec![0.0; GROUPS];
        for group in (0..GROUPS).rev() {
            let used = self.of(kind, group);
            // The next walk finds it used, or makes it older; the oldest stay what they are.
            costs[group] = match older(group) {
                Some(next) => used + (1.0 - used) * PATIENCE * costs[next],
                None => used / (1.0 - (1.0 - used) * PATIENCE),
            };
        }
        // As the chance between two walks that would come to the same if it stayed: small differences between pages in
        // steady use would be lost otherwise.
        costs.iter().map(|cost| cost * (1.0 - PATIENCE) / (1.0 - PATIENCE * cost)).collect()
    }

    /// All groups of both kinds, least likely to come back first, and with what a page of each costs to lose.
    /// `swappiness` (0 to 200) weighs the kinds: at 100 they are equal, at 0 anonymous memory stays, at 200 files do.
    pub fn order(&self, swappiness: u8) -> Vec<Rank> {
        let weight = [200.0 - f64::from(swappiness.min(200)), f64::from(swappiness.min(200))];
        let kinds = [(PageKind::Anon, 0), (PageKind::File, 200)];
        let mut ranks: Vec<Rank> = kinds
            .into_iter()
            .filter(|&(_, never)| swappiness != never)
            .flat_map(|(kind, _)| {
                self.costs(kind).into_iter().enumerate().map(move |(group, cost)| (kind, group, cost))
            })
            .map(|(kind, group, cost)| Rank { kind, group, cost: cost * weight[kind as usize] / 100.0 })
            .collect();
        ranks.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        ranks
    }
}

/// A group and what losing one of its pages costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rank {
    /// Anonymous memory or files.
    pub kind: PageKind,
    /// Which group.
    pub group: usize,
    /// Chance to come back, weighed by kind.
    pub cost: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::page;

    fn group(age: u8, level: f64) -> usize {
        page::group(age, (level.sqrt() * 255.0) as u8)
    }

    fn first(reuse: &ReuseModel, a: usize, b: usize) -> usize {
        reuse
            .order(100)
            .iter()
            .filter(|r| r.kind == PageKind::Anon)
            .map(|r| r.group)
            .find(|g| [a, b].contains(g))
            .unwrap()
    }

    fn learn(reuse: &mut ReuseModel, group: usize, used: u32, of: u32) {
        reuse.note(PageKind::Anon, group, used, of);
    }

    #[test]
    fn before_anything_is_learnt_old_and_seldom_used_pages_go_first() {
        let reuse = ReuseModel::default();
        assert_eq!(first(&reuse, group(0, 0.1), group(5, 0.1)), group(5, 0.1));
        assert_eq!(first(&reuse, group(5, 0.5), group(5, 0.1)), group(5, 0.1));
    }

    #[test]
    fn what_comes_back_is_protected_whatever_it_looks_like() {
        let (old, young) = (group(9, 0.0), group(0, 0.06));
        let mut reuse = ReuseModel::default();
        for _ in 0..5 {
            learn(&mut reuse, old, 900, 1000);
            learn(&mut reuse, young, 10, 1000);
            reuse.carry_over();
        }
        assert_eq!(first(&reuse, old, young), young, "a loop: the least recently used comes next");
        // And the other way round as soon as that changes.
        for _ in 0..3 {
            learn(&mut reuse, old, 0, 1000);
            learn(&mut reuse, young, 500, 1000);
            reuse.carry_over();
        }
        assert_eq!(first(&reuse, old, young), old);
    }

    #[test]
    fn few_pages_prove_little() {
        let mut reuse = ReuseModel::default();
        learn(&mut reuse, group(9, 0.0), 2, 2);
        reuse.carry_over();
        assert!(reuse.of(PageKind::Anon, group(9, 0.0)) < 0.1);
    }

    #[test]
    fn swappiness_weighs_kinds_and_excludes_at_its_ends() {
        let reuse = ReuseModel::default();
        let kinds = |s| reuse.order(s).iter().map(|r| r.kind).collect::<Vec<_>>();
        assert!(kinds(0).iter().all(|&k| k == PageKind::File));
        assert!(kinds(200).iter().all(|&k| k == PageKind::Anon));
        assert_eq!(kinds(100).len(), 2 * GROUPS);
        assert_eq!(reuse.order(60)[0].kind, PageKind::File);
        assert_eq!(reuse.order(140)[0].kind, PageKind::Anon);
    }
}
