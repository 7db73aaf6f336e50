//! A thread that others wait for.

use rustix::process::setpriority_process;
use std::io;

/// Gives the calling thread the highest priority that is not real-time. Fails without CAP_SYS_NICE.
pub fn hurry() -> io::Result<()> {
    // Despite its name it sets a thread's.
    Ok(setpriority_process(None, -20)?)
}
