//! A thread that others wait for.

use std::io;

/// Gives the calling thread the highest priority that is not real-time. Fails without CAP_SYS_NICE.
pub fn hurry() -> io::Result<()> {
    // SAFETY: integers only; 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
