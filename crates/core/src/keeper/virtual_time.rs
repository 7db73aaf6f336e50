//! Limits kept in virtual time: what is decided, and when.

use super::kernel::{KernelGenerations, KernelKeeper, KernelMemory};
use super::left_to_kernel::KernelReclaim;
use super::limit::{LimitConfig, LimitKeeper, SHORTEST_INTERVAL_NS, System, Turn};
use super::memory::Generation;
use super::replay::Toy;
use crate::addr::PAGE_SIZE;
use crate::clock::{Clock, CpuClock, VirtualClock, Wake};
use std::cell::Cell;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// Virtual time; every look at the CPU time adds what a piece of work costs.
#[derive(Default)]
struct TestClock {
    time: VirtualClock,
    cpu_ns: Cell<u64>,
    work_ns: u64,
}

impl Clock for TestClock {
    fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    fn sleep_until_ns(&mut self, deadline_ns: u64) -> Wake {
        self.time.sleep_until_ns(deadline_ns)
    }
}

impl CpuClock for TestClock {
    fn cpu_ns(&self) -> u64 {
        self.cpu_ns.replace(self.cpu_ns.get() + self.work_ns)
    }
}

const CONFIG: LimitConfig = LimitConfig {
    limit: 4096 * PAGE_SIZE,
    headroom: 0.1,
    swappiness: 100,
    min_ttl_ns: 0,
    max_interval_ns: 10 * S,
    cpu_budget: None,
};

/// Processes of 8192 pages each below one limit.
struct World {
    toy: Toy,
    clock: TestClock,
    keeper: LimitKeeper,
}

impl World {
    fn new(processes: u32, config: LimitConfig) -> Self {
        let mut keeper = LimitKeeper::new("all".into(), Vec::new(), config);
        (0..processes).for_each(|target| keeper.add(target, 100 + target, format!("pid {}", 100 + target)));
        Self { toy: Toy::new(processes, 8192), clock: TestClock::default(), keeper }
    }

    fn touch(&self, target: u32, pages: std::ops::Range<u64>) {
        pages.for_each(|page| _ = self.toy.access(target, page));
    }

    fn turn(&mut self) -> Turn {
        let used = self.toy.resident() * PAGE_SIZE;
        let (mut source, mut out) = (self.toy.clone(), self.toy.clone());
        let mut system = System { source: &mut source, out: &mut out, clock: &self.clock };
        self.keeper.turn(&mut system, Some(used))
    }

    /// Takes turns for `ns`, each as soon as it is due, with `work` before each. The last of them.
    fn run(&mut self, ns: u64, mut work: impl FnMut(&mut Self)) -> Option<Turn> {
        let (end, mut last) = (self.clock.now_ns() + ns, None);
        while self.clock.now_ns() < end {
            work(self);
            let turn = self.turn();
            assert!(turn.wake_ns >= self.clock.now_ns());
            self.clock.sleep_until_ns(turn.wake_ns.max(self.clock.now_ns() + MS));
            last = Some(turn);
        }
        last
    }
}

#[test]
fn what_is_used_stays_and_the_rest_goes_ahead_of_the_limit() {
    let mut world = World::new(1, CONFIG);
    world.touch(0, 0..3000);
    world.run(5 * S, |world| world.touch(0, 0..1000));
    world.touch(0, 3000..4000);
    world.run(3 * S, |world| world.touch(0, 0..1000));
    let figures = world.keeper.figures(world.clock.now_ns());
    let high = CONFIG.limit / 10 * 9;
    assert!(world.toy.resident() * PAGE_SIZE <= high, "{figures:?}");
    assert_eq!(figures.evicted, (4000 - world.toy.resident()) * PAGE_SIZE);
    assert!((0..1000).all(|page| !world.toy.access(0, page)), "what is always used was evicted");
    assert_eq!((figures.memories.len(), figures.memories[0].evicted), (1, figures.evicted));
}

