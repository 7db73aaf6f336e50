//! Watching a servant, and checking what is reported against what is true.

use crate::common::servant::{PAGE, Servant, push_new_pages_to_lru};
use isotherm_core::addr::AddrRange;
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::source::{AccessSource, Clear};
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::targets::{TargetSpec, TargetTracker};

pub const TABLE: u64 = 512 * PAGE;

pub fn watch(servant: &Servant) -> PageTableSource {
    let spec = TargetSpec::Pids { pids: vec![servant.pid()], children: false };
    let mut source = PageTableSource::new(TargetTracker::new(spec).unwrap()).unwrap();
    assert_eq!(source.poll_targets().unwrap().len(), 1);
    source
}

pub fn windows(start: u64, count: u64, pages: u16) -> Vec<Window> {
    (0..count).map(|i| Window::new(start + i * pages as u64 * PAGE, pages)).collect()
}

/// Arms, and checks that an idle process then shows no access.
pub fn settle(source: &mut PageTableSource, w: &mut [Window]) {
    push_new_pages_to_lru();
    source.arm(0, w).unwrap();
    source.look(0, w).unwrap();
    let set: Vec<&Window> = w.iter().filter(|w| w.seen.accessed > 0).collect();
    assert!(set.is_empty(), "an idle process shows {} accesses: {:?}", set.len(), set[0]);
}

/// Repeats `attempt`, which gives what was seen and what is true, until both agree. What is seen must be true always;
/// but something may be missing now and then, where another agent of this machine (the kernel's own DAMON on physical
/// memory, or reclaim) clears accessed bits, too.
pub fn reported<T: Ord + std::fmt::Debug>(mut attempt: impl FnMut() -> (Vec<T>, Vec<T>)) {
    let mut missing = Vec::new();
    for _ in 0..10 {
        let (seen, mut truth) = attempt();
        truth.sort_unstable();
        let wrong: Vec<&T> = seen.iter().filter(|s| truth.binary_search(s).is_err()).collect();
        assert!(wrong.is_empty(), "seen but not true: {wrong:?}");
        missing = truth.into_iter().filter(|t| !seen.contains(t)).collect();
        if missing.is_empty() {
            return;
        }
    }
    panic!("true but not seen: {missing:?}");
}

/// Indices of the windows with an accessed page.
pub fn hot(w: &[Window]) -> Vec<usize> {
    (0..w.len()).filter(|&i| w[i].seen.accessed > 0).collect()
}

pub fn scan(source: &mut PageTableSource, range: AddrRange, clear: bool) -> Vec<TableBits> {
    let mut out = Vec::new();
    source.scan(0, &[range], if clear { Clear::All } else { Clear::Nothing }, &mut |t| out.push(*t)).unwrap();
    out
}

pub fn pages(tables: &[TableBits], of: impl Fn(&TableBits) -> [u64; 8]) -> Vec<u64> {
    let bits = |t: &TableBits| (0..512).filter(|&i| of(t)[i / 64] >> (i % 64) & 1 == 1).collect::<Vec<_>>();
    tables.iter().flat_map(|t| bits(t).into_iter().map(|i| t.base + i as u64 * PAGE)).collect()
}
