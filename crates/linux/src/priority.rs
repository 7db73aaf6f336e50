//! How the scheduler ranks a thread.

use rustix::process::{getpriority_process, setpriority_process};
use std::io;

/// Gives the calling thread, and the threads that it starts from now on, a nice value (0 to 19: the higher, the more it
/// lets others go first), unless it has another than 0 already: then somebody chose it.
pub fn be_nice(value: u8) -> io::Result<()> {
    // Despite their names the calls are about the calling thread.
    if getpriority_process(None)? != 0 || value == 0 {
        return Ok(());
    }
    Ok(setpriority_process(None, i32::from(value))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_value_counts_and_only_for_this_thread() {
        let nice = || getpriority_process(None).unwrap();
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
