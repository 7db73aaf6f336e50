//! `isotherm top --batch`: what `isotherm ps` prints, again and again.

use super::Args;
use crate::commands::node;
use crate::exit::Usage;
use crate::groups::Groups;
use crate::output::{screen_size, text_to_stdout, to_stdout};
use crate::session::{Ended, Session};
use anyhow::Context;
use isotherm_core::clock::{Clock, Wake};
use isotherm_core::context::Operator;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::units::{format_time, nanos};
use isotherm_linux::clock::{MonotonicClock, monotonic_ns};
use isotherm_linux::signals::StopSignals;
use isotherm_view::machine::{Columns, Machine, MachineBuilder, Order, write_json, write_table};

struct Watching(MachineBuilder);

impl Subscriber for Watching {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        self.0.event(event)
    }
}

impl Operator for Watching {}

/// Prints what the node that runs here knows; false where there is none.
pub(super) fn from_node(args: &Args) -> anyhow::Result<bool> {
    let Ok((_, mut known)) = node::known().inspect_err(|why| why.warn()) else { return Ok(false) };
    let signals = StopSignals::catch().context("cannot catch signals")?;
    let mut clock = MonotonicClock::stopped_by(&signals);
    let end_ns = args.duration.map_or(u64::MAX, |time| monotonic_ns().saturating_add(nanos(time)));
    loop {
        print(&Groups::read(), known.machine, args.json)?;
        let next_ns = monotonic_ns().saturating_add(nanos(args.delay).max(1));
        if next_ns > end_ns || clock.sleep_until_ns(next_ns) == Wake::Interrupted {
            return Ok(true);
        }
        (_, known) = node::known().context("the isotherm node that was asked tells no more")?;
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let delay_ns = nanos(args.delay).max(1);
    if let Some(duration) = args.duration.filter(|duration| *duration < args.delay) {
        let (duration, delay) = (format_time(nanos(duration)), format_time(delay_ns));
        let why =
            format!("--duration {duration} ends before the first --delay of {delay} is over: nothing would be printed");
        return Err(Usage(format!("{why}; watch longer, or give a shorter --delay")).into());
    }
    let mut session = Session::open_for_pages(&args.target, &args.monitor)?;
    let mut due_ns = monotonic_ns().saturating_add(delay_ns);
    let mut watching = Watching(MachineBuilder::default());
    let result = session.run(args.duration, &mut watching, |Watching(machine), _| {
        let now_ns = monotonic_ns();
        if now_ns >= due_ns {
            due_ns = now_ns.saturating_add(delay_ns);
            // Containers come and go.
            let groups = Groups::read();
            let machine =
                machine.finish(|pid| groups.path_of(pid), |path| groups.swapped(path, &args.target)).extended();
            print(&groups, machine, args.json)?;
        }
        Ok(true)
    });
    let finished = session.finish();
    if result? == Ended::TargetsGone {
        tracing::info!("every target has ended");
    }
    finished
}

fn print(groups: &Groups, mut machine: Machine, json: bool) -> anyhow::Result<()> {
    machine.sort(Order::Cold);
    match json {
        true => to_stdout(|out| write_json(&machine, (true, true), |row| groups.more(row), out)),
        false => text_to_stdout(|out| {
            write_table(&machine, Columns::Processes, screen_size().0, |row| groups.label(row), |_| None, out)?;
            Ok(writeln!(out)?)
        }),
    }
}
