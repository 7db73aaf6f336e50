//! The page table source on real processes, whose accesses are known exactly.

mod common;

mod privileged {
    use crate::common::servant::{PAGE, Servant, push_new_pages_to_lru};
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

    /// Arms, and checks that an idle process then shows no access.
    fn settle(source: &mut PageTableSource, w: &mut [Window]) {
        push_new_pages_to_lru();
        source.arm(0, w).unwrap();
        source.look(0, w).unwrap();
        let set: Vec<&Window> = w.iter().filter(|w| w.seen.accessed > 0).collect();
        assert!(set.is_empty(), "an idle process shows {} accesses: {:?}", set.len(), set[0]);
    }

    /// Repeats `attempt`, which gives what was seen and what is true, until both agree. What is seen must be true always; but
    /// something may be missing now and then, where another agent of this machine (the kernel's own DAMON on physical
    /// memory, or reclaim) clears accessed bits, too.
    fn told<T: Ord + std::fmt::Debug>(mut attempt: impl FnMut() -> (Vec<T>, Vec<T>)) {
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
    fn hot(w: &[Window]) -> Vec<usize> {
        (0..w.len()).filter(|&i| w[i].seen.accessed > 0).collect()
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
        told(|| {
            s.touch(at, 2000, 1);
            source.look(0, &mut w).unwrap();
            assert_eq!(
                (0..2048).filter(|&i| w[i].seen.present == 1).collect::<Vec<_>>(),
                (0..2000).collect::<Vec<_>>()
            );
            (hot(&w), (0..2000).collect())
        });
        told(|| {
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
            told(|| {
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
            told(|| {
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
        told(|| {
            s.touch(at, 512, 1);
            let part = AddrRange::new(at + 10 * PAGE, at + 20 * PAGE);
            let inside = scan(&mut source, part, true);
            let rest = scan(&mut source, AddrRange::new(at, at + TABLE), false);
            let numbers =
                |t: &[TableBits]| pages(t, |t| t.accessed).iter().map(|a| (a - at) / PAGE).collect::<Vec<_>>();
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
        told(|| {
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
            told(|| {
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
                told(|| {
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
            told(|| {
                s.touch(at, 512, 1);
                let tables = scan(&mut source, AddrRange::new(at, at + 3 * TABLE), true);
                let clearable = if blind.contains(&at) { 0 } else { 512 };
                (pages(&tables, |t| t.accessed), (0..clearable).map(|i| at + i * PAGE).collect())
            });
        });
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
        let locked: Vec<usize> = (100..150).collect();
        let check = |w: &[Window]| {
            assert_eq!((0..512).filter(|&i| w[i].seen.blind == 1).collect::<Vec<_>>(), locked);
            assert!(w.iter().all(|w| w.seen.blind == 0 || w.seen.accessed == 0));
        };
        // Learnt from the kernel's refusal.
        let mut w = windows(at, 512, 1);
        push_new_pages_to_lru();
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
            let mut w = windows(at + PAGE, 200, 1);
            told(|| {
                s.touch(at + PAGE, 200, 1);
                source.look(0, &mut w).unwrap();
                (hot(&w), (0..200).collect())
            });
            told(|| {
                settle(&mut source, &mut w);
                // A page that is part of a large folio of the page cache may be blind; none may be told wrongly.
                let blind: Vec<usize> = (0..200).filter(|&i| w[i].seen.blind > 0).collect();
                assert!(blind.len() < 100, "{} of 200 pages are not observable", blind.len());
                s.touch(at + 11 * PAGE, 20, 1);
                source.look(0, &mut w).unwrap();
                (hot(&w), (10..30).filter(|i| !blind.contains(i)).collect())
            });
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
            assert!(!maps.iter().any(|m| m.name.contains("pagetable")), "{maps:?}");
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
        told(|| {
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
}
