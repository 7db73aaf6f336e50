//! How far long work has come, on a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// A line that is replaced as work goes on; nothing where stderr is no terminal.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    all: u64,
    done: AtomicU64,
    is_shown: bool,
}

impl Progress {
    /// Of `all` pieces none is done.
    pub fn new(what: &'static str, all: u64) -> Self {
        Self { what, all, done: AtomicU64::new(0), is_shown: io::stderr().is_terminal() }
    }

    /// So many more are done.
    pub fn add(&self, pieces: u64) {
        let before = self.done.fetch_add(pieces, Ordering::Relaxed);
        let percent = |done: u64| done * 100 / self.all.max(1);
        if self.is_shown && (before == 0 || percent(before + pieces) > percent(before)) {
            let _ = write!(io::stderr(), "\r\x1b[K{} of {} {}", before + pieces, self.all, self.what);
        }
    }

    /// Takes the line away.
    pub fn end(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
