//! Limits of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the most that this user may have. Whether it was raised: not if it was there
/// already.
///
/// Best called only when the limit is met, so that programs we start usually inherit the limit they expect.
pub fn raise_open_files() -> bool {
    let limit = getrlimit(Resource::Nofile);
    limit.current != limit.maximum && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok()
}