#[test]
fn walks_follow_use_and_are_rare_where_nothing_has_to_go() {
    let mut idle = World::new(1, CONFIG);
    idle.touch(0, 0..1000);
    idle.run(60 * S, |_| {});
    let figures = idle.keeper.figures(0);
    assert_eq!(figures.interval_ns, Some(CONFIG.max_interval_ns));
    assert!((10..20).contains(&figures.walks), "{figures:?}");
    // All is used all the time and nothing has to go: a walk a second after the first few, not one each 50 ms.
    let mut busy = World::new(1, CONFIG);
    busy.run(20 * S, |world| world.touch(0, 0..1000));
    let figures = busy.keeper.figures(0);
    assert_eq!(figures.interval_ns, Some(SHORTEST_INTERVAL_NS));
    assert!((18..=26).contains(&figures.walks), "{figures:?}");
}

#[test]
fn walks_stay_within_their_budget() {
    let mut world = World::new(1, LimitConfig { cpu_budget: Some(0.01), ..CONFIG });
    world.clock.work_ns = 20 * MS;
    world.run(40 * S, |world| world.touch(0, 0..3000));
    let figures = world.keeper.figures(world.clock.now_ns());
    assert_eq!((figures.over_budget, figures.interval_ns), (Some(true), Some(2 * S)), "{figures:?}");
    assert!(figures.walk_ns <= 40 * S / 100 + 4 * world.clock.work_ns, "{figures:?}");
}

#[test]
fn where_nothing_can_go_it_rests_and_says_why() {
    let mut world = World::new(1, CONFIG);
    world.touch(0, 0..4096);
    world.toy.pin(0..8192);
    for _ in 0..5 {
        let turn = world.turn();
        assert!(turn.wake_ns >= world.clock.now_ns() + 2 * MS, "no busy loop");
        world.clock.sleep_until_ns(turn.wake_ns);
    }
    let figures = world.keeper.figures(0);
    assert_eq!(figures.idle_reason.as_deref(), Some("everything was used since the last walk, or cannot be evicted"));
    assert_eq!(figures.evicted, 0);
    let mut empty = World::new(1, CONFIG);
    empty.toy.end(0);
    let mut system =
        System { source: &mut empty.toy.clone(), out: &mut empty.toy.clone(), clock: &TestClock::default() };
    assert_eq!(empty.keeper.pids().collect::<Vec<_>>(), [100]);
    assert_eq!(empty.keeper.turn(&mut system, None).wake_ns, S);
    assert_eq!(empty.keeper.pids().count(), 0, "the walk found that it has ended");
    assert_eq!(empty.keeper.figures(0).idle_reason.as_deref(), Some("nothing is left below this limit"));
}

#[test]
fn what_the_kernel_reclaims_anyway_is_left_to_it_for_a_while() {
    let mut world = World::new(1, CONFIG);
    let mut times = 0;
    let mut work = |world: &mut World| {
        world.touch(0, 0..3900);
        times += 100_000;
        let now = world.clock.now_ns();
        if world.keeper.wants_reclaim(now) {
            world.keeper.count_reclaim(now, Some(KernelReclaim { times, never_sleep: true }));
        }
    };
    world.run(10 * S, &mut work);
    let before = world.keeper.figures(world.clock.now_ns());
    assert!(
        before.evicted > 0 && before.idle_reason.as_ref().unwrap().starts_with("left to the kernel for 30.0 s"),
        "{before:?}"
    );
    world.run(20 * S, &mut work);
    let left = world.keeper.figures(world.clock.now_ns());
    assert_eq!(left.evicted, before.evicted);
    assert!((1..=3).contains(&(left.walks - before.walks)), "walks tell who has ended");
    world.run(3 * S, &mut work);
    let after = world.keeper.figures(world.clock.now_ns());
    assert!(after.evicted > left.evicted, "{after:?}");
    assert!(after.idle_reason.is_none_or(|why| !why.starts_with("left")));
    world.run(3 * S, &mut work);
    let again = world.keeper.figures(world.clock.now_ns()).idle_reason.unwrap();
    assert!(again.starts_with("left to the kernel for 1 m 00 s"), "{again}");
}

