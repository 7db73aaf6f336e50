//! Targets as live processes: pids, children, commands, control groups.

mod common;

mod privileged {
    use super::common::{Guard, wait_for};
    use isotherm_linux::proc::{ProcessError, Signal};
    use isotherm_linux::targets::{Command, TargetError, TargetSpec, TargetTracker};
    use std::ffi::OsString;
    use std::io::{Read, Write};
    use std::time::Duration;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn pids(pids: &[u32], children: bool) -> TargetSpec {
        TargetSpec::Pids { pids: pids.to_vec(), children }
    }

    #[test]
    fn root_children_become_targets_and_ends_are_told() {
        let mut parent = Guard::shell("sleep 1000 & echo $!; read go; (sleep 1000 & echo $!; wait) & wait");
        let mut line = [0; 64];
        let n = parent.0.stdout.as_mut().unwrap().read(&mut line).unwrap();
        let first: u32 = std::str::from_utf8(&line[..n]).unwrap().trim().parse().unwrap();
        let mut tracker = TargetTracker::new(pids(&[parent.pid(), parent.pid()], true)).unwrap();
        let found = tracker.poll().unwrap();
        assert_eq!(found.iter().map(|t| t.pid.unwrap()).collect::<Vec<_>>(), [parent.pid(), first]);
        assert!(found[1].name.contains("sleep 1000"), "{found:?}");
        assert_eq!(tracker.poll().unwrap(), []);

        parent.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let n = parent.0.stdout.as_mut().unwrap().read(&mut line).unwrap();
        let grandchild: u32 = std::str::from_utf8(&line[..n]).unwrap().trim().parse().unwrap();
        let mut later = tracker.poll().unwrap();
        later.extend(tracker.poll().unwrap());
        assert!(later.iter().any(|t| t.pid == Some(grandchild)), "{later:?}");
        let ids: Vec<u32> = later.iter().map(|t| t.target).collect();
        assert_eq!(ids, (2..2 + ids.len() as u32).collect::<Vec<_>>());

        let target = later.iter().find(|t| t.pid == Some(grandchild)).unwrap().target;
        tracker.process(target).unwrap().pidfd().send_signal(Signal::KILL).unwrap();
        wait_for("the grandchild's end", || {
            tracker.poll().unwrap();
            matches!(tracker.process(target), Err(ProcessError::Exited { .. })).then_some(())
        });
        assert!(!tracker.may_gain_targets());
        for id in tracker.running().collect::<Vec<_>>() {
            tracker.process(id).unwrap().pidfd().send_signal(Signal::KILL).unwrap();
        }
    }

    #[test]
    fn root_a_process_is_as_many_targets_as_it_is_given_times() {
        let (one, other) = (Guard::shell("exec sleep 1000"), Guard::shell("exec sleep 1000"));
        let (a, b) = (one.pid(), other.pid());
        let mut tracker = TargetTracker::new(TargetSpec::Each(vec![a, b, a])).unwrap();
        let found = tracker.poll().unwrap();
        assert_eq!(
            found.iter().map(|t| (t.target, t.pid)).collect::<Vec<_>>(),
            [(0, Some(a)), (1, Some(b)), (2, Some(a))]
        );

        // Those that stay are who they were, in the order of their numbers.
        assert_eq!(tracker.replace(&[b, b, a]).unwrap(), [1, 3, 0]);
        assert_eq!(tracker.running().collect::<Vec<_>>(), [0, 1]);
        let new = tracker.poll().unwrap();
        assert_eq!(new.iter().map(|t| (t.target, t.pid)).collect::<Vec<_>>(), [(3, Some(b))]);
        assert_eq!(tracker.replace(&[a, a]).unwrap(), [0, 4]);
        tracker.poll().unwrap();
        assert_eq!(tracker.running().collect::<Vec<_>>(), [0, 4]);
        assert!(tracker.process(3).is_err(), "nobody wants it any more");
        assert!(TargetTracker::new(TargetSpec::Each(Vec::new())).is_err());
    }

    /// A program that nobody else runs, of that name.
    fn sleeper_named(folder: &std::path::Path, name: &str) -> Guard {
        let program = folder.join(name);
        if !program.exists() {
            std::fs::copy("/bin/sleep", &program).unwrap();
        }
        Guard::shell(&format!("exec {} 1000", program.display()))
    }

