//! Rules that need more than one part of the algorithm to be seen.

use super::controller::Controller;
use super::flags::Flags;
use super::lruvec::{LISTS, Lruvec, index};
use super::mglru::{MgConfig, MgLru};
use super::pages::Pages;
use super::tables::{Bits, EntryAt, PageTables, Shape};
use super::{Access, PageKind, Switches, Variant};

const BOTH: [Variant; 2] = [Variant::V6_12, Variant::V6_14];

/// One table of 8 pages, a huge page (number 8), and a page (number 0) that is mapped twice.
#[derive(Default)]
struct Toy {
    young: [Bits; 2],
    huge: bool,
    locked: bool,
    refuse: bool,
}

impl PageTables for Toy {
    fn spaces(&self) -> u32 {
        1
    }

    fn take_ran(&mut self, _space: u32) -> bool {
        true
    }

    fn enter(&mut self, _space: u32) -> bool {
        !self.refuse
    }

    fn next_table(&self, _space: u32, from: u32) -> Option<u32> {
        (from < 3).then_some(from)
    }

    fn shape(&self, table: u32) -> Shape {
        if table == 2 { Shape::Huge(8) } else { Shape::Table(8) }
    }

    fn table_young(&self, table: u32) -> bool {
        table < 2 || self.huge
    }

    fn clear_table_young(&mut self, table: u32) {
        self.huge &= table != 2;
    }

    fn lock(&mut self, _table: u32) -> bool {
        !self.locked
    }

    fn take_young(&mut self, table: u32, from: u32, to: u32) -> Bits {
        let word = &mut self.young[table as usize][0];
        let wanted = ((1_u64 << to) - 1) & !((1 << from) - 1);
        let taken = *word & wanted;
        *word &= !wanted;
        let mut bits = Bits::default();
        bits[0] = taken;
        bits
    }

    fn put_back(&mut self, place: EntryAt) {
        self.young[place.table as usize][0] |= 1 << place.entry;
    }

    fn page(&self, place: EntryAt) -> Option<u32> {
        match place {
            EntryAt { table: 0, entry } => Some(entry),
            EntryAt { table: 1, entry: 5 } => Some(0),
            _ => None,
        }
    }

    fn place(&self, page: u32, nth: u32) -> Option<EntryAt> {
        match (page, nth) {
            (0..8, 0) => Some(EntryAt { table: 0, entry: page }),
            (0, 1) => Some(EntryAt { table: 1, entry: 5 }),
            _ => None,
        }
    }

    fn unmap(&mut self, _page: u32) {}
}

/// Nine anonymous pages in the second youngest generation or the youngest, as the variant has it.
fn nine(variant: Variant) -> (Lruvec, Pages, Toy) {
    let mut lruvec = Lruvec::new(0, 0, variant, 8);
    let mut pages = Pages::new(LISTS, 9);
    for page in 0..9 {
        lruvec.fault_in(&mut pages, page, Access::mapped(PageKind::Anon, true), true);
    }
    (lruvec, pages, Toy::default())
}

#[test]
fn a_table_that_is_locked_stays_in_the_filter_from_6_14_on() {
    for variant in BOTH {
        let (mut lruvec, mut pages, mut toy) = nine(variant);
        toy.locked = true;
        assert!(lruvec.age(&mut pages, &mut toy, 60, false));
        let filter = lruvec.walk.filters[(lruvec.max_seq % 2) as usize].as_ref().unwrap();
        assert_eq!(filter.contains(toy.key(0)), variant == Variant::V6_14);
        assert_eq!(lruvec.detail.tables_read, 0);
    }
}

#[test]
fn a_space_that_is_locked_is_left_out_and_a_generation_created_all_the_same() {
    let (mut lruvec, mut pages, mut toy) = nine(Variant::V6_14);
    toy.refuse = true;
    assert!(lruvec.age(&mut pages, &mut toy, 60, true));
    assert_eq!((lruvec.stats.ptes_read, lruvec.max_seq), (0, 4));
}

