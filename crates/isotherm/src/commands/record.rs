//! `isotherm record`.

use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::Usage;
use crate::progress::Progress;
use crate::record_file::RecordFile;
use crate::session::{Ended, Fan, Session};
use isotherm_core::units::nanos;
use isotherm_core::units::{format_size, format_time};
use isotherm_linux::targets::Streams;
use isotherm_record::{Options, Rotation};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

/// Record which memory a target uses.
///
/// Watches processes, a control group or a command until --duration has passed, Ctrl-C is pressed, or no target is
/// left, and writes what it sees to a file that `isotherm report` shows. A file that is already there is kept as
/// FILE.old. Whatever ends the recording, the file is valid up to the last second.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record to write ("-": standard output)
    #[arg(short, long, value_name = "FILE", default_value = "isotherm.iso")]
    output: PathBuf,
    /// Stop after this time
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    /// Begin a new part (FILE.1, FILE.2, ...) when one exceeds this size
    #[arg(long, value_name = "SIZE", value_parser = units::size, help_heading = "Rotation")]
    rotate_size: Option<u64>,
    /// Begin a new part when one covers this time
    #[arg(long, value_name = "T", value_parser = units::time, help_heading = "Rotation")]
    rotate_time: Option<Duration>,
    /// Keep this many parts, remove older ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Rotation")]
    keep: Option<u32>,
    /// Leave the arguments of command lines out of the record: they may hold passwords
    #[arg(long)]
    no_args: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
}

impl Args {
    fn rotation(&self) -> Result<Option<Rotation>, Usage> {
        if self.rotate_size == Some(0) || self.rotate_time.is_some_and(|t| t.is_zero()) {
            return Err(Usage("--rotate-size and --rotate-time must not be 0".into()));
        }
        if self.rotate_size.is_none() && self.rotate_time.is_none() {
            return match self.keep {
                Some(_) => Err(Usage("--keep needs --rotate-size or --rotate-time".into())),
                None => Ok(None),
            };
        }
        Ok(Some(Rotation { max_bytes: self.rotate_size, max_age_ns: self.rotate_time.map(nanos), keep: self.keep }))
    }
}

pub fn run(mut args: Args) -> anyhow::Result<()> {
    if args.duration.is_some_and(|d| d.is_zero()) {
        return Err(Usage("--duration 0 records nothing; leave it out to record until Ctrl-C".into()).into());
    }
    if args.output.as_os_str() == "-" {
        if std::io::stdout().is_terminal() {
            return Err(Usage(
                "a record is binary, and stdout is a terminal: pipe it on, or write to a file with -o FILE".into(),
            )
            .into());
        }
        args.target.streams = Streams::Aside;
    }
    let options = Options { rotation: args.rotation()?, ..Options::default() };
    let mut session = Session::open(&args.target, &args.monitor)?;
    let mut record = RecordFile::create(&args.output, options)?;
    if args.no_args {
        record = record.without_arguments();
    }
    let mut progress = Progress::new();
    let result = session.run(args.duration, &mut Fan(vec![&mut record, &mut progress]), |_, _| Ok(true));
    progress.clear();
    // Whatever went wrong, what was seen so far is kept.
    let written = record.finish(result.is_ok());
    let finished = session.finish();
    let ended = result?;
    let written = written?;
    let why = match ended {
        Ended::Duration | Ended::Stopped => "",
        Ended::Interrupted => "interrupted; ",
        Ended::TargetsGone => "every target has ended; ",
    };
    say!(
        "{why}recorded {} in {} snapshot{}, {} to {}",
        format_time(progress.elapsed_ns()),
        progress.snapshots(),
        if progress.snapshots() == 1 { "" } else { "s" },
        format_size(written.bytes),
        args.output.display()
    );
    say!("cost: {}", progress.cost_words());
    if progress.snapshots() == 0 && ended == Ended::TargetsGone {
        tracing::warn!(
            "nothing was seen: every target ended within the first aggregation interval ({}); give a shorter one with --aggr",
            format_time(args.monitor.attrs()?.aggr_us * 1000)
        );
    }
    finished
}
