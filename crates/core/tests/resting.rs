//! Targets that do not run are not walked again, and are known nevertheless.

use isotherm_core::addr::{AddrRange, TABLE_SPAN};
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::clock::{Clock, VirtualClock};
use isotherm_core::engine::Engine;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::history::frame::{IdlePages, PageFrame};
use isotherm_core::mapping::Mapping;
use isotherm_core::mask;
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::{Algorithm, MonitorConfig};
use isotherm_core::source::{AccessSource, Clear, Cost, SourceError};
use isotherm_core::target::{Footprint, TargetId, TargetInfo};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const S: u64 = 1_000_000_000;
const BUDGET: f64 = 0.01;
/// What a walk costs, ns.
const WALK_NS: u64 = 100_000;
const PAGES: u64 = 512;

/// A process with one table of pages.
#[derive(Debug, Clone)]
struct Program {
    cpu_ns: u64,
    accessed: [u64; 8],
    resident: u64,
    walks: u64,
    lists: u64,
}

#[derive(Debug)]
struct World {
    programs: Vec<Program>,
    spent_ns: u64,
    /// Whether the source tells CPU times.
    tells_cpu: bool,
}

impl World {
    fn new(programs: usize, tells_cpu: bool) -> Rc<RefCell<Self>> {
        let program = Program { cpu_ns: 1, accessed: [u64::MAX; 8], resident: PAGES, walks: 0, lists: 0 };
        Rc::new(RefCell::new(Self { programs: vec![program; programs], spent_ns: 0, tells_cpu }))
    }

    /// A program runs for a moment, and accesses its first `pages` pages.
    fn run(&mut self, program: usize, pages: usize) {
        let program = &mut self.programs[program];
        program.cpu_ns += 1000;
        program.accessed = mask::or(&program.accessed, &mask::span_mask(0, pages));
    }
}

struct Programs {
    world: Rc<RefCell<World>>,
    announced: bool,
}

impl AccessSource for Programs {
    fn name(&self) -> &'static str {
        "programs"
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        let all = 0..self.world.borrow().programs.len() as u32;
        let is_first = !std::mem::replace(&mut self.announced, true);
        let info = |target| TargetInfo { target, pid: Some(target + 1), name: "program".to_owned() };
        Ok(if is_first { all.map(info).collect() } else { Vec::new() })
    }

    fn cpu_ns(&mut self, target: TargetId) -> Option<u64> {
        let world = self.world.borrow();
        world.tells_cpu.then(|| world.programs[target as usize].cpu_ns)
    }

    fn footprint(&mut self, target: TargetId, time_ns: u64) -> Option<Footprint> {
        let rss = self.world.borrow().programs[target as usize].resident * 4096;
        Some(Footprint { time_ns, target, vsz: TABLE_SPAN, rss, swap: Some(0) })
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        self.world.borrow_mut().programs[target as usize].lists += 1;
        *out = vec![Mapping::anon(TABLE_SPAN, 2 * TABLE_SPAN)];
        Ok(())
    }

    fn arm(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
        Ok(())
    }

    fn look(&mut self, _: TargetId, _: &mut [Window]) -> Result<(), SourceError> {
        Ok(())
    }

    fn scan(
        &mut self,
        target: TargetId,
        _: &[AddrRange],
        mut clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        let mut world = self.world.borrow_mut();
        world.spent_ns += WALK_NS;
        let program = &mut world.programs[target as usize];
        program.walks += 1;
        let present = mask::span_mask(0, program.resident as usize);
        let accessed = mask::and(&program.accessed, &present);
        let mut bits = TableBits { present, accessed, ..TableBits::empty(TABLE_SPAN) };
        bits.cleared = clear.choose(&bits);
        program.accessed = mask::and_not(&program.accessed, &bits.cleared);
        sink(&bits);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost { monitor_ns: self.world.borrow().spent_ns, ..Cost::default() }
    }
}

#[derive(Default)]
struct Latest(BTreeMap<u32, PageFrame>);

impl Subscriber for Latest {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        if let Event::Pages(frame) = event {
            self.0.insert(frame.target, frame.clone());
        }
        Ok(())
    }
}

impl Latest {
    fn idle(&self, target: u32, age_ns: u64) -> Option<IdlePages> {
        self.0.get(&target)?.total().idle_for(age_ns).copied()
    }
}

