//! Signals that stop, continue or kill a program that draws on a whole terminal. It must put the terminal back before
//! they take effect, and draw anew after it goes on, so they are caught for as long as a guard lives.

use crate::signals::{Previous, install};
use rustix::process::{Signal, kill_current_process_group};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// What asks for the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenSignal {
    /// SIGTSTP: the shell wants the terminal until `fg`.
    Suspend,
    /// SIGCONT: somebody else may have used the terminal meanwhile.
    Continue,
    /// SIGQUIT: the end, at once.
    Quit,
}

impl ScreenSignal {
    const ALL: [Self; 3] = [Self::Suspend, Self::Continue, Self::Quit];

    const fn number(self) -> i32 {
        match self {
            Self::Suspend => libc::SIGTSTP,
            Self::Continue => libc::SIGCONT,
            Self::Quit => libc::SIGQUIT,
        }
    }

    fn of(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.number() == number)
    }
}

/// Which of [`ScreenSignal::ALL`] have come.
static CAME: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Catches them; dropping it restores what was in force before. Those that are ignored stay so.
#[derive(Debug)]
pub struct ScreenSignals {
    previous: Vec<(i32, Previous)>,
}

impl ScreenSignals {
    /// Catches the signals. Fails with [`io::ErrorKind::AlreadyExists`] while another guard lives.
    pub fn catch() -> io::Result<Self> {
        if INSTALLED.swap(true, Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "signals of the screen are caught already"));
        }
        CAME.iter().for_each(|came| came.store(false, Ordering::SeqCst));
        let mut guard = Self { previous: Vec::new() };
        for number in ScreenSignal::ALL.map(ScreenSignal::number) {
            let previous = install(number, Some(on_signal))?;
            if previous.is_ignored() {
                previous.restore(number);
            } else {
                guard.previous.push((number, previous));
            }
        }
        Ok(guard)
    }

    /// One that has come since it was last asked for, if any: first those that stop, then that which continues.
    pub fn take(&self) -> Option<ScreenSignal> {
        [ScreenSignal::Quit, ScreenSignal::Suspend, ScreenSignal::Continue].into_iter().find(|signal| take(*signal))
    }

    /// Does to this process what the signal does where nobody catches it. After [`Suspend`](ScreenSignal::Suspend) it
    /// returns once the process was continued, or at once where there is no shell that could continue it.
    pub fn take_effect(&mut self, signal: ScreenSignal) -> io::Result<()> {
        let caught = install(signal.number(), None)?;
        // SAFETY: sends a signal to this thread; the default action needs no handler of ours. To the thread, not to the
        // process: so it has taken effect when this returns.
        unsafe { libc::raise(signal.number()) };
        caught.restore(signal.number());
        // Told by this having returned.
        take(ScreenSignal::Continue);
        Ok(())
    }
}

impl Drop for ScreenSignals {
    fn drop(&mut self) {
        for (number, previous) in self.previous.drain(..) {
            previous.restore(number);
        }
        INSTALLED.store(false, Ordering::SeqCst);
    }
}

/// Does what Ctrl-Z does where the terminal understands it: asks all of the process group, ourselves too, to stop.
pub fn suspend_group() -> io::Result<()> {
    Ok(kill_current_process_group(Signal::TSTP)?)
}

fn take(signal: ScreenSignal) -> bool {
    CAME[signal as usize].swap(false, Ordering::SeqCst)
}

extern "C" fn on_signal(number: i32) {
    if let Some(signal) = ScreenSignal::of(number) {
        CAME[signal as usize].store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getpid, kill_process};

    #[test]
    fn what_came_is_told_once() {
        let signals = ScreenSignals::catch().unwrap();
        assert!(ScreenSignals::catch().is_err(), "only one guard at a time");
        assert_eq!(signals.take(), None);
        // A shell without job control has what it starts in the background ignore SIGQUIT.
        let is_caught = |of: ScreenSignal| signals.previous.iter().any(|(number, _)| *number == of.number());
        // The kernel may hand them to any thread.
        let send = |signal, expected: ScreenSignal| {
            if !is_caught(expected) {
                return None;
            }
            kill_process(getpid(), signal).unwrap();
            let came = || CAME[expected as usize].load(Ordering::SeqCst);
            while !came() {
                std::thread::yield_now();
            }
            Some(expected)
        };
        let going_on = send(Signal::CONT, ScreenSignal::Continue);
        let quit = send(Signal::QUIT, ScreenSignal::Quit);
        let expected: Vec<_> = [quit, going_on].into_iter().flatten().collect();
        assert_eq!(std::iter::from_fn(|| signals.take()).collect::<Vec<_>>(), expected);
        let stop = send(Signal::TSTP, ScreenSignal::Suspend);
        assert_eq!((signals.take(), signals.take()), (stop, None), "and we were not stopped");
    }
}
