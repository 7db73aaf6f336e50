//! `isotherm top --batch`: what `isotherm ps` prints, again and again.

use super::Args;
use crate::groups::Groups;
use crate::output::{screen_size, text_to_stdout, to_stdout};
use crate::session::Session;
use isotherm_core::context::Operator;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::units::nanos;
use isotherm_linux::clock::monotonic_ns;
use isotherm_view::machine::{Columns, MachineBuilder, Order, write_json, write_table};

struct Watching(MachineBuilder);

impl Subscriber for Watching {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.0.event(event)
    }
}

impl Operator for Watching {}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut session = Session::open(&args.target, &args.monitor)?;
    let delay_ns = nanos(args.delay).max(1);
    let mut due_ns = monotonic_ns().saturating_add(delay_ns);
    let mut watching = Watching(MachineBuilder::default());
    let result = session.run(args.duration, &mut watching, |Watching(machine), _| {
        let now_ns = monotonic_ns();
        if now_ns >= due_ns {
            due_ns = now_ns.saturating_add(delay_ns);
            print(machine, args.json)?;
        }
        Ok(true)
    });
    let finished = session.finish();
    result?;
    finished
}

fn print(machine: &MachineBuilder, json: bool) -> anyhow::Result<()> {
    // Containers come and go.
    let groups = Groups::read();
    let mut machine = machine.finish(|pid| groups.path_of(pid));
    machine.sort(Order::Cold);
    match json {
        true => to_stdout(|out| write_json(&machine, (true, true), |row| groups.more(row), out)),
        false => text_to_stdout(|out| {
            write_table(&machine, Columns::Processes, screen_size().0, |row| groups.label(row), |_| None, out)?;
            Ok(writeln!(out)?)
        }),
    }
}
