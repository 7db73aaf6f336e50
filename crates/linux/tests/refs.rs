//! The `refs` engine on live processes.

mod common;

mod privileged {
    use super::common::{Forked, Guard, as_nobody, wait_for};
    use isotherm_core::attrs::MonitorAttrs;
    use isotherm_core::clock::{Clock, VirtualClock, Wake};
    use isotherm_core::engine::{Engine, Progress};
    use isotherm_core::event::{Collector, Event};
    use isotherm_core::mapping::MappingKind;
    use isotherm_core::snapshot::{RegionInfo, Snapshot};
    use isotherm_core::target::TargetEnd;
    use isotherm_linux::arena::{Arena, HugePages};
    use isotherm_linux::clock::MonotonicClock;
    use isotherm_linux::proc::stat::Stat;
    use isotherm_linux::proc::{PidFd, ProcessDir, Signal};
    use isotherm_linux::source::refs::RefsEngine;
    use isotherm_linux::targets::{TargetSpec, TargetTracker};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    const PAGE: u64 = 4096;

    fn engine(pid: u32, budget: Option<f64>) -> RefsEngine {
        let tracker = TargetTracker::new(TargetSpec::Pids { pids: vec![pid], children: false }).unwrap();
        let attrs = MonitorAttrs { aggr_us: 200_000, ..MonitorAttrs::default() };
        RefsEngine::new(tracker, attrs, budget)
    }

