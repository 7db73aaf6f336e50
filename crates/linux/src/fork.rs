//! Child processes that run on in this program's memory: the one place that forks.

use rustix::process::Pid;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Status of a child that has panicked, as of any program.
const PANICKED: i32 = 101;

/// Whether this process is a child of [`fork`].
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Forks; the child runs `child` and ends, with status 0, or 101 if that panics. It never returns from here: what a
/// panic in it unwinds is `child` alone, and nothing of the parent's, whose files and locks would be given back twice.
/// It says nothing about it, as another thread may have held the locks for that when we forked.
///
/// # Safety
///
/// If this process has several threads, `child` must not take a lock that another one may hold, allocate (but for what
/// a panic needs), or rely on other threads.
pub unsafe fn fork(child: impl FnOnce()) -> io::Result<Pid> {
    silence_children();
    // SAFETY: fork takes nothing; what the child does is up to the caller.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(pid) = Pid::from_raw(pid) {
        return Ok(pid);
    }
    IS_CHILD.store(true, Ordering::Relaxed);
    let status = panic::catch_unwind(AssertUnwindSafe(child)).map_or(PANICKED, |()| 0);
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(status) }
}

/// Leaves panics reported as before, but for those in children.
fn silence_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_CHILD.load(Ordering::Relaxed) {
                tell(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitOptions, waitpid};
    use std::io::{PipeWriter, Read};

    /// Says a letter when it is dropped.
    struct Says(PipeWriter, u8);

    impl Drop for Says {
        fn drop(&mut self) {
            let _ = rustix::io::write(&self.0, &[self.1]);
        }
    }

    /// What is said in parent and child together, and the child's exit status.
    fn said(child: impl Fn()) -> (String, Option<i32>) {
        let (mut reader, writer) = io::pipe().unwrap();
        let of_parent = Says(writer, b'p');
        // SAFETY: the children below only write and panic.
        let pid = unsafe {
            fork(|| {
                let _of_child = Says(of_parent.0.try_clone().unwrap(), b'c');
                child();
            })
        };
        let (_, status) = waitpid(Some(pid.unwrap()), WaitOptions::empty()).unwrap().unwrap();
        drop(of_parent);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (text, status.exit_status())
    }

    #[test]
    fn a_child_never_runs_into_its_parents_code() {
        assert_eq!(said(|| ()), ("cp".into(), Some(0)));
        assert_eq!(
            said(|| panic!("in a child")),
            ("cp".into(), Some(PANICKED)),
            "its own values are dropped, and only they"
        );
    }
}