#[test]
fn thrashing_is_said_once_with_the_largest_process_first() {
    let mut world = World::new(2, LimitConfig { min_ttl_ns: 2 * S, cpu_budget: Some(0.03), ..CONFIG });
    world.clock.work_ns = MS;
    let mut found = Vec::new();
    let work = |world: &mut World| {
        world.touch(0, 0..2000);
        world.touch(1, 0..4000);
    };
    while world.clock.now_ns() < 5 * S {
        work(&mut world);
        let turn = world.turn();
        found.extend(turn.thrashing.map(|who| (world.clock.now_ns(), who)));
        world.clock.sleep_until_ns(turn.wake_ns.max(world.clock.now_ns() + MS));
    }
    assert_eq!((found.len(), world.keeper.figures(0).reactions), (1, 1));
    let (when, who) = &found[0];
    assert!(*when >= 2 * S, "not before it was watched for so long");
    assert_eq!(who.iter().map(|candidate| candidate.pid).collect::<Vec<_>>(), [101, 100]);
    assert!(who[0].bytes >= who[1].bytes);
    assert!(world.keeper.figures(0).thrashing_since_ns.is_some_and(|since| since < *when));
    // Somebody was stopped: as long as that lasts nothing is judged anew, afterwards it is.
    let until = world.clock.now_ns() + 5 * S;
    world.keeper.stopped_until(until);
    assert!(!world.keeper.is_thaw_due(until - 1) && world.keeper.is_thaw_due(until));
    assert!(!world.keeper.is_thaw_due(until), "once");
    assert_eq!(world.keeper.figures(0).thrashing_since_ns, None);
    let mut again = None;
    while again.is_none() {
        work(&mut world);
        let turn = world.turn();
        again = turn.thrashing;
        world.clock.sleep_until_ns(turn.wake_ns.max(world.clock.now_ns() + MS));
        assert!(world.clock.now_ns() < 60 * S, "still thrashing");
    }
}

#[test]
fn processes_that_come_all_the_time_do_not_hide_thrashing() {
    let mut world = World::new(1, LimitConfig { min_ttl_ns: 2 * S, ..CONFIG });
    world.toy = Toy::new(11, 8192);
    for target in 1..=10 {
        // None of them lives for as long as the working set must stay.
        world.keeper.add(target, 100 + target, format!("pid {}", 100 + target));
        world.run(S, |world| {
            world.touch(0, 0..4096);
            world.touch(target, 0..20);
        });
        world.toy.end(target);
        assert!(target > 2 || world.keeper.figures(0).reactions == 0, "not before it was watched for so long");
    }
    assert_eq!(world.keeper.figures(0).reactions, 1);
}

#[test]
fn thrashing_is_found_also_over_more_walks_than_there_are_ages() {
    let ttl = 30 * S;
    let mut world = World::new(1, LimitConfig { min_ttl_ns: ttl, ..CONFIG });
    let mut when = None;
    while when.is_none() {
        world.touch(0, 0..4096);
        let turn = world.turn();
        when = turn.thrashing.map(|_| world.clock.now_ns());
        world.clock.sleep_until_ns(turn.wake_ns.max(world.clock.now_ns() + SHORTEST_INTERVAL_NS));
        assert!(world.clock.now_ns() < 2 * ttl, "{:?}", world.keeper.figures(0));
    }
    assert!(when >= Some(ttl) && world.keeper.figures(0).walks > 300, "{when:?}: {:?}", world.keeper.figures(0));
}

#[test]
fn a_limit_that_is_changed_is_kept_as_it_is_then() {
    let mut world = World::new(1, CONFIG);
    world.touch(0, 0..3000);
    world.run(3 * S, |world| world.touch(0, 0..500));
    assert_eq!(world.toy.resident(), 3000, "it is below its limit");
    world.keeper.set_limit(Some(2048 * PAGE_SIZE));
    world.run(3 * S, |world| world.touch(0, 0..500));
    assert!(world.toy.resident() < 2048);
    world.keeper.set_limit(None);
    world.touch(0, 0..8000);
    world.run(3 * S, |world| world.touch(0, 0..500));
    assert_eq!((world.toy.resident(), world.keeper.figures(0).limit), (8000, None));
}

