//! Every action on real processes, proven by its effect on their memory.

mod common;
#[path = "common/victim.rs"]
mod victim;

use common::wait_for;
use isotherm_core::actuator::{Actuator, Outcome, Request};
use isotherm_core::addr::AddrRange;
use isotherm_core::meter::LiveTarget;
use isotherm_core::scheme::action::Action;
use isotherm_linux::action::LinuxActuator;
use isotherm_linux::roots::Roots;
use rustix::process::{Pid, Signal, kill_process};

fn actuator() -> LinuxActuator {
    LinuxActuator::new(&Roots::system()).unwrap()
}

fn request(pid: u32, action: Action, ranges: &[AddrRange]) -> Request {
    let target = LiveTarget { target: 0, pid: Some(pid) };
    Request { scheme: 3, target, action, ranges: ranges.to_vec(), destinations: Vec::new() }
}

/// Has it done, waits for the outcome.
fn act(actuator: &mut LinuxActuator, request: Request) -> Outcome {
    actuator.submit(request).unwrap();
    let mut out = Vec::new();
    wait_for("the outcome", || {
        actuator.collect(&mut out);
        out.pop()
    })
}

#[test]
fn stat_counts_and_touches_nothing() {
    let mut actuator = actuator();
    let ranges = [AddrRange::new(0x1000, 0x3000), AddrRange::new(0x8000, 0x9000)];
    actuator.submit(request(u32::MAX, Action::Stat, &ranges)).unwrap();
    assert_eq!(actuator.pending(3), 0, "there is nothing to wait for");
    let mut out = Vec::new();
    actuator.collect(&mut out);
    assert_eq!((out[0].applied, out[0].nr_applied, &out[0].error), (0x3000, 2, &None));
    assert_eq!(actuator.pending(3), 0);
    assert!(out[0].done_ns > out[0].took_ns);
}

#[test]
fn bad_ranges_are_refused_whatever_the_action() {
    let mut actuator = actuator();
    for ranges in [
        vec![AddrRange::new(1, 4096)],
        vec![AddrRange::new(0x3000, 0x4000), AddrRange::new(0x1000, 0x2000)],
        vec![AddrRange::new(0x1000, 0x1000)],
    ] {
        let outcome = act(&mut actuator, request(std::process::id(), Action::Cold, &ranges));
        assert_eq!((outcome.applied, outcome.nr_applied), (0, 0));
        assert!(outcome.error.unwrap().contains("page aligned"));
    }
}

#[test]
fn a_full_queue_gives_the_request_back() {
    let mut actuator = actuator();
    // Each takes far longer to check than to hand over.
    let ranges: Vec<_> = (0..20_000).map(|i| AddrRange::new(i << 13, (i << 13) + 4096)).collect();
    let (mut taken, mut out) = (0, Vec::new());
    let mut back = None;
    // Again where this thread had to wait for a processor meanwhile.
    for _ in 0..20 {
        for asked in vec![request(u32::MAX, Action::Cold, &ranges); 200] {
            match actuator.submit(asked) {
                Ok(()) => taken += 1,
                Err(asked) => back = Some(asked),
            }
        }
        if back.is_some() {
            break;
        }
    }
    assert!(back.expect("one is refused") == request(u32::MAX, Action::Cold, &ranges), "it comes back whole");
    assert_eq!(actuator.pending(3), taken as u64 * (20_000 << 12));
    wait_for("all outcomes", || {
        actuator.collect(&mut out);
        (out.len() == taken).then_some(())
    });
    assert_eq!(actuator.pending(3), 0);
}

mod privileged {
    use super::*;
    use crate::common::memory::{has_flag, smaps_kib, state, swapped_pages};
    use crate::common::servant::{PAGE, Servant, push_new_pages_to_lru};
    use crate::common::zram::ZramSwap;
    use crate::victim::{ACTIVITIES, Activity, Victim};
    use isotherm_core::actuator::Destination;
    use isotherm_linux::mm::pagemap::Pagemap;
    use std::process::{Command, Stdio};
    use std::time::{Duration, SystemTime};

    const BLOCK: u64 = 512 * PAGE;
    const PRIVATE: i32 = libc::MAP_PRIVATE;

