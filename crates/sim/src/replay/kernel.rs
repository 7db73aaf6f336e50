//! Linux's own policies: they care for how a page is reached, and for where it lies in a page table.

use super::watch::Watch;
use super::{AHEAD, Count, Groups};
use crate::policy::Work;
use crate::policy::kernel_lru::classic::{Classic, ClassicConfig};
use crate::policy::kernel_lru::machine::Machine;
use crate::policy::kernel_lru::mglru::{MgConfig, MgLru};
use crate::policy::kernel_lru::{Access, Channel, Hit, LruStats, Lruvec, PageKind, Variant};
use crate::trace::{Manner, Trace};

/// Pages that share a page table.
const TABLE: u64 = 512;
/// Places for each page that leaving holes in page tables may cost at most.
const HOLES: u64 = 4;

/// Gives every page a place so that pages of one table stay together and in order: holes within tables stay, tables in
/// which nothing lies are left out. Where names are so scattered that this would waste space (hashes, sparse blocks),
/// pages lie in the order of their names without holes.
pub(super) fn place(names: &[u64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..names.len() as u32).collect();
    order.sort_unstable_by_key(|&page| names[page as usize]);
    let table = |page: u32| names[page as usize] / TABLE;
    let tables = order.chunk_by(|a, b| table(*a) == table(*b)).count() as u64;
    let keep_holes = tables * TABLE <= HOLES * names.len() as u64 && tables * TABLE < u64::from(u32::MAX);
    let mut places = vec![0; names.len()];
    let mut next = 0;
    for pages in order.chunk_by(|a, b| table(*a) == table(*b)) {
        for &page in pages {
            let within = if keep_holes { (names[page as usize] % TABLE) as u32 } else { 0 };
            places[page as usize] = next + within;
            next += u32::from(!keep_holes);
        }
        next += if keep_holes { TABLE as u32 } else { 0 };
    }
    places
}

fn access(manner: Manner) -> Access {
    Access {
        channel: if manner.is_fd() { Channel::Fd } else { Channel::Mapped },
        kind: if manner.is_file() { PageKind::File } else { PageKind::Anon },
        write: manner.is_write(),
    }
}

fn work((stats, rmap_walks): (LruStats, u64)) -> Work {
    Work {
        rmap_walks: Some(rmap_walks),
        pages_scanned: Some(stats.pages_scanned),
        ptes_read: Some(stats.ptes_read),
        tables_skipped: Some(stats.tables_skipped),
        list_moves: Some(stats.list_moves),
        agings: Some(stats.agings),
    }
}

trait Takes {
    /// Reads what the next requests will need; see [`crate::policy::Policy::warm`].
    fn warm(&self, _places: &[u32]) -> u32 {
        0
    }

    fn take(&mut self, at: usize, place: u32, how: Access) -> bool;

    /// What it did so far, and pages looked up in page tables one by one.
    fn did(&self) -> (LruStats, u64);
}

impl Takes for MgLru {
    fn warm(&self, places: &[u32]) -> u32 {
        Self::warm(self, places)
    }

    fn take(&mut self, _at: usize, place: u32, how: Access) -> bool {
        self.access(place, how) == Hit::Hit
    }

    fn did(&self) -> (LruStats, u64) {
        (self.stats(), self.detail().rmap_walks)
    }
}

impl Takes for Classic {
    fn take(&mut self, _at: usize, place: u32, how: Access) -> bool {
        self.access(place, how) == Hit::Hit
    }

    /// It reads no entry but those of pages that it looks up.
    fn did(&self) -> (LruStats, u64) {
        (self.stats(), self.stats().ptes_read)
    }
}

/// The memories of a trace's groups.
struct Memories<'a> {
    machine: Machine,
    trace: &'a Trace,
}

impl Memories<'_> {
    fn all(&self) -> impl Iterator<Item = (usize, &Lruvec)> {
        (0..self.trace.groups().names().len()).filter_map(|group| Some((group, self.machine.lruvec(group as u16)?)))
    }
}

