//! Every action on real processes, proven by its effect on their memory.

mod common;

use common::wait_for;
use isotherm_core::actuator::{Actuator, Outcome, Request};
use isotherm_core::addr::AddrRange;
use isotherm_core::meter::LiveTarget;
use isotherm_core::scheme::action::Action;
use isotherm_linux::action::LinuxActuator;
use isotherm_linux::roots::Roots;

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
    assert_eq!((actuator.pending(3), actuator.pending(0)), (0x3000, 0));
    let mut out = Vec::new();
    wait_for("the outcome", || {
        actuator.collect(&mut out);
        (!out.is_empty()).then_some(())
    });
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
    // Each takes far longer to count than to hand over.
    let ranges: Vec<_> = (0..20_000).map(|i| AddrRange::new(i << 13, (i << 13) + 4096)).collect();
    let requests = vec![request(u32::MAX, Action::Stat, &ranges); 200];
    let (mut taken, mut out) = (0, Vec::new());
    let mut back = None;
    for asked in requests {
        match actuator.submit(asked) {
            Ok(()) => taken += 1,
            Err(asked) => back = Some(asked),
        }
    }
    assert_eq!(back, Some(request(u32::MAX, Action::Stat, &ranges)));
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
}