    /// A servant and `pages` touched base pages of its private memory, aligned to 2 MiB.
    fn servant(pages: u64) -> (Servant, AddrRange) {
        let servant = Servant::new();
        let start = servant.map(pages * PAGE, BLOCK, PRIVATE);
        servant.madvise(start, pages * PAGE, libc::MADV_NOHUGEPAGE);
        servant.touch(start, pages, 1);
        push_new_pages_to_lru();
        (servant, AddrRange::new(start, start + pages * PAGE))
    }

    fn part(range: AddrRange, first: u64, pages: u64) -> AddrRange {
        AddrRange::new(range.start + first * PAGE, range.start + (first + pages) * PAGE)
    }

    #[test]
    fn root_pageout_moves_memory_to_swap() {
        let Some(_swap) = ZramSwap::new(256 << 20) else { return };
        let (servant, all) = servant(1024);
        let mut actuator = actuator();
        let target = LiveTarget { target: 0, pid: Some(servant.pid()) };
        assert_eq!(actuator.obstacle(Action::PageOut, target), None);
        let ranges = [part(all, 0, 100), part(all, 100, 28), part(all, 512, 512)];
        let outcome = act(&mut actuator, request(servant.pid(), Action::PageOut, &ranges));
        assert_eq!(outcome.error, None);
        assert_eq!((outcome.applied, outcome.nr_applied), (640 * PAGE, 3));
        // A page that is just in use by the kernel elsewhere may stay.
        let swapped = smaps_kib(servant.pid(), all.start, "Swap") / 4;
        assert!((600..=640).contains(&swapped), "{swapped} pages in swap");
        assert_eq!(smaps_kib(servant.pid(), all.start, "Rss") / 4, 1024 - swapped);
        assert_eq!(swapped_pages(servant.pid(), all.start + 128 * PAGE, 384), 0);

        // And back again.
        let outcome = act(&mut actuator, request(servant.pid(), Action::WillNeed, &[all]));
        assert_eq!((outcome.applied, outcome.error), (all.len(), None));
        wait_for("pages to be read into the swap cache", || {
            (cached_swap_kib() > 0 || smaps_kib(servant.pid(), all.start, "Swap") == 0).then_some(())
        });
    }

    fn cached_swap_kib() -> u64 {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        text.lines().find_map(|l| l.strip_prefix("SwapCached:")?.trim().strip_suffix(" kB")?.parse().ok()).unwrap()
    }

    #[test]
    fn root_cold_clears_the_accessed_bits_of_just_these_pages() {
        for action in [Action::Cold, Action::LruDeprio] {
            let (servant, all) = servant(256);
            let pid = servant.pid();
            assert_eq!(smaps_kib(pid, all.start, "Referenced"), 1024);
            let outcome = act(&mut actuator(), request(pid, action, &[part(all, 64, 128)]));
            assert_eq!((outcome.applied, outcome.error), (128 * PAGE, None));
            let referenced = smaps_kib(pid, all.start, "Referenced");
            // A page that somebody holds just then keeps its mark.
            assert!((512..=640).contains(&referenced), "{referenced} KiB referenced after {action}");
        }
    }

    #[test]
    fn root_areas_that_refuse_are_passed_over() {
        let (servant, all) = servant(512);
        servant.call(libc::SYS_mlock, &[all.start + 128 * PAGE, 64 * PAGE]);
        servant.call(libc::SYS_munmap, &[all.start + 300 * PAGE, 12 * PAGE]);
        let outcome = act(&mut actuator(), request(servant.pid(), Action::Cold, &[all]));
        assert_eq!((outcome.applied, outcome.nr_applied), ((512 - 64 - 12) * PAGE, 1));
        let why = outcome.error.unwrap();
        assert!(why.contains(&format!("{:x}", all.start + 128 * PAGE)) && why.contains("locked"), "{why}");
    }

