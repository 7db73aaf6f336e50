//! The screen's side: takes what the engine's side tells, and keys, and draws.

use super::KEY_WAIT;
use super::backlog::{Backlog, Over, Taken};
use super::keys::{Key, key};
use super::screen::{Input, Screen, is_gone};
use crate::args::target::TargetArgs;
use crate::groups::Groups;
use crate::output;
use isotherm_core::event::{Event, Subscriber};
use isotherm_linux::screen_signals::suspend_group;
use isotherm_view::ascii::ascii;
use isotherm_view::machine::MachineBuilder;
use isotherm_view::tui::state::Top;
use ratatui::buffer::Buffer;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// The whole machine, and what its groups are called.
pub(super) struct Whole {
    machine: MachineBuilder,
    groups: Groups,
    target: TargetArgs,
}

impl Whole {
    pub(super) fn new(target: TargetArgs) -> Self {
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

/// Shows what comes until a key, the engine's side or the end of the terminal says otherwise.
pub(super) fn show(
    screen: &mut Screen,
    mut view: Top,
    mut machine: Option<Whole>,
    backlog: &Backlog,
    delay: Duration,
) -> io::Result<()> {
    let mut next_refresh = Instant::now();
    let mut first = true;
    let mut drawn = false;
    let ascii_only = output::ascii_only();
    loop {
        let mut changed = false;
        // Let go of one by one: drawing may not return for long.
        let Taken { events, over } = backlog.take();
        for event in events {
            // Show something as soon as there is something.
            changed |= first && matches!(event, Event::Snapshot(_));
            if let Some(machine) = &mut machine {
                machine.machine.event(&event).map_err(io::Error::other)?;
            }
            view.event(&event);
        }
        match over {
            Some(Over::Stay(why)) => {
                view.ended(why);
                changed = true;
            }
            Some(Over::Leave) => return Ok(()),
            None => {}
        }
        if is_gone() {
            return Ok(());
        }
        let mut keyed = false;
        while let Some(input) = screen.input()? {
            let Input::Key(event) = input else {
                keyed = true;
                continue;
            };
            match key(event) {
                Some(Key::Command(command)) => {
                    if view.command(command) {
                        return Ok(());
                    }
                    keyed = true;
                }
                Some(Key::Suspend) => suspend_group()?,
                None => {}
            }
        }
        keyed |= screen.obey()?;
        let now = Instant::now();
        if let Some(machine) = machine.as_ref().filter(|_| changed || now >= next_refresh) {
            machine.show(&mut view);
        }
        if changed || keyed || now >= next_refresh {
            let (width, height) = screen.size()?;
            let (rows, cols) = view.heat_cells(width, height);
            view.refresh(rows, cols);
            first &= !changed;
            next_refresh = now + delay;
            drawn = false;
        }
        if !drawn {
            screen.draw(|frame| {
                view.draw(frame);
                if ascii_only {
                    to_ascii(frame.buffer_mut());
                }
            })?;
            drawn = true;
        }
        screen.wait(KEY_WAIT.min(next_refresh.saturating_duration_since(Instant::now())))?;
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
