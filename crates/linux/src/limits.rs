//! Limits of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many files this process may have open; `None`: any number.
pub(crate) fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the limit of open files to the most that this user may have, and once that is met, with CAP_SYS_RESOURCE to
/// what the kernel gives at most (`fs.nr_open`). Whether it was raised.
///
/// Best called only when the limit is met, so that programs we start usually inherit the limit they expect.
pub fn raise_open_files() -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raise = |to: Option<u64>| setrlimit(Resource::Nofile, Rlimit { current: to, maximum: to }).is_ok();
    if current != maximum {
        return raise(maximum);
    }
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse::<u64>().ok());
    most > maximum && maximum.is_some() && raise(most)
}
