//! What SIGHUP asks of those who read a file again: to do that, or to end, where the terminal that they were started from
//! has gone.

use anyhow::Context;
use isotherm_linux::signals;
use std::fs::File;

/// What a hangup means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// The file is to be read again.
    Reload,
    /// Nobody is left to press Ctrl-C.
    TerminalGone,
}

/// Sees hangups.
#[derive(Debug)]
pub struct Hangups {
    /// Whether we began with a terminal.
    terminal: bool,
}

impl Hangups {
    /// From now on SIGHUP ends nothing by itself. As early as can be: a service manager may ask for a reload as soon as it has
    /// started us.
    pub fn catch() -> anyhow::Result<Self> {
        let terminal = has_terminal();
        signals::reload_on_hangup().context("cannot catch SIGHUP")?;
        Ok(Self { terminal })
    }

    /// What came since the last call.
    pub fn take(&self) -> Option<Hangup> {
        signals::take_reload()
            .then(|| if self.terminal && !has_terminal() { Hangup::TerminalGone } else { Hangup::Reload })
    }
}

/// Whether this process has a controlling terminal, which tells of its end by SIGHUP.
pub fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}