#[test]
fn processes_that_have_ended_leave_nothing_behind() {
    let mut world = World::new(1, CONFIG);
    world.toy = Toy::new(101, 8192);
    // One after the other, each with an id of its own.
    for target in 1..=100 {
        world.keeper.add(target, 100 + target, format!("pid {}", 100 + target));
        world.touch(target, 0..20);
        world.run(2 * S, |world| world.touch(0, 0..20));
        if target < 100 {
            world.toy.end(target);
            world.run(2 * S, |world| world.touch(0, 0..20));
        }
    }
    let figures = world.keeper.figures(world.clock.now_ns());
    let named: Vec<&str> = figures.memories.iter().map(|memory| memory.memcg.as_str()).collect();
    assert_eq!(named, ["pid 100", "pid 200"]);
    assert!(figures.memories[1].evictable > 0, "{figures:?}");
}

#[test]
fn groups_take_who_is_in_them_or_below() {
    let keeper = LimitKeeper::new("a".into(), vec!["/a".into(), "/b/".into()], CONFIG);
    assert_eq!(
        ["/a", "/a/x", "/ab", "/b", "/b/c/d", "/", ""].map(|g| keeper.takes(g)),
        [true, true, false, true, true, false, false]
    );
    assert!(LimitKeeper::new("all".into(), Vec::new(), CONFIG).takes(""));
}

/// Why the kernel did not do it.
#[derive(Debug, thiserror::Error)]
enum ToyError {
    #[error("the kernel refuses {0}")]
    Refused(u32),
    #[error("there is no memory {0}")]
    Unknown(u32),
}

/// A kernel that evicts what it is asked to, from the oldest generation on.
#[derive(Default)]
struct ToyKernel {
    memories: Vec<KernelMemory>,
    /// Numbers of memories that refuse.
    refusing: Vec<u32>,
    evicted: BTreeMap<u32, u64>,
    aged: Vec<u32>,
    reads: u32,
}

impl ToyKernel {
    fn new(sizes: &[&[u64]]) -> Self {
        let memory = |(id, pages): (u32, &&[u64])| KernelMemory {
            id,
            path: format!("/{id}"),
            node: 0,
            generations: (0..).zip(*pages).map(|(seq, &pages)| generation(seq, pages)).collect(),
        };
        Self { memories: (1..).zip(sizes).map(memory).collect(), ..Self::default() }
    }

    fn find(&mut self, id: u32) -> Result<&mut KernelMemory, ToyError> {
        if self.refusing.contains(&id) {
            return Err(ToyError::Refused(id));
        }
        self.memories.iter_mut().find(|memory| memory.id == id).ok_or(ToyError::Unknown(id))
    }
}

const fn generation(seq: u64, pages: u64) -> Generation {
    Generation { seq, age_ms: 0, anon_bytes: pages * PAGE_SIZE, file_bytes: 0 }
}

impl KernelGenerations for ToyKernel {
    type Error = ToyError;

    fn used(&mut self) -> Option<u64> {
        (!self.memories.is_empty()).then(|| self.memories.iter().map(KernelMemory::bytes).sum())
    }

    fn memories(&mut self) -> Result<Vec<KernelMemory>, ToyError> {
        self.reads += 1;
        Ok(self.memories.clone())
    }

    fn age(&mut self, memory: &KernelMemory) -> Result<(), ToyError> {
        let seq = memory.max_seq() + 1;
        self.find(memory.id)?.generations.push(generation(seq, 0));
        self.aged.push(memory.id);
        Ok(())
    }

    fn evict(&mut self, memory: &KernelMemory, seq: u64, _: u8, pages: u64) -> Result<(), ToyError> {
        let mut left = pages * PAGE_SIZE;
        let found = self.find(memory.id)?;
        for one in found.generations.iter_mut().filter(|g| g.seq <= seq) {
            let out = one.anon_bytes.min(left);
            one.anon_bytes -= out;
            left -= out;
        }
        *self.evicted.entry(memory.id).or_default() += pages * PAGE_SIZE - left;
        Ok(())
    }
}

fn kernel_keeper(pages: u64) -> KernelKeeper {
    KernelKeeper::new("a".into(), pages * PAGE_SIZE, 0.1, 100)
}