    /// Virtual time in which a child makes one round of accesses in each sleep.
    struct Rounds<'a> {
        child: &'a mut Forked,
        clock: VirtualClock,
    }

    impl Clock for Rounds<'_> {
        fn now_ns(&self) -> u64 {
            self.clock.now_ns()
        }

        fn sleep_until_ns(&mut self, deadline_ns: u64) -> Wake {
            self.child.go();
            self.clock.sleep_until_ns(deadline_ns)
        }
    }

    fn run(engine: &mut RefsEngine, clock: &mut dyn Clock, intervals: usize) -> Collector {
        let mut collector = Collector::default();
        for _ in 0..intervals {
            let progress = engine.run_interval(clock, &mut collector).unwrap();
            assert_eq!(progress, Progress::Aggregated);
        }
        collector
    }

    /// The region that holds `addr`.
    fn at(snapshot: &Snapshot, addr: u64) -> &RegionInfo {
        snapshot.regions.iter().find(|r| r.start <= addr && addr < r.end).unwrap_or_else(|| panic!("{addr:x}"))
    }

    #[test]
    fn root_hot_and_cold_mappings_are_told_apart() {
        let mut hot = Arena::new(256 * PAGE, HugePages::No).unwrap();
        let mut half = Arena::new(256 * PAGE, HugePages::No).unwrap();
        let mut cold = Arena::new(256 * PAGE, HugePages::No).unwrap();
        let unused = Arena::new(256 * PAGE, HugePages::No).unwrap();
        let all: Vec<u64> = (0..256).collect();
        let (starts, unused_start) = ([&hot, &half, &cold].map(|a| a.range().start), unused.range().start);
        let (mut child, _) = Forked::start(|steps| {
            for arena in [&mut hot, &mut half, &mut cold] {
                arena.touch(&all);
            }
            loop {
                steps.done(0);
                // What a CPU remembers from the round before would hide these accesses.
                if hot.flush_translations().and(half.flush_translations()).is_err() {
                    return;
                }
                hot.read(&all);
                half.read(&all[..128]);
            }
        });
        let pid = child.pid;
        let mut engine = engine(pid, None);
        // Figures of cost come about once a second.
        let collected = run(&mut engine, &mut Rounds { child: &mut child, clock: VirtualClock::new(1) }, 8);

        assert!(matches!(&collected.events[0], Event::Run(run) if run.source == "refs"));
        assert!(matches!(&collected.events[1], Event::Target(t) if t.pid == Some(pid)));
        let mapped = collected.events.iter().find_map(|e| match e {
            Event::Mappings { mappings, .. } => Some(mappings),
            _ => None,
        });
        assert!(mapped.unwrap().iter().any(|m| m.range.contains(starts[0])));
        assert!(collected.events.iter().any(|e| matches!(e, Event::Footprint(f) if f.rss >= 768 * PAGE)));

        let snapshots: Vec<&Snapshot> = collected.snapshots().collect();
        assert_eq!(snapshots.len(), 8);
        for (i, snapshot) in snapshots.iter().enumerate() {
            assert_eq!(snapshot.max_nr_accesses, 40);
            assert_eq!(snapshot.end_ns - snapshot.start_ns, 200_000_000);
            let [hot, half, cold] = starts.map(|s| *at(snapshot, s));
            assert_eq!((hot.nr_accesses, half.nr_accesses, cold.nr_accesses), (40, 20, 0));
            assert_eq!((hot.age, half.age, cold.age), (i as u32, i as u32, i as u32));
            assert_eq!(cold.evidence.unwrap().present, 256);
            assert_eq!(at(snapshot, unused_start).evidence.unwrap().present, 0);
            assert!(snapshot.regions.windows(2).all(|w| w[0].end <= w[1].start));
        }
        let stats = collected.events.iter().rev().find_map(|e| match e {
            Event::Stats(s) => Some(*s),
            _ => None,
        });
        let stats = stats.unwrap();
        assert!(stats.monitor_ns > 0 && stats.checks >= 768 && stats.clears >= 384, "{stats:?}");
    }

    #[test]
    fn root_the_interval_is_stretched_to_the_budget() {
        let mut arena = Arena::new(4096 * PAGE, HugePages::No).unwrap();
        let all: Vec<u64> = (0..4096).collect();
        let (child, _) = Forked::start(|steps| {
            arena.touch(&all);
            steps.done(0);
        });
        let share = 1e-3;
        let mut engine = engine(child.pid, Some(share));
        let collected = run(&mut engine, &mut VirtualClock::new(1), 2);
        let stats: Vec<_> =
            collected.events.iter().filter_map(|e| if let Event::Stats(s) = e { Some(s) } else { None }).collect();
        let last = stats.last().unwrap();
        let begin = collected.snapshots().next().unwrap().start_ns;
        let spent = (last.monitor_ns + last.target_ns) as f64 / (last.time_ns - begin) as f64;
        // 16 MiB cost about 300 us to clear and read: at 200 ms that would be above the budget.
        assert!(last.aggr_us > 200_000, "{last:?}");
        assert!(spent < 20.0 * share, "spent {spent}");
    }

    #[test]
    fn root_without_privilege_it_works_on_processes_of_the_same_user() {
        let mut command = Command::new("sh");
        // A fork in each round makes the kernel drop what the CPU remembers of the shell's pages.
        command.uid(65534).gid(65534).args(["-c", "while :; do (:); done"]);
        let child = Guard::spawn(&mut command);
        let pid = child.pid();
        as_nobody(move || {
            let mut engine = engine(pid, None);
            let clock = &mut MonotonicClock::new();
            let first = run(&mut engine, clock, 1);
            let mappings = first.events.iter().find_map(|e| match e {
                Event::Mappings { mappings, .. } => Some(mappings.clone()),
                _ => None,
            });
            // Other processes use the same files, which counts here, too.
            let anon: Vec<_> = mappings.unwrap().into_iter().filter(|m| m.kind == MappingKind::Anon).collect();
            let accessed = |c: &Collector| {
                let own = |r: &&RegionInfo| anon.iter().any(|m| m.range.contains(r.start));
                c.snapshots().last().unwrap().regions.iter().filter(own).filter(|r| r.nr_accesses > 0).count()
            };
            wait_for("accesses of the running shell", || (accessed(&run(&mut engine, clock, 1)) > 0).then_some(()));
            PidFd::open(pid).unwrap().send_signal(Signal::STOP).unwrap();
            let dir = ProcessDir::live(pid);
            wait_for("the stop", || (Stat::read(&dir).unwrap().state == 'T').then_some(()));
            assert_eq!(accessed(&run(&mut engine, clock, 1)), 0);
        });
    }

    #[test]
    fn root_an_exec_and_an_exit_are_told() {
        let (mut child, _) = Forked::start(|steps| {
            steps.done(0);
            let (path, arg) = (c"/bin/sleep", c"1000");
            let words = [path.as_ptr(), arg.as_ptr(), std::ptr::null()];
            // SAFETY: a null-terminated list of C strings.
            unsafe { libc::execv(path.as_ptr(), words.as_ptr()) };
        });
        let mut engine = engine(child.pid, None);
        run(&mut engine, &mut MonotonicClock::new(), 1);
        child.order();
        let mut collected = Collector::default();
        let replaced =
            |c: &Collector, why| c.events.iter().any(|e| matches!(e, Event::End { why: w, .. } if *w == why));
        for _ in 0..50 {
            engine.run_interval(&mut MonotonicClock::new(), &mut collected).unwrap();
            if replaced(&collected, TargetEnd::Replaced) {
                break;
            }
        }
        let after = collected.events.iter().skip_while(|e| !matches!(e, Event::End { .. }));
        let name = |e: &Event| match e {
            Event::Mappings { mappings, .. } => {
                mappings.iter().any(|m| m.name.ends_with("sleep") || m.name.contains("/bin/"))
            }
            _ => false,
        };
        assert!(after.into_iter().any(name), "the new program's mappings follow its exec");

        PidFd::open(child.pid).unwrap().send_signal(Signal::KILL).unwrap();
        let mut last = Collector::default();
        let progress = engine.run_interval(&mut MonotonicClock::new(), &mut last).unwrap();
        assert_eq!(progress, Progress::TargetsGone);
        assert!(replaced(&last, TargetEnd::Exited));
    }
}
