//! Generations against what really happened to each page, and what they take.

use super::address_space::AddressSpace;
use super::creation_times::CreationTimes;
use super::memory::Memory;
use super::reuse::ReuseModel;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use crate::bits::TableBits;
use crate::history::pages::PageHistory;
use crate::mapping::Mapping;
use crate::mask::{self, NO_PAGES};

const S: u64 = 1_000_000_000;
const TABLES: u64 = 2;
const PAGES: usize = TABLES as usize * 512;

/// What really happened to a page.
#[derive(Debug, Clone, Copy)]
struct Page {
    accessed_ns: u64,
    bit: bool,
    present: bool,
}

/// Two tables, of which each page is used at a frequency of its own, and some go and come back.
struct World {
    rng: fastrand::Rng,
    pages: Vec<Page>,
    created: CreationTimes,
    space: AddressSpace,
    /// What `record` would know, which walks at the same times.
    recorded: PageHistory,
    now_ns: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let now_ns = 100 * S;
        let mut space = AddressSpace::default();
        space.set_mappings(&[Mapping::anon(0, TABLES * TABLE_SPAN)]);
        let mut world = Self {
            rng: fastrand::Rng::with_seed(seed),
            pages: vec![Page { accessed_ns: now_ns, bit: true, present: true }; PAGES],
            created: CreationTimes::new(0, now_ns),
            space,
            recorded: PageHistory::new(now_ns),
            now_ns,
        };
        world.walk();
        world
    }

    fn tables(&mut self, clear: bool) -> Vec<TableBits> {
        let one = |table: u64| {
            let mut bits = TableBits::empty(table * TABLE_SPAN);
            for (i, page) in self.pages.iter().skip(table as usize * 512).take(512).enumerate() {
                if page.present {
                    mask::put(&mut bits.present, i);
                    if page.bit {
                        mask::put(&mut bits.accessed, i);
                    }
                }
            }
            bits.cleared = if clear { bits.accessed } else { NO_PAGES };
            bits
        };
        let tables = (0..TABLES).map(one).collect();
        self.pages.iter_mut().for_each(|p| p.bit &= !clear);
        tables
    }

    fn walk(&mut self) {
        self.space.begin_walk(&self.created, 0);
        self.recorded.begin_walk(&[], self.now_ns);
        for bits in self.tables(true) {
            self.space.walk(&bits, None);
            self.recorded.take(&bits);
        }
        self.space.end_walk(&self.created, None);
        self.recorded.end_walk(self.now_ns);
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        for (i, page) in self.pages.iter_mut().enumerate() {
            if self.rng.usize(..i + 2) == 0 {
                *page = Page { accessed_ns: self.now_ns - self.rng.u64(..ns), bit: true, present: true };
            } else if i % 7 == 3 && self.rng.usize(..40) == 0 {
                (page.present, page.bit) = (false, false);
            }
        }
    }

    /// Pages that are in generations at least `age` below the youngest; those that are in memory and had not been
    /// accessed since that was created.
    fn older(&self, age: usize) -> (u64, u64) {
        let mut sizes = vec![[0; 2]; age + 1];
        self.space.sizes(&mut sizes);
        let old = |p: &&Page| p.present && p.accessed_ns <= self.created.of_age(age);
        (sizes[age][0] / PAGE_SIZE, self.pages.iter().filter(old).count() as u64)
    }
}

#[test]
fn a_generation_holds_what_was_last_used_before_the_next_was_created() {
    let mut world = World::new(1);
    for walk in 1..60 {
        let ns = world.rng.u64(S / 2..2 * S);
        world.pass(ns);
        world.created.create(world.now_ns);
        world.walk();
        for age in 0..walk.min(50) {
            let (found, truth) = world.older(age);
            assert_eq!(found, truth, "age {age} after {walk} walks");
        }
        // What `report summary` calls cold is the same.
        let idle = world.recorded.total();
        let Some(idle) = idle.idle_for(10 * S) else { continue };
        let age = world.created.age_idle_for(10 * S, world.now_ns).expect("it is watched for long enough");
        assert_eq!(world.older(age.into()).0, idle.least);
    }
}

#[test]
fn over_many_walks_nothing_is_taken_for_older_than_it_is() {
    let mut world = World::new(2);
    for walk in 1..600usize {
        world.pass(S);
        world.created.create(world.now_ns);
        world.walk();
        for age in (0..walk.min(240)).step_by(13) {
            let (found, truth) = world.older(age);
            assert!(found <= truth && found * 10 >= truth * 9, "age {age} after {walk} walks: {found}, {truth}");
        }
    }
}

#[test]
fn what_a_look_finds_used_is_young() {
    let mut world = World::new(3);
    for _ in 0..5 {
        world.pass(S);
        world.created.create(world.now_ns);
        world.walk();
    }
    let before = world.older(2).0;
    let limit = world.created.of_age(2);
    let cold = world.pages.iter_mut().filter(|p| p.present && p.accessed_ns <= limit);
    cold.take(100).for_each(|p| p.bit = true);
    let tables = world.tables(false);
    world.space.look(&[AddrRange::new(0, TABLES * TABLE_SPAN)], &tables);
    assert_eq!(world.older(2).0, before - 100);
}

/// Bytes a page after `walks` walks over 256 tables, of which page `i` is found used by walk `w` if `used(i, w)`; every
/// `out`th page is out.
fn bytes_a_page(learns: bool, walks: u64, used: impl Fn(usize, u64) -> bool, out: usize) -> f64 {
    let (mut space, mut created, mut reuse) =
        (AddressSpace::new(learns), CreationTimes::new(0, S), ReuseModel::default());
    for walk in 1..=walks {
        created.create(walk * S);
        space.begin_walk(&created, 0);
        for table in 0..256u64 {
            let mut bits = TableBits { present: [u64::MAX; 8], ..TableBits::empty(table * TABLE_SPAN) };
            for i in 0..512 {
                let page = table as usize * 512 + i;
                if walk > 1 && page.is_multiple_of(out) {
                    mask::take(&mut bits.present, i);
                } else if used(page, walk) {
                    mask::put(&mut bits.accessed, i);
                }
            }
            bits.cleared = bits.accessed;
            space.walk(&bits, Some(&mut reuse));
        }
        space.end_walk(&created, Some(&mut reuse));
    }
    let bytes = space.memory_bytes() as f64 / (256.0 * 512.0);
    println!("learns {learns}, out {out}: {bytes:.3} bytes a page");
    bytes
}

#[test]
fn what_generations_take() {
    let never = usize::MAX;
    let mixed =
        |page: usize, walk: u64| (page as u64).wrapping_mul(0x9E37_79B9).wrapping_add(walk) % 7 < page as u64 % 5;
    // Each table is used as a whole, or not.
    let alike = |page: usize, walk: u64| (page / 512) as u64 % 3 > walk % 2;
    assert!(bytes_a_page(false, 20, alike, never) < 0.12);
    assert!(bytes_a_page(true, 20, alike, never) < 0.2);
    // A byte for each page, one more where frequency is learnt, a bit where pages are out; and the map's entries.
    assert!(bytes_a_page(false, 20, mixed, never) < 1.1);
    assert!(bytes_a_page(true, 20, mixed, never) < 2.2);
    assert!(bytes_a_page(true, 20, mixed, 10) < 2.4);
    assert!(size_of::<Memory>() + size_of::<AddressSpace>() < 1024);
}
