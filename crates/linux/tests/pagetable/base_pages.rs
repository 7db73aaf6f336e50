//! Base pages: single windows, wide ones and scans.

use crate::common::servant::{PAGE, Servant, push_new_pages_to_lru};
use crate::watching::{TABLE, hot, pages, reported, scan, settle, watch, windows};
use isotherm_core::addr::AddrRange;
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::source::{AccessSource, Clear};
use isotherm_linux::source::pagetable::PageTableReader;

#[test]
fn root_the_source_works_here() {
    PageTableReader::ready().unwrap();
}

#[test]
fn root_base_pages_are_told_exactly() {
    let s = Servant::new();
    let at = s.map(4 * TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, 4 * TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 2000, 1);
    let mut source = watch(&s);
    let mut w = windows(at, 2048, 1);
    reported(|| {
        s.touch(at, 2000, 1);
        source.look(0, &mut w).unwrap();
        assert_eq!((0..2048).filter(|&i| w[i].seen.present == 1).collect::<Vec<_>>(), (0..2000).collect::<Vec<_>>());
        (hot(&w), (0..2000).collect())
    });
    reported(|| {
        settle(&mut source, &mut w);
        s.touch(at + 7 * PAGE, 150, 13);
        let want: Vec<usize> = (0..150).map(|i| 7 + 13 * i).collect();
        source.look(0, &mut w).unwrap();
        assert!(w.iter().all(|w| w.seen.blind == 0 && w.seen.leaf_shift == 12));
        if hot(&w) == want {
            // Arming tells the state before.
            source.arm(0, &mut w).unwrap();
        }
        (hot(&w), want)
    });
    source.look(0, &mut w).unwrap();
    assert_eq!(hot(&w), [0usize; 0]);
    let cost = source.cost();
    assert!(cost.pages_cleared >= 2000 && cost.pages_read > 4 * 2000, "{cost:?}");
    assert!(cost.target_ns >= cost.pages_cleared * 300, "{cost:?}");
}

#[test]
fn root_wide_windows_count_their_pages() {
    let s = Servant::new();
    let at = s.map(2 * TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, 2 * TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 1024, 1);
    let mut source = watch(&s);
    for size in [8u16, 16, 100, 512] {
        let n = 512 / size as u64;
        let mut w = windows(at, n, size);
        reported(|| {
            settle(&mut source, &mut w);
            // One page in the first window, all in the second, every other one in the third.
            s.touch(at + PAGE, 1, 1);
            let mut want = vec![1, 0, 0];
            if n > 2 {
                s.touch(at + size as u64 * PAGE, size as u64, 1);
                s.touch(at + 2 * size as u64 * PAGE, size as u64 / 2, 2);
                want = vec![1, size, size / 2];
            }
            source.look(0, &mut w).unwrap();
            let each = |counts: &[u16]| {
                (0..).zip(counts).flat_map(|(i, &n)| (0..n).map(move |k| (i, k))).collect::<Vec<(usize, u16)>>()
            };
            let got: Vec<u16> = w.iter().map(|w| w.seen.accessed).collect();
            (each(&got), each(&want))
        });
        assert!(w.iter().all(|w| w.seen.present == size));
    }
}

#[test]
fn root_a_scan_agrees_with_single_looks() {
    let s = Servant::new();
    // Base pages, a hole, huge pages, base pages again.
    let at = s.map(70 * TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, 70 * TABLE, libc::MADV_NOHUGEPAGE);
    s.touch(at, 3000, 1);
    s.touch(at + 20 * TABLE, 4000, 5);
    s.madvise(at + 66 * TABLE, 2 * TABLE, libc::MADV_HUGEPAGE);
    s.touch(at + 66 * TABLE, 1024, 1);
    let all = AddrRange::new(at, at + 70 * TABLE);
    let mut source = watch(&s);
    let mut w = windows(at, 70 * 512, 1);
    for clear in [false, true] {
        reported(|| {
            settle(&mut source, &mut w);
            s.touch(at + 100 * PAGE, 500, 3);
            s.touch(at + 20 * TABLE, 100, 35);
            s.touch(at + 67 * TABLE, 1, 1);
            source.look(0, &mut w).unwrap();
            let tables = scan(&mut source, all, clear);
            let looked = |f: fn(&Window) -> u16| w.iter().filter(|w| f(w) > 0).map(|w| w.start).collect::<Vec<_>>();
            assert_eq!(pages(&tables, |t| t.present), looked(|w| w.seen.present));
            assert!(pages(&tables, |t| t.blind).is_empty());
            assert!(tables.windows(2).all(|t| t[0].base < t[1].base));
            (pages(&tables, |t| t.accessed), looked(|w| w.seen.accessed))
        });
    }
    let after = scan(&mut source, all, false);
    assert_eq!(pages(&after, |t| t.accessed), [0u64; 0]);
    // A part of a table only.
    reported(|| {
        s.touch(at, 512, 1);
        let part = AddrRange::new(at + 10 * PAGE, at + 20 * PAGE);
        let inside = scan(&mut source, part, true);
        let rest = scan(&mut source, AddrRange::new(at, at + TABLE), false);
        let numbers = |t: &[TableBits]| pages(t, |t| t.accessed).iter().map(|a| (a - at) / PAGE).collect::<Vec<_>>();
        let tag = |list: Vec<u64>, tag: &'static str| list.into_iter().map(move |n| (tag, n));
        let want = tag((10..20).collect(), "inside").chain(tag((0..10).chain(20..512).collect(), "rest"));
        (tag(numbers(&inside), "inside").chain(tag(numbers(&rest), "rest")).collect(), want.collect())
    });
}

