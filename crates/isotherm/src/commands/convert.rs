//! `isotherm convert`.

use crate::commands::report::record_file::warn_of_missing;
use crate::exit::Usage;
use crate::output::keep_apart;
use crate::stderr::is_quiet;
use anyhow::{Context, bail};
use isotherm_core::event::{Event, SubscriberError};
use isotherm_files::NewFile;
use isotherm_files::apart::Output;
use isotherm_linux::signals::StopSignals;
use isotherm_record::{Export, Format, Input, ReadError, Warning, exporter, parts, read_events};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Convert between record formats.
///
/// Formats: iso (Isotherm's own), json and json_compressed (damo's), perf_script (text of damon_aggregated events),
/// csv, binary_v0, binary_v1 and binary_v2 (DAMON's old binary records). IN's format is recognized by its content,
/// OUT's by its name: .iso, .json, .data or .zlib (json_compressed), .perf or .txt (perf_script), .csv, .bin
/// (binary_v2). OUT is there whole or not at all. What a format has no place for is dropped: see the book's page on
/// formats.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record to read ("-": standard input)
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The record to write ("-": standard output)
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Format of IN, where its content is not to be trusted
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// Format of OUT, where its name does not tell
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
    /// Leave out the arguments of command lines: they may hold passwords
    #[arg(long)]
    no_args: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let Some(to) = args.to.or_else(|| Format::of_extension(&args.output)) else {
        let names: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
        let what = format!(
            "the name {} does not tell a format: give --to with one of {}",
            args.output.display(),
            names.join(", ")
        );
        return Err(Usage(what).into());
    };
    // Opened first: a missing input must not even touch the output.
    let signals = Arc::new(StopSignals::catch().context("cannot catch signals")?);
    let parts = parts(&args.input);
    // A file may be replaced by its own conversion, which is whole by then; one part by that of all may not.
    let others: Vec<&PathBuf> = parts.iter().filter(|part| **part != args.input).collect();
    keep_apart(&others, &[Output::new("OUT", &args.output)])?;
    warn_of_missing(&args.input);
    let first = open(&parts[0], &signals)?;
    let further = &parts[1..];
    let mut status = Status::new(signals);
    if is_dash(&args.output) {
        let out = Box::new(BufWriter::new(status.until_stopped(std::io::stdout())));
        let out = exporter(to, "standard output", out)?;
        convert(first, further, &args, out, &mut status)?;
    } else {
        let cannot = || format!("cannot write {}", args.output.display());
        let file = NewFile::create(&args.output, NewFile::PRIVATE).with_context(cannot)?;
        let handle = status.until_stopped(file.handle().with_context(cannot)?);
        let out = Box::new(BufWriter::with_capacity(256 << 10, handle));
        let out = exporter(to, &args.output.display().to_string(), out)?;
        convert(first, further, &args, out, &mut status)?;
        file.commit().with_context(cannot)?;
    }
    status.done(to);
    Ok(())
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn open(path: &Path, signals: &Arc<StopSignals>) -> Result<Input, ReadError> {
    if is_dash(path) {
        Input::from_reader("standard input", Box::new(Stdin::new(Arc::clone(signals))))
    } else {
        Input::open(path)
    }
}

/// Standard input that a stop signal ends. A thread reads it, since a read that waits is begun anew after a signal.
struct Stdin {
    signals: Arc<StopSignals>,
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: io::Cursor<Vec<u8>>,
}

impl Stdin {
    const CHUNK: usize = 64 << 10;
    /// How often to look for signals while nothing comes.
    const PATIENCE: Duration = Duration::from_millis(100);

