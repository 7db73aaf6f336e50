//! The page table source on real processes, whose accesses are known exactly.

mod common;

mod privileged {
    use crate::common::servant::{PAGE, Servant};
    use isotherm_core::addr::AddrRange;
    use isotherm_core::source::{AccessSource, SourceError, TableBits, Window};
    use isotherm_linux::source::pagetable::PageTableSource;
    use isotherm_linux::target::{TargetSpec, TargetTracker};

    const TABLE: u64 = 512 * PAGE;

    fn watch(servant: &Servant) -> PageTableSource {
        let spec = TargetSpec::Pids { pids: vec![servant.pid()], children: false };
        let mut source = PageTableSource::new(TargetTracker::new(spec).unwrap()).unwrap();
        assert_eq!(source.poll_targets().unwrap().len(), 1);
        source
    }

    fn windows(start: u64, count: u64, pages: u16) -> Vec<Window> {
        (0..count).map(|i| Window::new(start + i * pages as u64 * PAGE, pages)).collect()
    }

    /// Arms until nothing counts as accessed: pages that were mapped a moment ago may sit in a per-CPU list, where the
    /// kernel passes over them.
    fn settle(source: &mut PageTableSource, w: &mut [Window]) {
        for _ in 0..200 {
            source.arm(0, w).unwrap();
            source.look(0, w).unwrap();
            if w.iter().all(|w| w.seen.accessed == 0) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("bits of an idle process stay set: {:?}", w.iter().find(|w| w.seen.accessed > 0));
    }

    fn scan(source: &mut PageTableSource, range: AddrRange, clear: bool) -> Vec<TableBits> {
        let mut out = Vec::new();
        source.scan(0, &[range], clear, &mut |t| out.push(*t)).unwrap();
        out
    }

    fn pages(tables: &[TableBits], of: impl Fn(&TableBits) -> [u64; 8]) -> Vec<u64> {
        let bits = |t: &TableBits| (0..512).filter(|&i| of(t)[i / 64] >> (i % 64) & 1 == 1).collect::<Vec<_>>();
        tables.iter().flat_map(|t| bits(t).into_iter().map(|i| t.base + i as u64 * PAGE)).collect()
    }

    fn vmstat(name: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/vmstat").unwrap();
        let line = text.lines().find(|l| l.split(' ').next() == Some(name)).unwrap_or_else(|| panic!("{name}"));
        line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn splits() -> [u64; 2] {
        [vmstat("thp_split_page"), vmstat("thp_split_pmd")]
    }

    fn thp_can_be_had() -> bool {
        std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").is_ok_and(|s| !s.contains("[never]"))
    }

    #[test]
    fn root_the_source_works_here() {
        PageTableSource::probe().unwrap();
    }

    #[test]
    fn root_base_pages_are_told_exactly() {
        let s = Servant::new();
        let at = s.map(4 * TABLE, TABLE, libc::MAP_PRIVATE);
        s.madvise(at, 4 * TABLE, libc::MADV_NOHUGEPAGE);
        s.touch(at, 2000, 1);
        let mut source = watch(&s);
        let mut w = windows(at, 2048, 1);
        source.look(0, &mut w).unwrap();
        for (i, w) in w.iter().enumerate() {
            assert_eq!((w.seen.present, w.seen.accessed), if i < 2000 { (1, 1) } else { (0, 0) }, "page {i}");
        }
        settle(&mut source, &mut w);
        s.touch(at + 7 * PAGE, 150, 13);
        source.look(0, &mut w).unwrap();
        let hot: Vec<usize> = (0..2048).filter(|&i| w[i].seen.accessed == 1).collect();
        let want: Vec<usize> = (0..150).map(|i| 7 + 13 * i).collect();
        assert_eq!(hot, want);
        assert!(w.iter().all(|w| w.seen.blind == 0 && w.seen.leaf_shift == 12));
        // Arming tells the state before.
        source.arm(0, &mut w).unwrap();
        assert_eq!((0..2048).filter(|&i| w[i].seen.accessed == 1).collect::<Vec<_>>(), want);
        source.look(0, &mut w).unwrap();
        assert!(w.iter().all(|w| w.seen.accessed == 0));
        let cost = source.cost();
        assert!(cost.pages_cleared >= 2150 && cost.pages_read > 4 * 2000, "{cost:?}");
        assert_eq!(cost.target_ns, cost.pages_cleared * 300);
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
            settle(&mut source, &mut w);
            // One page in the first window, all in the second, every other one in the third.
            s.touch(at + PAGE, 1, 1);
            if n > 2 {
                s.touch(at + size as u64 * PAGE, size as u64, 1);
                s.touch(at + 2 * size as u64 * PAGE, size as u64 / 2, 2);
            }
            source.look(0, &mut w).unwrap();
            let got: Vec<u16> = w.iter().map(|w| w.seen.accessed).collect();
            let mut want = vec![0; n as usize];
            want[0] = 1;
            if n > 2 {
                (want[1], want[2]) = (size, size / 2);
            }
            assert_eq!(got, want, "windows of {size} pages");
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
        settle(&mut source, &mut w);
        s.touch(at + 100 * PAGE, 500, 3);
        s.touch(at + 20 * TABLE, 100, 35);
        source.look(0, &mut w).unwrap();
        let before = splits();
        for clear in [false, true] {
            let tables = scan(&mut source, all, clear);
            let looked = |f: fn(&Window) -> u16| w.iter().filter(|w| f(w) > 0).map(|w| w.start).collect::<Vec<_>>();
            assert_eq!(pages(&tables, |t| t.present), looked(|w| w.seen.present));
            assert_eq!(pages(&tables, |t| t.accessed), looked(|w| w.seen.accessed));
            assert!(pages(&tables, |t| t.blind).is_empty());
            assert!(tables.windows(2).all(|t| t[0].base < t[1].base));
        }
        let after = scan(&mut source, all, false);
        assert_eq!(pages(&after, |t| t.accessed), [0u64; 0]);
        assert_eq!(splits(), before);
        // A part of a table only.
        s.touch(at, 3000, 1);
        let part = AddrRange::new(at + 10 * PAGE, at + 20 * PAGE);
        let tables = scan(&mut source, part, true);
        assert_eq!(pages(&tables, |t| t.accessed), (10..20).map(|i| at + i * PAGE).collect::<Vec<_>>());
        let rest = scan(&mut source, AddrRange::new(at, at + TABLE), false);
        assert_eq!(pages(&rest, |t| t.accessed).len(), 502);
    }

    #[test]
    fn root_sparse_mappings_cost_only_what_is_populated() {
        let s = Servant::new();
        let len = 1 << 40;
        let at = s.map(len, TABLE, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        s.touch(at + (300 << 30), 3, 1);
        s.touch(at + len - PAGE, 1, 1);
        let mut source = watch(&s);
        let tables = scan(&mut source, AddrRange::new(at, at + len), true);
        let base = at + (300 << 30);
        assert_eq!(pages(&tables, |t| t.accessed), [base, base + PAGE, base + 2 * PAGE, at + len - PAGE]);
        let mut w = windows(at, 100, 512);
        source.arm(0, &mut w).unwrap();
        assert!(w.iter().all(|w| w.seen.present == 0));
    }

    #[test]
    fn root_huge_pages_are_told_exactly_and_never_split() {
        if !thp_can_be_had() {
            return;
        }
        let s = Servant::new();
        let at = s.map(8 * TABLE, TABLE, libc::MAP_PRIVATE);
        s.madvise(at, 8 * TABLE, libc::MADV_HUGEPAGE);
        s.touch(at, 8, 512);
        let mut source = watch(&s);
        let before = splits();
        // Windows of one page and of many, several in one huge page.
        let mut w: Vec<Window> = (0..8)
            .flat_map(|i| [Window::new(at + i * TABLE + 5 * PAGE, 1), Window::new(at + i * TABLE + 16 * PAGE, 16)])
            .collect();
        settle(&mut source, &mut w);
        assert!(w.iter().all(|w| w.seen.leaf_shift == 21), "{w:?}");
        s.touch(at + 3 * TABLE + 77 * PAGE, 1, 1);
        s.touch(at + 6 * TABLE, 1, 1);
        source.look(0, &mut w).unwrap();
        for (i, pair) in w.chunks(2).enumerate() {
            let hot = i == 3 || i == 6;
            assert_eq!([pair[0].seen.accessed, pair[1].seen.accessed], if hot { [1, 16] } else { [0, 0] });
        }
        let cleared = source.cost().pages_cleared;
        source.arm(0, &mut w).unwrap();
        assert_eq!(source.cost().pages_cleared - cleared, 2, "one bit for each huge page");
        scan(&mut source, AddrRange::new(at, at + 8 * TABLE), true);
        assert_eq!(splits(), before);
    }

    #[test]
    fn root_folios_mapped_by_base_entries_are_never_split() {
        if !thp_can_be_had() {
            return;
        }
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
        s.touch(at, 512, 1);
        s.touch(at + 2 * TABLE, 100, 1);
        let mut source = watch(&s);
        let before = vmstat("thp_split_page");
        let mut whole = windows(at, 512, 1);
        settle(&mut source, &mut whole);
        assert!(whole.iter().all(|w| w.seen.leaf_shift == 12 && w.seen.blind == 0));
        s.touch(at + 5 * PAGE, 3, 1);
        source.look(0, &mut whole).unwrap();
        assert_eq!((0..512).filter(|&i| whole[i].seen.accessed == 1).collect::<Vec<_>>(), [5, 6, 7]);
        // Neither of the others can be cleared without a split.
        for at in [at + TABLE, at + 2 * TABLE] {
            let mut w = windows(at, 4, 16);
            source.arm(0, &mut w).unwrap();
            assert!(w.iter().all(|w| w.seen.accessed == 0 && w.seen.blind == 16), "{w:?}");
            source.look(0, &mut w).unwrap();
            assert!(w.iter().all(|w| w.seen.accessed == 0 && w.seen.blind == 16), "{w:?}");
        }
        s.touch(at, 512, 1);
        let tables = scan(&mut source, AddrRange::new(at, at + 4 * TABLE), true);
        let hot = pages(&tables, |t| t.accessed);
        assert!((0..512).all(|i| hot.contains(&(at + i * PAGE))));
        assert!(!hot.iter().any(|&a| (at + TABLE..at + 3 * TABLE).contains(&a)), "{hot:x?}");
        assert_eq!(vmstat("thp_split_page"), before);
    }

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
        for (i, w) in w.iter().enumerate() {
            assert_eq!((w.seen.present, w.seen.blind), (1, (i >= 256) as u16), "page {i}");
        }
        let tables = scan(&mut source, AddrRange::new(at, at + TABLE), true);
        assert_eq!(pages(&tables, |t| t.blind), (256..512).map(|i| at + i * PAGE).collect::<Vec<_>>());
        s.call(libc::SYS_kill, &[grandchild as u64, libc::SIGKILL as u64]);
        s.call(libc::SYS_wait4, &[grandchild as u64, 0, 0, 0]);
        // Alone again: within the life of a verdict all pages can be observed.
        crate::common::wait_for("shared pages to become private", || {
            source.arm(0, &mut w).unwrap();
            w.iter().all(|w| w.seen.blind == 0).then_some(())
        });
    }

    #[test]
    fn root_locked_memory_is_not_observable() {
        let s = Servant::new();
        let at = s.map(TABLE, TABLE, libc::MAP_PRIVATE);
        s.madvise(at, TABLE, libc::MADV_NOHUGEPAGE);
        s.touch(at, 512, 1);
        s.call(libc::SYS_mlock, &[at + 100 * PAGE, 50 * PAGE]);
        let mut source = watch(&s);
        let locked: Vec<usize> = (100..150).collect();
        let check = |w: &[Window]| {
            assert_eq!((0..512).filter(|&i| w[i].seen.blind == 1).collect::<Vec<_>>(), locked);
            assert!(w.iter().all(|w| w.seen.blind == 0 || w.seen.accessed == 0));
        };
        // Learnt from the kernel's refusal.
        let mut w = windows(at, 512, 1);
        source.arm(0, &mut w).unwrap();
        check(&w);
        // Learnt from the list of mappings.
        source.mappings(0, &mut Vec::new()).unwrap();
        source.look(0, &mut w).unwrap();
        check(&w);
        settle(&mut source, &mut w);
        let tables = scan(&mut source, AddrRange::new(at, at + TABLE), true);
        assert_eq!(pages(&tables, |t| t.blind).len(), 50);
        assert_eq!(pages(&tables, |t| t.accessed).len(), 0);
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
            s.touch(at + PAGE, 200, 1);
            let mut w = windows(at + PAGE, 200, 1);
            source.look(0, &mut w).unwrap();
            assert!(w.iter().all(|w| w.seen.accessed == 1));
            source.arm(0, &mut w).unwrap();
            // A page that is part of a large folio of the page cache may be blind; none may be told wrongly.
            settle(&mut source, &mut w);
            let blind = w.iter().filter(|w| w.seen.blind > 0).count();
            assert!(blind < 100, "{blind} of 200 pages are not observable");
            s.touch(at + 11 * PAGE, 20, 1);
            source.look(0, &mut w).unwrap();
            for (i, w) in w.iter().enumerate() {
                let hot = (10..30).contains(&i);
                assert!(w.seen.blind == 1 || (w.seen.accessed == 1) == hot, "page {i}: {:?}", w.seen);
            }
        }
    }

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
        gone(source.scan(0, &[AddrRange::new(at, at + TABLE)], true, &mut |_| {}));
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
            let told = match first {
                "look" => source.look(0, &mut w),
                _ => source.mappings(0, &mut maps),
            };
            assert!(matches!(told, Err(SourceError::Replaced { target: 0, .. })), "{told:?}");
            source.mappings(0, &mut maps).unwrap();
            assert!(maps.iter().any(|m| m.name.contains("sleep")));
            source.look(0, &mut w).unwrap();
            let all: Vec<AddrRange> = maps.iter().map(|m| m.range).collect();
            let mut present = 0;
            source
                .scan(0, &all, true, &mut |t| present += t.present.iter().map(|w| w.count_ones()).sum::<u32>())
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
        s.touch(at, 5, 1);
        source.look(0, &mut w).unwrap();
        assert_eq!((0..512).filter(|&i| w[i].seen.accessed == 1).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
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
}
