use super::super::command::Fate;
use super::super::guest::tests::TestGuest;
use super::super::sampler::NEWS_PAGES;
use super::*;

const SECOND: u64 = 1000 * MS;
/// Memory blocks of four blocks.
const UNIT: u64 = 4;

struct World {
    guest: TestGuest,
    driver: Driver,
    /// The host has answered this batch.
    answered: u64,
    /// Blocks that the host has dropped, each time.
    dropped: Vec<Block>,
}

impl World {
    fn new(blocks: u64, ways: &[Way], once: bool) -> Self {
        let config = |way: &Way| match way {
            Way::Offline => Config::offline(UNIT * BLOCK_BYTES, 0),
            Way::Touch => Config::touch(0),
        };
        let ways = ways.iter().map(config).collect();
        let settings = Settings { ways, reserve: 0, look_ns: SECOND, once, cpu_budget: None, compact: true, seed: 1 };
        let guest = TestGuest::new(blocks);
        let mut driver = Driver::new(settings, guest.free_memory().unwrap(), 0);
        driver.set_memory(vec![AddrRange::new(0, blocks * BLOCK_BYTES)]);
        driver.welcome(64, true, 0);
        Self { guest, driver, answered: 0, dropped: Vec::new() }
    }

    /// One round of the agent; when it wants to come again.
    fn turn(&mut self) -> u64 {
        self.driver.look(&mut self.guest).unwrap();
        let until = self.driver.act(&mut self.guest).unwrap();
        until.unwrap_or(u64::MAX).min(self.driver.next_look_ns())
    }

    fn answer(&mut self) {
        let Some((batch, blocks)) = self.guest.reported.last().filter(|(batch, _)| *batch != self.answered) else {
            return;
        };
        self.answered = *batch;
        self.dropped.extend(blocks);
        let fates = vec![Fate::Dropped; blocks.len()];
        self.driver.event(Event::Acked { batch: *batch, fates, wait_ns: 0 }, &mut self.guest);
    }

    /// Time passes until `end`, with a host that answers.
    fn pass(&mut self, end: u64) {
        loop {
            let next = self.turn();
            if self.guest.reported.last().is_some_and(|(batch, _)| *batch != self.answered) {
                self.answer();
                continue;
            }
            if next > end {
                break;
            }
            self.guest.set_now(next.max(self.guest.now_ns() + 1));
        }
        self.guest.set_now(end);
    }

    fn trials(&self, way: Way) -> usize {
        self.guest.tried.iter().filter(|tried| **tried == way).count()
    }
}

#[test]
fn memory_blocks_go_offline_first_and_huge_pages_take_the_rest() {
    let mut world = World::new(64, &[Way::Offline, Way::Touch], false);
    // In each of the first memory blocks more than a quarter is in use.
    (0..4).for_each(|unit| world.guest.occupy(unit * UNIT..unit * UNIT + 2));
    world.pass(100 * MS);
    assert!(world.trials(Way::Touch) == 0 && world.dropped.iter().all(|block| block.0 >= 16), "{:?}", world.dropped);
    world.pass(20 * SECOND);
    let by_touch = world.dropped.iter().filter(|block| block.0 < 16).count();
    assert!(world.trials(Way::Touch) > 0 && by_touch > 0, "{:?}", world.dropped);
    assert!(world.guest.isolated.is_empty() && world.driver.passes().isolated().is_empty());
    assert_eq!(world.driver.way(), Way::Offline, "and back to the first");
}

#[test]
fn a_small_guest_keeps_its_memory_blocks() {
    let mut world = World::new(4 * UNIT - 1, &[Way::Offline, Way::Touch], false);
    world.pass(20 * SECOND);
    assert!(world.trials(Way::Offline) == 0 && world.trials(Way::Touch) > 0);
}

#[test]
fn a_way_that_fails_is_not_used_for_a_minute() {
    let mut world = World::new(64, &[Way::Offline], false);
    world.guest.broken.push(Way::Offline);
    world.pass(59 * SECOND);
    assert_eq!((world.trials(Way::Offline), world.guest.troubles.len()), (1, 1));
    assert_eq!(world.guest.troubles[0], "isolating by offline: broken; not used for a minute");
    world.guest.broken.clear();
    world.pass(80 * SECOND);
    assert!(world.trials(Way::Offline) > 1 && !world.dropped.is_empty());
}

#[test]
fn what_the_kernel_took_back_is_not_reported_and_memory_is_left_alone() {
    let mut world = World::new(64, &[Way::Touch], false);
    world.guest.taken_back = true;
    world.turn();
    assert!(world.guest.reported.is_empty() && world.guest.isolated.is_empty() && world.guest.troubles.is_empty());
    assert_eq!(world.driver.passes().rest(), Rest::Pressure);
    world.driver.welcome(64, true, 0);
    world.pass(999 * MS);
    assert_eq!(world.trials(Way::Touch), 1);
    world.pass(3 * SECOND);
    assert!(!world.dropped.is_empty());
}

