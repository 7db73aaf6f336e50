//! Memory that several processes map: observed through `clear_refs` where there is much of it, else not at all.

use crate::common::servant::{PAGE, Servant, push_new_pages_to_lru};
use crate::watching::{TABLE, pages, reported, watch};
use isotherm_core::addr::AddrRange;
use isotherm_core::bits::TableBits;
use isotherm_core::mapping::MappingKind;
use isotherm_core::source::{AccessSource, Clear};
use isotherm_linux::mm::mapping::Mapping;
use isotherm_linux::source::pagetable::PageTableSource;
use isotherm_linux::targets::{TargetSpec, TargetTracker};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::time::Duration;

/// Memory of a servant that we map, too.
struct Common {
    at: u64,
    count: u64,
    ours: Mapping,
}

impl Common {
    fn new(s: &Servant, count: u64) -> Self {
        let len = count * PAGE;
        let fd = s.call(libc::SYS_memfd_create, &[c"common".as_ptr() as u64, 0]) as u64;
        s.call(libc::SYS_ftruncate, &[fd, len]);
        let at = s.map_fd(len, TABLE, libc::MAP_SHARED, fd);
        s.touch(at, count, 1);
        let file = File::options().read(true).write(true).open(format!("/proc/{}/fd/{fd}", s.pid())).unwrap();
        let common = Self { at, count, ours: Mapping::of_file(&file, len as usize).unwrap() };
        common.touch_ours();
        push_new_pages_to_lru();
        common
    }

    fn range(&self) -> AddrRange {
        AddrRange::new(self.at, self.at + self.count * PAGE)
    }

    /// Writes to all of it, through our own mapping.
    fn touch_ours(&self) {
        for i in 0..self.count {
            self.ours.write((i * PAGE) as usize, &[1]);
        }
    }

    /// Pages that a scan saw accessed and did not clear.
    fn kept(&self, tables: &[TableBits]) -> Vec<u64> {
        self.pages(tables, |t| std::array::from_fn(|w| t.accessed[w] & !t.cleared[w]))
    }

    /// Of what a scan saw: the pages in this memory that `of` selects, by number.
    fn pages(&self, tables: &[TableBits], of: impl Fn(&TableBits) -> [u64; 8]) -> Vec<u64> {
        let range = self.range();
        pages(tables, of).into_iter().filter(|&a| range.contains(a)).map(|a| (a - self.at) / PAGE).collect()
    }
}

/// Scans all memory of the target and clears its bits, as a monitor does once in an interval.
fn interval(source: &mut PageTableSource) -> Vec<TableBits> {
    interval_of(source, 0)
}

fn interval_of(source: &mut PageTableSource, target: u32) -> Vec<TableBits> {
    let ranges = all_memory(source, target);
    scan_of(source, target, &ranges)
}

fn all_memory(source: &mut PageTableSource, target: u32) -> Vec<AddrRange> {
    let mut mappings = Vec::new();
    source.mappings(target, &mut mappings).unwrap();
    let mut ranges: Vec<AddrRange> =
        mappings.iter().filter(|m| m.kind != MappingKind::Special).map(|m| m.range).collect();
    isotherm_core::addr::normalize(&mut ranges);
    ranges
}

fn scan_of(source: &mut PageTableSource, target: u32, ranges: &[AddrRange]) -> Vec<TableBits> {
    // Scans that follow one another faster than any monitor's would not be cleared all at once.
    std::thread::sleep(Duration::from_millis(100));
    let mut out = Vec::new();
    source.scan(target, ranges, Clear::All, &mut |t| out.push(*t)).unwrap();
    FIRST.with_borrow_mut(|first| {
        for t in &out {
            let cleared = u64::from(isotherm_core::mask::count(&t.cleared));
            if cleared > 0 {
                first.entry(t.base).or_insert(if t.leaf_shift > 12 { 1 } else { cleared });
            }
        }
    });
    out
}

thread_local! {
    /// Bits that the first clearing of each table cleared in this test: nobody need set those again.
    static FIRST: RefCell<HashMap<u64, u64>> = RefCell::default();
}

