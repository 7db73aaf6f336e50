//! What goes to stderr: logs, a command's answer in words, and status lines. Nobody may be left to read it: then all of
//! it is dropped, and the exit status stays what it is.

use isotherm_core::printable::printable;
use std::fmt::{self, Arguments};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Most bytes of logs that are kept while a screen is drawn.
const MOST_HELD: usize = 64 << 10;

/// Logs that wait until the screen is gone; `None`: none is drawn.
static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Takes the line away that a terminal shows where the cursor is.
const CLEAR: &str = "\r\x1b[K";

/// Whether `--quiet` was given.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Whether only warnings and errors are to be said.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Writes a line of a command's answer, unless `--quiet` was given.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::stderr::line(format_args!($($text)*))
    };
}

/// See [`say!`].
pub fn line(text: Arguments) {
    if is_quiet() {
        return;
    }
    let _ = writeln!(io::stderr(), "{}", printable_lines(&text.to_string()));
}

/// Text of several lines, each made printable: whoever is named in it may be called anything.
pub fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// Shows a status line in the place of the one before. Of its parts, the most important first, those are left out that
/// the terminal is too narrow for: a line that wraps could not be taken away again.
pub fn status_line(parts: &[&str]) {
    let width = crossterm::terminal::size().map_or(80, |(width, _)| usize::from(width));
    replace_status(&fitting(parts, width.saturating_sub(1)));
}

/// Takes the status line away.
pub fn clear_status() {
    replace_status("");
}

fn replace_status(text: &str) {
    let mut out = io::stderr().lock();
    let _ = write!(out, "{CLEAR}{text}").and_then(|()| out.flush());
}

/// The parts that fit into `width` characters, two blanks between them. Not even the first may be longer.
fn fitting(parts: &[&str], width: usize) -> String {
    let mut line = String::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let gap = if line.is_empty() { "" } else { "  " };
        if line.chars().count() + gap.len() + part.chars().count() <= width {
            line += gap;
            line += part;
        }
    }
    line
}

/// Starts logging: warnings and errors if `quiet`, which answers and status lines keep to as well; everything if
/// `verbose`.
pub fn start_log(verbose: bool, quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
    let level = match (verbose, quiet) {
        (true, _) => Level::DEBUG,
        (false, true) => Level::WARN,
        (false, false) => Level::INFO,
    };
    let form = if is_journal() {
        Form::Journal
    } else if io::stderr().is_terminal() {
        Form::Terminal
    } else {
        Form::Plain
    };
    tracing_subscriber::fmt().with_max_level(level).event_format(form).with_writer(|| Stderr).init();
}

/// Whether systemd's journal takes stderr: it then names the device and inode.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let own = std::fs::metadata("/proc/self/fd/2").ok().map(|m| format!("{}:{}", m.dev(), m.ino()));
    named.is_some() && named == own
}

/// How a message is written.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// In the place of a status line, if there is one.
    Terminal,
    Plain,
    /// With the level as sd-daemon(3) marks it; the journal adds the program's name.
    Journal,
}

impl<S, N> FormatEvent<S, N> for Form
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut text = String::new();
        ctx.format_fields(Writer::new(&mut text), event)?;
        let text = printable_lines(&text);
        match self {
            Self::Terminal => writeln!(out, "{CLEAR}isotherm: {text}"),
            Self::Plain => writeln!(out, "isotherm: {text}"),
            Self::Journal => text.lines().try_for_each(|line| {
                let mark = match *event.metadata().level() {
                    Level::ERROR => 3,
                    Level::WARN => 4,
                    Level::INFO => 6,
                    _ => 7,
                };
                writeln!(out, "<{mark}>{line}")
            }),
        }
    }
}

/// Stderr, as long as somebody reads it.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *held() {
            Some(held) if held.len() + bytes.len() <= MOST_HELD => held.extend_from_slice(bytes),
            Some(_) => {}
            None => drop(io::stderr().write_all(bytes)),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn held() -> MutexGuard<'static, Option<Vec<u8>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, logs do not disturb what is drawn on the terminal; then they are written, the first 64 KiB of them.
pub struct HeldLog;

/// Holds logs back, where they would go to a terminal.
pub fn hold_log() -> HeldLog {
    if io::stderr().is_terminal() {
        held().get_or_insert_default();
    }
    HeldLog
}

impl Drop for HeldLog {
    fn drop(&mut self) {
        if let Some(bytes) = held().take() {
            let _ = io::stderr().write_all(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fitting;

    #[test]
    fn what_is_too_long_for_the_terminal_is_left_out() {
        let parts = ["12 s", "accessed now 3 MiB", "", "monitor 0.4 %", "x"];
        assert_eq!(fitting(&parts, 79), "12 s  accessed now 3 MiB  monitor 0.4 %  x");
        assert_eq!(fitting(&parts, 30), "12 s  accessed now 3 MiB  x");
        assert_eq!(fitting(&parts, 3), "x");
        assert_eq!(fitting(&["\u{e4}\u{e4}"], 2).chars().count(), 2, "characters count, not bytes");
    }
}
