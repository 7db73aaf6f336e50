//! `isotherm sim guests`: what free page hinting changes on a host of any size.

use crate::args::units;
use crate::exit::Usage;
use crate::output::to_stdout;
use isotherm_core::units::format_size;
use isotherm_core::units::nanos;
use isotherm_sim::guests::experiments::{Fit, Memhogs, Return, comes_back, fit, memhogs};
use isotherm_sim::guests::params::{Hints, Params};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// Simulate guests on a host: without hints, with Isotherm's, and with the balloon's free page reporting
///
/// Three tests: how many guests can be started one after the other, each running a program that allocates, touches and
/// exits, before the host swaps; memhog in three guests in turn; how soon freed memory is back. Allocators are
/// simulated page by page, and the hints are decided by the same code as in real guests. Times are modelled:
/// docs/hint.md names where each cost comes from.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Memory of the host
    #[arg(long, value_name = "SIZE", default_value = "15G", value_parser = units::size)]
    host_memory: u64,
    /// Memory of each guest
    #[arg(long, value_name = "SIZE", default_value = "5G", value_parser = units::size)]
    guest_memory: u64,
    /// What the program in it allocates
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = units::size)]
    program: u64,
    /// Guests to start at most
    #[arg(long, value_name = "N", default_value_t = 64)]
    most_guests: usize,
    /// Memory of each guest that runs memhog
    #[arg(long, value_name = "SIZE", default_value = "6G", value_parser = units::size)]
    memhog_guest_memory: u64,
    /// What memhog touches
    #[arg(long, value_name = "SIZE", default_value = "5G", value_parser = units::size)]
    memhog: u64,
    /// What each guest's system needs for itself
    #[arg(long, value_name = "SIZE", default_value = "700M", value_parser = units::size)]
    guest_own: u64,
    /// What the host needs for itself
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = units::size)]
    host_own: u64,
    /// Time that it takes to write a page to swap, or to read one
    #[arg(long, value_name = "TIME", default_value = "420us", value_parser = units::time)]
    swap_page: Duration,
    /// From the end of a program to the start of the next guest
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time)]
    between: Duration,
    /// How often the agent looks for free memory
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::time)]
    look: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Figures {
    params: Params,
    fit: Vec<Fit>,
    memhog: Vec<Memhogs>,
    comes_back: Vec<Return>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let params = params(&args)?;
    let figures = Figures {
        params,
        fit: Hints::ALL.map(|way| fit(params, way)).into(),
        memhog: Hints::ALL.map(|way| memhogs(params, way)).into(),
        comes_back: Hints::ALL.map(|way| comes_back(params, way)).into(),
    };
    let text = if args.json { serde_json::to_string(&figures)? + "\n" } else { table(&figures) };
    to_stdout(|out| Ok(out.write_all(text.as_bytes())?))
}

/// The largest guest, bytes: page numbers fit into 32 bits with room to spare, and so does what the simulation keeps of
/// each.
const MOST_GUEST: u64 = 1 << 40;

fn params(args: &Args) -> anyhow::Result<Params> {
    let default = Params::default();
    let params = Params {
        host_memory: args.host_memory,
        guest_memory: args.guest_memory,
        program: args.program,
        most_guests: args.most_guests,
        memhog_guest_memory: args.memhog_guest_memory,
        memhog: args.memhog,
        guest_own: args.guest_own,
        host_own: args.host_own,
        swap_out_ns: nanos(args.swap_page),
        swap_in_ns: nanos(args.swap_page),
        between_ns: nanos(args.between),
        look_ns: nanos(args.look),
        ..default
    };
    let usage = |text: String| Err(Usage(text).into());
    for (name, memory, need) in [
        ("--guest-memory", params.guest_memory, params.program),
        ("--memhog-guest-memory", params.memhog_guest_memory, params.memhog),
    ] {
        let least = need.saturating_add(params.guest_own).saturating_add(params.reserve);
        if memory < least {
            return usage(format!(
                "{name}: {} are too little; its program and its system need {}",
                format_size(memory),
                format_size(least)
            ));
        }
        if memory > MOST_GUEST {
            return usage(format!(
                "{name}: {} are more than the {} that are simulated",
                format_size(memory),
                format_size(MOST_GUEST)
            ));
        }
    }
    if params.program == 0 || params.memhog == 0 || params.most_guests == 0 || params.look_ns == 0 {
        return usage("a program, a number of guests or an interval of 0 makes no sense".into());
    }
    if params.host_memory <= params.host_own.saturating_add(params.vmm_own) {
        return usage(format!("--host-memory: {} are too little for the host itself", format_size(params.host_memory)));
    }
    if params.most_guests > 4096 {
        return usage(format!("--most-guests: {} are more than the 4096 that are simulated", params.most_guests));
    }
    Ok(params)
}

fn table(figures: &Figures) -> String {
    let p = &figures.params;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "A host with {}; guests of {} that run a program of {} one after the other until the host swaps\n",
        format_size(p.host_memory),
        format_size(p.guest_memory),
        format_size(p.program)
    );
    let _ = writeln!(text, "{:<18}  {:>7}  {:>12}  {:>16}", "", "guests", "host backs", "CPU in guests");
    for fit in &figures.fit {
        let guests = format!("{}{}", fit.guests, if fit.all { "+" } else { "" });
        let cpu = format!("{:.2} s", fit.guest_cpu);
        let _ = writeln!(text, "{:<18}  {guests:>7}  {:>12}  {cpu:>16}", fit.way.name(), format_size(fit.resident));
    }
    let _ = writeln!(
        text,
        "\nmemhog of {} in three guests of {} in turn: time, and swap used after it\n",
        format_size(p.memhog),
        format_size(p.memhog_guest_memory)
    );
    let _ = writeln!(text, "{:<18}  {:>20}  {:>20}  {:>20}", "", "first", "second", "third");
    for memhogs in &figures.memhog {
        let _ = write!(text, "{:<18}", memhogs.way.name());
        for run in &memhogs.runs {
            let _ = write!(text, "  {:>20}", format!("{:.1} s, {}", run.seconds, format_size(run.swapped)));
        }
        text.push('\n');
    }
    let freed = figures.comes_back.first().map_or(0, |r| r.freed);
    let _ = writeln!(text, "\nA guest frees {}: how much of it the host has back\n", format_size(freed));
    let _ = writeln!(
        text,
        "{:<18}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>13}",
        "", "1 s", "5 s", "30 s", "120 s", "90 % after", "CPU in guest"
    );
    for back in &figures.comes_back {
        let _ = write!(text, "{:<18}", back.way.name());
        for (_, bytes) in &back.back {
            let _ = write!(text, "  {:>10}", format_size(*bytes));
        }
        let after = back.seconds_to_90.map_or("never".to_owned(), |s| format!("{s:.1} s"));
        let _ = writeln!(text, "  {after:>10}  {:>13}", format!("{:.3} s", back.guest_cpu));
    }
    text
}