    fn new(signals: Arc<StopSignals>) -> Self {
        // Few chunks may wait, so that a fast writer does not fill memory.
        let (sender, chunks) = std::sync::mpsc::sync_channel(4);
        std::thread::spawn(move || {
            loop {
                let mut chunk = vec![0; Self::CHUNK];
                let got = io::stdin().read(&mut chunk).map(|n| {
                    chunk.truncate(n);
                    chunk
                });
                let last = got.as_ref().map_or(true, Vec::is_empty);
                if sender.send(got).is_err() || last {
                    break;
                }
            }
        });
        Self { signals, chunks, chunk: io::Cursor::default() }
    }
}

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.chunk.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            match self.chunks.recv_timeout(Self::PATIENCE) {
                Ok(chunk) => {
                    let chunk = chunk?;
                    if chunk.is_empty() {
                        return Ok(0);
                    }
                    self.chunk = io::Cursor::new(chunk);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                Err(RecvTimeoutError::Timeout) if self.signals.received().is_some() => {
                    return Err(io::Error::other("interrupted"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

fn convert(
    first: Input,
    further: &[PathBuf],
    args: &Args,
    mut out: Box<dyn Export>,
    status: &mut Status,
) -> anyhow::Result<()> {
    let mut input = first;
    let mut further = further.iter();
    loop {
        status.begin(&input);
        let origin = input.origin().to_owned();
        let result = read_events(input, args.from, &mut |mut event| {
            if let (true, Event::Target(info)) = (args.no_args, &mut event) {
                info.leave_out_arguments();
            }
            out.write(&event)?;
            status.event(&event)
        });
        status.clear();
        match result {
            Ok(outcome) => warn(&origin, &outcome.warnings),
            Err(error) => return Err(error.into()),
        }
        match further.next() {
            Some(path) => input = Input::open(path)?,
            None => break,
        }
    }
    match out.finish() {
        Err(_) if status.is_stopped() => bail!(INTERRUPTED),
        written => Ok(written?),
    }
}

/// What whoever interrupts it is told.
const INTERRUPTED: &str = "interrupted: what was written is not complete; a file is left as it was";

/// An output into which nothing can be written once it is to stop: some formats write all of it at the end, when no events come any
/// more.
struct UntilStopped<W, S> {
    out: W,
    is_stopped: S,
}

impl<W: Write, S: Fn() -> bool> Write for UntilStopped<W, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.is_stopped)() {
            return Err(io::Error::other(INTERRUPTED));
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn warn(origin: &str, warnings: &[Warning]) {
    for warning in warnings {
        tracing::warn!("{origin}: {warning}");
    }
}

/// How often the status line is drawn.
const EVERY: Duration = Duration::from_millis(500);
/// How many events pass between looks at the clock and at signals.
const EVENTS_PER_LOOK: u64 = 16;

/// A line on stderr while it takes long, and Ctrl-C.
struct Status {
    signals: Arc<StopSignals>,
    terminal: bool,
    drawn: bool,
    next: Instant,
    used: Arc<AtomicU64>,
    len: Option<u64>,
    events: u64,
    snapshots: u64,
    /// Frames of the page history.
    pages: u64,
}

impl Status {
    fn new(signals: Arc<StopSignals>) -> Self {
        Self {
            signals,
            terminal: std::io::stderr().is_terminal() && !is_quiet(),
            drawn: false,
            next: Instant::now() + EVERY,
            used: Arc::default(),
            len: None,
            events: 0,
            snapshots: 0,
            pages: 0,
        }
    }

    fn is_stopped(&self) -> bool {
        self.signals.received().is_some()
    }

    /// `out`, for as long as it is not to stop.
    fn until_stopped<W: Write>(&self, out: W) -> UntilStopped<W, impl Fn() -> bool + Send + 'static> {
        let signals = Arc::clone(&self.signals);
        UntilStopped { out, is_stopped: move || signals.received().is_some() }
    }

    fn begin(&mut self, input: &Input) {
        self.used = input.progress();
        self.len = input.len();
    }

    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.snapshots += u64::from(matches!(event, Event::Snapshot(_)));
        self.pages += u64::from(matches!(event, Event::Pages(_)));
        self.events += 1;
        if self.events.is_multiple_of(EVENTS_PER_LOOK) {
            if self.is_stopped() {
                return Err(INTERRUPTED.into());
            }
            if self.terminal && Instant::now() >= self.next {
                self.draw();
            }
        }
        Ok(())
    }

    fn draw(&mut self) {
        self.next = Instant::now() + EVERY;
        let used = self.used.load(Ordering::Relaxed);
        let share = self.len.filter(|&l| l > 0).map(|l| format!("{:.0} %", used as f64 * 100.0 / l as f64));
        crate::stderr::status_line(&[&share.unwrap_or_default(), &format!("{} snapshots", self.snapshots)]);
        self.drawn = true;
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            crate::stderr::clear_status();
        }
    }

    fn done(&mut self, to: Format) {
        if self.snapshots == 0 {
            tracing::warn!("the record holds no snapshots");
        } else {
            say!("converted {} snapshots", self.snapshots);
        }
        if to != Format::Iso && self.pages > 0 {
            tracing::warn!(
                "left out, since {to} has no place for it: the page history of {} moments; from the result, working sets and cold \
                 memory can only be estimated from regions",
                self.pages
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::snapshot::{RegionInfo, Snapshot};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_is_written_at_the_end_only_can_be_stopped() {
        let region = |i: u64| RegionInfo {
            start: i * 4096,
            end: (i + 1) * 4096,
            nr_accesses: 1,
            age: 1,
            evidence: None,
            accessed: None,
        };
        let snapshot = Snapshot {
            target: 0,
            pid: None,
            start_ns: 0,
            end_ns: 1,
            sample_us: 1,
            aggr_us: 1,
            max_nr_accesses: 1,
            regions: (0..100).map(region).collect(),
        };
        for format in [Format::Json, Format::JsonCompressed] {
            for stops in [false, true] {
                let stopped = Arc::new(AtomicBool::new(false));
                let look = Arc::clone(&stopped);
                let out = UntilStopped { out: io::sink(), is_stopped: move || look.load(Ordering::Relaxed) };
                let mut out = exporter(format, "x", Box::new(out)).unwrap();
                out.write(&Event::Snapshot(snapshot.clone())).unwrap();
                stopped.store(stops, Ordering::Relaxed);
                assert_eq!(out.finish().is_err(), stops, "{format}");
            }
        }
    }
}