#[test]
fn a_late_host_keeps_no_more_than_what_waits_for_its_answer() {
    let mut world = World::new(64, &[Way::Touch], false);
    world.turn();
    world.answer();
    let soon = world.turn();
    assert_eq!((world.guest.isolated.len(), soon), (16, LOOK_NS), "the first batch is kept");
    world.guest.set_now(LATE_NS - 1);
    assert_eq!(world.turn(), LATE_NS);
    world.guest.set_now(LATE_NS);
    world.turn();
    assert_eq!(world.guest.isolated.len(), 8, "what was answered for is back");
    world.pass(30 * SECOND);
    assert!(world.guest.isolated.is_empty());
}

#[test]
fn others_that_take_a_quarter_of_what_is_left_get_everything() {
    let mut world = World::new(64, &[Way::Touch], false);
    world.turn();
    world.answer();
    world.turn();
    assert_eq!(world.guest.isolated.len(), 16);
    world.guest.free.truncate(40);
    world.turn();
    assert_eq!(world.guest.isolated.len(), 16, "8 of 40 are not much");
    world.guest.free.truncate(38);
    world.turn();
    assert_eq!((world.guest.isolated.len(), world.driver.passes().stats().pressures), (8, 1), "10 of 38 are");
    world.answer();
    world.turn();
    assert!(world.guest.isolated.is_empty() && world.driver.passes().rest() == Rest::Pressure);
}

#[test]
fn what_cannot_be_returned_is_tried_again_each_second() {
    let mut world = World::new(64, &[Way::Offline], false);
    world.guest.stuck = true;
    world.turn();
    world.answer();
    assert_eq!(world.turn(), RELEASE_RETRY_NS);
    assert_eq!(world.guest.troubles, ["cannot give memory back yet: stuck"]);
    world.guest.stuck = false;
    world.pass(10 * SECOND);
    assert!(world.guest.isolated.is_empty() && world.dropped.len() > 4);
}

#[test]
fn a_pass_that_clears_stops_where_it_gets_what_was_dropped_already() {
    let mut world = World::new(64, &[Way::Offline, Way::Touch], false);
    world.pass(2 * SECOND);
    world.guest.tried.clear();
    // Some are used and freed; the kernel gives out others first.
    (0..32).for_each(|block| {
        world.driver.passes.used(Block(block));
        world.driver.passes.freed(Block(block), world.guest.now_ns());
    });
    world.guest.free.sort_unstable();
    world.pass(world.guest.now_ns() + 2 * SECOND);
    let patience = STALE_BATCHES + 32 / 16;
    assert!(world.trials(Way::Touch) as u64 <= patience, "{:?}", world.guest.tried);
}

#[test]
fn a_busy_guest_loses_a_hundredth_of_a_processor_until_it_is_calm() {
    const BLOCKS: u64 = 1000;
    let busy = |once| {
        let mut world = World::new(BLOCKS, &[Way::Touch], once);
        // 5 s for all.
        (world.guest.busy, world.guest.isolate_ns) = (true, 40 * MS);
        world.driver.budget = Budget::new(Some(0.01), 0);
        world
    };
    let mut world = busy(false);
    world.pass(90 * SECOND);
    assert_eq!(
        (world.trials(Way::Touch), world.driver.passes().rest()),
        (0, Rest::Budget),
        "a millisecond each is not saved yet"
    );
    world.pass(120 * SECOND);
    let dropped = world.dropped.len();
    assert!(dropped as u64 >= BLOCKS * 9 / 10 && world.guest.isolated.is_empty(), "{dropped} in one pass");
    // 80 blocks were used and are free again: 0.4 s, and what was too much must be made up for.
    let again = |world: &mut World| {
        for block in 0..80 {
            world.driver.passes.used(Block(block));
            world.driver.passes.freed(Block(block), world.guest.now_ns());
        }
    };
    again(&mut world);
    world.pass(480 * SECOND);
    assert_eq!((world.dropped.len(), world.driver.passes().rest()), (dropped, Rest::Budget));
    world.pass(600 * SECOND);
    assert!(world.dropped.len() > dropped);
    let dropped = world.dropped.len();
    again(&mut world);
    world.pass(601 * SECOND);
    assert_eq!(world.dropped.len(), dropped);
    world.guest.busy = false;
    world.pass(605 * SECOND);
    assert!(world.dropped.len() > dropped, "a calm one is not kept waiting");

    // Memory blocks go one by one, as enough is left: 4 ms each, 0.4 s.
    let mut world = World::new(64, &[Way::Offline], false);
    (world.guest.busy, world.guest.isolate_ns) = (true, 4 * MS);
    world.driver.budget = Budget::new(Some(0.01), 0);
    world.pass(3 * SECOND);
    let dropped = world.dropped.len();
    assert!((4..=32).contains(&dropped), "{dropped}");
    world.pass(20 * SECOND);
    assert!(world.dropped.len() > dropped + 16);

    let mut world = busy(true);
    world.pass(30 * SECOND);
    assert!(world.driver.is_done() && world.dropped.len() >= 900, "who asks for one pass waits for it");
}

