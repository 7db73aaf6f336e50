//! `isotherm lru age`.

use super::engine::EngineName;
use super::live::Processes;
use crate::args::target::TargetArgs;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::units::format_size;

/// Create a generation: what was used since the last one joins it, everything else becomes older.
///
/// The first of the two commands of the kernel's control file. What it found is kept for `lru report` and `lru evict`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Who keeps the generations
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineName,
    #[command(flatten)]
    target: TargetArgs,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if let Some(kernel) = args.engine.kernel(&args.target)? {
        return super::kernel::age(&kernel);
    }
    let mut processes = Processes::open(&args.target)?;
    let walked = processes.age()?;
    let size = |pages: u64| format_size(pages * PAGE_SIZE);
    say!(
        "{} in memory, of which {} were used since the last walk, {} came back, {} are new",
        size(walked.present),
        size(walked.used),
        size(walked.back),
        size(walked.fresh)
    );
    processes.finish()
}
