//! `isotherm schemes`.

pub mod control;
pub mod run;
pub mod stats;

use crate::args::monitor::MonitorArgs;
use crate::args::target::TargetArgs;
use crate::hangup::Hangups;
use crate::output::keep_apart;
use crate::schemes::{SchemeArgs, find_groups};
use control::Reload;
use isotherm_files::apart::Output;
use run::RunArgs;

/// Act on memory by how it is accessed.
///
/// Watches a target and applies schemes to it: what access pattern (size, access rate, age), what to do (pageout,
/// collapse, migrate_cold, ...), within which quota, tuned to which goal. Before anything is paged out, each page is
/// watched on its own for a while; a scheme whose victims come back too soon is stopped. Runs until --duration has
/// passed, Ctrl-C is pressed, or no target is left; memory that was paged out comes back when it is used. Meanwhile
/// `isotherm ctl` shows how it stands, and changes or ends it; SIGHUP reads the files of -c anew.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    schemes: SchemeArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    monitor: MonitorArgs,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let Args { schemes, mut target, monitor: given, run } = args;
    let hangups = schemes.reads_files().then(Hangups::catch).transpose()?;
    let stats: Vec<Output> = run.stats.iter().map(|path| Output::new("--stats", path)).collect();
    keep_apart(&schemes.files(), &stats)?;
    let mut loaded = schemes.load(&given)?;
    find_groups(&mut loaded.schemes);
    if let Some(settings) = &loaded.target {
        settings.fill(&mut target);
    }
    let reload = hangups.map(|hangups| -> (Reload, Hangups) { (Box::new(move || schemes.reload(&given)), hangups) });
    let wanted = run::Wanted { reload, ..loaded.schemes.into() };
    run::run(&target, &loaded.monitor, wanted, &run)
}