#[test]
fn once_is_one_pass_in_each_way() {
    let mut world = World::new(64, &[Way::Offline, Way::Touch], true);
    world.guest.occupy(0..2);
    world.pass(5 * SECOND);
    assert!(world.driver.is_done() && world.trials(Way::Offline) > 0 && world.trials(Way::Touch) > 0);
    assert!(world.guest.isolated.is_empty());
    let tried = world.guest.tried.len();
    world.pass(600 * SECOND);
    assert_eq!(world.guest.tried.len(), tried);
}

#[test]
fn a_new_host_is_told_everything_again() {
    let mut world = World::new(64, &[Way::Offline], false);
    world.pass(10 * SECOND);
    let dropped = world.dropped.len();
    assert!(dropped > 0);
    world.pass(50 * SECOND);
    assert_eq!(world.dropped.len(), dropped, "once is enough");
    world.driver.welcome(64, false, world.guest.now_ns());
    world.pass(55 * SECOND);
    assert_eq!(world.dropped.len(), dropped, "the same host");
    world.driver.welcome(64, true, world.guest.now_ns());
    world.pass(59 * SECOND);
    assert_eq!(world.dropped.len(), 2 * dropped);
}

#[test]
fn memory_comes_and_goes() {
    let mut world = World::new(64, &[Way::Offline], false);
    world.driver.set_memory(vec![AddrRange::new(0, 32 * BLOCK_BYTES)]);
    world.pass(5 * SECOND);
    assert!(!world.dropped.is_empty() && world.dropped.iter().all(|block| block.0 < 32));
    let before = world.dropped.len();
    world.driver.set_memory(vec![AddrRange::new(0, 64 * BLOCK_BYTES)]);
    world.pass(40 * SECOND);
    assert!(world.dropped.len() > before && world.dropped[before..].iter().all(|block| block.0 >= 32));
}

/// One in which a third of memory is free in pieces.
fn scattered_world(once: bool) -> World {
    let mut world = World::new(64, &[Way::Offline, Way::Touch], once);
    world.guest.scatter(40..60);
    world.guest.compacts = true;
    world
}

#[test]
fn scattered_memory_is_put_together_and_reported_once_the_guest_is_calm() {
    let mut world = scattered_world(false);
    let scattered = |world: &World| world.dropped.iter().filter(|block| (40..60).contains(&block.0)).count();
    world.pass(3 * SECOND);
    assert_eq!((world.guest.compactions, scattered(&world)), (0, 0), "too early");
    world.pass(60 * SECOND);
    assert_eq!((world.guest.compactions, scattered(&world)), (1, 20));
    let stats = world.driver.compaction_stats();
    assert_eq!((stats.compactions, stats.gained_blocks), (1, 20));
}

#[test]
fn scattered_memory_of_a_busy_guest_is_left_as_it_is() {
    let mut world = scattered_world(false);
    for second in 1..60 {
        world.guest.allocated += NEWS_PAGES;
        world.pass(second * SECOND);
    }
    assert_eq!(world.guest.compactions, 0);
    world.driver.event(Event::Silent, &mut world.guest);
    world.pass(120 * SECOND);
    assert_eq!(world.guest.compactions, 0, "nobody to report it to");
}

#[test]
fn without_leave_or_where_the_kernel_refuses_nothing_is_put_together() {
    let mut world = scattered_world(false);
    world.driver.settings.compact = false;
    world.pass(60 * SECOND);
    assert_eq!(world.guest.compactions, 0);
    world.driver.settings.compact = true;
    world.guest.compacts = false;
    world.pass(3600 * SECOND);
    assert_eq!((world.guest.compactions, world.guest.troubles.len()), (1, 1), "{:?}", world.guest.troubles);
}

#[test]
fn the_one_pass_is_made_with_what_was_scattered() {
    let mut world = scattered_world(true);
    world.pass(SECOND);
    assert!(world.driver.is_done() && world.guest.compactions == 1);
    assert!((40..60).all(|block| world.dropped.contains(&Block(block))), "{:?}", world.dropped);
}