/// A source that watches `servant`, once it has cleared all pages of `common`, which takes a walk or two.
fn watched_until_observable(servant: &Servant, common: &Common) -> PageTableSource {
    push_new_pages_to_lru();
    let mut source = watch(servant);
    crate::common::wait_for("all pages to be observable", || {
        servant.touch(common.at, common.count, 1);
        common.pages(&interval(&mut source), |t| t.blind).is_empty().then_some(())
    });
    source
}

#[test]
fn root_much_shared_memory_is_told_exactly_by_who_uses_it() {
    let s = Servant::new();
    let common = Common::new(&s, 4 * 512);
    let mut source = watch(&s);
    let first = interval(&mut source);
    let blind = common.pages(&first, |t| t.blind);
    assert!(blind.len() > 1000, "page by page it cannot be observed: {}", blind.len());
    crate::common::wait_for("all pages to be observable", || {
        s.touch(common.at, common.count, 1);
        common.pages(&interval(&mut source), |t| t.blind).is_empty().then_some(())
    });
    for stride in [1, 3, 64] {
        reported(|| {
            let kept = common.kept(&interval(&mut source));
            assert!(kept.len() as u64 <= common.count / 2, "{} pages still count from before", kept.len());
            let count = common.count / stride;
            s.touch(common.at, count, stride);
            // What others do with the same memory does not show.
            common.touch_ours();
            let tables = interval(&mut source);
            assert_eq!(common.pages(&tables, |t| t.present).len() as u64, common.count);
            assert!(common.pages(&tables, |t| t.blind).is_empty());
            let new = |list: Vec<u64>| list.into_iter().filter(|n| !kept.contains(n)).collect::<Vec<_>>();
            (new(common.pages(&tables, |t| t.accessed)), new((0..count).map(|i| i * stride).collect()))
        });
    }
    // Few pages are not worth clearing all at once in every interval: they stay accessed, and not cleared.
    for _ in 0..3 {
        let kept = common.kept(&interval(&mut source));
        common.touch_ours();
        let tables = interval(&mut source);
        let seen = common.pages(&tables, |t| t.accessed);
        assert!(seen.iter().all(|n| kept.contains(n)), "nobody touched {seen:?} since they were cleared");
    }
    let cost = source.cost();
    let first: u64 = FIRST.with_borrow(|first| first.values().sum());
    let set_again = cost.pages_cleared - first;
    assert!(set_again > common.count && cost.target_ns >= set_again * 300, "{cost:?}, {first} for the first time");
}