struct Watch {
    world: Rc<RefCell<World>>,
    monitor: Monitor<Programs>,
    clock: VirtualClock,
    latest: Latest,
}

impl Watch {
    fn new(programs: usize, tells_cpu: bool) -> Self {
        let world = World::new(programs, tells_cpu);
        let source = Programs { world: world.clone(), announced: false };
        let config =
            MonitorConfig { algorithm: Algorithm::PagesOnly, cpu_budget: Some(BUDGET), ..MonitorConfig::default() };
        Self { world, monitor: Monitor::new(source, config), clock: VirtualClock::new(S), latest: Latest::default() }
    }

    /// Watches for so long; before each interval, `act` happens.
    fn watch(&mut self, seconds: u64, mut act: impl FnMut(&mut World)) {
        let end_ns = self.clock.now_ns() + seconds * S;
        while self.clock.now_ns() < end_ns {
            act(&mut self.world.borrow_mut());
            self.monitor.run_interval(&mut self.clock, &mut self.latest).unwrap();
        }
    }

    /// How many are known to have left all their pages alone for so long.
    fn resting(&self, age_ns: u64) -> usize {
        let all = |idle: IdlePages| idle.least == PAGES;
        self.latest.0.keys().filter(|&&target| self.latest.idle(target, age_ns).is_some_and(all)).count()
    }

    fn walks(&self, program: usize) -> u64 {
        self.world.borrow().programs[program].walks
    }
}

#[test]
fn thousands_that_rest_are_known_after_one_walk_of_each() {
    const MANY: usize = 2000;
    let known = |tells_cpu| {
        let mut watch = Watch::new(MANY, tells_cpu);
        watch.watch(30, |_| ());
        assert!(watch.world.borrow().spent_ns < 31 * S / 100, "the budget");
        (watch.resting(S), watch)
    };
    let (without, _) = known(false);
    let (with, mut watch) = known(true);
    assert!(with == MANY && without < MANY * 2 / 3, "{with} and {without}");
    // Afterwards what was left set is cleared, and that is all.
    watch.watch(60, |_| ());
    let before = watch.world.borrow().spent_ns;
    watch.watch(60, |_| ());
    let spent = watch.world.borrow().spent_ns - before;
    assert!(spent < MANY as u64 * WALK_NS / 4, "{spent}");
    assert_eq!(watch.resting(60 * S), MANY);
    assert!(watch.world.borrow().programs.iter().all(|program| program.lists == 1), "mappings do not change either");
}

#[test]
fn who_runs_is_walked_more_often_where_the_others_rest() {
    let walks = |tells_cpu| {
        let mut watch = Watch::new(500, tells_cpu);
        watch.watch(120, |world| world.run(7, 100));
        let idle = watch.latest.idle(7, 60 * S).expect("watched for a minute");
        assert!(idle.most <= PAGES - 100 && idle.pages.abs_diff(PAGES - 100) < 20, "{idle:?}");
        watch.walks(7)
    };
    let (with, without) = (walks(true), walks(false));
    assert!(with > 3 * without, "{with} and {without}");
}

#[test]
fn who_runs_again_is_walked_and_is_no_more_idle_than_its_bits_say() {
    let mut watch = Watch::new(20, true);
    watch.watch(60, |_| ());
    assert_eq!(watch.resting(30 * S), 20);
    let walks = watch.walks(3);
    watch.watch(30, |_| ());
    assert_eq!(watch.walks(3), walks, "nothing is to be seen");
    watch.world.borrow_mut().run(3, 200);
    watch.watch(15, |_| ());
    assert!(watch.walks(3) > walks);
    let idle = watch.latest.idle(3, 60 * S).unwrap();
    assert_eq!((idle.least, idle.most), (PAGES - 200, PAGES - 200));
    assert_eq!(watch.resting(60 * S), 19);
}

#[test]
fn what_is_taken_away_from_one_that_rests_is_noticed() {
    let mut watch = Watch::new(20, true);
    watch.watch(60, |_| ());
    watch.world.borrow_mut().programs[3].resident = 100;
    watch.watch(20, |_| ());
    let idle = watch.latest.idle(3, 30 * S).unwrap();
    assert_eq!((idle.least, idle.most), (100, 100), "its resident memory tells");
    let walks = watch.walks(4);
    watch.watch(600, |_| ());
    assert!((1..=3).contains(&(watch.walks(4) - walks)), "now and then all are looked at, whatever they tell");
}
