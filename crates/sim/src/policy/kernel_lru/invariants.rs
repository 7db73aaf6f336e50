//! What must hold whatever happens.

use super::flags::Flags;
use super::lruvec::{MAX_GENS, MIN_GENS, index};
use super::mglru::{MgConfig, MgLru};
use super::pages::Pages;
use super::tables::PageTables;
use super::{Access, Hit, Lruvec, PageKind, Switches, Variant};
use proptest::prelude::*;

/// The books of one memory against its lists.
#[allow(clippy::needless_range_loop, reason = "the kind is a name, the arrays are many")]
pub(super) fn check(lruvec: &Lruvec, pages: &Pages) -> Result<u64, TestCaseError> {
    let mut labelled = [[0_u64; 2]; MAX_GENS as usize];
    let mut total = 0;
    for kind in 0..2 {
        prop_assert!((MIN_GENS..=MAX_GENS).contains(&lruvec.generations(kind)));
        for generation in 0..MAX_GENS as usize {
            for page in pages.iter(lruvec.list(generation, kind)) {
                let flags = pages.flags(page);
                let label = flags.generation().expect("what is on a list has a label");
                prop_assert!(flags.has(Flags::RESIDENT));
                prop_assert_eq!((flags.kind(), flags.memcg()), (kind, lruvec.id));
                labelled[label][kind] += 1;
                total += 1;
                let seqs = lruvec.min_seq[kind]..=lruvec.max_seq;
                prop_assert!(seqs.clone().any(|seq| index(seq) == label), "older than the oldest");
                prop_assert!(seqs.clone().any(|seq| index(seq) == generation), "on a list of no generation");
            }
        }
    }
    prop_assert_eq!(labelled, lruvec.sizes);
    if lruvec.variant == Variant::V6_12 {
        prop_assert!(lruvec.min_seq[0] <= lruvec.min_seq[1]);
    } else {
        prop_assert!(lruvec.min_seq[0].abs_diff(lruvec.min_seq[1]) <= MAX_GENS - MIN_GENS);
    }
    Ok(total)
}

fn variants() -> impl Strategy<Value = Variant> {
    prop_oneof![Just(Variant::V6_12), Just(Variant::V6_14)]
}

fn how(page: u32, way: u8) -> Access {
    // A page is of one kind all its life.
    match (page % 3, way) {
        (0, way) => Access::mapped(PageKind::Anon, way.is_multiple_of(2)),
        (_, 0 | 1) => Access::mapped(PageKind::File, way == 0),
        (_, way) => Access::fd(way == 2),
    }
}

proptest! {
    #[test]
    fn its_books_are_right(
        variant in variants(), capacity in 1_u32..200, batch in 1_u32..32, swappiness in 1_u8..=200, leaf_walk: bool, non_leaf: bool,
        accesses in prop::collection::vec((0_u32..2000, 0_u8..6, any::<bool>()), 1..2000),
    ) {
        let switches = Switches { leaf_walk, non_leaf };
        let config = MgConfig { variant, batch, swappiness, switches, ..MgConfig::new(capacity) };
        let mut lru = MgLru::new(config);
        for (at, (page, way, near)) in accesses.into_iter().enumerate() {
            let page = if near { page / 10 } else { page };
            let held = lru.holds(page);
            prop_assert_eq!(lru.access(page, how(page, way)) == Hit::Hit, held);
            prop_assert!(lru.holds(page));
            if at % 25 == 0 {
                let (lruvec, pages) = lru.parts();
                prop_assert_eq!(check(lruvec, pages)?, u64::from(lru.resident()));
            }
            prop_assert!(lru.resident() <= capacity);
        }
        let stats = lru.stats();
        prop_assert_eq!(stats.misses - stats.evictions, u64::from(lru.resident()));
        prop_assert_eq!(lru.detail().forced, 0, "the rules always find something");
    }

    #[test]
    fn a_kind_that_may_not_go_stays(variant in variants(), batch in 1_u32..32, seed: u64) {
        let mut lru = MgLru::new(MgConfig { variant, batch, swappiness: 0, ..MgConfig::new(500) });
        (0..100).for_each(|page| _ = lru.access(page, Access::mapped(PageKind::Anon, true)));
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..3000 {
            let how = if rng.bool() { Access::fd(false) } else { Access::mapped(PageKind::File, false) };
            lru.access(rng.u32(1000..3000), how);
        }
        prop_assert!((0..100).all(|page| lru.holds(page)));
    }

    /// Accessed between every two agings and mapped: never evicted, once it has been in memory for two of them.
    #[test]
    fn what_is_always_used_stays(variant in variants(), batch in 1_u32..32, seed: u64, swappiness in 1_u8..200) {
        let mut lru = MgLru::new(MgConfig { variant, batch, swappiness, ..MgConfig::new(4000) });
        let mut rng = fastrand::Rng::with_seed(seed);
        let hot: Vec<u32> = (0..20).map(|_| rng.u32(..3000)).collect();
        let kind = |page: u32| if page.is_multiple_of(3) { PageKind::Anon } else { PageKind::File };
        (0..3000).for_each(|page| _ = lru.access(page, Access::mapped(kind(page), true)));
        let (lruvec, pages, tables) = lru.parts_mut();
        for round in 0..12 {
            for &page in &hot {
                if pages.flags(page).has(Flags::RESIDENT) {
                    tables.touch(page);
                }
            }
            if round > 2 {
                for _ in 0..rng.u32(..40) {
                    lruvec.evict_batch(pages, tables, swappiness);
                }
            }
            prop_assert!(hot.iter().all(|&page| pages.flags(page).has(Flags::RESIDENT)), "round {round}");
            check(lruvec, pages)?;
            prop_assert!(lruvec.age(pages, tables, swappiness, rng.bool()));
            check(lruvec, pages)?;
        }
        prop_assert!(lruvec.stats.evictions > 0);
    }
}

