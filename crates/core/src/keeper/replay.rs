//! The live engine against a process that is made up: page tables with real accessed bits, a limit, and LRU beside it.

use super::address_space::AddressSpace;
use super::memcg_lru::MemcgLru;
use super::memory::{Memory, PageOut, PagedOut};
use super::plan::Plan;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use crate::bits::{TableBits, Window};
use crate::mapping::{Mapping, MappingKind};
use crate::pages::mask_of;
use crate::source::{AccessSource, Clear, Cost, SourceError};
use crate::target::TargetId;
use crate::target::TargetInfo;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Page tables of made-up processes.
#[derive(Default)]
struct Kernel {
    pages: u64,
    present: BTreeMap<TargetId, Vec<bool>>,
    accessed: BTreeMap<TargetId, Vec<bool>>,
    /// Pages that MADV_PAGEOUT leaves alone.
    pinned: Vec<u64>,
    gone: Vec<TargetId>,
    /// The next look at its mappings, or at its pages, fails.
    fails: Option<(TargetId, Failing)>,
    evicted: BTreeMap<TargetId, u64>,
    cleared: u64,
}

/// What of a process cannot be looked at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failing {
    Mappings,
    /// All tables but the first.
    Tables,
}

impl Kernel {
    /// Fails if that was asked for.
    fn may_fail(&mut self, target: TargetId, what: Failing) -> Result<(), SourceError> {
        match self.fails.take_if(|fails| *fails == (target, what)) {
            Some(_) => Err(SourceError::Failed(format!("target {target}: too many open files"))),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct Toy(Rc<RefCell<Kernel>>);

impl Toy {
    pub(super) fn new(processes: u32, pages: u64) -> Self {
        let kernel = Kernel {
            pages,
            present: (0..processes).map(|t| (t, vec![false; pages as usize])).collect(),
            accessed: (0..processes).map(|t| (t, vec![false; pages as usize])).collect(),
            ..Kernel::default()
        };
        Self(Rc::new(RefCell::new(kernel)))
    }

    /// Whether it missed.
    pub(super) fn access(&self, target: TargetId, page: u64) -> bool {
        let mut k = self.0.borrow_mut();
        k.accessed.get_mut(&target).unwrap()[page as usize] = true;
        !std::mem::replace(&mut k.present.get_mut(&target).unwrap()[page as usize], true)
    }

    pub(super) fn resident(&self) -> u64 {
        self.0.borrow().present.values().flatten().filter(|p| **p).count() as u64
    }

    /// From now on these pages cannot be evicted.
    pub(super) fn pin(&self, pages: std::ops::Range<u64>) {
        self.0.borrow_mut().pinned = pages.collect();
    }

    pub(super) fn end(&self, target: TargetId) {
        self.0.borrow_mut().gone.push(target);
    }
}

impl AccessSource for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        Ok(Vec::new())
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        let mut k = self.0.borrow_mut();
        if k.gone.contains(&target) {
            return Err(SourceError::Gone { target, pid: 1 });
        }
        k.may_fail(target, Failing::Mappings)?;
        out.clear();
        out.push(Mapping::anon(0, k.pages * PAGE_SIZE));
        Ok(())
    }

    fn arm(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
        unreachable!("walks are scans")
    }

    fn look(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
        unreachable!("walks are scans")
    }

    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        mut clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        let mut k = self.0.borrow_mut();
        if k.gone.contains(&target) {
            return Err(SourceError::Gone { target, pid: 1 });
        }
        let tables = k.pages.div_ceil(512);
        for base in (0..tables).map(|t| t * TABLE_SPAN) {
            let mut asked = [0; 8];
            for r in ranges {
                let m = mask_of(base, *r);
                (0..8).for_each(|w| asked[w] |= m[w]);
            }
            let mut bits = TableBits::empty(base);
            for i in (0..512usize).filter(|i| asked[i / 64] >> (i % 64) & 1 == 1) {
                let page = (base / PAGE_SIZE) as usize + i;
                if k.present[&target].get(page) == Some(&true) {
                    bits.present[i / 64] |= 1 << (i % 64);
                    bits.accessed[i / 64] |= u64::from(k.accessed[&target][page]) << (i % 64);
                }
            }
            bits.cleared = clear.choose(&bits);
            k.cleared += u64::from(crate::mask::count(&bits.cleared));
            for i in crate::mask::iter(&bits.cleared) {
                k.accessed.get_mut(&target).unwrap()[(base / PAGE_SIZE) as usize + i] = false;
            }
            if bits.present != [0; 8] {
                sink(&bits);
            }
            k.may_fail(target, Failing::Tables)?;
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::default()
    }
}

impl PageOut for Toy {
    fn page_out(&mut self, target: TargetId, ranges: &[AddrRange]) -> PagedOut {
        let mut k = self.0.borrow_mut();
        let mut taken = 0;
        for page in ranges.iter().flat_map(|r| r.start / PAGE_SIZE..r.end / PAGE_SIZE) {
            taken += PAGE_SIZE;
            if !k.pinned.contains(&page) {
                k.present.get_mut(&target).unwrap()[page as usize] = false;
                *k.evicted.entry(target).or_default() += 1;
            }
        }
        PagedOut { taken, error: None }
    }
}

fn memory(targets: impl IntoIterator<Item = TargetId>) -> Memory {
    let mut memory = Memory::learning();
    targets.into_iter().for_each(|t| memory.add(t));
    memory
}

/// Misses of the live engine, and bits that it cleared: it walks every `walk_every` accesses, and keeps `limit` pages.
fn live(pages: u64, limit: u64, walk_every: usize, most_level: u8, trace: &[u64]) -> (u64, u64) {
    let mut toy = Toy::new(1, pages);
    let (mut memory, mut plan, mut misses, mut resident) = (memory([0]), Plan::default(), 0, 0);
    memory.set_most_level(most_level);
    for (i, &page) in trace.iter().enumerate() {
        if i.is_multiple_of(walk_every) {
            memory.age(&mut toy.clone(), i as u64).unwrap();
            plan = Plan::default();
        }
        if toy.access(0, page) {
            // The first half warms up.
            misses += u64::from(i >= trace.len() / 2);
            resident += 1;
        }
        let low = limit - limit / 100;
        while resident > limit {
            if plan.is_empty() {
                plan = memory.plan(100, (limit / 10) * PAGE_SIZE, 0);
                if plan.is_empty() {
                    memory.age(&mut toy.clone(), i as u64).unwrap();
                    continue;
                }
            }
            let done = memory.evict(&mut toy.clone(), &mut toy, &mut plan, (resident - low) * PAGE_SIZE).unwrap();
            resident -= done.out / PAGE_SIZE;
        }
    }
    let cleared = toy.0.borrow().cleared;
    (misses, cleared)
}

/// Misses of exact LRU.
fn lru(limit: u64, trace: &[u64]) -> u64 {
    let (mut last, mut order, mut misses) = (HashMap::new(), BTreeMap::new(), 0);
    for (i, &page) in trace.iter().enumerate() {
        match last.insert(page, i) {
            Some(before) => _ = order.remove(&before),
            None => misses += u64::from(i >= trace.len() / 2),
        }
        order.insert(i, page);
        if order.len() as u64 > limit {
            let (_, oldest) = order.pop_first().unwrap();
            last.remove(&oldest);
        }
    }
    misses
}

/// Popularity of pages as stores have it: `per_page` records of a Zipf distribution share a page at random.
fn zipf(pages: u64, per_page: u64, n: usize, rng: &mut fastrand::Rng) -> Vec<u64> {
    let records = pages * per_page;
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=records)
        .map(|r| {
            sum += 1.0 / (r as f64).powf(0.99);
            sum
        })
        .collect();
    let mut place: Vec<u64> = (0..records).map(|r| r / per_page).collect();
    rng.shuffle(&mut place);
    let mut draw = || {
        let at = rng.f64() * sum;
        place[sums.partition_point(|&s| s < at).min(records as usize - 1)]
    };
    (0..n).map(|_| draw()).collect()
}