    #[test]
    fn root_collapse_makes_huge_pages_of_whole_blocks() {
        let servant = Servant::new();
        let start = servant.map(4 * BLOCK, BLOCK, PRIVATE);
        // Whatever the system's setting is, the pages are small at first.
        servant.call(libc::SYS_prctl, &[libc::PR_SET_THP_DISABLE as u64, 1, 0, 0, 0]);
        servant.touch(start, 4 * 512, 1);
        servant.call(libc::SYS_prctl, &[libc::PR_SET_THP_DISABLE as u64, 0, 0, 0, 0]);
        push_new_pages_to_lru();
        let pid = servant.pid();
        assert_eq!(smaps_kib(pid, start, "AnonHugePages"), 0);
        // Half of the first block, two whole ones, a page of the last.
        let range = AddrRange::new(start + BLOCK / 2, start + 3 * BLOCK + PAGE);
        let outcome = act(&mut actuator(), request(pid, Action::Collapse, &[range]));
        assert_eq!((outcome.applied, outcome.nr_applied, outcome.error), (2 * BLOCK, 1, None));
        assert_eq!(smaps_kib(pid, start, "AnonHugePages"), 4096);
    }

    #[test]
    fn root_huge_pages_are_not_split() {
        let servant = Servant::new();
        let pid = servant.pid();
        let start = servant.map(10 * BLOCK, BLOCK, PRIVATE);
        servant.touch(start, 10 * 512, 1);
        push_new_pages_to_lru();
        let all = AddrRange::new(start, start + 10 * BLOCK);
        let mut actuator = actuator();
        assert_eq!(act(&mut actuator, request(pid, Action::Collapse, &[all])).applied, all.len());
        let tells = Pagemap::open(pid).unwrap().maps(start);
        if tells.is_none() {
            eprintln!("skipped in part: this kernel does not tell where huge pages are");
        }
        assert_ne!(tells, Some(false));
        // Whole ones, in several calls.
        assert_eq!(act(&mut actuator, request(pid, Action::Cold, &[all])).applied, all.len());
        assert_eq!(smaps_kib(pid, start, "AnonHugePages"), 20480);
        if tells.is_some() {
            let uneven = AddrRange::new(start + 7 * PAGE, start + 3 * BLOCK + PAGE);
            let outcome = act(&mut actuator, request(pid, Action::Cold, &[uneven]));
            assert_eq!((outcome.applied, outcome.error), (2 * BLOCK, None));
            let inside = AddrRange::new(start + 7 * PAGE, start + 8 * PAGE);
            let outcome = act(&mut actuator, request(pid, Action::PageOut, &[inside]));
            assert!(outcome.applied == 0 && outcome.error.unwrap().contains("huge pages"));
            assert_eq!(smaps_kib(pid, start, "AnonHugePages"), 20480);
        }
    }

    #[test]
    fn root_a_dying_target_ends_its_requests_and_nothing_else() {
        let (dying, all) = servant(64);
        let (living, other) = servant(64);
        let mut actuator = actuator();
        assert_eq!(act(&mut actuator, request(dying.pid(), Action::Cold, &[all])).error, None);
        dying.exit();
        let outcome = act(&mut actuator, request(dying.pid(), Action::Cold, &[all]));
        assert_eq!(outcome.error, Some(format!("pid {} has exited", dying.pid())));
        assert_eq!(outcome.applied, 0);
        let target = LiveTarget { target: 0, pid: Some(dying.pid()) };
        assert!(actuator.obstacle(Action::Cold, target).unwrap().contains("has exited"));
        let outcome = act(&mut actuator, request(living.pid(), Action::Cold, &[other]));
        assert_eq!((outcome.applied, outcome.error), (other.len(), None));
        assert!(matches!(state(living.pid()), 'R' | 'S'));
        assert!(!has_flag(living.pid(), other.start, "lo"));
    }

    #[test]
    fn root_dropping_it_in_mid_action_ends_soon() {
        let (servant, all) = servant(16 * 512);
        let mut actuator = actuator();
        for _ in 0..40 {
            let _ = actuator.submit(request(servant.pid(), Action::Cold, &[all]));
        }
        drop(actuator);
        assert!(matches!(state(servant.pid()), 'R' | 'S'));
    }

