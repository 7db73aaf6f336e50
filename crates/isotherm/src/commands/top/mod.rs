//! `isotherm top`: the engine runs here, the screen and the keys have a thread of their own.

mod backlog;
mod batch;
mod keys;
mod screen;
mod show;

use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::Usage;
use crate::output::{self, ColourWhen};
use crate::session::{Ended, Session};
use anyhow::Context;
use backlog::{Backlog, Over};
use isotherm_core::context::Operator;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_linux::signals;
use isotherm_linux::targets::Streams;
use isotherm_view::tui::state::Top;
use screen::Screen;
use show::{Whole, show};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a key waits at most for an answer while nothing else happens.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// How long the screen may take to leave: it may be writing to a terminal that takes nothing any more.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// Watch a target live: its mappings by heat, working set, cold memory and the monitor's own cost.
///
/// Without a target: the whole machine, as a tree of control groups that open, down to the heatmap of a process. Press
/// ? for the keys. The output of a command given after -- is thrown away. With --batch it needs no terminal and prints
/// what `isotherm ps` does, again and again, from the `isotherm node` that runs here, if there is one; like `ps` it needs
/// page tables or idle page tracking.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Time between two drawings
    #[arg(long, value_name = "T", default_value = "1s", value_parser = units::time)]
    delay: Duration,
    /// Colours
    #[arg(long, value_enum, default_value = "auto")]
    color: ColourWhen,
    /// Print processes and their sum after each delay, as `isotherm ps` does, instead of drawing
    #[arg(long)]
    batch: bool,
    /// Print lines of JSON; a line of kind "total" is the last of each time
    #[arg(long, requires = "batch")]
    json: bool,
    /// Stop after this time
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
}

pub fn run(mut args: Args) -> anyhow::Result<()> {
    if args.duration.is_some_and(|d| d.is_zero()) {
        return Err(Usage("--duration 0 shows nothing; leave it out to watch until it is left".into()).into());
    }
    if args.batch && args.monitor.physical {
        return Err(Usage("--physical knows no processes, which --batch lists; leave one out".into()).into());
    }
    let whole = !args.target.is_given() && !args.monitor.physical;
    args.target.all |= whole;
    args.target.streams = Streams::Silent;
    if args.batch {
        let asks = whole && args.monitor == MonitorArgs::defaults();
        return if asks && batch::from_node(&args)? { Ok(()) } else { batch::run(&args) };
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Usage(
            "isotherm top needs a terminal; without one use --batch, or isotherm record and report".into(),
        )
        .into());
    }
    let mut session = Session::open(&args.target, &args.monitor)?;
    let backlog = Arc::new(Backlog::new());
    // Dropped after the terminal has been restored.
    let _log = crate::stderr::hold_log();
    let mut screen = Screen::take().context("cannot set up the terminal")?;
    let colours = output::colours(args.color);
    let (view, machine) = match args.target.all {
        true => (Top::machine(colours), Some(Whole::new(args.target.clone()))),
        false => (Top::new(colours), None),
    };
    let delay = args.delay.max(KEY_WAIT);
    let told = Arc::clone(&backlog);
    let shown = std::thread::spawn(move || {
        let _stop = StopAtEnd;
        let shown = show(&mut screen, view, machine, &told, delay);
        let left = screen.leave();
        if screen::is_gone() {
            // Nobody is left to be told.
            return Ok(());
        }
        shown.context("cannot use the terminal")?;
        left.context("cannot restore the terminal; try the command reset")
    });
    let result = session.run(args.duration, &mut Feed(&backlog), |_, _| Ok(!shown.is_finished() && !screen::is_gone()));
    let why = match &result {
        Ok(Ended::TargetsGone) => Some("every target has ended"),
        Ok(Ended::Duration) => Some("the time is over"),
        _ => None,
    };
    if let Some(why) = why {
        backlog.end(Over::Stay(why));
        while !shown.is_finished() && !screen::is_gone() && !session.wait_for_stop(Duration::from_secs(1)) {}
    }
    let shown = leave(shown, &backlog);
    let finished = session.finish();
    shown?;
    result?;
    finished
}

/// Makes the screen leave. One that hangs in its terminal ends with the process.
fn leave(shown: JoinHandle<anyhow::Result<()>>, backlog: &Backlog) -> anyhow::Result<()> {
    backlog.end(Over::Leave);
    let deadline = Instant::now() + LEAVE_WAIT;
    while !shown.is_finished() {
        if Instant::now() >= deadline {
            screen::calm();
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    shown.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Ends the engine's wait when the screen's thread ends, whatever the reason.
struct StopAtEnd;

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        signals::request_stop();
    }
}

struct Feed<'a>(&'a Backlog);

impl Subscriber for Feed<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.0.tell(event.clone());
        Ok(())
    }
}

impl Operator for Feed<'_> {}