const PAGES: u64 = 8192;
const LIMIT: u64 = 4096;

fn ratio(walk_every: usize, trace: &[u64]) -> f64 {
    let (ours, theirs) = (live(PAGES, LIMIT, walk_every, 0, trace).0, lru(LIMIT, trace));
    println!("misses: {ours} ours, {theirs} lru");
    ours as f64 / theirs as f64
}

#[test]
fn popular_pages_are_kept_better_than_by_lru() {
    let mut rng = fastrand::Rng::with_seed(1);
    let trace = zipf(PAGES, 3, 400_000, &mut rng);
    let ratio = ratio(4000, &trace);
    assert!(ratio < 0.92, "{ratio}");
}

#[test]
fn exponential_popularity_is_learnt() {
    let mut rng = fastrand::Rng::with_seed(1);
    let draw = |rng: &mut fastrand::Rng| loop {
        let page = (-(1.0 - rng.f64()).ln() * PAGES as f64 * 0.286) as u64;
        if page < PAGES {
            return page;
        }
    };
    let trace: Vec<u64> = (0..400_000).map(|_| draw(&mut rng)).collect();
    let ratio = ratio(4000, &trace);
    assert!(ratio < 0.85, "{ratio}");
}

#[test]
fn nothing_is_lost_where_there_is_nothing_to_learn() {
    let mut rng = fastrand::Rng::with_seed(1);
    let trace: Vec<u64> = (0..200_000).map(|_| rng.u64(..PAGES)).collect();
    let ratio = ratio(4000, &trace);
    assert!(ratio < 1.03, "{ratio}");
}

