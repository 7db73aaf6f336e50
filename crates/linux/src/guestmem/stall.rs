//! An alarm that goes off as soon as tasks wait for memory (a trigger on `/proc/pressure/memory`).

use crate::facts::pressure;
use crate::roots::Roots;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Stalled time in a window of [`WINDOW_US`] that sets the alarm off. The kernel takes windows of 0.5 s and more.
const STALL_US: u32 = 20_000;
const WINDOW_US: u32 = 500_000;

/// A trigger; it goes when dropped.
#[derive(Debug)]
pub struct StallAlarm(File);

impl StallAlarm {
    /// Sets the trigger up. The error says what the kernel lacks and what helps.
    pub fn new(roots: &Roots) -> io::Result<Self> {
        let path = roots.path(pressure::FILE);
        let open = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        let set = open.and_then(|mut file| {
            // The kernel wants the zero at the end.
            file.write_all(format!("some {STALL_US} {WINDOW_US}\0").as_bytes())?;
            Ok(file)
        });
        set.map(Self).map_err(|e| {
            let why = pressure::why(Path::new(pressure::FILE), &e);
            io::Error::new(e.kind(), format!("{why}; {}", pressure::remedy(&e)))
        })
    }

    /// Whether it has gone off since it was last asked.
    pub fn rang(&self) -> bool {
        let mut alarm = [PollFd::new(&self.0, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut alarm, Some(&at_once)).is_ok() && alarm[0].revents().contains(PollFlags::PRI)
    }
}

impl AsFd for StallAlarm {
    /// To be polled for `POLLPRI`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn a_kernel_without_pressure_says_so() {
        let error = StallAlarm::new(&tree(&[]).roots).unwrap_err();
        assert!(error.to_string().starts_with("/proc/pressure/memory is missing; use a kernel"), "{error}");
    }
}
