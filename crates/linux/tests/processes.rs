//! Live processes, with all that can be wrong with them.

mod common;

mod privileged {
    use super::common::{Forked, Guard, as_nobody, wait_for};
    use isotherm_core::addr::AddrRange;
    use isotherm_core::mapping::{Mapping, MappingKind};
    use isotherm_linux::clock::monotonic_ns;
    use isotherm_linux::proc::{Process, ProcessDir, ProcessError, Signal};
    use isotherm_linux::roots::Roots;
    use isotherm_linux::targets::{TargetError, TargetSpec, TargetTracker};
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;

    const PAGE: u64 = 4096;

    fn mappings(process: &mut Process) -> Vec<Mapping> {
        let mut out = Vec::new();
        process.mappings(&mut out).unwrap();
        assert!(out.iter().all(|m| !m.range.is_empty()));
        assert!(out.windows(2).all(|w| w[0].range.end <= w[1].range.start));
        out
    }

    fn at(mappings: &[Mapping], addr: u64) -> Option<&Mapping> {
        mappings.iter().find(|m| m.range.contains(addr))
    }

    /// Maps anonymous memory; returns its address. For use in the child.
    fn map(len: u64, rights: i32) -> u64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory at an address of the kernel's choice.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, rights, flags, -1, 0) };
        if p == libc::MAP_FAILED { 0 } else { p as u64 }
    }

    fn unmap(addr: u64, len: u64) -> bool {
        // SAFETY: called for ranges that `map` gave and that nothing uses.
        unsafe { libc::munmap(addr as *mut libc::c_void, len as usize) == 0 }
    }

    #[test]
    fn root_pids_that_name_no_process() {
        let mut child = Guard::shell("exit 0");
        let pid = child.pid();
        child.0.wait().unwrap();
        for pid in [pid, 0, u32::MAX, i32::MAX as u32] {
            let error = Process::open(pid).unwrap_err();
            assert!(matches!(error, ProcessError::NoSuchProcess { pid: p } if p == pid), "{error:?}");
            assert!(error.to_string().contains(&pid.to_string()));
        }
        let error = TargetTracker::new(TargetSpec::Pids { pids: vec![std::process::id(), pid], children: false });
        assert!(matches!(error, Err(TargetError::Process(ProcessError::NoSuchProcess { .. }))));
    }

    #[test]
    fn root_how_a_process_began() {
        let now_ns = monotonic_ns();
        // The inner shell is a copy of the outer one; what it waits for is another program.
        let mut shell = Guard::shell("(sleep 60; :) & echo $!; sleep 60 & echo $!; wait");
        let mut lines =
            BufReader::new(shell.0.stdout.take().unwrap()).lines().map(|line| line.unwrap().parse().unwrap());
        let (copy, other) = (lines.next().unwrap(), lines.next().unwrap());
        let start = |pid| Process::open(pid).unwrap().start();
        let other = wait_for("sleep", || Some(start(other)).filter(|start| !start.forked));
        for (start, forked) in [(start(shell.pid()), false), (start(copy), true), (other, false)] {
            assert_eq!(start.forked, forked);
            // The kernel tells it in hundredths of a second.
            assert!((now_ns - 10_000_000..=monotonic_ns()).contains(&start.time_ns), "{start:?}, {now_ns}");
        }
    }

    #[test]
    fn root_a_zombie_is_told() {
        let child = Guard::shell("exit 0");
        let error = wait_for("the child's end", || match Process::open(child.pid()) {
            Err(e @ ProcessError::Zombie { .. }) => Some(e),
            _ => None,
        });
        assert!(error.to_string().contains("zombie"), "{error}");
    }

    #[test]
    fn root_a_process_that_lives_on_without_its_main_thread_is_no_zombie() {
        const SCRIPT: &str = "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n\
            ctypes.CDLL(None).syscall(60, 0)";
        let child = Guard::shell(&format!("exec python3 -c '{SCRIPT}'"));
        let error = wait_for("the main thread's end", || Process::open(child.pid()).err());
        assert!(matches!(error, ProcessError::Leaderless { pid, .. } if pid == child.pid()), "{error:?}");
        assert!(error.to_string().contains("main thread has ended"), "{error}");
        // Among others it is reported and left out.
        let (tell, told) = std::sync::mpsc::channel();
        let mut tracker = TargetTracker::new(TargetSpec::All).unwrap();
        tracker.on_skip(move |skipped| tell.send(skipped.pid).unwrap());
        tracker.poll().unwrap();
        drop(tracker);
        assert!(told.iter().any(|pid| pid == child.pid()));
    }

    #[test]
    fn root_a_watched_process_that_loses_its_main_thread_is_reported() {
        const SCRIPT: &str = "import ctypes, sys, threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n\
            sys.stdin.readline()\nctypes.CDLL(None).syscall(60, 0)";
        let mut losing = Guard::shell(&format!("exec python3 -c '{SCRIPT}'"));
        let mut ending = Guard::shell("read wait");
        let pids = vec![losing.pid(), ending.pid()];
        let mut tracker = TargetTracker::new(TargetSpec::Pids { pids, children: false }).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        tracker.on_skip(move |skipped| tell.send((skipped.pid, skipped.to_string())).unwrap());
        tracker.poll().unwrap();
        losing.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        ending.0.kill().unwrap();
        for target in [0, 1] {
            wait_for("the end of its memory", || {
                let mappings = tracker.process(target).and_then(|process| process.mappings(&mut Vec::new()));
                mappings.err().filter(|e| e.is_gone())
            });
            tracker.close(target);
        }
        drop(tracker);
        let told: Vec<(u32, String)> = told.iter().collect();
        assert!(told.len() == 1 && told[0].0 == losing.pid(), "one that has exited is not reported: {told:?}");
        assert!(told[0].1.contains("runs on although its main thread has ended"), "{told:?}");
    }

    #[test]
    fn root_a_kernel_thread_is_told() {
        let kthread = |&pid: &u32| {
            let stat = isotherm_linux::proc::stat::Stat::read(&ProcessDir::live(pid));
            stat.is_ok_and(|s| s.kernel_thread)
        };
        let pid = Roots::system().pids().unwrap().into_iter().find(kthread).expect("kernel threads are visible");
        let error = Process::open(pid).unwrap_err();
        assert!(matches!(error, ProcessError::KernelThread { pid: p, .. } if p == pid), "{error:?}");
    }

    #[test]
    fn root_a_threads_id_names_its_leader() {
        let (reported, hear) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            reported.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = ended.recv();
        });
        let id = hear.recv().unwrap();
        let error = Process::open(id).unwrap_err();
        drop(end);
        thread.join().unwrap();
        assert!(
            matches!(error, ProcessError::NotALeader { pid, leader } if pid == id && leader == std::process::id()),
            "{error:?}"
        );
    }

    #[test]
    fn root_another_users_process_is_refused_with_a_remedy() {
        let child = Guard::shell("sleep 1000 & wait");
        let pid = child.pid();
        // Said by nobody: the remedy depends on who asks.
        let said = move || Process::open(pid).map_err(|error| (error.to_string(), error));
        let (text, error) = as_nobody(said).unwrap_err();
        assert!(matches!(&error, ProcessError::Permission { pid: p, .. } if *p == pid), "{error:?}");
        assert!(text.contains("run as root"), "{text}");
    }

    #[test]
    fn root_the_first_process_and_our_own_can_be_watched() {
        for pid in [1, std::process::id()] {
            let mut process = match Process::open(pid) {
                Ok(process) => process,
                // A container's first process may have more privileges than the container's root.
                Err(ProcessError::Permission { pid: 1, .. }) => continue,
                Err(e) => panic!("{e:?}"),
            };
            assert!(!mappings(&mut process).is_empty());
            assert!(!process.name().is_empty());
            let footprint = process.footprint(3, 7).unwrap();
            assert_eq!((footprint.target, footprint.time_ns), (3, 7));
            assert!(footprint.vsz >= footprint.rss && footprint.rss > 0);
        }
    }

    #[test]
    fn root_twenty_thousand_mappings_are_read_exactly() {
        const COUNT: u64 = 20_000;
        let (child, base) = Forked::start(|steps| {
            let base = map(2 * COUNT * PAGE, libc::PROT_NONE);
            for i in 0..COUNT {
                // A gap between each pair of pages, and rights that change from one to the next.
                unmap(base + (2 * i + 1) * PAGE, PAGE);
            }
            steps.done(base);
        });
        let mut process = Process::open(child.pid).unwrap();
        for _ in 0..2 {
            let all = mappings(&mut process);
            let inside: Vec<AddrRange> =
                all.iter().map(|m| m.range).filter(|r| r.start >= base && r.end <= base + 2 * COUNT * PAGE).collect();
            assert_eq!(inside.len() as u64, COUNT);
            let exact =
                |(i, r): (u64, &AddrRange)| *r == AddrRange::new(base + 2 * i * PAGE, base + (2 * i + 1) * PAGE);
            assert!((0..).zip(&inside).all(exact));
        }
    }

    #[test]
    fn root_lines_that_differ_only_in_rights_are_one_mapping() {
        const COUNT: u64 = 4000;
        let (child, base) = Forked::start(|steps| {
            // A page without rights on both sides keeps strangers away.
            let base = map((COUNT + 2) * PAGE, libc::PROT_NONE);
            for i in (1..=COUNT).step_by(2) {
                // SAFETY: pages of the mapping just made.
                unsafe { libc::mprotect((base + i * PAGE) as *mut libc::c_void, PAGE as usize, libc::PROT_READ) };
            }
            steps.done(base);
        });
        let lines = std::fs::read_to_string(format!("/proc/{}/maps", child.pid)).unwrap().lines().count();
        assert!(lines as u64 > COUNT);
        let all = mappings(&mut Process::open(child.pid).unwrap());
        assert!(all.len() < 200, "{}", all.len());
        let mapping = at(&all, base).unwrap();
        assert!(mapping.range.end >= base + (COUNT + 2) * PAGE && mapping.kind == MappingKind::Anon);
    }

    #[test]
    fn root_growth_and_shrinking_of_every_kind_shows() {
        let (mut child, heap) = Forked::start(|steps| {
            // SAFETY: moves the end of the heap up by 1 MiB; nobody allocates in this process.
            let heap = unsafe { libc::sbrk(1 << 20) } as u64;
            steps.done(heap);
            // SAFETY: as above.
            unsafe { libc::sbrk(1 << 20) };
            let fresh = map(64 * PAGE, libc::PROT_READ | libc::PROT_WRITE);
            steps.done(fresh);
            unmap(fresh + 16 * PAGE, 16 * PAGE);
            // SAFETY: moves the mapping's rest, whatever its new address.
            let moved = unsafe {
                libc::mremap((fresh + 32 * PAGE) as *mut libc::c_void, 32 << 12, 64 << 12, libc::MREMAP_MAYMOVE)
            };
            steps.done(moved as u64);
        });
        let mut process = Process::open(child.pid).unwrap();
        let before = mappings(&mut process);
        assert!(at(&before, heap).is_some_and(|m| m.name == "[heap]"));
        assert_eq!(at(&before, heap + (1 << 20)), None);

        let fresh = child.go();
        let grown = mappings(&mut process);
        assert!(at(&grown, heap + (1 << 20)).is_some_and(|m| m.name == "[heap]"));
        assert!(at(&grown, fresh + 63 * PAGE).is_some());

        let moved = child.go();
        let shrunk = mappings(&mut process);
        assert!(
            at(&shrunk, fresh).is_some() && at(&shrunk, fresh + 31 * PAGE).is_none_or(|_| moved <= fresh + 31 * PAGE)
        );
        assert!(at(&shrunk, moved + 63 * PAGE).is_some());
    }

    #[test]
    fn root_the_stacks_growth_shows() {
        let stack = |all: &[Mapping]| all.iter().find(|m| m.name == "[stack]").unwrap().range;
        let own = stack(&mappings(&mut Process::open(std::process::id()).unwrap()));
        let (mut child, _) = Forked::start(|steps| {
            steps.done(0);
            // SAFETY: an access just below the stack makes the kernel extend it; nothing lives there.
            unsafe { ((own.start - 16 * PAGE) as *mut u8).write_volatile(1) };
        });
        let mut process = Process::open(child.pid).unwrap();
        let before = stack(&mappings(&mut process));
        child.go();
        let after = stack(&mappings(&mut process));
        assert_eq!((after.start, after.end), (before.start - 16 * PAGE, before.end));
    }

    #[test]
    fn root_odd_names_deleted_files_shared_and_locked_memory_are_told() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("a b\nc");
        std::fs::write(&path, [1; 8192]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let fd = file.as_raw_fd();
        let (mut child, base) = Forked::start(|steps| {
            let base = map(16 * PAGE, libc::PROT_READ | libc::PROT_WRITE);
            let over = |page: u64, flags: i32, fd: i32| {
                // SAFETY: replaces pages of the mapping just made.
                let p = unsafe {
                    let at = (base + page * PAGE) as *mut libc::c_void;
                    libc::mmap(at, PAGE as usize, libc::PROT_READ, flags | libc::MAP_FIXED, fd, 0)
                };
                assert!(p != libc::MAP_FAILED);
            };
            over(2, libc::MAP_PRIVATE, fd);
            over(4, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1);
            steps.done(base);
            // SAFETY: locks a page of the mapping made above.
            let locked = unsafe { libc::mlock((base + 8 * PAGE) as *const libc::c_void, PAGE as usize) };
            steps.done(locked as u64);
        });
        let mut process = Process::open(child.pid).unwrap();
        let all = mappings(&mut process);
        let file_mapping = at(&all, base + 2 * PAGE).unwrap();
        assert_eq!(file_mapping.kind, MappingKind::File);
        // As the kernel writes it: a newline in a name is no newline in ours.
        assert_eq!(file_mapping.name, path.to_str().unwrap().replace('\n', "\\012"));
        let shared = at(&all, base + 4 * PAGE).unwrap();
        assert_eq!((shared.kind, shared.shared), (MappingKind::Shmem, true));
        assert!(all.iter().all(|m| !m.locked));
        assert!(all.iter().filter(|m| m.name == "[vdso]").all(|m| m.kind == MappingKind::Special));

        std::fs::remove_file(&path).unwrap();
        assert_eq!(child.go(), 0);
        let all = mappings(&mut process);
        assert!(at(&all, base + 2 * PAGE).unwrap().name.ends_with("a b\\012c (deleted)"));
        let locked: Vec<AddrRange> = all.iter().filter(|m| m.locked).map(|m| m.range).collect();
        assert_eq!(locked, [AddrRange::new(base + 8 * PAGE, base + 9 * PAGE)]);
    }

    #[test]
    fn root_an_exec_is_told_once_and_followed() {
        let (mut child, _) = Forked::start(|steps| {
            steps.done(0);
            let (path, word) = (c"/bin/sleep", c"1000");
            let words = [path.as_ptr(), word.as_ptr(), std::ptr::null()];
            // SAFETY: a null-terminated list of C strings.
            unsafe { libc::execv(path.as_ptr(), words.as_ptr()) };
        });
        let mut process = Process::open(child.pid).unwrap();
        let before = mappings(&mut process);
        child.order();
        let mut out = Vec::new();
        wait_for("the exec", || matches!(process.mappings(&mut out), Err(ProcessError::Replaced { .. })).then_some(()));
        let after = wait_for("the new program", || {
            let all = mappings(&mut process);
            all.iter().any(|m| m.name == "[stack]").then_some(all)
        });
        assert_ne!(before, after);
        assert!(process.name().contains("1000"), "{}", process.name());
    }

    #[test]
    fn root_a_process_that_executes_a_set_user_id_program_goes_out_of_reach() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let program = dir.path().join("sleep");
        // Copied by a process of its own: a child that another test forks meanwhile would keep our descriptor for
        // writing open, and nothing that is open for writing can be executed.
        assert!(std::process::Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap().success());
        for (path, mode) in [(dir.path(), 0o755), (&program, 0o4755)] {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        }
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(format!("read x; exec {} 1000", program.display())).uid(65534).gid(65534);
        let mut child = Guard::spawn(&mut command);
        let (pid, mut pipe) = (child.pid(), child.0.stdin.take().unwrap());
        let (seen, error) = as_nobody(move || {
            let mut process = Process::open(pid).unwrap();
            let seen = mappings(&mut process).len();
            std::io::Write::write_all(&mut pipe, b"\n").unwrap();
            let error = wait_for("the exec", || process.mappings(&mut Vec::new()).err());
            (seen, error)
        });
        assert!(seen > 0);
        assert!(matches!(error, ProcessError::OutOfReach { pid: p } if p == pid), "{error:?}");
        assert!(Process::open(pid).is_ok(), "root still can");
    }

    #[test]
    fn root_an_exit_is_told_by_every_reader() {
        let child = Guard::shell("read x");
        let mut process = Process::open(child.pid()).unwrap();
        mappings(&mut process);
        process.pidfd().send_signal(Signal::KILL).unwrap();
        assert!(process.pidfd().wait_exit(std::time::Duration::from_secs(60)));
        let exited = |e: ProcessError| assert!(matches!(e, ProcessError::Exited { .. }), "{e:?}");
        // As a zombie and after it has been collected.
        let mut child = Some(child);
        for _ in 0..2 {
            assert!(!process.is_alive());
            exited(process.mappings(&mut Vec::new()).unwrap_err());
            exited(process.smaps(|_, _, _| {}).unwrap_err());
            exited(process.clear_refs().unwrap_err());
            assert_eq!(process.footprint(0, 0), None);
            child.take();
        }
    }

    #[test]
    fn root_readers_keep_up_with_processes_that_die_and_execute_all_the_time() {
        let mut shell = Guard::shell("while :; do (exec true); (exec sleep 0.01); done");
        let mut tracker = TargetTracker::new(TargetSpec::Pids { pids: vec![shell.pid()], children: true }).unwrap();
        tracker.on_skip(|skipped| panic!("{skipped:?}"));
        let (mut seen, mut out) = (0, Vec::new());
        while seen < 40 {
            seen += tracker.poll().unwrap().len();
            for id in tracker.running().collect::<Vec<_>>() {
                let process = tracker.process(id).unwrap();
                for result in [process.mappings(&mut out), process.smaps(|_, _, _| {}), process.clear_refs()] {
                    match result {
                        Ok(()) | Err(ProcessError::Exited { .. } | ProcessError::Replaced { .. }) => {}
                        Err(e) => panic!("{e:?}"),
                    }
                }
            }
        }
        shell.0.kill().unwrap();
    }

    #[test]
    fn root_a_child_in_its_parents_memory_is_a_target_only_after_exec() {
        extern "C" fn wait_and_execute(gate: *mut libc::c_void) -> i32 {
            let (path, word) = (c"/bin/sleep", c"1000");
            let words = [path.as_ptr(), word.as_ptr(), std::ptr::null()];
            // SAFETY: a descriptor number, one byte on the stack, and a null-terminated list of C strings.
            unsafe {
                if libc::read(gate as i32, [0u8].as_mut_ptr().cast(), 1) == 1 {
                    libc::execv(path.as_ptr(), words.as_ptr());
                }
                libc::_exit(1)
            }
        }
        let (gate, mut opener) = std::io::pipe().unwrap();
        let gate_fd = gate.as_raw_fd();
        let (child, grandchild) = Forked::start(|steps| {
            let stack = map(64 * PAGE, libc::PROT_READ | libc::PROT_WRITE);
            // SAFETY: the function runs on memory of its own and only makes system calls.
            let pid = unsafe {
                let top = (stack + 64 * PAGE) as *mut libc::c_void;
                libc::clone(wait_and_execute, top, libc::CLONE_VM | libc::SIGCHLD, gate_fd as *mut libc::c_void)
            };
            steps.done(pid as u64);
        });
        let grandchild = grandchild as u32;
        let mut tracker = TargetTracker::new(TargetSpec::Pids { pids: vec![child.pid], children: true }).unwrap();
        let found: Vec<_> = (0..3).flat_map(|_| tracker.poll().unwrap()).filter_map(|t| t.pid).collect();
        assert_eq!(found, [child.pid]);
        std::io::Write::write_all(&mut opener, b"x").unwrap();
        let found = wait_for("the exec", || tracker.poll().unwrap().pop());
        assert_eq!(found.pid, Some(grandchild));
        assert!(mappings(tracker.process(found.target).unwrap()).iter().any(|m| m.name.contains("/bin/")));
        tracker.process(found.target).unwrap().pidfd().send_signal(Signal::KILL).unwrap();
    }
}
