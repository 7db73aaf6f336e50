//! `isotherm mount`.

use crate::args::target::shell_status;
use crate::exit::{CommandStatus, Unsupported, Usage};
use anyhow::Context;
use isotherm_compat::admin::Admin;
use isotherm_compat::live::LiveStarter;
use isotherm_compat::mount::{MountError, Mounted};
use isotherm_compat::tree::Tree;
use isotherm_linux::namespace::private_mounts;
use isotherm_linux::ready::{Interest, wait};
use isotherm_linux::run_command::run_command;
use isotherm_linux::signals::StopSignals;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where the kernel has the files.
const USUAL_PLACE: &str = "/sys/kernel/mm/damon";
/// How often a mount is looked at that somebody else may have removed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Serve DAMON's control files, for programs that know only those.
///
/// The files of a 6.18 kernel's DAMON in sysfs, with Isotherm's engine behind them: damo and scripts made for them work
/// unchanged, also on kernels without DAMON. See docs/compat.md for what differs.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
#[command(override_usage = "isotherm mount DIR\n       isotherm mount --exec COMMAND [ARG]...")]
pub struct Args {
    /// Run a command for which they stand at their usual place, /sys/kernel/mm/damon; nothing changes for others. Ends
    /// with its exit status
    #[arg(long)]
    exec: bool,
    /// Serve them as DIR/sys/kernel/mm/damon until Ctrl-C; or the command
    #[arg(value_name = "DIR|COMMAND", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<OsString>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let signals = StopSignals::catch().context("cannot catch signals")?;
    match args.words.as_slice() {
        words if args.exec => exec(words, &signals),
        [dir] => serve(Path::new(dir), &signals),
        _ => Err(Usage("give one folder, or --exec before a command".into()).into()),
    }
}

fn serve(dir: &Path, signals: &StopSignals) -> anyhow::Result<()> {
    let mounted = mount(Tree::new(&["sys", "kernel", "mm", "damon"]), dir)?;
    tracing::info!("serving {}{USUAL_PLACE}; Ctrl-C ends it", dir.display());
    while mounted.is_served() && signals.received().is_none() {
        wait(&[(signals.as_fd(), Interest::Read)], Some(LOOK_EVERY)).context("cannot wait for signals")?;
    }
    Ok(())
}

fn exec(words: &[OsString], signals: &StopSignals) -> anyhow::Result<()> {
    let usual = Path::new(USUAL_PLACE);
    if !usual.is_dir() {
        let why = format!("this kernel has no {USUAL_PLACE} to mount on; use isotherm mount DIR");
        return Err(Unsupported(why).into());
    }
    private_mounts().map_err(|e| Unsupported(format!("cannot have mounts of our own: {e}; be root")))?;
    let mounted = mount(Tree::new(&[]), usual)?;
    let program = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let status = run_command(words, signals).with_context(|| format!("cannot run '{program}'"))?;
    drop(mounted);
    match shell_status(status) {
        0 => Ok(()),
        code => Err(CommandStatus { code, text: format!("'{program}' ended: {status}") }.into()),
    }
}

fn mount(tree: Tree, at: &Path) -> anyhow::Result<Mounted> {
    let admin = Arc::new(Admin::new(tree, Box::new(LiveStarter)));
    Mounted::new(admin, at).map_err(|e| match &e {
        MountError::Refused { at, .. } if !at.is_dir() => Usage(e.to_string()).into(),
        _ => Unsupported(e.to_string()).into(),
    })
}
