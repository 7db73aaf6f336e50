//! An alarm that goes off as soon as tasks wait for memory (a trigger on `/proc/pressure/memory`).

use crate::facts::pressure;
use crate::roots::Roots;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// How much stalled time within which window sets the alarm off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Trigger {
    stall_us: u32,
    window_us: u32,
}

/// The shortest window that the kernel takes.
const SOON: Trigger = Trigger { stall_us: 20_000, window_us: 500_000 };
/// The same share of the shortest window that kernels from 6.5 on take from whoever has no CAP_SYS_RESOURCE: a multiple of 2 s.
const WITHOUT_CAPABILITY: Trigger = Trigger { stall_us: 80_000, window_us: 2_000_000 };

/// An alarm; it goes when dropped.
#[derive(Debug)]
pub struct StallAlarm {
    file: File,
    trigger: Trigger,
}

impl StallAlarm {
    /// Sets the trigger up. The error says what the kernel lacks and what helps.
    pub fn new(roots: &Roots) -> io::Result<Self> {
        Self::set(|trigger| {
            let path = roots.path(pressure::FILE);
            let mut file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
            // The kernel wants the zero at the end.
            file.write_all(format!("some {} {}\0", trigger.stall_us, trigger.window_us).as_bytes())?;
            Ok(file)
        })
    }

    fn set(mut set: impl FnMut(Trigger) -> io::Result<File>) -> io::Result<Self> {
        let mut trigger = SOON;
        let mut file = set(trigger);
        if file.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL)) {
            trigger = WITHOUT_CAPABILITY;
            file = set(trigger);
        }
        file.map(|file| Self { file, trigger }).map_err(|e| {
            let why = pressure::why(Path::new(pressure::FILE), &e);
            io::Error::new(e.kind(), format!("{why}; {}", pressure::trigger_remedy(&e)))
        })
    }

    /// How much later than it could the alarm goes off at worst, for want of a capability; with its name. `None`: no later.
    pub fn is_late(&self) -> Option<(Duration, &'static str)> {
        let late_us = self.trigger.window_us - SOON.window_us;
        (late_us > 0).then(|| (Duration::from_micros(late_us.into()), pressure::TRIGGER_CAPABILITY))
    }

    /// Whether it has gone off since it was last asked.
    pub fn rang(&self) -> bool {
        let mut alarm = [PollFd::new(&self.file, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut alarm, Some(&at_once)).is_ok() && alarm[0].revents().contains(PollFlags::PRI)
    }
}

impl AsFd for StallAlarm {
    /// To be polled for `POLLPRI`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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

    #[test]
    fn without_the_capability_it_takes_a_longer_window() {
        let refused = |number| Err(io::Error::from_raw_os_error(number));
        let file = || File::open("/dev/null");
        assert_eq!(StallAlarm::set(|_| file()).unwrap().is_late(), None);
        let alarm = StallAlarm::set(|trigger| if trigger == SOON { refused(libc::EINVAL) } else { file() }).unwrap();
        assert_eq!(alarm.is_late(), Some((Duration::from_millis(1500), "CAP_SYS_RESOURCE")));
        let share = |trigger: Trigger| f64::from(trigger.stall_us) / f64::from(trigger.window_us);
        assert!((share(SOON) - share(alarm.trigger)).abs() < 1e-9);

        let error = StallAlarm::set(|_| refused(libc::EINVAL)).unwrap_err().to_string();
        assert!(error.contains("CAP_SYS_RESOURCE") && !error.contains("psi=1"), "{error}");
        let mut tries = 0;
        let error = StallAlarm::set(|_| {
            tries += 1;
            refused(libc::EOPNOTSUPP)
        });
        assert!(error.unwrap_err().to_string().contains("psi=1") && tries == 1);
    }

    #[test]
    fn root_this_kernel_takes_one_of_the_two() {
        if !Path::new(pressure::FILE).exists() {
            eprintln!("skipped: this kernel measures no pressure");
            return;
        }
        assert!(!StallAlarm::new(&Roots::system()).unwrap().rang());
    }
}
