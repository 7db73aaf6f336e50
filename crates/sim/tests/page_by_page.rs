//! The simulated page table against a plain one that does every single touch.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::bits::{Seen, TableBits, Window};
use isotherm_core::clock::Clock;
use isotherm_core::mapping::Mapping;
use isotherm_core::source::{AccessSource, Clear, SourceError};
use isotherm_sim::machine::activity::Activity;
use isotherm_sim::machine::{CostModel, Process, Region, SimClock, SimSource};
use isotherm_sim::workload::patterns::{Parameters, Pattern};
use isotherm_sim::workload::truth::touches_after;
use isotherm_sim::workload::{Area, Order, Plan, Stage, Workload};
use proptest::prelude::*;

/// First page of the arena: not at the begin of a table.
const FIRST: u64 = 300;
const PAGES: u64 = 600;

/// A page table with a bit per page, driven touch by touch.
struct Plain {
    workload: Workload,
    rate: f64,
    now_ns: u64,
    accessed: Vec<bool>,
}

impl Plain {
    fn new(workload: Workload, rate: f64) -> Self {
        let pages = (workload.size() / PAGE_SIZE) as usize;
        Self { workload, rate, now_ns: 0, accessed: vec![true; pages] }
    }

    fn run_until(&mut self, to_ns: u64) {
        for (current, a, b) in self.workload.during(self.now_ns, to_ns) {
            for (i, area) in current.stage.areas.iter().enumerate() {
                let Plan::Round(sweep) = area.plan() else { panic!("the plain table knows rounds only") };
                let share = current.stage.share(i);
                let [a, b] = [a, b].map(|t| touches_after(self.rate, share, t - current.start_ns));
                for k in a..b {
                    self.accessed[(area.range().start / PAGE_SIZE + sweep.page_at(k)) as usize] = true;
                }
            }
        }
        self.now_ns = to_ns;
    }

    /// Bits of `count` pages from the arena's page `from` on.
    fn bits(&self, from: u64, count: u64) -> &[bool] {
        &self.accessed[from as usize..(from + count) as usize]
    }
}

#[derive(Debug, Clone)]
enum Op {
    Wait(u64),
    Arm(u64, u16),
    Look(u64, u16),
    Scan(u64, u64, bool),
}

fn arb_op() -> impl Strategy<Value = Op> {
    let window = (0..PAGES, 1u16..100).prop_map(|(from, n)| {
        // Cut at the end of the arena and of the 2 MiB span.
        let to_span = 512 - (FIRST + from) % 512;
        (from, u64::from(n).min(to_span).min(PAGES - from) as u16)
    });
    prop_oneof![
        (1u64..3000).prop_map(Op::Wait),
        window.clone().prop_map(|(from, n)| Op::Arm(from, n)),
        window.prop_map(|(from, n)| Op::Look(from, n)),
        (0..PAGES, 1u64..PAGES, any::<bool>()).prop_map(|(from, n, clear)| Op::Scan(from, n.min(PAGES - from), clear)),
    ]
}

fn arb_workload() -> impl Strategy<Value = Workload> {
    let area = (0..PAGES, 1u64..200, 1u32..5, any::<bool>()).prop_map(|(start, len, weight, sequential)| {
        let range = AddrRange::new(start * PAGE_SIZE, (start + len).min(PAGES) * PAGE_SIZE);
        Area::new(range, f64::from(weight), if sequential { Order::Sequential } else { Order::Scattered })
    });
    let stage = (1u64..5000, prop::collection::vec(area, 0..3)).prop_map(|(duration_ns, areas)| Stage {
        name: "s".into(),
        duration_ns,
        areas,
    });
    prop::collection::vec(stage, 1..4)
        .prop_map(|stages| Workload::new("t", PAGES * PAGE_SIZE, 1, stages).expect("a sensible workload"))
}

fn simulated(workload: &Workload, rate: f64) -> (SimClock, SimSource) {
    let clock = SimClock::new(0);
    let process = Process::running(7, FIRST * PAGE_SIZE, Activity::new(workload.clone(), rate)).expect("sensible");
    (clock.clone(), SimSource::new(clock, CostModel::free(), vec![process]))
}

fn window(from: u64, pages: u16) -> Window {
    Window::new((FIRST + from) * PAGE_SIZE, pages)
}