#[test]
fn it_begins_with_four_generations() {
    let lru = MgLru::new(MgConfig::new(100));
    let lruvec = lru.parts().0;
    assert_eq!((lruvec.max_seq, lruvec.min_seq), (3, [0, 0]));
    assert_eq!((lruvec.generations(0), lruvec.generations(1)), (4, 4));
    assert_eq!(lruvec.walk.seq, 2);
}

#[test]
fn the_first_walk_reads_everything_the_next_what_was_worth_it() {
    let mut lru = MgLru::new(MgConfig::new(10_000));
    let how = Access::mapped(PageKind::Anon, true);
    // Two tables: of one every page is used, of the other only a few.
    (0..512).for_each(|page| _ = lru.access(page, how));
    (512..1024).step_by(64).for_each(|page| _ = lru.access(page, how));
    let read = |lru: &mut MgLru, force| {
        let (lruvec, pages, tables) = lru.parts_mut();
        let before = (lruvec.stats.ptes_read, lruvec.stats.tables_skipped);
        assert!(lruvec.age(pages, tables, 60, force));
        (lruvec.stats.ptes_read - before.0, lruvec.stats.tables_skipped - before.1)
    };
    assert_eq!(read(&mut lru, false), (1024, 0));
    assert_eq!(read(&mut lru, false), (0, 0), "it did not run");
    lru.access(512, how);
    assert_eq!(read(&mut lru, false), (0, 2), "one not accessed, one not worth it");
    (0..1024).for_each(|page| _ = lru.access(page, how));
    assert_eq!(read(&mut lru, true), (1024, 0));
    (0..1024).for_each(|page| _ = lru.access(page, how));
    assert_eq!(read(&mut lru, false), (1024, 0), "both were worth it");
}

#[test]
fn looking_around_puts_a_table_into_the_filter() {
    let mut lru = MgLru::new(MgConfig::new(10_000));
    let how = Access::mapped(PageKind::Anon, true);
    (0..64).for_each(|page| _ = lru.access(page, how));
    let (lruvec, pages, tables) = lru.parts_mut();
    assert!(lruvec.age(pages, tables, 60, false));
    // 64 of 512 is just worth it; forget that.
    lruvec.walk.filters.iter_mut().flatten().for_each(super::bloom::Bloom::clear);
    (0..8).for_each(|page| tables.touch(page));
    assert_eq!(lruvec.look_up(pages, tables, 3), 1);
    assert_eq!(lruvec.stats.ptes_read, 512 + 1 + 63);
    assert!(lruvec.walk.filters[(lruvec.max_seq % 2) as usize].as_ref().unwrap().contains(tables.key(0)));
    assert_eq!(lruvec.detail.promoted_by_look, 7, "referenced by the walk, now proven");
    assert_eq!(lruvec.look_up(pages, tables, 3), 0, "the bits are taken");
}

