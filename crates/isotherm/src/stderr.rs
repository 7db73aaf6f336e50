//! What goes to stderr: logs, a command's answer in words, and status lines. Nobody may be left to read it: then all of
//! it is dropped, and the exit status stays what it is.

use isotherm_core::printable::printable;
use std::fmt::{self, Arguments};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Takes the line away that a terminal shows where the cursor is.
const CLEAR: &str = "\r\x1b[K";

/// Writes a line of a command's answer.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::stderr::line(format_args!($($text)*))
    };
}

/// See [`say!`].
pub fn line(text: Arguments) {
    let _ = writeln!(io::stderr(), "{}", printable_lines(&text.to_string()));
}

/// Text of several lines, each made printable: whoever is named in it may be called anything.
pub fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// Shows `text` as a status line in the place of the one before, which an empty text takes away.
pub fn status_line(text: &str) {
    let mut out = io::stderr().lock();
    let _ = write!(out, "{CLEAR}{text}").and_then(|()| out.flush());
}

/// Starts logging: warnings and errors if `quiet`, everything if `verbose`.
pub fn start_log(verbose: bool, quiet: bool) {
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
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
