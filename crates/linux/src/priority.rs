//! How the scheduler ranks a thread.

use std::io;

/// Gives the calling thread, and the threads that it starts from now on, a nice value (0 to 19: the higher, the more it
/// lets others go first), unless it has another than 0 already: then somebody chose it.
pub fn be_nice(value: u8) -> io::Result<()> {
    // SAFETY: takes no pointers; 0 stands for the calling thread. Cannot fail for the caller itself, so that -1 is a
    // value.
    let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    if now != 0 || value == 0 {
        return Ok(());
    }
    // SAFETY: takes no pointers.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, i32::from(value)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_value_counts_and_only_for_this_thread() {
        // SAFETY: as above.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        let lowered = std::thread::spawn(move || {
            be_nice(7).unwrap();
            be_nice(12).unwrap();
            nice()
        });
        assert_eq!(lowered.join().unwrap(), if before == 0 { 7 } else { before });
        assert_eq!(nice(), before);
    }
}