#[test]
fn the_aging_trigger_up_to_6_12_goes_by_sizes() {
    let mut lruvec = Lruvec::new(0, 0, Variant::V6_12, 64);
    lruvec.max_seq = 10;
    lruvec.min_seq = [8, 8];
    let mut wants = |young, middle, old| {
        lruvec.sizes[index(10)][1] = young;
        lruvec.sizes[index(9)][1] = middle;
        lruvec.sizes[index(8)][1] = old;
        lruvec.wants_aging(60)
    };
    assert_eq!(wants(50, 25, 25), (false, 100));
    assert_eq!(wants(51, 24, 25), (true, 100));
    assert_eq!(wants(50, 26, 24), (true, 100));
    lruvec.min_seq = [9, 9];
    assert_eq!(lruvec.wants_aging(60), (true, 0), "nothing can be evicted");
    lruvec.min_seq = [7, 7];
    assert!(!lruvec.wants_aging(60).0);
}

#[test]
fn the_aging_trigger_from_6_14_on_counts_generations() {
    let mut lruvec = Lruvec::new(0, 0, Variant::V6_14, 64);
    lruvec.max_seq = 10;
    for (min_seq, swappiness, wants) in
        [([8, 8], 60, true), ([7, 8], 60, false), ([7, 8], 0, true), ([8, 7], 201, true), ([7, 7], 60, false)]
    {
        lruvec.min_seq = min_seq;
        assert_eq!(lruvec.wants_aging(swappiness).0, wants, "{min_seq:?} {swappiness}");
    }
}

#[test]
fn a_forced_advance_turns_the_oldest_over_to_the_next() {
    for (variant, protected) in [(Variant::V6_12, 0), (Variant::V6_14, 3)] {
        let mut lru = MgLru::new(MgConfig { variant, ..MgConfig::new(100) });
        (0..3).for_each(|page| _ = lru.access(page, Access::fd(false)));
        let (lruvec, pages, tables) = lru.parts_mut();
        if variant == Variant::V6_12 {
            // There a file page begins one generation above the oldest.
            lruvec.age(pages, tables, 60, true);
        }
        let seq = lruvec.min_seq[1];
        assert_eq!(lruvec.size(seq, 1), 3);
        lruvec.retire_oldest(pages, 1, 60);
        assert_eq!((lruvec.min_seq[1], lruvec.size(seq + 1, 1)), (seq + 1, 3));
        assert_eq!(lruvec.controller.avg_total[1].iter().sum::<u64>(), protected / 2);
        assert!((0..3).all(|page| !pages.flags(page).has(Flags::REFERENCED)));
    }
}

#[test]
fn a_protected_page_goes_up_at_its_end_or_its_beginning() {
    for (variant, tail) in [(Variant::V6_12, true), (Variant::V6_14, false)] {
        let mut lru = MgLru::new(MgConfig { variant, batch: 1, ..MgConfig::new(100) });
        // Page 0 is saturated and lies at the tail.
        (0..7).for_each(|_| _ = lru.access(0, Access::fd(false)));
        (1..4).for_each(|page| _ = lru.access(page, Access::fd(false)));
        let (lruvec, pages, tables) = lru.parts_mut();
        lruvec.advance(pages, 60);
        let seq = lruvec.min_seq[1];
        let next = lruvec.list(index(seq + 1), 1);
        // Someone else is there already.
        let resident = 3;
        lruvec.take_off(pages, resident);
        pages.flags_mut(resident).set_generation(None);
        lruvec.relabel(pages.flags_mut(resident), Some(index(seq + 1)));
        pages.push_head(next, resident);
        lruvec.evict_batch(pages, tables, 60);
        let order: Vec<u32> = pages.iter(next).collect();
        assert_eq!(order, if tail { [0, 3] } else { [3, 0] }, "{variant:?}");
        assert_eq!(lruvec.controller.protected[1][3], u64::from(tail), "from 6.14 on the saturated do not count");
        assert!(!pages.flags(1).has(Flags::RESIDENT), "the one behind it went");
    }
}
