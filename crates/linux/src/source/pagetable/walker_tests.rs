//! Reading page tables of this very process; needs root.

use super::calibrate::calibrate;
use super::walker::{Batch, Mapped, Span, Walker};
use crate::bpf::walk::LoopStyle;
use crate::mm::scratch::Scratch;
use isotherm_core::addr::AddrRange;

fn entries(walker: &mut Walker, pages: &Scratch) -> Vec<(Mapped, Vec<u64>)> {
    let link = walker.attach(std::process::id());
    let spans: Vec<Span> = (0..600).map(|i| Span { start: pages.addr(i % 64), pages: 1 + (i % 8) as u16 }).collect();
    let (mut at, mut out) = (0, Vec::new());
    while at < spans.len() {
        let (n, batch) = walker.read_spans(&link, &spans[at..]).unwrap();
        assert!(matches!(batch, Batch::Done(_)), "{batch:?}");
        out.extend((0..n).map(|i| (walker.span(i).mapped, walker.span(i).entries.to_vec())));
        at += n;
    }
    out
}

#[test]
fn root_both_loop_styles_read_the_same() {
    let pages = Scratch::new(80).unwrap();
    (0..80).step_by(3).for_each(|i| pages.touch(i));
    let mut results = Vec::new();
    for style in [LoopStyle::Helper, LoopStyle::Bounded] {
        let mut walker = match Walker::load_style(style) {
            Ok(w) => w,
            // Before Linux 5.17 there is nothing to compare.
            Err(_) if style == LoopStyle::Helper => continue,
            Err(e) => panic!("{e}"),
        };
        calibrate(&mut walker).unwrap();
        let seen = entries(&mut walker, &pages);
        assert!(seen.iter().all(|s| s.0 == Mapped::Table));
        assert!(seen.iter().any(|s| s.1[0] != 0) && seen.iter().any(|s| s.1[0] == 0));
        let link = walker.attach(std::process::id());
        let range = AddrRange::new(pages.addr(0), pages.addr(80));
        let (progress, _) = walker.copy_tables(&link, &[range], 0).unwrap();
        assert_eq!(progress.ranges_done, 1);
        let tables: Vec<Vec<u64>> = walker.records().map(|r| r.table[..80].to_vec()).collect();
        assert_eq!(tables.len(), 1);
        // Other tests in this process try out clear_refs, which clears the accessed bits of these pages as well.
        let lasting = |entries: &[u64]| entries.iter().map(|e| e & !(1 << 5)).collect::<Vec<u64>>();
        let seen: Vec<_> = seen.iter().map(|(mapped, entries)| (*mapped, lasting(entries))).collect();
        let tables: Vec<_> = tables.iter().map(|t| lasting(t)).collect();
        results.push((seen, tables));
    }
    results.dedup();
    assert_eq!(results.len(), 1);
}

#[test]
fn root_windows_never_reach_beyond_their_table() {
    let mut walker = Walker::load().unwrap();
    calibrate(&mut walker).unwrap();
    let pages = Scratch::new(512).unwrap();
    (0..512).for_each(|i| pages.touch(i));
    let link = walker.attach(std::process::id());
    walker.read_spans(&link, &[Span { start: pages.addr(500), pages: 512 }]).unwrap();
    assert_eq!(walker.span(0).entries.len(), 12);
}

#[test]
fn root_unpopulated_memory_is_passed_over() {
    let mut walker = Walker::load().unwrap();
    calibrate(&mut walker).unwrap();
    let link = walker.attach(std::process::id());
    // The lower half of the lower half holds nothing in a position-independent program.
    let range = AddrRange::new(1 << 40, 1 << 46);
    let (progress, batch) = walker.copy_tables(&link, &[range], 0).unwrap();
    assert!(matches!(batch, Batch::Done(_)));
    assert_eq!(progress.ranges_done, 1);
}

#[test]
fn root_a_process_that_is_not_there_is_told() {
    let mut walker = Walker::load().unwrap();
    // Above the largest pid there is.
    let link = walker.attach((1 << 22) + 1);
    let (_, batch) = walker.read_spans(&link, &[Span { start: 0, pages: 1 }]).unwrap();
    assert_eq!(batch, Batch::NoSpace);
}

#[test]
#[should_panic(expected = "the arrays that it was loaded for")]
fn root_a_program_writes_to_no_other_arrays() {
    let mut walker = Walker::load().unwrap();
    let link = walker.attach(std::process::id());
    walker.read_spans(&link, &[Span { start: 0, pages: 1 }]).unwrap();
    let _ = Walker::load().unwrap().read_spans(&link, &[Span { start: 0, pages: 1 }]);
}

/// The verifier gives up where a signal is pending; three come while a program is loaded, which takes several milliseconds.
#[test]
fn root_signals_keep_no_program_from_being_loaded() {
    extern "C" fn nothing(_: libc::c_int) {}
    const SIGNAL: libc::c_int = libc::SIGURG;
    // SAFETY: the handler does nothing, and nobody else here uses this signal, which is ignored by default.
    let before = unsafe { libc::signal(SIGNAL, nothing as *const () as libc::sighandler_t) };
    // SAFETY: it only tells who this thread is.
    let loader = unsafe { libc::pthread_self() };
    let (loaded, is_loaded) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let pause = std::time::Duration::from_millis(2);
            for _ in 0..3 {
                if is_loaded.recv_timeout(pause) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
                // SAFETY: the thread that loads lives until this one has ended.
                unsafe { libc::pthread_kill(loader, SIGNAL) };
            }
        });
        Walker::load_style(LoopStyle::Bounded).unwrap();
        let _ = loaded.send(());
    });
    // SAFETY: what was there before is put back.
    unsafe { libc::signal(SIGNAL, before) };
}