impl Takes for Memories<'_> {
    fn take(&mut self, at: usize, place: u32, how: Access) -> bool {
        self.machine.access(self.trace.groups().of(at).into(), place, how) == Some(Hit::Hit)
    }

    fn did(&self) -> (LruStats, u64) {
        self.all().fold(Default::default(), |(mut sum, rmap_walks): (LruStats, u64), (_, lruvec)| {
            sum.add(&lruvec.stats());
            (sum, rmap_walks + lruvec.detail().rmap_walks)
        })
    }
}

/// `each` is given the position of every request and whether it was a hit.
fn run<T: Takes>(policy: &mut T, trace: &Trace, places: &[u32], mut each: impl FnMut(usize, bool, &T)) {
    let mut ahead = [0; AHEAD];
    let mut at = 0;
    for pages in trace.pages().chunks(AHEAD) {
        let ahead = &mut ahead[..pages.len()];
        for (place, &page) in ahead.iter_mut().zip(pages) {
            *place = places[page as usize];
        }
        std::hint::black_box(policy.warm(ahead));
        for &place in &*ahead {
            let hit = policy.take(at, place, access(trace.manner(at)));
            each(at, hit, policy);
            at += 1;
        }
    }
}

fn replay<T: Takes>(policy: &mut T, trace: &Trace, places: &[u32], watch: Option<&mut Watch<'_>>) -> Count {
    match watch {
        None => run(policy, trace, places, |_, _, _| {}),
        Some(watch) => run(policy, trace, places, |at, hit, policy| watch.see(at, hit, || work(policy.did()))),
    }
    let (stats, rmap_walks) = policy.did();
    let work = work((stats, rmap_walks));
    Count { misses: stats.misses, evictions: stats.evictions, refaults: stats.refaults, work }
}

fn highest(places: &[u32]) -> u32 {
    places.iter().max().map_or(0, |p| p + 1)
}

/// A multi-generational LRU for `size` of these pages.
pub(super) fn generations(places: &[u32], size: u32, variant: Variant) -> MgConfig {
    MgConfig { pages: highest(places), variant, ..MgConfig::scaled(size) }
}

pub(super) fn mglru(trace: &Trace, places: &[u32], config: MgConfig, watch: Option<&mut Watch<'_>>) -> Count {
    replay(&mut MgLru::new(config), trace, places, watch)
}

/// The seed of the bins that memories are put into.
const SEED: u64 = 1;

/// The multi-generational LRU for several memories on one machine.
pub(super) fn mglru_of_groups(
    trace: &Trace,
    places: &[u32],
    config: MgConfig,
    groups: &Groups,
    mut watch: Option<&mut Watch<'_>>,
) -> Count {
    let names = trace.groups().names();
    let bounds: Vec<_> = (0..names.len()).map(|g| groups.bounds.get(g).copied().unwrap_or_default()).collect();
    let mut memories = Memories { machine: Machine::new(config, &bounds, groups.fairness, SEED), trace };
    let count = replay(&mut memories, trace, places, watch.as_deref_mut());
    if let Some(watch) = watch {
        for (group, lruvec) in memories.all() {
            let low_events = memories.machine.low_events(group as u16).unwrap_or(0);
            watch.tell(group, lruvec.stats().evictions, lruvec.total(), low_events);
        }
    }
    count
}

/// The active and inactive lists.
pub(super) fn classic(trace: &Trace, places: &[u32], size: u32, watch: Option<&mut Watch<'_>>) -> Count {
    let mut lru = Classic::new(ClassicConfig { pages: highest(places), ..ClassicConfig::scaled(size) });
    replay(&mut lru, trace, places, watch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_table_stay_together() {
        let names: Vec<u64> =
            (0..400).map(|i| 512 * 7000 + 511 - i).chain((0..300).map(|i| 512 * 9 + 2 * i % 512)).collect();
        let places = place(&names[..656]);
        assert_eq!(places[0], 512 + 511, "the later table comes second");
        assert_eq!(places[400 + 5], 10, "holes stay");
        let scattered: Vec<u64> = (0..100).map(|i| (100 - i) << 30).collect();
        assert_eq!(place(&scattered), (0..100).rev().collect::<Vec<u32>>());
    }
}
