//! Huge pages and folios mapped by base entries, which must never be split.

use crate::common::servant::{PAGE, Servant};
use crate::watching::{TABLE, hot, pages, reported, scan, settle, watch, windows};
use isotherm_core::addr::AddrRange;
use isotherm_core::bits::Window;
use isotherm_core::source::AccessSource;

fn vmstat(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap();
    let line = text.lines().find(|l| l.split(' ').next() == Some(name)).unwrap_or_else(|| panic!("{name}"));
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Checks that nothing is split between `from` and the end of an attempt, whose state must be new each time. The kernel
/// counts for the whole system, so a split elsewhere is no proof: only one in each of several attempts is.
fn without_split(mut attempt: impl FnMut(&mut dyn FnMut())) {
    let splits = || [vmstat("thp_split_page"), vmstat("thp_split_pmd")];
    let mut counted = Vec::new();
    for _ in 0..8 {
        let mut before = None;
        attempt(&mut || before = Some(splits()));
        let (before, after) = (before.expect("the attempt says where it begins"), splits());
        if after == before {
            return;
        }
        counted.push([after[0] - before[0], after[1] - before[1]]);
    }
    panic!("huge pages split (folios, entries) in each attempt: {counted:?}");
}

/// Whether the kernel can clear a large folio that base entries map without splitting it: Linux 6.10.
fn large_folios_can_be_cleared() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 10)
}

fn thp_can_be_had() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").is_ok_and(|s| !s.contains("[never]"))
}

#[test]
fn root_huge_pages_are_told_exactly_and_never_split() {
    if !thp_can_be_had() {
        return;
    }
    without_split(|from| {
        let s = Servant::new();
        let at = s.map(8 * TABLE, TABLE, libc::MAP_PRIVATE);
        s.madvise(at, 8 * TABLE, libc::MADV_HUGEPAGE);
        s.touch(at, 8, 512);
        let mut source = watch(&s);
        // Windows of one page and of many, several in one huge page.
        let mut w: Vec<Window> = (0..8)
            .flat_map(|i| [Window::new(at + i * TABLE + 5 * PAGE, 1), Window::new(at + i * TABLE + 16 * PAGE, 16)])
            .collect();
        from();
        reported(|| {
            settle(&mut source, &mut w);
            assert!(w.iter().all(|w| w.seen.leaf_shift == 21), "{w:?}");
            s.touch(at + 3 * TABLE + 77 * PAGE, 1, 1);
            s.touch(at + 6 * TABLE, 1, 1);
            source.look(0, &mut w).unwrap();
            assert!(w.chunks(2).all(|pair| pair[0].seen.accessed * 16 == pair[1].seen.accessed));
            (hot(&w), vec![6, 7, 12, 13])
        });
        let cleared = source.cost().pages_cleared;
        source.arm(0, &mut w).unwrap();
        assert_eq!(source.cost().pages_cleared - cleared, 2, "one bit for each huge page");
        s.touch(at, 8, 512);
        let tables = scan(&mut source, AddrRange::new(at, at + 8 * TABLE), true);
        assert!(tables.len() == 8 && tables.iter().all(|t| t.leaf_shift == 21 && t.present == [u64::MAX; 8]));
    });
}

#[test]
fn root_splits_do_show_in_the_counters() {
    if !thp_can_be_had() {
        return;
    }
    let s = Servant::new();
    let at = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, TABLE, libc::MADV_HUGEPAGE);
    s.touch(at, 1, 1);
    let before = vmstat("thp_split_pmd");
    s.madvise(at + PAGE, PAGE, libc::MADV_COLD);
    assert!(vmstat("thp_split_pmd") > before);
}

#[test]
fn root_folios_mapped_by_base_entries_are_never_split() {
    if !thp_can_be_had() {
        return;
    }
    without_split(|from| {
        let s = Servant::new();
        let at = s.map(4 * TABLE, TABLE, libc::MAP_PRIVATE);
        s.madvise(at, 4 * TABLE, libc::MADV_HUGEPAGE);
        s.touch(at, 4, 512);
        // Changing the protection of a part, and back, leaves each folio whole but mapped by 512 entries; in the second
        // the area stays cut, the third loses some pages.
        let (rw, ro) = ((libc::PROT_READ | libc::PROT_WRITE) as u64, libc::PROT_READ as u64);
        s.call(libc::SYS_mprotect, &[at + PAGE, PAGE, ro]);
        s.call(libc::SYS_mprotect, &[at + PAGE, PAGE, rw]);
        s.call(libc::SYS_mprotect, &[at + TABLE + 9 * PAGE, PAGE, ro]);
        s.call(libc::SYS_munmap, &[at + 2 * TABLE + 100 * PAGE, 10 * PAGE]);
        // Keeps khugepaged from joining the entries of the first again.
        s.madvise(at, TABLE, libc::MADV_NOHUGEPAGE);
        let mut source = watch(&s);
        from();
        let mut blind = vec![at + TABLE, at + 2 * TABLE];
        if large_folios_can_be_cleared() {
            let mut whole = windows(at, 512, 1);
            reported(|| {
                settle(&mut source, &mut whole);
                assert!(whole.iter().all(|w| w.seen.leaf_shift == 12 && w.seen.blind == 0));
                s.touch(at + 5 * PAGE, 3, 1);
                source.look(0, &mut whole).unwrap();
                (hot(&whole), vec![5, 6, 7])
            });
        } else {
            blind.push(at);
        }
        // These cannot be cleared without a split.
        for &at in &blind {
            let mut w = windows(at, 4, 16);
            // The page whose protection was taken away cannot be written.
            s.touch(at, 9, 1);
            s.touch(at + 10 * PAGE, 54, 1);
            source.arm(0, &mut w).unwrap();
            assert!(w.iter().all(|w| w.seen.accessed == 0 && w.seen.blind == 16), "{w:?}");
            source.look(0, &mut w).unwrap();
            assert!(w.iter().all(|w| w.seen.accessed == 0 && w.seen.blind == 16), "{w:?}");
        }
        reported(|| {
            s.touch(at, 512, 1);
            let tables = scan(&mut source, AddrRange::new(at, at + 3 * TABLE), true);
            let clearable = if blind.contains(&at) { 0 } else { 512 };
            (pages(&tables, |t| t.accessed), (0..clearable).map(|i| at + i * PAGE).collect())
        });
    });
}