proptest! {
    #[test]
    fn every_bit_is_that_of_a_plain_page_table(
        workload in arb_workload(),
        rate in 1e6f64..1e9,
        ops in prop::collection::vec(arb_op(), 1..60),
    ) {
        let mut plain = Plain::new(workload.clone(), rate);
        let (clock, mut source) = simulated(&workload, rate);
        for op in ops {
            match op {
                Op::Wait(ns) => {
                    clock.advance_ns(ns);
                    plain.run_until(clock.now_ns());
                }
                Op::Arm(from, n) | Op::Look(from, n) => {
                    let mut windows = [window(from, n)];
                    let arm = matches!(op, Op::Arm(..));
                    if arm { source.arm(0, &mut windows) } else { source.look(0, &mut windows) }.unwrap();
                    let accessed = plain.bits(from, u64::from(n)).iter().filter(|a| **a).count() as u16;
                    prop_assert_eq!(windows[0].seen, Seen { present: n, accessed, blind: 0, leaf_shift: 12 });
                    if arm {
                        plain.accessed[from as usize..from as usize + n as usize].fill(false);
                    }
                }
                Op::Scan(from, n, clear) => {
                    let range = AddrRange::new((FIRST + from) * PAGE_SIZE, (FIRST + from + n) * PAGE_SIZE);
                    let mut bits = vec![None; n as usize];
                    source
                        .scan(0, &[range], if clear { Clear::All } else { Clear::Nothing }, &mut |table: &TableBits| {
                            for i in 0..512u64 {
                                let bit = |b: &[u64; 8]| b[i as usize / 64] >> (i % 64) & 1 == 1;
                                let page = table.base / PAGE_SIZE + i;
                                if bit(&table.present) {
                                    let at = (page - FIRST - from) as usize;
                                    assert_eq!(bits[at].replace(bit(&table.accessed)), None);
                                } else {
                                    assert!(!bit(&table.accessed));
                                }
                            }
                        })
                        .unwrap();
                    let bits: Vec<bool> = bits.into_iter().map(|b| b.expect("every page asked for is present")).collect();
                    prop_assert_eq!(&bits[..], plain.bits(from, n));
                    if clear {
                        plain.accessed[from as usize..(from + n) as usize].fill(false);
                    }
                }
            }
        }
    }
}

#[test]
fn a_huge_leaf_has_one_bit() {
    let workload = Pattern::Idle.build(&Parameters::new(1024 * PAGE_SIZE)).unwrap();
    let clock = SimClock::new(0);
    let process = Process::running(7, 0, Activity::new(workload, 1.0)).unwrap().with_huge_leaves(1.0);
    let mut source = SimSource::new(clock, CostModel::default(), vec![process]);
    let mut w = [Window::new(512 * PAGE_SIZE, 4)];
    source.arm(0, &mut w).unwrap();
    assert_eq!(w[0].seen, Seen { present: 4, accessed: 4, blind: 0, leaf_shift: 21 });
    assert_eq!(source.cost().target_ns, 300);
    let mut other = [Window::new(1000 * PAGE_SIZE, 4), Window::new(0, 1)];
    source.look(0, &mut other).unwrap();
    assert_eq!((other[0].seen.accessed, other[1].seen.accessed), (0, 1));
    let mut tables = Vec::new();
    source.scan(0, &[AddrRange::new(0, 1024 * PAGE_SIZE)], Clear::All, &mut |t| tables.push(*t)).unwrap();
    let shape: Vec<_> =
        tables.iter().map(|t| (t.leaf_shift, t.accessed == [u64::MAX; 8], t.accessed == [0; 8])).collect();
    assert_eq!(shape, [(21, true, false), (21, false, true)]);
}

#[test]
fn unobservable_pages_are_neither_accessed_nor_cleared() {
    let mut region = Region::new(Mapping::anon(0, 64 * PAGE_SIZE));
    region.blind = vec![AddrRange::new(8 * PAGE_SIZE, 16 * PAGE_SIZE)];
    region.populated = vec![AddrRange::new(0, 32 * PAGE_SIZE)];
    let process = Process::new(1, "p", vec![region]).unwrap();
    let mut source = SimSource::new(SimClock::new(0), CostModel::default(), vec![process]);
    let mut w = [Window::new(4 * PAGE_SIZE, 40)];
    source.arm(0, &mut w).unwrap();
    assert_eq!(w[0].seen, Seen { present: 28, accessed: 20, blind: 8, leaf_shift: 12 });
    source.look(0, &mut w).unwrap();
    assert_eq!(w[0].seen, Seen { present: 28, accessed: 0, blind: 8, leaf_shift: 12 });
    assert_eq!(source.footprint(0, 0).map(|f| (f.vsz, f.rss)), Some((64 * PAGE_SIZE, 32 * PAGE_SIZE)));
}