#[test]
fn a_loop_larger_than_memory_keeps_a_part() {
    let trace: Vec<u64> = (0..30 * PAGES).map(|i| i % PAGES).collect();
    let ratio = ratio(1000, &trace);
    assert!(ratio < 0.9, "LRU misses always: {ratio}");
}

#[test]
fn pages_in_constant_use_may_be_cleared_seldom() {
    let mut rng = fastrand::Rng::with_seed(1);
    // 2048 pages are always in use, and at times one of 6144 others.
    let trace: Vec<u64> =
        (0..600_000).map(|_| if rng.f64() < 0.95 { rng.u64(..2048) } else { 2048 + rng.u64(..6144) }).collect();
    let (often, seldom) = (live(PAGES, LIMIT, 20_000, 0, &trace), live(PAGES, LIMIT, 20_000, 5, &trace));
    println!("misses and bits cleared: {often:?} {seldom:?}");
    assert!(seldom.0 as f64 <= 1.02 * often.0 as f64, "{often:?} {seldom:?}");
    assert!(seldom.1 * 2 < often.1, "{often:?} {seldom:?}");
}

#[test]
fn a_new_working_set_takes_over_soon() {
    let mut rng = fastrand::Rng::with_seed(1);
    // Half of memory is used for long, then the other half and more.
    let mut trace: Vec<u64> = (0..200_000).map(|_| rng.u64(..3000)).collect();
    trace.extend((0..200_000).map(|_| 4000 + rng.u64(..3500)));
    let ratio = ratio(4000, &trace);
    assert!(ratio < 2.5, "LRU misses each page once: {ratio}");
}

#[test]
fn pages_that_cannot_go_do_not_hold_up_the_others() {
    let mut toy = Toy::new(1, 1024);
    toy.0.borrow_mut().pinned = (0..512).collect();
    (0..1024).for_each(|page| _ = toy.access(0, page));
    let mut memory = memory([0]);
    (0..3).for_each(|now| _ = memory.age(&mut toy.clone(), now).unwrap());
    let mut out = 0;
    for _ in 0..4 {
        let mut plan = memory.plan(100, 512 * PAGE_SIZE, 0);
        out += memory.evict(&mut toy.clone(), &mut toy, &mut plan, 512 * PAGE_SIZE).unwrap().out;
    }
    assert_eq!(out, 512 * PAGE_SIZE);
    assert_eq!(memory.out_bytes(), 512 * PAGE_SIZE);
    assert_eq!(toy.resident(), 512);
}

#[test]
fn what_was_used_after_the_walk_is_spared() {
    let mut toy = Toy::new(1, 1024);
    (0..1024).for_each(|page| _ = toy.access(0, page));
    let mut memory = memory([0]);
    (0..2).for_each(|now| _ = memory.age(&mut toy.clone(), now).unwrap());
    let mut plan = memory.plan(100, u64::MAX, 0);
    (0..100).for_each(|page| _ = toy.access(0, page));
    let done = memory.evict(&mut toy.clone(), &mut toy, &mut plan, u64::MAX).unwrap();
    assert_eq!((done.planned, done.spared, done.out), (1024 << 12, 100 << 12, 924 << 12));
}