    #[test]
    fn root_hugepage_lets_the_kernel_use_huge_pages_and_nohugepage_forbids_them() {
        for (action, flag, kib) in [(Action::HugePage, "hg", 4096), (Action::NoHugePage, "nh", 0)] {
            let victim = Victim::start(Activity::Sleep, 16);
            let spare = AddrRange::new(victim.spare(), victim.spare() + 2 * BLOCK);
            let mut actuator = actuator();
            let target = LiveTarget { target: 0, pid: Some(victim.pid()) };
            let setting =
                std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or("[never]".into());
            if action == Action::HugePage && setting.contains("[never]") {
                assert!(actuator.obstacle(action, target).is_some());
                continue;
            }
            assert_eq!(actuator.obstacle(action, target), None);
            let outcome = act(&mut actuator, request(victim.pid(), action, &[spare]));
            assert_eq!((outcome.applied, outcome.nr_applied, outcome.error), (2 * BLOCK, 1, None));
            assert!(has_flag(victim.pid(), spare.start, flag));
            victim.touch_spare();
            assert_eq!(smaps_kib(victim.pid(), spare.start, "AnonHugePages"), kib, "{action}");
            victim.check("huge pages");
        }
    }

    #[test]
    fn root_locked_memory_is_not_paged_out_until_it_is_unlocked() {
        let Some(_swap) = ZramSwap::new(128 << 20) else { return };
        let victim = Victim::start(Activity::Read, 8192);
        let (pid, start) = (victim.pid(), victim.addr());
        let all = AddrRange::new(start, start + 8192 * PAGE);
        let mut actuator = actuator();
        let outcome = act(&mut actuator, request(pid, Action::Lock, &[all]));
        assert_eq!((outcome.applied, outcome.error), (all.len(), None));
        assert!(has_flag(pid, start, "lo"));
        assert_eq!(smaps_kib(pid, start, "Locked"), 8192 * 4);
        let outcome = act(&mut actuator, request(pid, Action::PageOut, &[all]));
        assert_eq!(outcome.applied, 0);
        assert!(outcome.error.unwrap().contains("locked"));
        assert_eq!(smaps_kib(pid, start, "Swap"), 0);
        let outcome = act(&mut actuator, request(pid, Action::Unlock, &[all]));
        assert_eq!((outcome.applied, outcome.error), (all.len(), None));
        assert!(!has_flag(pid, start, "lo"));
        victim.check("locking");
    }

    #[test]
    fn root_a_thread_on_a_stack_of_its_own_is_left_alone() {
        // The child was forked by a thread of the test program and still runs on that thread's stack.
        let (servant, all) = servant(16);
        let outcome = act(&mut actuator(), request(servant.pid(), Action::Lock, &[all]));
        assert_eq!(outcome.applied, 0);
        let why = outcome.error.unwrap();
        assert!(why.contains(&format!("pid {}", servant.pid())) && why.contains("stack"), "{why}");
        assert!(matches!(state(servant.pid()), 'R' | 'S'));
    }

    #[test]
    fn root_migration_counts_pages_that_lie_on_the_wanted_node() {
        let servant = Servant::new();
        let start = servant.map(1024 * PAGE, BLOCK, PRIVATE);
        servant.madvise(start, 1024 * PAGE, libc::MADV_NOHUGEPAGE);
        // Every other page: the rest is not there and not counted.
        servant.touch(start, 512, 2);
        push_new_pages_to_lru();
        let mut asked = request(servant.pid(), Action::MigrateHot, &[AddrRange::new(start, start + 1024 * PAGE)]);
        let mut actuator = actuator();
        assert!(act(&mut actuator, asked.clone()).error.unwrap().contains("names no node"));
        let node = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or("0".into());
        let node = node.trim().split(['-', ',']).next().unwrap().parse().unwrap();
        asked.destinations = vec![Destination { node, weight: 1 }];
        let outcome = act(&mut actuator, asked.clone());
        assert_eq!((outcome.applied, outcome.nr_applied, outcome.error), (512 * PAGE, 1, None));
        asked.destinations = vec![Destination { node: 1000, weight: 1 }];
        let outcome = act(&mut actuator, asked);
        assert_eq!(outcome.applied, 0);
        assert!(outcome.error.unwrap().contains("node 1000"));
    }

