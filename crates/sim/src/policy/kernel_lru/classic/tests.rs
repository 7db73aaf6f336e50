use super::*;
use proptest::prelude::*;

fn small(capacity: u32) -> Classic {
    Classic::new(ClassicConfig { batch: 1, ..ClassicConfig::new(capacity) })
}

fn check(lru: &Classic) -> Result<(), TestCaseError> {
    let mut total = 0;
    for at in 0..LISTS {
        let pages: Vec<u32> = lru.pages.iter(at).collect();
        prop_assert_eq!(pages.len() as u64, lru.sizes[at as usize]);
        for page in pages {
            prop_assert_eq!(Classic::list_of(lru.pages.flags(page)), at);
            prop_assert!(lru.holds(page));
            total += 1;
        }
    }
    prop_assert_eq!(total, lru.resident);
    prop_assert!(total <= lru.config.capacity);
    Ok(())
}

#[test]
fn two_reads_make_active() {
    let mut lru = small(10);
    lru.access(0, Access::fd(false));
    assert_eq!(lru.sizes(PageKind::File), (1, 0));
    lru.access(0, Access::fd(false));
    assert_eq!(lru.sizes(PageKind::File), (0, 1));
    assert_eq!(lru.age, 1, "an activation makes others older");
    lru.access(0, Access::fd(false));
    assert!(lru.pages.flags(0).has(Flags::REFERENCED));
    assert_eq!(lru.stats().list_moves, 1);
}

#[test]
fn a_mapped_page_is_found_accessed_once_and_then_made_active() {
    let mut lru = small(4);
    let how = Access::mapped(PageKind::Anon, true);
    (0..4).for_each(|page| _ = lru.access(page, how));
    assert_eq!(lru.shrink_inactive(0, 1), 0);
    assert!(lru.pages.flags(0).has(Flags::REFERENCED) && !lru.pages.flags(0).has(Flags::ACTIVE));
    lru.access(0, how);
    assert_eq!(lru.shrink_inactive(0, 4), 0, "three more are seen accessed, page 0 is made active");
    assert_eq!(lru.sizes(PageKind::Anon), (3, 1));
    assert_eq!(lru.shrink_inactive(0, 3), 3, "not accessed since");
}

#[test]
fn a_refault_within_reach_is_made_active() {
    let mut lru = small(4);
    (0..4).for_each(|page| _ = lru.access(page, Access::fd(false)));
    (0..2).for_each(|page| _ = lru.access(page, Access::fd(false)));
    assert_eq!(lru.sizes(PageKind::File), (2, 2));
    lru.access(4, Access::fd(false));
    assert!(!lru.holds(2));
    assert_eq!(lru.access(2, Access::fd(false)), Hit::Refault);
    assert!(lru.pages.flags(2).has(Flags::ACTIVE), "one eviction away, two active pages");
    // Far more evictions than active pages later.
    (10..40).for_each(|page| _ = lru.access(page, Access::fd(false)));
    assert_eq!(lru.access(10, Access::fd(false)), Hit::Refault);
    assert!(!lru.pages.flags(10).has(Flags::ACTIVE));
}

#[test]
fn without_swap_files_go_first() {
    let mut lru = Classic::new(ClassicConfig { swap: false, ..ClassicConfig::scaled(100) });
    (0..90).for_each(|page| _ = lru.access(page, Access::mapped(PageKind::Anon, true)));
    (100..1000).for_each(|page| _ = lru.access(page, Access::fd(false)));
    assert!((0..90).all(|page| lru.holds(page)));
}

#[test]
fn a_scan_does_not_displace_the_active() {
    let mut lru = Classic::new(ClassicConfig::scaled(1000));
    for _ in 0..3 {
        (0..400).for_each(|page| _ = lru.access(page, Access::fd(false)));
    }
    (1000..20_000).for_each(|page| _ = lru.access(page, Access::fd(false)));
    assert!((0..400).all(|page| lru.holds(page)));
}

#[test]
fn a_capacity_of_nothing_keeps_nothing() {
    let mut lru = small(0);
    assert_eq!(lru.access(1, Access::fd(false)), Hit::Miss);
    assert_eq!(lru.access(1, Access::fd(false)), Hit::Miss);
    assert_eq!(lru.stats().misses, 2);
}

proptest! {
    #[test]
    fn its_books_are_right(
        capacity in 1_u32..200, batch in 1_u32..64, swappiness in 0_u8..=200, swap: bool,
        accesses in prop::collection::vec((0_u32..400, 0_u8..6), 1..2000),
    ) {
        let config = ClassicConfig { batch, swappiness, swap, ..ClassicConfig::new(capacity) };
        let mut lru = Classic::new(config);
        for (at, (page, how)) in accesses.into_iter().enumerate() {
            // A page is of one kind all its life.
            let how = match (page % 2, how) {
                (0, how) => Access::mapped(PageKind::Anon, how % 2 == 0),
                (_, 0 | 1) => Access::mapped(PageKind::File, how == 0),
                (_, how) => Access::fd(how == 2),
            };
            let held = lru.holds(page);
            prop_assert_eq!(lru.access(page, how) == Hit::Hit, held);
            prop_assert!(lru.holds(page));
            if at % 50 == 0 {
                check(&lru)?;
            }
        }
        check(&lru)?;
        let stats = lru.stats();
        prop_assert_eq!(stats.misses - stats.evictions, u64::from(lru.resident()));
    }
}