#[test]
fn root_sparse_mappings_cost_only_what_is_populated() {
    let s = Servant::new();
    let len = 1 << 40;
    let at = s.map(len, TABLE, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
    let mut source = watch(&s);
    reported(|| {
        s.touch(at + (300 << 30), 3, 1);
        s.touch(at + len - PAGE, 1, 1);
        push_new_pages_to_lru();
        let tables = scan(&mut source, AddrRange::new(at, at + len), true);
        let base = at + (300 << 30);
        let got = pages(&tables, |t| t.accessed);
        (got, vec![base, base + PAGE, base + 2 * PAGE, at + len - PAGE])
    });
    let mut w = windows(at, 100, 512);
    source.arm(0, &mut w).unwrap();
    assert!(w.iter().all(|w| w.seen.present == 0));
}

#[test]
fn root_file_and_shared_memory_of_one_process_can_be_observed() {
    let s = Servant::new();
    let file = tempfile::NamedTempFile::new_in(".").unwrap();
    file.as_file().set_len(TABLE).unwrap();
    let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
    // The path must be in the child's memory: it is put there through its own mapping.
    let memfd = s.call(libc::SYS_memfd_create, &[c"test".as_ptr() as u64, 0]) as u64;
    s.call(libc::SYS_ftruncate, &[memfd, TABLE]);
    let shm = s.map_fd(TABLE, TABLE, libc::MAP_SHARED, memfd);
    let link = format!("/proc/{}/fd/{memfd}", s.pid());
    let mut text = path.as_bytes_with_nul().to_vec();
    text.resize(PAGE as usize, 0);
    std::os::unix::fs::FileExt::write_all_at(&std::fs::File::options().write(true).open(link).unwrap(), &text, 0)
        .unwrap();
    let fd = s.call(libc::SYS_openat, &[libc::AT_FDCWD as u64, shm, libc::O_RDWR as u64, 0]) as u64;
    let mapped = s.map_fd(TABLE, TABLE, libc::MAP_SHARED, fd);
    let mut source = watch(&s);
    for at in [shm, mapped] {
        let mut w = windows(at + PAGE, 200, 1);
        reported(|| {
            s.touch(at + PAGE, 200, 1);
            source.look(0, &mut w).unwrap();
            (hot(&w), (0..200).collect())
        });
        reported(|| {
            settle(&mut source, &mut w);
            // A page that is part of a large folio of the page cache may be blind; none may be reported wrongly.
            let blind: Vec<usize> = (0..200).filter(|&i| w[i].seen.blind > 0).collect();
            assert!(blind.len() < 100, "{} of 200 pages are not observable", blind.len());
            s.touch(at + 11 * PAGE, 20, 1);
            source.look(0, &mut w).unwrap();
            (hot(&w), (10..30).filter(|i| !blind.contains(i)).collect())
        });
    }
}

#[test]
fn root_what_is_told_as_cleared_is_clear_and_nothing_else() {
    let s = Servant::new();
    let at = s.map(4 * TABLE, TABLE, libc::MAP_PRIVATE);
    s.madvise(at, 4 * TABLE, libc::MADV_NOHUGEPAGE);
    let mut source = watch(&s);
    let range = AddrRange::new(at, at + 4 * TABLE);
    let chosen = |mask: u64| [mask; 8];
    for mask in [0x5555_5555_5555_5555, 1, 0xff, 0x8000_0001_0000_0001, u64::MAX] {
        s.touch(at, 4 * 512, 1);
        push_new_pages_to_lru();
        let mut first = Vec::new();
        source.scan(0, &[range], Clear::Chosen(&mut |_| chosen(mask)), &mut |t| first.push(*t)).unwrap();
        let after = pages(&scan(&mut source, range, false), |t| t.accessed);
        let kept = pages(&first, |t| std::array::from_fn(|w| t.accessed[w] & !t.cleared[w]));
        // Another agent may have cleared some more.
        assert!(after.iter().all(|a| kept.binary_search(a).is_ok()), "reported as cleared, and set");
        assert!(after.len() * 10 >= kept.len() * 9, "{} kept, of which {} are still set", kept.len(), after.len());
        let cleared = pages(&first, |t| t.cleared);
        // What another agent had cleared before is not cleared again.
        let asked = pages(&first, |t| std::array::from_fn(|w| mask & (t.accessed[w] | t.blind[w])));
        assert!(asked.len() * 10 >= pages(&first, |_| chosen(mask)).len() * 9, "{} were found accessed", asked.len());
        let missing = asked.iter().filter(|a| cleared.binary_search(a).is_err()).count();
        let blind = pages(&first, |t| t.blind).len();
        assert!(missing <= blind, "{missing} of the chosen pages were not cleared, {blind} are blind");
    }
}