#[test]
fn root_a_part_that_is_scanned_in_between_takes_nothing_from_the_rest() {
    let s = Servant::new();
    let common = Common::new(&s, 4 * 512);
    let own = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(own, TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(own, 512, 1);
    let mut source = watched_until_observable(&s, &common);
    reported(|| {
        interval(&mut source);
        s.touch(common.at, 100, 1);
        s.touch(own, 200, 1);
        let part = AddrRange::new(own, own + TABLE);
        let mut seen = Vec::new();
        source.scan(0, &[part], Clear::All, &mut |t| seen.push(*t)).unwrap();
        let seen = pages(&seen, |t| t.accessed).into_iter().map(|a| ("part", (a - own) / PAGE));
        let later = common.pages(&interval(&mut source), |t| t.accessed).into_iter().map(|n| ("rest", n));
        let truth = (0..200).map(|n| ("part", n)).chain((0..100).map(|n| ("rest", n)));
        (seen.chain(later).collect(), truth.collect())
    });
}

#[test]
fn root_a_scan_of_nearly_all_takes_nothing_from_the_rest() {
    let s = Servant::new();
    let common = Common::new(&s, 4 * 512);
    // A slice of a walk that leaves so little to the next one holds nearly all that is resident.
    let rest = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(rest, TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(rest, 20, 1);
    let mut source = watched_until_observable(&s, &common);
    reported(|| {
        interval(&mut source);
        s.touch(common.at, common.count, 1);
        s.touch(rest, 20, 1);
        let all = all_memory(&mut source, 0);
        let nearly_all = isotherm_core::addr::subtract(&all, &[AddrRange::new(rest, rest + TABLE)]);
        scan_of(&mut source, 0, &nearly_all);
        let later = pages(&interval(&mut source), |t| t.accessed).into_iter();
        (later.filter(|a| (rest..rest + TABLE).contains(a)).map(|a| (a - rest) / PAGE).collect(), (0..20).collect())
    });
}

#[test]
fn root_locked_pages_are_cleared_and_the_frame_of_zeros_is_no_memory() {
    let s = Servant::new();
    let common = Common::new(&s, 4 * 512);
    let own = s.map(2 * TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(own, 2 * TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(own, 512, 1);
    s.call(libc::SYS_mlock, &[own, 100 * PAGE]);
    // Reading memory that was never written maps a frame of zeros, which the kernel does not count as resident.
    let zero = own + TABLE;
    let fd = s.call(libc::SYS_memfd_create, &[c"sink".as_ptr() as u64, 0]) as u64;
    s.call(libc::SYS_write, &[fd, zero, 512 * PAGE]);
    let mut source = watched_until_observable(&s, &common);
    interval(&mut source);
    let within = |start: u64, list: Vec<u64>| -> Vec<u64> {
        list.into_iter().filter(|a| (start..start + TABLE).contains(a)).map(|a| (a - start) / PAGE).collect()
    };
    let tables = interval(&mut source);
    assert_eq!(within(zero, pages(&tables, |t| t.present)), [0u64; 0]);
    s.touch(zero + 7 * PAGE, 1, 1);
    let tables = interval(&mut source);
    assert_eq!(within(zero, pages(&tables, |t| t.present)), [7], "the first write makes a page of it");
    reported(|| {
        interval(&mut source);
        s.touch(own + 90 * PAGE, 20, 1);
        let tables = interval(&mut source);
        assert!(within(own, pages(&tables, |t| t.blind)).is_empty());
        (within(own, pages(&tables, |t| t.accessed)), (90..110).collect())
    });
}

/// Checks that shared pages stay blind in every interval, and are never reported as accessed.
fn stays_blind(s: &Servant, common: &Common, source: &mut PageTableSource) {
    for _ in 0..6 {
        s.touch(common.at, common.count, 1);
        let tables = interval(source);
        assert!(common.pages(&tables, |t| t.accessed).is_empty());
        // Another agent may have cleared some, which then need no verdict.
        let blind = common.pages(&tables, |t| t.blind).len() as u64;
        assert!(blind > common.count / 2, "{blind} of {} are blind", common.count);
    }
}

#[test]
fn root_little_shared_memory_is_no_reason_to_stop_the_target() {
    let s = Servant::new();
    // Far more of its own than it shares, with us, too.
    let len = 128 * TABLE;
    let own = s.map(len, TABLE, libc::MAP_PRIVATE);
    s.madvise(own, len, libc::MADV_NOHUGEPAGE);
    s.touch(own, len / PAGE, 1);
    let common = Common::new(&s, 256);
    let mut source = watch(&s);
    stays_blind(&s, &common, &mut source);
}

#[test]
fn root_what_the_budget_does_not_pay_for_stays_blind() {
    let s = Servant::new();
    let common = Common::new(&s, 4 * 512);
    let mut source = watch(&s).with_cpu_budget(Some(1e-5));
    stays_blind(&s, &common, &mut source);
}

#[test]
fn root_a_small_budget_serves_all_processes_in_turn() {
    let (s, t) = (Servant::new(), Servant::new());
    let (a, b) = (Common::new(&s, 4 * 512), Common::new(&t, 4 * 512));
    let spec = TargetSpec::Pids { pids: vec![s.pid(), t.pid()], children: false };
    let mut source = PageTableSource::new(TargetTracker::new(spec).unwrap()).unwrap().with_cpu_budget(Some(0.01));
    assert_eq!(source.poll_targets().unwrap().len(), 2);
    for _ in 0..2 {
        crate::common::wait_for("both to be cleared, one after the other", || {
            let mut both = true;
            for (target, who, common) in [(0, &s, &a), (1, &t, &b)] {
                who.touch(common.at, common.count, 1);
                let tables = interval_of(&mut source, target);
                both &= common.pages(&tables, |t| t.blind).is_empty();
            }
            both.then_some(())
        });
    }
}
