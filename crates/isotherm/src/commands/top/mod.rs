//! `isotherm top`: the engine runs here, the screen and the keys have a thread of their own.

mod batch;

use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::Usage;
use crate::groups::Groups;
use crate::output::{self, ColourWhen};
use crate::session::{Ended, Session};
use anyhow::Context;
use crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use isotherm_core::context::Operator;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_linux::signals;
use isotherm_linux::targets::Streams;
use isotherm_view::ascii::ascii;
use isotherm_view::machine::MachineBuilder;
use isotherm_view::tui::Command;
use isotherm_view::tui::state::Top;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// How long a key waits at most for an answer while nothing else happens.
const KEY_WAIT: Duration = Duration::from_millis(100);

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

/// What the engine's side tells the screen's.
enum Message {
    Event(Event),
    /// No more events; why, if that is worth showing.
    Over(Option<&'static str>),
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
    let (sender, receiver) = channel();
    // Dropped after the terminal has been restored.
    let _log = crate::stderr::hold_log();
    // Restores the terminal on a panic, too.
    let terminal = ratatui::try_init().context("cannot set up the terminal")?;
    let colours = output::colours(args.color);
    let (view, machine) = match args.target.all {
        true => (Top::machine(colours), Some(Whole::new(args.target.clone()))),
        false => (Top::new(colours), None),
    };
    let delay = args.delay.max(KEY_WAIT);
    let screen = std::thread::spawn(move || {
        let _stop = StopAtEnd;
        show(terminal, view, machine, &receiver, delay)
    });
    let result = session.run(args.duration, &mut Feed(&sender), |_, _| Ok(!screen.is_finished()));
    let why = match &result {
        Ok(Ended::TargetsGone) => Some("every target has ended"),
        Ok(Ended::Duration) => Some("the time is over"),
        _ => None,
    };
    // The screen may be gone already; then there is nobody to tell.
    let _ = sender.send(Message::Over(why));
    let shown = screen.join();
    ratatui::try_restore().context("cannot restore the terminal; try the command reset")?;
    let finished = session.finish();
    match shown {
        Ok(shown) => shown.context("cannot use the terminal")?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    result?;
    finished
}

/// Ends the engine's wait when the screen's thread ends, whatever the reason.
struct StopAtEnd;

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        signals::request_stop();
    }
}

struct Feed<'a>(&'a Sender<Message>);

impl Subscriber for Feed<'_> {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        // Fails once the screen has ended; the engine is asked to stop right after.
        let _ = self.0.send(Message::Event(event.clone()));
        Ok(())
    }
}

impl Operator for Feed<'_> {}

/// The whole machine, and what its groups are called.
struct Whole {
    machine: MachineBuilder,
    groups: Groups,
    target: TargetArgs,
}

impl Whole {
    fn new(target: TargetArgs) -> Self {
        Self { machine: MachineBuilder::default(), groups: Groups::read(), target }
    }

    fn show(&self, view: &mut Top) {
        let mut labels = BTreeMap::new();
        let group_of = |pid| {
            let path = self.groups.path_of(pid)?;
            if let Some(name) = self.groups.container_of(&path) {
                labels.insert(path.clone(), name);
            }
            Some(path)
        };
        let tree = self.machine.tree(group_of, |path| self.groups.swapped(path, &self.target));
        view.show_machine(tree, labels);
    }
}

fn show(
    mut terminal: DefaultTerminal,
    mut view: Top,
    mut machine: Option<Whole>,
    messages: &Receiver<Message>,
    delay: Duration,
) -> io::Result<()> {
    let mut next_refresh = Instant::now();
    let mut first = true;
    let mut drawn = false;
    let ascii_only = output::ascii_only();
    loop {
        let mut changed = false;
        loop {
            match messages.try_recv() {
                Ok(Message::Event(event)) => {
                    // Show something as soon as there is something.
                    changed |= first && matches!(event, Event::Snapshot(_));
                    if let Some(machine) = &mut machine {
                        machine.machine.event(&event).map_err(io::Error::other)?;
                    }
                    view.event(&event);
                }
                Ok(Message::Over(Some(why))) => {
                    view.ended(why);
                    changed = true;
                }
                Ok(Message::Over(None)) => return Ok(()),
                Err(TryRecvError::Empty) => break,
                // After the end was reported: the last picture stays until a key says otherwise.
                Err(TryRecvError::Disconnected) => break,
            }
        }
        let mut keyed = false;
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                event::Event::Key(key) => {
                    let Some(command) = command(key) else { continue };
                    if view.command(command) {
                        return Ok(());
                    }
                    keyed = true;
                }
                event::Event::Resize(..) => keyed = true,
                _ => {}
            }
        }
        let now = Instant::now();
        if let Some(machine) = machine.as_ref().filter(|_| changed || now >= next_refresh) {
            machine.show(&mut view);
        }
        if changed || keyed || now >= next_refresh {
            let size = terminal.size()?;
            let (rows, cols) = view.heat_cells(size.width, size.height);
            view.refresh(rows, cols);
            first &= !changed;
            next_refresh = now + delay;
            drawn = false;
        }
        if !drawn {
            terminal.draw(|frame| {
                view.draw(frame);
                if ascii_only {
                    to_ascii(frame.buffer_mut());
                }
            })?;
            drawn = true;
        }
        event::poll(KEY_WAIT.min(next_refresh.saturating_duration_since(Instant::now())))?;
    }
}

/// For terminals that show ASCII only.
fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if let Some(c) = cell.symbol().chars().next().filter(|c| !c.is_ascii()) {
            cell.set_char(ascii(c));
        }
    }
}

fn command(key: KeyEvent) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'd') if control => Command::Quit,
        KeyCode::Char('q' | 'Q') => Command::Quit,
        KeyCode::Char('p' | ' ') => Command::Pause,
        KeyCode::Char('s') => Command::Sort,
        KeyCode::Up | KeyCode::Char('k') => Command::Up,
        KeyCode::Down | KeyCode::Char('j') => Command::Down,
        KeyCode::Tab | KeyCode::Char('t') => Command::NextTarget,
        KeyCode::BackTab => Command::PreviousTarget,
        KeyCode::Enter | KeyCode::Char('z') => Command::Zoom,
        KeyCode::Esc => Command::Back,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Command::Help,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let of = |code, modifiers| command(KeyEvent::new(code, modifiers));
        assert_eq!(of(KeyCode::Char('q'), KeyModifiers::NONE), Some(Command::Quit));
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Command::Quit));
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(of(KeyCode::Down, KeyModifiers::NONE), Some(Command::Down));
        let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(command(released), None);
    }
}
