//! Nothing is left behind: no descriptor, no process. One test, because it looks at the whole process.

mod common;

mod privileged {
    use super::common::Guard;
    use isotherm_linux::targets::{Command, TargetError, TargetSpec, TargetTracker};
    use std::ffi::OsString;
    use std::path::PathBuf;
    use std::time::Duration;

    fn descriptors() -> Vec<PathBuf> {
        let list = std::fs::read_dir("/proc/self/fd").unwrap();
        let mut all: Vec<PathBuf> = list.filter_map(|e| std::fs::read_link(e.ok()?.path()).ok()).collect();
        all.sort();
        all
    }

    /// Children of ours, zombies included.
    fn children() -> Vec<u32> {
        let root = isotherm_linux::roots::Roots::system();
        let own = std::process::id();
        let is_child = |&pid: &u32| {
            isotherm_linux::proc::stat::Stat::read(&isotherm_linux::proc::ProcessDir::of(&root, pid))
                .is_ok_and(|s| s.ppid == own)
        };
        root.pids().unwrap().into_iter().filter(is_child).collect()
    }

    fn command(script: &str) -> Command {
        Command::prepare(&["sh", "-c", script].map(OsString::from)).unwrap()
    }

    #[test]
    fn root_no_descriptor_and_no_process_is_left() {
        let before = descriptors();

        let mut shell = Guard::shell("while :; do sleep 0.002; done");
        let spec = TargetSpec::Pids { pids: vec![shell.pid()], children: true };
        let mut tracker = TargetTracker::new(spec).unwrap();
        let mut seen = 0;
        let mut most = 0;
        while seen < 100 {
            seen += tracker.poll().unwrap().len();
            most = most.max(descriptors().len());
        }
        assert!(most < before.len() + 40, "descriptors of ended targets stay open: {most}");
        shell.0.kill().unwrap();
        drop((tracker, shell));

        // A command that ends by itself, one that is ended with what it forked, one never started, and one that cannot
        // be.
        command("exit 3").finish(Duration::ZERO).unwrap();
        let ending = command("exit 3");
        ending.start().unwrap();
        while ending.try_end().unwrap().is_none() {}
        let stubborn = command("trap '' TERM; sleep 1000 & echo; while :; do sleep 0.01; done > /dev/null");
        stubborn.start().unwrap();
        let end = stubborn.finish(Duration::from_millis(200)).unwrap().unwrap();
        assert!(end.terminated);
        drop(command("sleep 1000"));
        let started = command("sleep 1000");
        started.start().unwrap();
        drop((started, ending, stubborn));
        let missing = Command::prepare(&[OsString::from("isotherm-no-such-program")]);
        assert!(matches!(missing, Err(TargetError::NoSuchProgram { .. })));

        assert_eq!(children(), Vec::<u32>::new());
        assert_eq!(descriptors(), before);
    }
}
