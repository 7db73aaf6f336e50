//! What holds for hinting whatever the world does: a small guest whose memory is written to and freed at random, a host
//! that answers late, twice, or not at all, and a connection that comes and goes.

use isotherm_core::addr::AddrRange;
use isotherm_core::hinter::{BLOCK_BYTES, Block, Command, Config, Event, Fate, Isolation, Passes, Rest, Way, joined};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const BLOCKS: u64 = 64;
const MS: u64 = 1_000_000;

/// What the guest's block holds, and what the host has of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Memory {
    used: bool,
    isolated: bool,
    /// Written by the guest, as it should be read again.
    data: u32,
    /// What the host would hand the guest.
    host: u32,
    /// Acknowledged as dropped and not used since.
    known: bool,
}

#[derive(Debug)]
struct Guest {
    blocks: BTreeMap<Block, Memory>,
    way: Way,
    unit: u64,
    clears: bool,
    /// Where an isolator that gets only a number begins to look.
    next: u64,
    refuses: BTreeSet<Block>,
}

impl Guest {
    fn free(&self) -> u64 {
        self.blocks.values().filter(|m| !m.used && !m.isolated).count() as u64
    }
}

impl Guest {
    fn isolate(&mut self, wanted: &[Block]) -> Isolation {
        let mut blocks = vec![];
        match self.way {
            Way::Offline => {
                for first in wanted {
                    let unit: Vec<Block> = (first.0..first.0 + self.unit).map(Block).collect();
                    let can = unit.iter().all(|b| {
                        self.blocks.get(b).is_some_and(|m| !m.used && !m.isolated) && !self.refuses.contains(b)
                    });
                    if can {
                        blocks.extend(unit);
                    }
                }
            }
            Way::Touch => {
                let free = self.blocks.iter().filter(|(_, m)| !m.used && !m.isolated).map(|(b, _)| *b);
                let (before, after): (Vec<_>, Vec<_>) = free.partition(|b| b.0 < self.next);
                blocks = after.into_iter().chain(before).take(wanted.len()).collect();
                self.next = (self.next * 7 + 3) % BLOCKS;
            }
        }
        for block in &blocks {
            let m = self.blocks.get_mut(block).unwrap();
            m.isolated = true;
            if self.clears {
                (m.data, m.host, m.known) = (0, 0, false);
            }
        }
        Isolation { blocks, written: self.clears }
    }

    fn release(&mut self) {
        self.blocks.values_mut().for_each(|m| m.isolated = false);
    }

    fn free_bytes(&self) -> u64 {
        self.free() * BLOCK_BYTES
    }
}

/// A host behind a queue in each direction.
#[derive(Debug, Default)]
struct Host {
    up: bool,
    reports: VecDeque<(u64, Vec<Block>)>,
    answers: VecDeque<Event>,
    last: u64,
}