    #[test]
    fn root_a_name_and_all_take_up_who_comes_and_never_ourselves() {
        let folder = tempfile::tempdir().unwrap();
        // The kernel keeps 15 bytes of it.
        let name = format!("isotherm-sleeper-{}", std::process::id());
        assert!(matches!(
            TargetTracker::new(TargetSpec::Names(vec![name.clone()])),
            Err(TargetError::NoSuchName { .. })
        ));
        let first = sleeper_named(folder.path(), &name);
        let mut tracker = wait_for("its exec", || TargetTracker::new(TargetSpec::Names(vec![name.clone()])).ok());
        let found = |tracker: &mut TargetTracker| -> Vec<u32> {
            tracker.poll().unwrap().iter().filter_map(|t| t.pid).collect()
        };
        assert_eq!(found(&mut tracker), [first.pid()]);
        assert_eq!(found(&mut tracker), [0u32; 0]);
        let second = sleeper_named(folder.path(), &name);
        wait_for("the second", || found(&mut tracker).contains(&second.pid()).then_some(()));

        let mut tracker = TargetTracker::new(TargetSpec::All).unwrap();
        let all = found(&mut tracker);
        assert!(all.contains(&first.pid()) && all.contains(&second.pid()));
        assert!(!all.contains(&std::process::id()));
        let third = sleeper_named(folder.path(), &name);
        wait_for("the third", || found(&mut tracker).contains(&third.pid()).then_some(()));
        drop((first, second, third));
        assert!(tracker.may_gain_targets());
    }

    #[test]
    fn root_a_command_waits_at_the_gate_until_the_first_poll() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let script = format!("echo run > {}; exec sleep 1000", mark.display());
        let command = Command::prepare(&words(&["sh", "-c", &script])).unwrap();
        let mut tracker =
            TargetTracker::new(TargetSpec::Command { command: command.clone(), children: false }).unwrap();
        assert!(tracker.may_gain_targets());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!mark.exists(), "it ran before it was started");
        let found = tracker.poll().unwrap();
        assert_eq!(found[0].pid, Some(command.pid()));
        wait_for("the command's work", || mark.exists().then_some(()));
        let end = command.finish(Duration::from_secs(10)).unwrap().unwrap();
        assert!(end.terminated && !end.status.success());
        assert!(matches!(tracker.process(0), Ok(p) if !p.is_alive()));
    }

    #[test]
    fn root_a_commands_own_end_is_told_with_its_status() {
        let command = Command::prepare(&words(&["sh", "-c", "exit 7"])).unwrap();
        command.start().unwrap();
        let end = wait_for("its end", || command.try_end().unwrap());
        assert_eq!((end.status.code(), end.terminated), (Some(7), false));
        assert_eq!(command.finish(Duration::ZERO).unwrap(), Some(end));
    }

    #[test]
    fn root_a_command_that_cannot_run_is_an_error() {
        let error = Command::prepare(&words(&["/nowhere/at-all"])).unwrap_err();
        assert!(matches!(error, TargetError::NoSuchProgram { .. }), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/nowhere/interpreter\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let error = Command::prepare(&[script.clone().into_os_string()]).unwrap_err();
        assert!(matches!(error, TargetError::CannotRun { .. }), "{error}");
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let error = Command::prepare(&[script.clone().into_os_string()]).unwrap_err();
        assert!(error.to_string().contains("/nowhere/interpreter"), "{error}");

        // What only exec can find out is reported by the first poll: here, that somebody writes to the file.
        let busy = dir.path().join("busy");
        std::fs::copy("/bin/sleep", &busy).unwrap();
        let writer = std::fs::File::options().append(true).open(&busy).unwrap();
        let command = Command::prepare(&[busy.into_os_string()]).unwrap();
        let mut tracker =
            TargetTracker::new(TargetSpec::Command { command: command.clone(), children: false }).unwrap();
        assert!(matches!(tracker.poll(), Err(TargetError::CannotRun { .. })));
        drop(writer);
        assert!(!command.is_running());
        assert_eq!(command.finish(Duration::ZERO).unwrap(), None);
    }
}