#[test]
fn the_kernel_takes_from_each_by_its_size_and_never_the_two_youngest() {
    let mut kernel = ToyKernel::new(&[&[8000, 1000, 500, 500], &[1000, 0, 500, 500]]);
    let mut keeper = kernel_keeper(12_000);
    keeper.turn(&mut kernel, &TestClock::default());
    assert!(kernel.used().unwrap() < 12_000 * PAGE_SIZE / 10 * 9);
    let of = |id| kernel.evicted[&id];
    assert!(of(1) > 4 * of(2) && of(2) > 0, "{:?}", kernel.evicted);
    assert_eq!(keeper.figures(7).evicted, of(1) + of(2));
    assert!(kernel.memories.iter().all(|memory| memory.generations[2..].iter().all(|g| g.bytes() == 500 * PAGE_SIZE)));
    assert!(kernel.aged.is_empty(), "there are old generations enough");
}

/// Old files can go as well as old anonymous memory: the kernel needs no new generation for that.
#[test]
fn a_memory_of_old_files_has_old_generations_enough() {
    let mut kernel = ToyKernel::new(&[&[0, 0, 500, 500]]);
    kernel.memories[0].generations[0].file_bytes = 11_000 * PAGE_SIZE;
    let (mut keeper, mut clock) = (kernel_keeper(12_000), TestClock::default());
    clock.time.advance_ns(S);
    keeper.turn(&mut kernel, &clock);
    assert!(kernel.aged.is_empty());
}

#[test]
fn generations_are_created_where_there_are_no_old_ones_but_not_all_the_time() {
    let mut kernel = ToyKernel::new(&[&[0, 6000, 6000]]);
    let (mut keeper, mut clock) = (kernel_keeper(12_000), TestClock::default());
    clock.time.advance_ns(S);
    let wake = keeper.turn(&mut kernel, &clock);
    assert_eq!((kernel.aged.len(), wake), (1, S + 100 * MS));
    let why = keeper.figures(0).idle_reason;
    assert_eq!(why.as_deref(), Some("all memory is in the two youngest generations"));
    // Rests without reading the kernel's file, and creates the next generation half a second later at the earliest.
    clock.time.advance_ns(50 * MS);
    assert_eq!((keeper.turn(&mut kernel, &clock), kernel.reads), (wake, 1));
    clock.sleep_until_ns(wake);
    keeper.turn(&mut kernel, &clock);
    assert_eq!((kernel.reads, kernel.aged.len()), (2, 1));
    assert!(keeper.figures(0).evicted > 0, "the generation created before has made the others older");
}

#[test]
fn the_kernels_limit_can_be_changed_and_what_it_does_not_tell_is_not_zero() {
    let mut kernel = ToyKernel::new(&[&[8000, 1000, 500, 500]]);
    let mut keeper = kernel_keeper(20_000);
    keeper.turn(&mut kernel, &TestClock::default());
    assert_eq!(kernel.used(), Some(10_000 * PAGE_SIZE));
    keeper.set_limit(Some(5000 * PAGE_SIZE));
    keeper.turn(&mut kernel, &TestClock::default());
    assert!(kernel.used() < Some(5000 * PAGE_SIZE));
    let figures = keeper.figures(0);
    assert_eq!(figures.limit, Some(5000 * PAGE_SIZE));
    let unknown = [figures.spared, figures.refaulted, figures.present, figures.interval_ns, figures.target_ns];
    assert_eq!((unknown, figures.tables_read, figures.over_budget), ([None; 5], None, None));
}

#[test]
fn a_memory_that_refuses_does_not_hold_up_the_others() {
    let mut kernel = ToyKernel::new(&[&[6000, 100, 100], &[6000, 100, 100]]);
    kernel.refusing.push(1);
    let mut keeper = kernel_keeper(12_000);
    keeper.turn(&mut kernel, &TestClock::default());
    assert!(kernel.evicted[&2] > 0 && !kernel.evicted.contains_key(&1));
    assert_eq!(keeper.figures(0).idle_reason.as_deref(), Some("the kernel refuses 1"));
    kernel.memories.clear();
    keeper.turn(&mut kernel, &TestClock::default());
    assert_eq!(keeper.figures(0).idle_reason.as_deref(), Some("nothing is left below this limit"));
}