#[test]
fn a_huge_page_is_one_entry() {
    let (mut lruvec, mut pages, mut toy) = nine(Variant::V6_12);
    lruvec.age(&mut pages, &mut toy, 60, false);
    assert_eq!(lruvec.stats.ptes_read, 8 + 8 + 1);
    assert_eq!(pages.flags(8).generation(), Some(index(3)));
    toy.huge = true;
    lruvec.age(&mut pages, &mut toy, 60, false);
    assert_eq!(pages.flags(8).generation(), Some(index(4)), "the youngest when the walk ran");
    assert!(!toy.huge);
}

#[test]
fn promotion_takes_one_or_two_accessed_bits() {
    for (variant, walks) in [(Variant::V6_12, 1), (Variant::V6_14, 2)] {
        let (mut lruvec, mut pages, mut toy) = nine(variant);
        lruvec.age(&mut pages, &mut toy, 60, true);
        let before = pages.flags(3).generation();
        for walk in 1..=walks {
            assert_eq!(pages.flags(3).generation(), before, "before walk {walk}");
            toy.young[0][0] = 1 << 3;
            let youngest = index(lruvec.max_seq);
            lruvec.age(&mut pages, &mut toy, 60, true);
            assert_eq!(pages.flags(3).generation() == Some(youngest), walk == walks, "{variant:?} {walk}");
        }
        assert_eq!(lruvec.detail.promoted_by_walk, 1);
    }
}

#[test]
fn every_mapping_is_looked_up() {
    let (mut lruvec, mut pages, mut toy) = nine(Variant::V6_14);
    toy.young[1][0] = 1 << 5;
    assert_eq!(lruvec.look_up(&mut pages, &mut toy, 0), 1);
    assert_eq!(lruvec.look_up(&mut pages, &mut toy, 0), 0);
    assert_eq!(lruvec.look_up(&mut pages, &mut toy, 8), 0, "not mapped");
}

#[test]
fn without_walks_only_the_number_advances() {
    let (mut lruvec, mut pages, mut toy) = nine(Variant::V6_14);
    lruvec.switches = Switches { leaf_walk: false, non_leaf: true };
    toy.young[0][0] = 0xff;
    assert!(lruvec.age(&mut pages, &mut toy, 60, false));
    assert_eq!((lruvec.stats.ptes_read, lruvec.max_seq, lruvec.walk.seq), (0, 4, 3));
    assert_eq!(toy.young[0][0], 0xff);
}

/// Where the oldest generations get to if nothing holds them, from (0, 0) with files in generation `file`, anonymous
/// memory in `anon` (none: nowhere).
fn advanced(variant: Variant, anon: Option<u64>, file: Option<u64>) -> [u64; 2] {
    let mut lruvec = Lruvec::new(0, 0, variant, 8);
    let mut pages = Pages::new(LISTS, 2);
    for (kind, seq) in [anon, file].into_iter().enumerate() {
        if let Some(seq) = seq {
            if kind == 1 {
                pages.flags_mut(1).set(Flags::FILE);
            }
            lruvec.relabel(pages.flags_mut(kind as u32), Some(index(seq)));
            pages.push_head(lruvec.list(index(seq), kind), kind as u32);
        }
    }
    lruvec.advance(&pages, 60);
    lruvec.min_seq
}

#[test]
fn empty_generations_are_left_behind_together() {
    assert_eq!(advanced(Variant::V6_12, None, None), [2, 2]);
    assert_eq!(advanced(Variant::V6_12, Some(1), None), [1, 1], "files wait for anonymous memory");
    assert_eq!(advanced(Variant::V6_12, None, Some(1)), [1, 1]);
    assert_eq!(advanced(Variant::V6_14, None, None), [2, 2]);
    assert_eq!(advanced(Variant::V6_14, Some(1), None), [1, 2], "in either order");
    assert_eq!(advanced(Variant::V6_14, None, Some(1)), [2, 1]);
    assert_eq!(advanced(Variant::V6_14, None, Some(0)), [1, 0], "held at two below the youngest");
    assert_eq!(advanced(Variant::V6_14, Some(0), None), [0, 1]);
}

