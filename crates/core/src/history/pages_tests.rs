//! The page history by single walks: samples of tables, memory, young processes, estimates, and what is to be cleared.

use super::frame::{IdlePages, PageAges};
use super::pages::PageHistory;
use super::times::AGES_NS;
use super::to_clear::ToClear;
use crate::addr::{AddrRange, TABLE_SPAN};
use crate::bits::TableBits;
use crate::mask::{self, NO_PAGES, PageMask};

const S: u64 = 1_000_000_000;

#[test]
fn a_sample_of_tables_stands_for_all() {
    let mut history = PageHistory::new(0);
    history.set_one_in(8);
    let all = [AddrRange::new(0, 4096 * TABLE_SPAN)];
    for walk in 0..12 {
        let ranges = history.begin_walk(&all, walk * S);
        for range in ranges {
            for base in (range.start..range.end).step_by(TABLE_SPAN as usize) {
                let mut bits = TableBits { present: [u64::MAX; 8], ..TableBits::empty(base) };
                // A quarter of the tables is in use.
                bits.accessed = if (base / TABLE_SPAN).is_multiple_of(4) { [u64::MAX; 8] } else { NO_PAGES };
                bits.cleared = bits.accessed;
                history.take(&bits);
            }
        }
        history.end_walk(walk * S);
    }
    let ages = history.total();
    let share = |pages: u64| pages as f64 / (4096.0 * 512.0);
    assert!((0.9..1.1).contains(&share(ages.resident)), "{}", share(ages.resident));
    assert!((0.2..0.3).contains(&share(ages.accessed_within(S).unwrap().pages)));
}

#[test]
fn memory_stays_within_its_bounds() {
    // 5 TiB of which a tenth of the tables hold pages of different ages.
    let gib_tables = 512;
    let mut history = PageHistory::new(0);
    let span = AddrRange::new(0, 8 * gib_tables * TABLE_SPAN);
    for walk in 0..3 {
        history.begin_walk(&[span], walk * S);
        for table in 0..8 * gib_tables {
            let mut bits = TableBits { present: [u64::MAX; 8], ..TableBits::empty(table * TABLE_SPAN) };
            bits.accessed = if table % 10 == 0 { [0x1111 << walk; 8] } else { NO_PAGES };
            bits.cleared = bits.accessed;
            history.take(&bits);
        }
        history.end_walk(walk * S);
    }
    let bytes = history.memory_bytes() as u64 * 5 * 1024 / 8;
    assert!(bytes < 3 << 30, "5 TiB would take {} MiB", bytes >> 20);
    let pages = 8 * gib_tables * 512;
    assert!(history.memory_bytes() as u64 <= pages, "more than a byte a page");
}

/// A tenth of the pages, at random, are used all the time; at each walk an eighth of the tables more may be cleared for
/// the first time.
/// Every fourth page is used all the time, every sixteenth was before the watch, and the others were not by this process.
#[test]
fn a_process_that_began_lately_has_used_nothing_before() {
    let ages = |started_ns: Option<u64>| {
        let mut history = PageHistory::new(1000 * S);
        history.set_started(started_ns);
        for second in 1000..1004 {
            history.begin_walk(&[AddrRange::new(0, TABLE_SPAN)], second * S);
            let accessed = [if second == 1000 { 0x1113_1113_1113_1113 } else { 0x1111_1111_1111_1111 }; 8];
            let mut bits = TableBits { present: [u64::MAX; 8], accessed, ..TableBits::empty(0) };
            bits.cleared = history.wanted(&bits).all();
            history.take(&bits);
            history.end_walk(second * S);
        }
        history.total()
    };
    let (old, unknown, young) = (ages(Some(S)), ages(None), ages(Some(995 * S)));
    assert_eq!(old, PageAges { longer: Vec::new(), ..young.clone() }, "the same, as far as it was watched");
    assert_eq!(old, unknown);
    assert!(young.idle_for(10 * S).is_none(), "it has not been watched for so long, ...");
    let minute = AGES_NS.iter().position(|&age| age == 60 * S).unwrap();
    assert_eq!(young.at(minute), IdlePages { pages: 0, least: 0, most: 352, unresolved: 352 }, "... but this is known");
    assert_eq!(old.at(minute).unresolved, 384, "it may have used these a minute ago");
    // Beside a process that was watched for a minute, and has 100 pages idle for so long.
    let mut all =
        PageAges { resident: 200, unobservable: 0, idle: vec![IdlePages::default(); minute + 1], longer: Vec::new() };
    all.idle[minute] = IdlePages { pages: 100, least: 100, most: 100, unresolved: 0 };
    all.add(&young);
    let idle = all.idle_for(60 * S).unwrap();
    assert_eq!((all.resident, idle.pages, idle.unresolved), (712, 100, 352));
    assert_eq!(all.idle.len() + all.longer.len(), AGES_NS.len());
}