#[test]
fn generations_and_the_command_to_evict_them() {
    let mut toy = Toy::new(1, 1000);
    let mut memory = memory([0]);
    for (now, used) in [(0u64, 1000u64), (1_000_000, 400), (2_000_000, 100), (3_000_000, 10)] {
        (0..used).for_each(|page| _ = toy.access(0, page));
        memory.age(&mut toy.clone(), now).unwrap();
    }
    let generations = memory.generations(None, 4, 5_000_000);
    let shown: Vec<_> = generations.iter().map(|g| (g.seq, g.age_ms, g.anon_bytes >> 12)).collect();
    assert_eq!(shown, [(0, 5, 600), (1, 4, 300), (2, 3, 90), (3, 2, 10)]);
    let merged = memory.generations(None, 2, 5_000_000);
    assert_eq!(merged.iter().map(|g| (g.seq, g.anon_bytes >> 12)).collect::<Vec<_>>(), [(2, 990), (3, 10)]);
    let files = memory.evict_generations(&mut toy.clone(), &mut toy, 1, 0, u64::MAX).unwrap();
    assert_eq!(files.planned, 0, "all of it is anonymous");
    let done = memory.evict_generations(&mut toy.clone(), &mut toy, 1, 100, u64::MAX).unwrap();
    assert_eq!(done.out, 900 << 12);
    assert_eq!(memory.evict_generations(&mut toy.clone(), &mut toy, 9, 100, u64::MAX).unwrap().out, 0);
    // A refault joins the youngest.
    toy.access(0, 999);
    let walked = memory.age(&mut toy.clone(), 6_000_000).unwrap();
    assert_eq!((walked.back, walked.present), (1, 101));
    assert_eq!(memory.generations(None, 4, 6_000_000).last().unwrap().anon_bytes, 1 << 12);
}

#[test]
fn a_process_that_ends_during_a_walk_is_forgotten() {
    let mut toy = Toy::new(2, 100);
    (0..2).for_each(|t| _ = toy.access(t, 5));
    let mut memory = memory([0, 1]);
    memory.age(&mut toy, 0).unwrap();
    toy.0.borrow_mut().gone.push(0);
    let walked = memory.age(&mut toy.clone(), 1).unwrap();
    assert_eq!((walked.present, memory.spaces.len()), (1, 1));
    let mut plan = memory.plan(100, u64::MAX, 0);
    toy.0.borrow_mut().gone.push(1);
    assert_eq!(memory.evict(&mut toy.clone(), &mut toy, &mut plan, u64::MAX).unwrap().out, 0);
}

#[test]
fn a_process_that_could_not_be_walked_once_is_walked_again() {
    for failing in [Failing::Mappings, Failing::Tables] {
        let mut toy = Toy::new(2, 1024);
        let mut memory = memory([0, 1]);
        (0..2).for_each(|t| (0..1024).for_each(|page| _ = toy.access(t, page)));
        memory.age(&mut toy.clone(), 0).unwrap();
        toy.0.borrow_mut().fails = Some((0, failing));
        let failed = memory.age(&mut toy.clone(), 1).unwrap_err();
        assert!(failed.to_string().contains("too many open files"), "{failed}");
        assert_eq!(memory.spaces.len(), 2, "{failing:?}");
        (0..600).for_each(|page| _ = toy.access(0, page));
        let walked = memory.age(&mut toy.clone(), 2).unwrap();
        assert_eq!((walked.present, walked.used), (2048, 600), "{failing:?}");
        let mut plan = memory.plan(100, u64::MAX, 1);
        let done = memory.evict(&mut toy.clone(), &mut toy, &mut plan, u64::MAX).unwrap();
        assert_eq!(done.out, (2048 - 600) * PAGE_SIZE, "{failing:?}");
    }
}

#[test]
fn files_and_locked_memory_are_told_apart() {
    let mut space = AddressSpace::default();
    let mut file = Mapping::anon(PAGE_SIZE, 3 * PAGE_SIZE);
    file.kind = MappingKind::File;
    let mut locked = Mapping::anon(3 * PAGE_SIZE, 4 * PAGE_SIZE);
    locked.locked = true;
    space.set_mappings(&[Mapping::anon(0, PAGE_SIZE), file, locked]);
    space.begin_walk(&super::creation_times::CreationTimes::new(0, 1), 0);
    space.walk(
        &TableBits {
            base: 0,
            leaf_shift: 12,
            present: [15, 0, 0, 0, 0, 0, 0, 0],
            accessed: [0; 8],
            cleared: [0; 8],
            blind: [0; 8],
        },
        None,
    );
    let mut sizes = [[0; 2]];
    space.sizes(&mut sizes);
    assert_eq!(sizes, [[2 << 12, 2 << 12]]);
    let all = AddrRange::new(0, 4 * PAGE_SIZE);
    assert_eq!(space.evictable(&[all]), [AddrRange::new(0, 3 * PAGE_SIZE)]);
    // What is mapped no more is forgotten.
    space.set_mappings(&[Mapping::anon(0, PAGE_SIZE)]);
    space.sizes(&mut sizes);
    assert_eq!(space.evictable(&[all]), [AddrRange::new(0, PAGE_SIZE)]);
}

