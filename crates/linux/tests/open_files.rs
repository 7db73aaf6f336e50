//! More targets than the limit of open files allows at first. One test, because the limit is the whole process's.

mod common;

mod privileged {
    use super::common::Guard;
    use isotherm_linux::targets::{TargetSpec, TargetTracker};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    #[test]
    fn root_the_limit_of_open_files_is_raised_when_it_is_met() {
        let children: Vec<Guard> = (0..40).map(|_| Guard::shell("read x")).collect();
        let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let maximum = getrlimit(Resource::Nofile).maximum;
        assert!(maximum.is_none_or(|maximum| used + 20 < maximum));
        setrlimit(Resource::Nofile, Rlimit { current: Some(used + 20), maximum }).unwrap();
        let pids = children.iter().map(Guard::pid).collect();
        let mut tracker = TargetTracker::new(TargetSpec::Pids { pids, children: false }).unwrap();
        assert_eq!(tracker.poll().unwrap().len(), 40);
    }
}