#[test]
fn what_was_not_cleared_yet_is_expected_to_be_as_the_rest() {
    const TABLES: u64 = 400;
    let mut history = PageHistory::new(S);
    history.set_begun_in(8);
    let mut cleared: Vec<PageMask> = vec![NO_PAGES; TABLES as usize];
    let hot = |table: u64| {
        let mut pages = NO_PAGES;
        (0..512).filter(|i| (table * 512 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & 0xff < 26).for_each(|i| {
            mask::put(&mut pages, i as usize);
        });
        pages
    };
    let idle = (0..TABLES).map(|t| 512 - u64::from(mask::count(&hot(t)))).sum::<u64>();
    let mut begun_in = Vec::new();
    for second in 1..=40 {
        begun_in.push((0..64).filter(|&t| history.is_begun(t * TABLE_SPAN)).count());
        history.begin_walk(&[AddrRange::new(0, TABLES * TABLE_SPAN)], second * S);
        for table in 0..TABLES {
            let cleared = &mut cleared[table as usize];
            let mut bits = TableBits::empty(table * TABLE_SPAN);
            bits.present = [u64::MAX; 8];
            bits.accessed = mask::or(&mask::and_not(&bits.present, cleared), &hot(table));
            bits.cleared = history.wanted(&bits).all();
            *cleared = mask::or(cleared, &bits.cleared);
            history.take(&bits);
        }
        history.end_walk(second * S);
        if second >= 13 {
            let total = history.total();
            let cold = total.idle_for(10 * S).expect("watched for longer");
            assert!(cold.pages.abs_diff(idle) * 50 < idle, "{second} s: {cold:?} of {idle}");
            assert!(cold.least <= idle && idle <= cold.most, "{second} s: {cold:?} of {idle}");
            assert_eq!(cold.unresolved, 0);
            // Nobody has been watched for a minute.
            assert!(total.idle_for(60 * S).is_none());
        }
    }
    assert!(begun_in[0] < 20 && begun_in.windows(2).all(|w| w[0] <= w[1]), "{begun_in:?}");
    assert_eq!((begun_in[10], mask::count(&cleared[399])), (64, 512), "in the end all of them are cleared");
}

#[test]
fn what_a_walk_should_clear_is_told_apart_by_what_it_tells() {
    let range = [AddrRange::new(0, TABLE_SPAN)];
    let mut history = PageHistory::new(0);
    let half = [u64::MAX, u64::MAX, u64::MAX, u64::MAX, 0, 0, 0, 0];
    let mut bits = TableBits { present: half, accessed: half, ..TableBits::empty(0) };
    history.begin_walk(&range, S);
    assert_eq!(history.wanted(&bits), ToClear { never: half, ..ToClear::NOTHING });
    // Only the first 64 pages are paid for.
    bits.cleared[0] = u64::MAX;
    history.take(&bits);
    history.end_walk(S);
    // They are used again, and the other half has come.
    bits = TableBits { present: [u64::MAX; 8], accessed: [u64::MAX; 8], ..TableBits::empty(0) };
    history.begin_walk(&range, 2 * S);
    let wanted = history.wanted(&bits);
    let one = |w: usize| std::array::from_fn(|i| if i == w { u64::MAX } else { 0 });
    assert_eq!(wanted.again, one(0));
    assert_eq!((wanted.new, wanted.never), (half.map(|word| !word), mask::and_not(&half, &one(0))));
    assert_eq!((wanted.first(), wanted.all()), (mask::or(&wanted.new, &wanted.never), [u64::MAX; 8]));
    history.take(&bits);
    history.end_walk(2 * S);
    // What has come and was left set belongs to what is in use; what was never cleared waits for the table's turn.
    history.set_begun_in(1 << 16);
    history.begin_walk(&range, 3 * S);
    assert_eq!(history.wanted(&bits).new, NO_PAGES);
    let other = (1..).map(|i| i * TABLE_SPAN).find(|&base| !history.is_begun(base)).unwrap();
    assert_eq!(history.wanted(&TableBits { base: other, ..bits }).new, [u64::MAX; 8], "whosever turn it is");
}
