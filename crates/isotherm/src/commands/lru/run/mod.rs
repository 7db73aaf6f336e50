//! `isotherm lru run`.

mod domain;
mod gauge;
mod kernel;
mod rate;
mod react;
mod stats;
mod user;

use super::engine::EngineName;
use super::target::LruTarget;
use crate::args::monitor::{CpuBudget, cpu_budget};
use crate::args::units;
use crate::exit::Usage;
use clap::ValueEnum;
use std::path::PathBuf;
use std::time::Duration;

/// Shortest time between two walks.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// What is done when a working set does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnThrash {
    /// Say so
    Notify,
    /// Stop the largest process for a while, so that the others have room
    Freeze,
    /// Kill the largest process
    Kill,
}

/// Keep processes or control groups below a limit by evicting what is used least, before the kernel has to.
///
/// Page tables are walked to see what is used; the pages least likely to come back go, a little ahead of the need, so that
/// programs do not wait for reclaim. Pages that come back teach which ones to spare. Needs swap, for example zram. Runs
/// until --duration has passed, Ctrl-C is pressed, or no target is left.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: LruTarget,
    /// Stay below this: of all targets together [default: each control group's own limit]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    limit: Option<u64>,
    /// Share of the limit that is kept free
    #[arg(long, value_name = "P", default_value = "2%", value_parser = units::percent)]
    headroom: f64,
    /// A working set of so long must stay in memory; 0: do not look whether it can
    #[arg(long, value_name = "T", default_value = "0s", value_parser = units::time)]
    min_ttl: Duration,
    /// What to do when it cannot
    #[arg(long, value_enum, default_value = "notify")]
    on_thrash: OnThrash,
    /// How long a process stays stopped with --on-thrash freeze
    #[arg(long, value_name = "T", default_value = "10s", value_parser = units::time)]
    freeze_time: Duration,
    /// What anonymous memory is worth against files: 0 (only files go) to 200 (only anonymous memory goes)
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u8).range(..=200))]
    swappiness: u8,
    /// Share of one core that walks may cost, the targets' losses counted ("none": unlimited); eviction itself, which the
    /// targets would have to do otherwise, is not counted
    #[arg(long, value_name = "P", default_value = "3%", value_parser = cpu_budget)]
    cpu_budget: CpuBudget,
    /// Longest time between two walks
    #[arg(long, value_name = "T", default_value = "10s", value_parser = units::time)]
    max_interval: Duration,
    /// Stop after this time
    #[arg(long, value_name = "T", value_parser = units::time)]
    duration: Option<Duration>,
    /// Write a JSON line per limit every second and at the end ("-": standard output)
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Who keeps the generations
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineName,
    /// Say nothing but errors and what --on-thrash does
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    fn check(&self) -> Result<(), Usage> {
        let wrong = if self.engine != EngineName::Kernel && self.limit.is_none() && self.target.cgroups.is_empty() {
            "processes have no limit of their own: give --limit SIZE, or --cgroup PATH"
        } else if self.limit == Some(0) {
            "--limit 0 leaves no memory; give a size"
        } else if !(0.001..=0.5).contains(&self.headroom) {
            "--headroom must be between 0.1% and 50%"
        } else if self.duration.is_some_and(|d| d.is_zero()) {
            "--duration 0 does nothing; leave it out to run until Ctrl-C"
        } else if self.max_interval < SHORTEST_INTERVAL {
            "--max-interval must be at least 50ms"
        } else if self.on_thrash != OnThrash::Notify && self.min_ttl.is_zero() {
            "--on-thrash needs --min-ttl, which says what thrashing is"
        } else {
            return Ok(());
        };
        Err(Usage(wrong.into()))
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    args.check()?;
    match args.engine.kernel(&args.target)? {
        Some(kernel) => kernel::run(&kernel, &args),
        None => user::run(&args),
    }
}
