//! Limits of this process.

/// Raises the limit of open files to the most that this user may have. Whether it was raised: not if it was there
/// already.
///
/// Called only when the limit is met, so that programs we start usually inherit the limit they expect.
pub(crate) fn raise_open_files() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the write.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 || limit.rlim_cur >= limit.rlim_max {
        return false;
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is initialised.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 }
}