#[test]
fn a_kind_that_may_not_go_is_passed_over_with_its_pages() {
    let mut lru = MgLru::new(MgConfig { swappiness: 0, ..MgConfig::new(100) });
    (0..3).for_each(|page| _ = lru.access(page, Access::mapped(PageKind::Anon, true)));
    let (lruvec, pages, tables) = lru.parts_mut();
    let label = pages.flags(0).generation();
    for _ in 0..5 {
        assert!(lruvec.age(pages, tables, 0, true));
    }
    assert_eq!(pages.flags(0).generation(), label, "old and young are turned round, knowingly");
    assert_eq!(lruvec.total(), 3);
}

#[test]
fn an_eviction_is_written_down_where_it_belongs() {
    for (variant, tier, workingset) in [(Variant::V6_12, 1, true), (Variant::V6_14, 1, false)] {
        let mut lruvec = Lruvec::new(7, 0, variant, 8);
        let mut pages = Pages::new(LISTS, 1);
        lruvec.fault_in(&mut pages, 0, Access::fd(false), true);
        super::tier::touch(variant, pages.flags_mut(0));
        lruvec.min_seq[1] = 1;
        lruvec.take_off(&mut pages, 0);
        lruvec.evict(&mut pages, &mut Toy::default(), 0);
        let shadow = super::shadow::Shadow::unpack(pages.shadow(0));
        // Two accesses: up to 6.12 one reference beyond the first, from 6.14 on two in all; the token is one less.
        let refs = u32::from(variant == Variant::V6_14);
        assert_eq!((shadow.seq, shadow.refs, shadow.memcg, shadow.workingset), (1, refs, 7, workingset));
        let mut want = Controller::default();
        want.evicted[1][tier] = 1;
        assert_eq!(lruvec.controller, want);
        lruvec.fault_in(&mut pages, 0, Access::fd(false), true);
        want.refaulted[1][tier] = 1;
        assert_eq!(lruvec.controller, want, "it comes back into the same tier");
    }
}

#[test]
fn what_is_found_accessed_at_eviction_goes_where_it_has_proven_to_belong() {
    let kept = |variant, set: u32| {
        let mut lruvec = Lruvec::new(0, 0, variant, 1);
        let mut pages = Pages::new(LISTS, 8);
        // The second one stays behind, so that the generation does, too.
        for page in [2, 7] {
            let flags = pages.flags_mut(page);
            flags.set(Flags::RESIDENT | set);
            let kind = flags.kind();
            lruvec.relabel(flags, Some(0));
            pages.push_head(lruvec.list(0, kind), page);
        }
        let mut toy = Toy::default();
        toy.young[0][0] = 1 << 2;
        let round = lruvec.evict_batch(&mut pages, &mut toy, 60);
        assert_eq!((round.reclaimed, lruvec.total()), (0, 2));
        let flags = pages.flags(2);
        (
            lruvec.max_seq - flags.generation().unwrap() as u64,
            flags.has(Flags::REFERENCED),
            flags.has(Flags::WORKINGSET),
        )
    };
    // Generations below the youngest; whether it still counts as referenced, as of the working set.
    assert_eq!(kept(Variant::V6_14, Flags::FILE), (1, false, false), "would have been the oldest again");
    assert_eq!(kept(Variant::V6_14, 0), (1, true, false), "anonymous memory would not");
    assert_eq!(kept(Variant::V6_14, Flags::FILE | Flags::REFERENCED), (0, false, true));
    assert_eq!(kept(Variant::V6_12, Flags::FILE), (0, false, false));
    assert_eq!(kept(Variant::V6_12, 0), (0, false, false));
}