impl Host {
    fn report(&mut self, batch: u64, blocks: &[Block]) {
        if self.up {
            self.reports.push_back((batch, blocks.to_vec()));
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Use(u64, u32),
    /// Memory runs short: only so many blocks are not in use.
    UseAllBut(u64),
    Free(u64),
    Refuse(u64),
    /// Time passes and the agent works.
    Step(u64),
    /// The host acts on the oldest report that waits; with what verdict.
    Act(Fate),
    /// The oldest answer arrives.
    Deliver,
    LoseReport,
    LoseAnswer,
    DoubleReport,
    DoubleAnswer,
    Disconnect,
    Reconnect,
    Pressure,
    Now,
}

fn arb_op() -> impl Strategy<Value = Op> {
    let block = 0..BLOCKS;
    prop_oneof![
        4 => (block.clone(), any::<u32>()).prop_map(|(b, d)| Op::Use(b, d)),
        1 => (0u64..12).prop_map(Op::UseAllBut),
        6 => block.clone().prop_map(Op::Free),
        1 => block.prop_map(Op::Refuse),
        8 => (0u64..3000).prop_map(Op::Step),
        6 => prop_oneof![8 => Just(Fate::Dropped), 1 => Just(Fate::Refused), 1 => Just(Fate::NotNow)].prop_map(Op::Act),
        6 => Just(Op::Deliver),
        1 => Just(Op::LoseReport),
        1 => Just(Op::LoseAnswer),
        1 => Just(Op::DoubleReport),
        1 => Just(Op::DoubleAnswer),
        1 => Just(Op::Disconnect),
        2 => Just(Op::Reconnect),
        1 => Just(Op::Pressure),
        1 => Just(Op::Now),
    ]
}

struct World {
    passes: Passes,
    /// What was reported last.
    sent: (u64, Vec<Block>),
    guest: Guest,
    host: Host,
    now: u64,
}

impl World {
    fn new(config: Config, clears: bool) -> Self {
        let mut passes = Passes::new(config);
        passes.add_memory(AddrRange::new(0, BLOCKS * BLOCK_BYTES));
        let guest = Guest {
            blocks: (0..BLOCKS).map(|b| (Block(b), Memory::default())).collect(),
            way: config.way,
            unit: config.unit,
            clears,
            next: 0,
            refuses: BTreeSet::new(),
        };
        let mut world = Self { passes, sent: (0, vec![]), guest, host: Host::default(), now: 0 };
        (0..BLOCKS).for_each(|b| world.passes.freed(Block(b), 0));
        world.reconnect();
        world
    }

    fn reconnect(&mut self) {
        // A new token: what waits is passed over.
        self.host.reports.clear();
        self.host.answers.clear();
        (self.host.up, self.host.last) = (true, 0);
        self.passes.event(Event::Ready, self.now);
        self.check();
    }

    fn act(&mut self, fate: Fate) {
        let Some((batch, blocks)) = self.host.reports.pop_front() else { return };
        let fates = vec![fate; blocks.len()];
        if batch > self.host.last {
            self.host.last = batch;
            for block in blocks {
                let m = self.guest.blocks.get_mut(&block).unwrap();
                assert!(m.isolated, "{block:?} is dropped while the guest may use it");
                if fate == Fate::Dropped {
                    m.host = 0;
                }
            }
        } else if batch < self.host.last {
            return;
        }
        // One that comes again is answered again, not acted on again.
        self.host.answers.push_back(Event::Acked { batch, fates, wait_ns: 0 });
    }

    fn hear(&mut self, answer: Event) {
        let Event::Acked { batch, fates, .. } = &answer else { panic!("{answer:?}") };
        if *batch == self.sent.0 && !self.passes.on_the_way().is_empty() {
            for (block, _) in self.sent.1.iter().zip(fates).filter(|(_, fate)| **fate == Fate::Dropped) {
                self.guest.blocks.get_mut(block).unwrap().known = true;
            }
        }
        self.passes.event(answer, self.now);
    }

    fn step(&mut self) -> Option<u64> {
        let reserve = self.passes.config().reserve;
        loop {
            let free = self.guest.free_bytes();
            match self.passes.command(self.now, free) {
                Command::Isolate(wanted) => {
                    let unit = self.guest.unit;
                    assert!(free - wanted.len() as u64 * unit * BLOCK_BYTES >= reserve);
                    let isolation = self.guest.isolate(&wanted);
                    self.passes.event(Event::Isolated(isolation), self.now);
                }
                Command::Report { batch, blocks } => {
                    let again: Vec<_> = blocks.iter().filter(|b| self.guest.blocks[b].known).collect();
                    assert!(again.is_empty(), "{again:?} are reported again without having been used");
                    self.host.report(batch, &blocks);
                    self.sent = (batch, blocks);
                }
                Command::Release => {
                    assert!(self.passes.on_the_way().is_empty(), "what is on its way is returned");
                    self.guest.release();
                    self.passes.event(Event::Released, self.now);
                }
                Command::Wait(until) => return until,
            }
            self.check();
        }
    }

    fn check(&self) {
        let config = self.passes.config();
        let isolated: BTreeSet<Block> = self.guest.blocks.iter().filter(|(_, m)| m.isolated).map(|(b, _)| *b).collect();
        assert_eq!(&isolated, self.passes.isolated(), "both sides know what is isolated");
        assert!(isolated.len() <= config.most_isolated);
        let way = self.passes.on_the_way();
        assert!(way.len() <= config.batch && way.iter().all(|b| isolated.contains(b)));
        for (block, m) in &self.guest.blocks {
            assert!(!m.used || m.host == m.data, "{block:?} is corrupt");
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Use(b, data) => {
                let m = self.guest.blocks.get_mut(&Block(b)).unwrap();
                if !m.isolated {
                    *m = Memory { used: true, data, host: data, known: false, ..*m };
                    self.passes.used(Block(b));
                }
            }
            Op::UseAllBut(left) => {
                for b in left..BLOCKS {
                    self.run(Op::Use(b, b as u32));
                }
            }
            Op::Free(b) => {
                let m = self.guest.blocks.get_mut(&Block(b)).unwrap();
                m.used = false;
                // Seen free as well while isolated: that must change nothing.
                self.passes.freed(Block(b), self.now);
            }
            Op::Refuse(b) => {
                if !self.guest.refuses.remove(&Block(b)) {
                    self.guest.refuses.insert(Block(b));
                }
            }
            Op::Step(ms) => {
                self.now += ms * MS;
                self.step();
            }
            Op::Act(fate) => self.act(fate),
            Op::Deliver => {
                if let Some(answer) = self.host.answers.pop_front() {
                    self.hear(answer);
                }
            }
            Op::LoseReport => drop(self.host.reports.pop_front()),
            Op::LoseAnswer => drop(self.host.answers.pop_front()),
            Op::DoubleReport => self.host.reports.extend(self.host.reports.front().cloned()),
            Op::DoubleAnswer => self.host.answers.extend(self.host.answers.front().cloned()),
            Op::Disconnect => {
                // Silence only: the host still acts on what it has.
                self.host.up = false;
                self.passes.event(Event::Silent, self.now);
            }
            Op::Reconnect => self.reconnect(),
            Op::Pressure => self.passes.event(Event::Pressure, self.now),
            Op::Now => self.passes.event(Event::Now, self.now),
        }
        self.check();
    }

    /// With a host that answers, everything free above the reserve is dropped in the end.
    fn settle(&mut self) {
        self.reconnect();
        for _ in 0..10_000 {
            let until = self.step();
            if self.host.reports.is_empty() {
                match until {
                    // What is further away is a pause, not work.
                    Some(until) if until < self.now + 9000 * MS && self.passes.rest() != Rest::Reserve => {
                        self.now = self.now.max(until);
                    }
                    _ => return,
                }
            }
            while !self.host.reports.is_empty() {
                self.act(Fate::Dropped);
            }
            while let Some(answer) = self.host.answers.pop_front() {
                self.hear(answer);
            }
            self.check();
        }
        panic!("it never comes to rest: {:?}", self.passes);
    }
}

fn config(number: bool, unit: u64, reserve: u64) -> Config {
    let batch = if unit > 1 { unit as usize } else { 4 };
    Config {
        way: if number { Way::Touch } else { Way::Offline },
        unit: if number { 1 } else { unit },
        batch,
        most_isolated: if number { BLOCKS as usize } else { batch },
        threshold: 4,
        reserve: reserve * BLOCK_BYTES,
        unit_worth: 1,
        linger_ns: Some(5000 * MS),
        gap_ns: 100 * MS,
        retry_ns: 10_000 * MS,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_in_use_is_ever_dropped(
        ops in prop::collection::vec(arb_op(), 0..200), number: bool, clears: bool,
        unit in prop::sample::select(vec![1u64, 8]), reserve in 0u64..8,
    ) {
        let mut world = World::new(config(number, unit, reserve), clears);
        for op in ops {
            world.run(op);
        }
        world.passes.event(Event::Stop, world.now);
        // Without any answer, what is on its way stays isolated, whatever the time, and nothing else is begun.
        let way = world.passes.on_the_way().to_vec();
        let before = world.passes.isolated().clone();
        for _ in 0..3 {
            world.now += 3_600_000 * MS;
            world.step();
        }
        prop_assert_eq!(&way, world.passes.on_the_way());
        let expected = if way.is_empty() { BTreeSet::new() } else { before };
        prop_assert_eq!(&expected, world.passes.isolated());
        world.reconnect();
        world.step();
        prop_assert!(world.passes.is_stopped());
        prop_assert!(world.guest.blocks.values().all(|m| !m.isolated));
    }

    #[test]
    fn all_that_is_free_is_dropped_once(
        ops in prop::collection::vec(arb_op(), 0..100), unit in prop::sample::select(vec![1u64, 8]), reserve in 0u64..8,
    ) {
        let mut world = World::new(config(false, unit, reserve), false);
        for op in ops {
            world.run(op);
        }
        world.guest.refuses.clear();
        world.settle();
        // Past what was refused, put off, or asked to be left alone.
        world.now += 100_000 * MS;
        world.settle();
        if unit == 1 {
            let left = world.passes.blocks().nr_free();
            prop_assert!(left == 0 || world.guest.free() < reserve + 1, "{} left: {:?}", left, world.passes.rest());
        }
        let before = world.passes.stats();
        world.now += 100_000 * MS;
        world.settle();
        // Units with something in use are tried again and again.
        prop_assert!(unit > 1 || before == world.passes.stats(), "nothing new, so nothing is done");
    }
}

#[test]
fn an_answer_ends_a_batch_and_the_pass_goes_on() {
    let mut world = World::new(config(false, 1, 0), false);
    world.settle();
    let stats = world.passes.stats();
    assert_eq!((stats.passes, stats.batches, stats.dropped, stats.released), (1, 16, BLOCKS, BLOCKS));
    assert_eq!(world.passes.blocks().nr_reported(), BLOCKS);
    // Used and freed again: reported again.
    for b in 0..5 {
        world.run(Op::Use(b, 7));
        world.run(Op::Free(b));
    }
    world.settle();
    assert_eq!(world.passes.stats().dropped, BLOCKS + 5);
    // A host that starts anew has all of it again.
    world.passes.event(Event::Forgotten, world.now);
    world.guest.blocks.values_mut().for_each(|m| m.known = false);
    world.settle();
    assert_eq!(world.passes.stats().dropped, 2 * BLOCKS + 5);
}

#[test]
fn memory_comes_and_goes() {
    let mut world = World::new(config(false, 1, 0), false);
    world.step();
    let way = world.passes.on_the_way().to_vec();
    world.passes.remove_memory(joined(&way[..1])[0]);
    assert!(world.passes.isolated().contains(&way[0]), "what is on its way stays isolated");
    world.settle();
    assert_eq!(world.passes.blocks().nr_reported(), BLOCKS - 1);
    world.passes.add_memory(way[0].range());
    world.passes.freed(way[0], world.now);
    world.passes.event(Event::Now, world.now);
    world.settle();
    assert_eq!((world.passes.blocks().nr_reported(), world.passes.blocks().len()), (BLOCKS, BLOCKS));
}

#[test]
fn few_blocks_wait_for_more_but_not_for_ever() {
    let mut world = World::new(config(false, 1, 0), false);
    world.settle();
    world.run(Op::Use(1, 1));
    world.run(Op::Free(1));
    world.now += 1000 * MS;
    let until = world.step();
    assert_eq!((until.is_some(), world.passes.on_the_way().len()), (true, 0));
    world.now = until.unwrap();
    world.step();
    assert_eq!(world.passes.on_the_way(), [Block(1)]);
}

#[test]
fn pressure_returns_memory_and_the_pause_grows() {
    let mut world = World::new(config(true, 1, 0), false);
    world.step();
    world.act(Fate::Dropped);
    let answer = world.host.answers.pop_front().unwrap();
    world.passes.event(answer, world.now);
    world.step();
    assert!(world.passes.isolated().len() > 4, "the first blocks are kept");
    world.passes.event(Event::Pressure, world.now);
    world.step();
    assert_eq!(world.passes.isolated().len(), 8, "nothing is returned while something is on its way");
    world.act(Fate::Dropped);
    let answer = world.host.answers.pop_front().unwrap();
    world.passes.event(answer, world.now);
    let first = world.step().unwrap() - world.now;
    assert!(world.passes.isolated().is_empty());
    world.passes.event(Event::Pressure, world.now);
    assert_eq!(world.step().unwrap() - world.now, 2 * first);
}