#[test]
fn ranges_reach_over_what_is_out_but_not_over_what_is_in_use_or_another_mapping() {
    let mut space = AddressSpace::default();
    space.set_mappings(&[Mapping::anon(0, 100 * PAGE_SIZE), {
        let mut file = Mapping::anon(100 * PAGE_SIZE, 200 * PAGE_SIZE);
        file.kind = MappingKind::File;
        file
    }]);
    space.begin_walk(&super::creation_times::CreationTimes::new(0, 1), 0);
    // Pages 0, 4, 6, 99 and 100 are in memory.
    let present = [1 | 1 << 4 | 1 << 6, 1 << 35 | 1 << 36, 0, 0, 0, 0, 0, 0];
    space.walk(&TableBits { base: 0, leaf_shift: 12, present, accessed: [0; 8], cleared: [0; 8], blind: [0; 8] }, None);
    let page = |first: u64, end: u64| AddrRange::new(first * PAGE_SIZE, end * PAGE_SIZE);
    assert_eq!(space.joined(&[page(0, 1), page(6, 7)]), [page(0, 1), page(6, 7)], "page 4 is in memory");
    assert_eq!(space.joined(&[page(0, 1), page(4, 5), page(6, 7)]), [page(0, 7)]);
    assert_eq!(space.joined(&[page(6, 7), page(99, 100)]), [page(6, 7), page(99, 100)], "too far");
    assert_eq!(space.joined(&[page(90, 91), page(99, 100), page(101, 102)]), [page(90, 100), page(101, 102)]);
    assert_eq!(space.joined(&[]), []);
}

/// Two memories under one limit, one large and mostly idle, one small and busy: misses of the small one.
fn two(fair: bool) -> (u64, [u64; 2]) {
    let mut toy = Toy::new(2, 8192);
    let mut memories = [memory([0]), memory([1])];
    let (mut turns, mut rng) = (MemcgLru::new(1), fastrand::Rng::with_seed(3));
    (0..2).for_each(|id| turns.add(id));
    (0..8192).for_each(|page| _ = toy.access(0, page));
    let mut misses = 0;
    for step in 0..200u64 {
        for _ in 0..200 {
            misses += u64::from(toy.access(1, rng.u64(..1024)));
        }
        (0..20).for_each(|_| _ = toy.access(0, rng.u64(..1000)));
        memories.iter_mut().for_each(|m| _ = m.age(&mut toy.clone(), step).unwrap());
        let need = toy.resident().saturating_sub(6000) * PAGE_SIZE;
        let sizes: Vec<u64> = memories.iter().map(|m| m.old_bytes()).collect();
        let shares = if fair {
            turns.distribute(need, |id| sizes[id as usize])
        } else {
            vec![(0, need / 2), (1, (need / 2).min(sizes[1]))]
        };
        for (id, bytes) in shares {
            let mut plan = memories[id as usize].plan(100, bytes, 0);
            memories[id as usize].evict(&mut toy.clone(), &mut toy, &mut plan, bytes).unwrap();
        }
    }
    let k = toy.0.borrow();
    (misses, [0, 1].map(|t| k.evicted.get(&t).copied().unwrap_or(0)))
}

#[test]
fn unequal_memories_are_reclaimed_by_what_they_have_not_in_equal_parts() {
    let ((fair, by_size), (round_robin, equal)) = (two(true), two(false));
    println!("fair: {fair} misses, evicted {by_size:?}; round robin: {round_robin} misses, evicted {equal:?}");
    assert!(fair * 3 < round_robin * 2, "the small busy one suffers: {fair} {round_robin}");
    assert!(by_size[0] > 3 * by_size[1] && by_size[1] > 0);
}
