//! What cannot be observed, and what must not be mistaken for it.

use crate::common::servant::{PAGE, Servant, push_new_pages_to_lru};
use crate::watching::{TABLE, pages, reported, scan, settle, watch, windows};
use isotherm_core::addr::AddrRange;
use isotherm_core::bits::Window;
use isotherm_core::source::AccessSource;

#[test]
fn root_pages_shared_after_fork_are_not_called_hot() {
    let s = Servant::new();
    let at = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 512, 1);
    let grandchild = s.fork();
    // The first half becomes the child's own again.
    s.touch(at, 256, 1);
    let mut source = watch(&s);
    let mut w = windows(at, 512, 1);
    // Once armed, the shared ones are known; what is private can be cleared.
    settle(&mut source, &mut w);
    assert!(w.iter().all(|w| w.seen.present == 1));
    // Another agent may have cleared some of the shared ones, which then need no verdict.
    let blind: Vec<usize> = (0..512).filter(|&i| w[i].seen.blind == 1).collect();
    assert!(blind.len() > 240 && blind.iter().all(|&i| i >= 256), "{blind:?}");
    let tables = scan(&mut source, AddrRange::new(at, at + TABLE), true);
    assert_eq!(pages(&tables, |t| t.blind), blind.iter().map(|&i| at + i as u64 * PAGE).collect::<Vec<_>>());
    assert_eq!(pages(&tables, |t| t.accessed), [0u64; 0]);
    s.call(libc::SYS_kill, &[grandchild as u64, libc::SIGKILL as u64]);
    s.call(libc::SYS_wait4, &[grandchild as u64, 0, 0, 0]);
    // Alone again: within the life of a verdict all pages can be observed.
    crate::common::wait_for("shared pages to become private", || {
        source.arm(0, &mut w).unwrap();
        w.iter().all(|w| w.seen.blind == 0).then_some(())
    });
}

#[test]
fn root_a_page_in_constant_use_is_not_taken_for_shared() {
    let s = Servant::new();
    let at = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 512, 1);
    let mut source = watch(&s);
    let mut w = windows(at, 2, 1);
    settle(&mut source, &mut w);
    let (mut rounds, mut seen) = (0, 0);
    s.start_writing(at, 300_000_000);
    while !s.is_done() {
        source.arm(0, &mut w).unwrap();
        assert_eq!((w[0].seen.blind, w[1].seen.blind), (0, 0));
        let tables = scan(&mut source, AddrRange::new(at, at + 2 * PAGE), true);
        assert_eq!(pages(&tables, |t| t.blind), [0u64; 0]);
        std::thread::sleep(std::time::Duration::from_micros(200));
        source.look(0, &mut w).unwrap();
        assert_eq!(w[1].seen.accessed, 0);
        rounds += 1;
        seen += w[0].seen.accessed;
    }
    // Between two rounds the child may not have been on a processor.
    assert!(seen > 0, "never seen in {rounds} rounds");
}

#[test]
fn root_locked_memory_is_not_observable() {
    let s = Servant::new();
    let at = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 512, 1);
    s.call(libc::SYS_mlock, &[at + 100 * PAGE, 50 * PAGE]);
    let mut source = watch(&s);
    let mut w = windows(at, 512, 1);
    let blind = |w: &[Window]| {
        assert!(w.iter().all(|w| w.seen.blind == 0 || w.seen.accessed == 0));
        ((0..512).filter(|&i| w[i].seen.blind == 1).collect::<Vec<_>>(), (100..150).collect())
    };
    // Learnt from the kernel's refusal to clear a bit; where another agent has cleared it, there is nothing to refuse.
    reported(|| {
        s.touch(at, 512, 1);
        push_new_pages_to_lru();
        source.arm(0, &mut w).unwrap();
        blind(&w)
    });
    // Learnt from the list of mappings.
    source.mappings(0, &mut Vec::new()).unwrap();
    source.look(0, &mut w).unwrap();
    let (seen, locked) = blind(&w);
    assert_eq!(seen, locked);
    settle(&mut source, &mut w);
    let tables = scan(&mut source, AddrRange::new(at, at + TABLE), true);
    assert_eq!(pages(&tables, |t| t.blind).len(), 50);
    assert_eq!(pages(&tables, |t| t.accessed).len(), 0);
}
