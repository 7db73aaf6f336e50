//! Processes that end, execute another program, or lose memory while they are watched.

use crate::common::servant::Servant;
use crate::common::{Forked, wait_for};
use crate::watching::{TABLE, hot, reported, settle, watch, windows};
use isotherm_core::addr::AddrRange;
use isotherm_core::source::{AccessSource, Clear, SourceError};
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::targets::{TargetSpec, TargetTracker};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

#[test]
fn root_exit_is_told() {
    let s = Servant::new();
    let at = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
    s.touch(at, 512, 1);
    let mut source = watch(&s);
    let mut w = windows(at, 512, 1);
    source.arm(0, &mut w).unwrap();
    s.exit();
    let pid = s.pid();
    let gone =
        |r: Result<(), SourceError>| assert!(matches!(r, Err(SourceError::Gone { target: 0, pid: p }) if p == pid));
    gone(source.look(0, &mut w));
    gone(source.arm(0, &mut w));
    gone(source.scan(0, &[AddrRange::new(at, at + TABLE)], Clear::All, &mut |_| {}));
    gone(source.mappings(0, &mut Vec::new()));
}

#[test]
fn root_exec_is_told_once() {
    for first in ["look", "mappings"] {
        let s = Servant::new();
        let at = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
        s.touch(at, 512, 1);
        let mut source = watch(&s);
        let mut w = windows(at, 8, 1);
        source.arm(0, &mut w).unwrap();
        s.exec_sleep();
        let mut maps = Vec::new();
        let reported = match first {
            "look" => source.look(0, &mut w),
            _ => source.mappings(0, &mut maps),
        };
        assert!(matches!(reported, Err(SourceError::Replaced { target: 0, .. })), "{reported:?}");
        source.mappings(0, &mut maps).unwrap();
        assert!(!maps.iter().any(|m| m.name.contains("pagetable")), "{maps:?}");
        source.look(0, &mut w).unwrap();
        let all: Vec<AddrRange> = maps.iter().map(|m| m.range).collect();
        let mut present = 0;
        source
            .scan(0, &all, Clear::All, &mut |t| present += t.present.iter().map(|w| w.count_ones()).sum::<u32>())
            .unwrap();
        assert!(present > 3, "{present} pages of the new program");
    }
}

#[test]
fn root_a_process_without_its_first_thread_is_read() {
    let s = Servant::new();
    let at = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 512, 1);
    let mut source = watch(&s);
    let mut w = windows(at, 512, 1);
    settle(&mut source, &mut w);
    s.lose_leader();
    reported(|| {
        s.touch(at, 5, 1);
        source.look(0, &mut w).unwrap();
        (hot(&w), (0..5).collect())
    });
    // The kernel finds no memory behind such a process's pidfd, so nothing can be cleared: it counts as gone.
    s.touch(at, 512, 1);
    assert!(matches!(source.arm(0, &mut w), Err(SourceError::Gone { .. })));
}

#[test]
fn root_vanished_ranges_are_passed_over() {
    let s = Servant::new();
    let at = s.map(2 * TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, 2 * TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 1024, 1);
    let mut source = watch(&s);
    source.mappings(0, &mut Vec::new()).unwrap();
    s.call(libc::SYS_munmap, &[at, TABLE]);
    let mut w = windows(at, 1024, 1);
    source.arm(0, &mut w).unwrap();
    assert!(w[..512].iter().all(|w| w.seen.present == 0) && w[512..].iter().all(|w| w.seen.present == 1));
    settle(&mut source, &mut w);
}

#[test]
fn root_a_process_in_whose_memory_another_one_runs_is_not_known_to_rest() {
    extern "C" fn wait(_: *mut libc::c_void) -> i32 {
        // SAFETY: only waits, and ends with its parent.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
    }
    // A fork, too, which tests with servants must not meet.
    let _alone = Servant::new();
    let mut stack = vec![0u8; 1 << 16];
    let (mut process, sharer) = Forked::start(|steps| {
        // SAFETY: the function makes system calls only, on a stack that nobody else uses in this process.
        let pid = unsafe {
            let top = stack.as_mut_ptr_range().end.cast();
            libc::clone(wait, top, libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut())
        };
        steps.done(pid as u64);
        // SAFETY: collects the child that was ended.
        let waited = unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        steps.done(waited as u64);
    });
    let spec = TargetSpec::Pids { pids: vec![process.pid], children: false };
    let mut source = PageTableSource::new(TargetTracker::new(spec).unwrap()).unwrap();
    source.poll_targets().unwrap();
    let mut looks = || {
        std::thread::sleep(Duration::from_millis(20));
        source.cpu_ns(0)
    };
    wait_for("both to wait", || (0..5).all(|_| looks().is_none()).then_some(()));
    kill_process(Pid::from_raw(sharer as i32).unwrap(), Signal::KILL).unwrap();
    assert_eq!(process.go(), sharer);
    let resting = wait_for("its rest", || Some(looks()?).filter(|cpu_ns| Some(*cpu_ns) == looks()));
    assert_eq!(looks(), Some(resting));
}