    #[test]
    fn root_a_target_that_dies_in_mid_action_ends_it_with_that_error() {
        let mut actuator = actuator();
        for (i, action) in CYCLE.into_iter().cycle().take(36).enumerate() {
            let victim = Victim::start(ACTIVITIES[i % ACTIVITIES.len()], 1024);
            let pid = victim.pid();
            let mut asked = request(pid, action, &[AddrRange::new(victim.addr(), victim.addr() + 1024 * PAGE)]);
            // Each is a target of its own, whatever pids are given out.
            asked.target.target = i as u32 + 10;
            asked.destinations = vec![Destination { node: 0, weight: 1 }];
            for _ in 0..3 {
                actuator.submit(asked.clone()).unwrap();
            }
            std::thread::sleep(Duration::from_micros(700 * i as u64));
            drop(victim);
            let exited = Some(format!("pid {pid} has exited"));
            let mut out = Vec::new();
            wait_for("the outcomes", || {
                actuator.collect(&mut out);
                (out.len() == 3).then_some(())
            });
            for outcome in &out {
                // Some were done before; memory that cannot be collapsed or paged out is another matter.
                let fine = outcome.error == exited || outcome.applied > 0 || action == Action::Collapse;
                assert!(fine, "{action}: {:?}", outcome.error);
            }
            assert_eq!(act(&mut actuator, asked).error, exited);
        }
    }

    const ACTED_ON: &str = "ISOTHERM_TEST_ACTED_ON";
    const CYCLE: [Action; 9] = [
        Action::PageOut,
        Action::HugePage,
        Action::Collapse,
        Action::Lock,
        Action::Cold,
        Action::Unlock,
        Action::WillNeed,
        Action::NoHugePage,
        Action::MigrateHot,
    ];

    /// Not a test: the process that is killed, started by the next one.
    #[test]
    fn root_actor() {
        let Ok(text) = std::env::var(ACTED_ON) else { return };
        let numbers: Vec<u64> = text.split(' ').map(|n| n.parse().unwrap()).collect();
        let all = AddrRange::new(numbers[1], numbers[2]);
        let mut actuator = actuator();
        println!("acting");
        for turn in numbers[3].. {
            let mut asked = request(numbers[0] as u32, CYCLE[turn as usize % CYCLE.len()], &[all]);
            asked.destinations = vec![Destination { node: 0, weight: 1 }];
            act(&mut actuator, asked);
        }
    }

    /// Children of a process: the helper, while it works.
    fn children(pid: u32) -> Vec<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
        lists.flat_map(|l| l.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn root_the_target_survives_kill_9_at_any_moment_of_any_action() {
        const ROUNDS: u64 = 60;
        let _swap = ZramSwap::new(256 << 20);
        let mut random = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
        let mut below = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let mut helpers_killed = 0;
        for kind in ACTIVITIES {
            let victim = Victim::start(kind, 2048);
            let (pid, start) = (victim.pid(), victim.addr());
            for round in 0..ROUNDS {
                let mut actor = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "privileged::root_actor", "--nocapture"])
                    .env(ACTED_ON, format!("{pid} {start} {} {}", start + 2048 * PAGE, below(9)))
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                let mut said = std::io::BufReader::new(actor.stdout.take().unwrap());
                let mut line = String::new();
                while !line.contains("acting") {
                    line.clear();
                    let got = std::io::BufRead::read_line(&mut said, &mut line).unwrap();
                    assert!(got > 0, "the actor ended by itself");
                }
                std::thread::sleep(Duration::from_micros(below(30_000)));
                if round % 2 == 0 {
                    for helper in children(actor.id()) {
                        // A child of our own child, which has not collected it yet or is its parent still.
                        let _ = kill_process(Pid::from_raw(helper).unwrap(), Signal::KILL);
                        helpers_killed += 1;
                    }
                }
                actor.kill().unwrap();
                actor.wait().unwrap();
                victim.check(&format!("kill -9 in round {round} on {kind:?}"));
                // A helper that was left alive ends its stop within a moment.
                wait_for("the target to run", || matches!(state(pid), 'R' | 'S' | 'D').then_some(()));
            }
        }
        eprintln!("helpers killed as well: {helpers_killed}");
    }
}
