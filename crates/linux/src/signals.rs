//! Signals that ask us to stop, caught for as long as a guard lives.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Signals that end a run in good order: Ctrl-C, `kill`, a closed terminal.
const STOP_SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Readable once a stop signal has come. It lives as long as the process: a handler that runs in another thread while
/// the guard is dropped must not write to a descriptor that has been closed and given to somebody else. Made before a
/// handler is in force: that may look at the cell, but not wait for it to be filled.
static EVENT: OnceLock<OwnedFd> = OnceLock::new();
static RECEIVED: AtomicI32 = AtomicI32::new(0);
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// Whether SIGHUP asks for a reload instead of a stop.
static HANGUP_RELOADS: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);

/// Catches SIGINT, SIGTERM and SIGHUP; dropping it restores what was in force before.
///
/// SIGHUP stays ignored where it is (nohup). The other two are caught even if they were ignored, as a shell does for
/// commands it starts in the background: a run must always have a way to end in good order. Programs that we execute
/// get the default actions.
#[derive(Debug)]
pub struct StopSignals {
    previous: Vec<(i32, Previous)>,
}

/// What was in force for a signal.
pub(crate) struct Previous(libc::sigaction);

impl Previous {
    /// Whether the signal was ignored.
    pub(crate) fn is_ignored(&self) -> bool {
        self.0.sa_sigaction == libc::SIG_IGN
    }

    /// Puts it in force again for `signal`, for which it was.
    pub(crate) fn restore(&self, signal: i32) {
        // SAFETY: it is what the kernel gave us for this signal.
        unsafe { libc::sigaction(signal, &self.0, std::ptr::null_mut()) };
    }
}

impl std::fmt::Debug for Previous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sigaction")
    }
}

impl StopSignals {
    /// Catches the signals. Fails with [`io::ErrorKind::AlreadyExists`] while another guard lives.
    pub fn catch() -> io::Result<Self> {
        if INSTALLED.swap(true, Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "stop signals are caught already"));
        }
        let mut guard = Self { previous: Vec::new() };
        let event = event()?;
        // A signal caught by an earlier guard is that one's.
        RECEIVED.store(0, Ordering::SeqCst);
        drain(event);
        for signal in STOP_SIGNALS {
            guard.catch_one(signal)?;
        }
        Ok(guard)
    }

    /// From now on SIGHUP asks for a reload ([`take_reload`]) and no longer stops, until the guard is
    /// dropped. It does so also where it was ignored: whoever sends it to a daemon started with nohup means it.
    pub fn reload_on_hangup(&mut self) -> io::Result<()> {
        // One that came after an earlier `reload_on_hangup` is still to be done.
        if !HANGUP_RELOADS.load(Ordering::SeqCst) {
            RELOAD.store(false, Ordering::SeqCst);
        }
        HANGUP_RELOADS.store(true, Ordering::SeqCst);
        if self.previous.iter().any(|(signal, _)| *signal == libc::SIGHUP) {
            return Ok(());
        }
        let ignored = install(libc::SIGHUP, Some(on_signal))?;
        self.previous.push((libc::SIGHUP, ignored));
        Ok(())
    }

    /// The signal that came last, if any.
    pub fn received(&self) -> Option<i32> {
        match RECEIVED.load(Ordering::SeqCst) {
            0 => None,
            signal => Some(signal),
        }
    }

    /// The signal that came last since it was asked for in this way, if any did; for those who go on after it. The file is
    /// readable again once another has come.
    pub fn take(&self) -> Option<i32> {
        // First: one that comes in between makes it readable again.
        if let Some(event) = EVENT.get() {
            drain(event);
        }
        match RECEIVED.swap(0, Ordering::SeqCst) {
            0 => None,
            signal => Some(signal),
        }
    }

    fn catch_one(&mut self, signal: i32) -> io::Result<()> {
        let mut old = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: a null new action only asks for the present one, which is written to `old`, valid for that.
        let old = unsafe {
            if libc::sigaction(signal, std::ptr::null(), old.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            old.assume_init()
        };
        if signal == libc::SIGHUP && old.sa_sigaction == libc::SIG_IGN {
            return Ok(());
        }
        self.previous.push((signal, install(signal, Some(on_signal))?));
        Ok(())
    }
}

/// Makes `handler`, which may do async-signal-safe things only, that of `signal`; `None`: the default action. What was in
/// force before.
pub(crate) fn install(signal: i32, handler: Option<extern "C" fn(i32)>) -> io::Result<Previous> {
    // SAFETY: sigaction is plain data for which all zeros is a valid value (no flags, empty mask).
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handler.map_or(libc::SIG_DFL, |handler| handler as libc::sighandler_t);
    // Blocking reads and writes elsewhere need not know about us; the clock waits for the event instead.
    new.sa_flags = libc::SA_RESTART;
    let mut old = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: `new` is initialised, and its handler does async-signal-safe things only, as it must; the old action is
    // written to `old`, valid for that.
    unsafe {
        if libc::sigaction(signal, &new, old.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Previous(old.assume_init()))
    }
}

impl AsFd for StopSignals {
    /// Readable once a signal has come, and from then on until [`take`](Self::take).
    fn as_fd(&self) -> BorrowedFd<'_> {
        EVENT.get().expect("made by catch").as_fd()
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        for (signal, previous) in self.previous.drain(..) {
            previous.restore(signal);
        }
        HANGUP_RELOADS.store(false, Ordering::SeqCst);
        INSTALLED.store(false, Ordering::SeqCst);
    }
}

/// Has SIGHUP ask for a reload from now on, before there is a guard, and until one is dropped: for those whom somebody may
/// ask as soon as they are started.
pub fn reload_on_hangup() -> io::Result<()> {
    HANGUP_RELOADS.store(true, Ordering::SeqCst);
    install(libc::SIGHUP, Some(on_signal)).map(drop)
}

/// Asks for a stop as Ctrl-C does, from within the process: a waiting clock wakes at once. Without a guard in force it
/// does nothing that lasts.
pub fn request_stop() {
    on_signal(libc::SIGINT);
}

/// Whether a reload was asked for since the last call; see [`StopSignals::reload_on_hangup`].
pub fn take_reload() -> bool {
    RELOAD.swap(false, Ordering::SeqCst)
}

extern "C" fn on_signal(signal: i32) {
    if signal == libc::SIGHUP && HANGUP_RELOADS.load(Ordering::SeqCst) {
        RELOAD.store(true, Ordering::SeqCst);
        return;
    }
    RECEIVED.store(signal, Ordering::SeqCst);
    if let Some(event) = EVENT.get() {
        // A plain system call: the errno of the code that was interrupted stays as it is.
        let _ = rustix::io::write(event, &1u64.to_ne_bytes());
    }
}

fn event() -> io::Result<&'static OwnedFd> {
    if let Some(event) = EVENT.get() {
        return Ok(event);
    }
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok(EVENT.get_or_init(|| event))
}

fn drain(event: &OwnedFd) {
    // It does not block.
    let _ = rustix::io::read(event, &mut [0; 8]);
}
