//! More targets than the limit of open files allows at first. One test, because the limit is the whole process's.

mod common;

mod privileged {
    use super::common::Guard;
    use isotherm_linux::targets::{TargetSpec, TargetTracker};

    #[test]
    fn root_the_limit_of_open_files_is_raised_when_it_is_met() {
        let children: Vec<Guard> = (0..40).map(|_| Guard::shell("read x")).collect();
        let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is valid for the write, then for the read.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
            limit.rlim_cur = used + 20;
            assert!(limit.rlim_cur < limit.rlim_max);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
        }
        let pids = children.iter().map(Guard::pid).collect();
        let mut tracker = TargetTracker::new(TargetSpec::Pids { pids, children: false }).unwrap();
        assert_eq!(tracker.poll().unwrap().len(), 40);
    }
}