#[test]
fn memory_that_comes_again_is_new() {
    let first = Region::new(Mapping::anon(0, 16 * PAGE_SIZE)).existing(0, 100);
    let again = Region::new(Mapping::anon(0, 8 * PAGE_SIZE)).existing(200, 300);
    let clock = SimClock::new(0);
    let process = Process::new(1, "p", vec![first, again]).unwrap();
    let mut source = SimSource::new(clock.clone(), CostModel::free(), vec![process]);
    let mut w = [Window::new(0, 16)];
    source.arm(0, &mut w).unwrap();
    let mut look = |at: u64| {
        clock.advance_ns(at - clock.now_ns());
        source.look(0, &mut w).unwrap();
        (w[0].seen.present, w[0].seen.accessed)
    };
    assert_eq!(look(50), (16, 0));
    assert_eq!(look(150), (0, 0));
    assert_eq!(look(250), (8, 8));
}

#[test]
fn processes_come_exec_and_go() {
    let clock = SimClock::new(0);
    let memory = || vec![Region::new(Mapping::anon(0, PAGE_SIZE))];
    let late = Process::new(2, "late", memory()).unwrap().living(100, 400).executing(vec![200]);
    let mut source =
        SimSource::new(clock.clone(), CostModel::free(), vec![Process::new(1, "p", memory()).unwrap(), late]);
    let names = |s: &mut SimSource| s.poll_targets().unwrap().into_iter().map(|t| t.name).collect::<Vec<_>>();
    assert_eq!(names(&mut source), ["p"]);
    assert!(source.may_gain_targets());
    assert!(matches!(source.mappings(1, &mut Vec::new()), Err(SourceError::Gone { pid: 2, .. })));
    clock.advance_ns(150);
    assert_eq!(names(&mut source), ["late"]);
    assert!(!source.may_gain_targets());
    let mut w = [Window::new(0, 1)];
    source.arm(1, &mut w).unwrap();
    clock.advance_ns(100);
    assert!(matches!(source.look(1, &mut w), Err(SourceError::Replaced { pid: 2, .. })));
    source.look(1, &mut w).unwrap();
    assert_eq!(w[0].seen.accessed, 1);
    clock.advance_ns(200);
    assert!(matches!(source.look(1, &mut w), Err(SourceError::Gone { .. })));
    assert!(matches!(source.look(9, &mut w), Err(SourceError::Failed(_))));
}

#[test]
fn windows_must_be_windows() {
    let workload = Pattern::Idle.build(&Parameters::new(PAGES * PAGE_SIZE)).unwrap();
    let (_, mut source) = simulated(&workload, 1.0);
    for bad in [Window::new(0, 0), Window::new(1, 1), Window::new(0, 513), Window::new(511 * PAGE_SIZE, 2)] {
        assert!(matches!(source.look(0, &mut [bad]), Err(SourceError::Failed(_))), "{bad:?}");
    }
}

#[test]
fn looking_takes_time_and_only_what_is_set_is_cleared() {
    let workload = Pattern::Idle.build(&Parameters::new(PAGES * PAGE_SIZE)).unwrap();
    let clock = SimClock::new(0);
    let process = Process::running(7, 0, Activity::new(workload, 1.0)).unwrap();
    let mut source = SimSource::new(clock.clone(), CostModel::default(), vec![process]);
    let mut w = [Window::new(0, 1), Window::new(100 * PAGE_SIZE, 1)];
    source.arm(0, &mut w).unwrap();
    let armed = source.cost();
    assert_eq!(armed.monitor_ns, 4_100 + 2 * 100 + 1_000 + 2 * 530);
    assert_eq!((armed.target_ns, armed.pages_read, armed.pages_cleared), (600, 2, 2));
    assert_eq!(clock.now_ns(), armed.monitor_ns);
    source.arm(0, &mut w).unwrap();
    assert_eq!(source.cost().monitor_ns - armed.monitor_ns, 4_100 + 2 * 100);
    assert_eq!(source.cost().target_ns, 600);
}

#[test]
fn terabytes_are_scanned_in_little_memory() {
    let p = Parameters { hot: Some(0.001), seed: 3, ..Parameters::new(1 << 40) };
    let workload = Pattern::Hotspot.build(&p).unwrap();
    let hot = workload.stages()[0].areas[0].range();
    let (clock, base) = (SimClock::new(0), 1u64 << 45);
    let process = Process::running(7, base, Activity::new(workload, 1e9)).unwrap();
    let mut source = SimSource::new(clock.clone(), CostModel::default(), vec![process]);
    let whole = [AddrRange::new(base, base + (1 << 40))];
    source.scan(0, &whole, Clear::All, &mut |_| {}).unwrap();
    clock.advance_ns(1_000_000_000);
    let mut accessed = 0u64;
    source
        .scan(0, &whole, Clear::Nothing, &mut |t| {
            accessed += t.accessed.iter().map(|w| u64::from(w.count_ones())).sum::<u64>()
        })
        .unwrap();
    assert_eq!(accessed, hot.len() / PAGE_SIZE);
}
