//! Control groups as targets, in a group of our own.

mod common;

mod privileged {
    use super::common::group::Group;
    use super::common::{Guard, as_nobody, wait_for};
    use isotherm_core::source::Refused;
    use isotherm_linux::proc::ProcessError;
    use isotherm_linux::targets::{TargetError, TargetSpec, TargetTracker};
    use std::path::{Path, PathBuf};

    /// Mount points of hierarchies in which we may make groups: one of v1 and one of v2, as far as mounted.
    fn hierarchies() -> Vec<PathBuf> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let find = |wanted: &dyn Fn(&str, &str) -> bool| {
            mounts.lines().find_map(|line| {
                let fields: Vec<&str> = line.split(' ').collect();
                wanted(fields[2], fields[3]).then(|| PathBuf::from(fields[1]))
            })
        };
        let v2 = find(&|fs, _| fs == "cgroup2");
        let v1 = find(&|fs, options| fs == "cgroup" && options.split(',').any(|o| o == "pids"));
        v2.into_iter().chain(v1).collect()
    }

    fn follow(mount: &Path) {
        let name = format!("isotherm-test-{}", std::process::id());
        // Dropped in reverse order: processes first, then the inner group, then the outer one.
        let outer = Group::new(mount.join(&name));
        let inner = Group::new(outer.0.join("inner"));
        let (first, second) = (Guard::shell("read x"), Guard::shell("read x"));
        let own = Guard::shell("read x");

        let mut tracker = TargetTracker::new(TargetSpec::Cgroups(vec![outer.0.clone()])).unwrap();
        assert_eq!(tracker.poll().unwrap(), []);
        assert!(tracker.may_gain_targets());
        outer.add(first.pid());
        inner.add(second.pid());
        let mut found: Vec<u32> = tracker.poll().unwrap().iter().filter_map(|t| t.pid).collect();
        found.sort_unstable();
        let mut want = [first.pid(), second.pid()];
        want.sort_unstable();
        assert_eq!(found, want);

        // Another user sees who is in it but may not watch them, and gets to know that once.
        let dir = outer.0.clone();
        let mut reported = as_nobody(move || {
            let (tell, reported) = std::sync::mpsc::channel();
            let mut tracker = TargetTracker::new(TargetSpec::Cgroups(vec![dir])).unwrap();
            tracker.on_skip(move |s| tell.send((s.pid, matches!(s.why, ProcessError::Permission { .. }))).unwrap());
            assert_eq!(tracker.poll().unwrap(), []);
            assert_eq!(tracker.poll().unwrap(), []);
            assert_eq!(tracker.refused(), Refused { processes: 2, not_permitted: 2 });
            reported.try_iter().collect::<Vec<_>>()
        });
        reported.sort_unstable();
        assert_eq!(reported, want.map(|pid| (pid, true)));

        // By its name below the mount it is the same group.
        let mut by_name =
            TargetTracker::new(TargetSpec::Cgroups(vec![PathBuf::from(format!("/{name}/inner"))])).unwrap();
        assert_eq!(by_name.poll().unwrap()[0].pid, Some(second.pid()));

        // Who leaves the group is no target any more; who comes is one.
        std::fs::write(mount.join("cgroup.procs"), second.pid().to_string()).unwrap();
        outer.add(own.pid());
        let found: Vec<_> = tracker.poll().unwrap();
        assert_eq!(found.iter().map(|t| (t.target, t.pid)).collect::<Vec<_>>(), [(2, Some(own.pid()))]);
        assert_eq!(tracker.running().count(), 2);

        drop((first, own));
        wait_for("the ends", || {
            tracker.poll().unwrap();
            (tracker.running().count() == 0).then_some(())
        });
        assert!(tracker.may_gain_targets(), "an empty group may gain targets");
        drop(inner);
        drop(outer);
        assert_eq!(tracker.poll().unwrap(), []);
        assert!(!tracker.may_gain_targets(), "a removed group may not");
    }

    #[test]
    fn root_members_of_a_group_are_followed_in_v1_and_v2() {
        let mounts = hierarchies();
        assert!(!mounts.is_empty(), "no cgroup hierarchy is mounted");
        mounts.iter().for_each(|m| follow(m));
    }

    #[test]
    fn root_a_group_that_does_not_exist_is_an_error_that_names_where_it_was_looked_for() {
        let error = TargetTracker::new(TargetSpec::Cgroups(vec!["/no/such/group".into()])).unwrap_err();
        assert!(matches!(&error, TargetError::NoCgroup { tried, .. } if !tried.is_empty()), "{error:?}");
        assert!(error.to_string().contains("/no/such/group"));
    }
}
