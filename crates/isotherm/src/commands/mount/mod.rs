//! `isotherm mount`.

mod control;
pub mod status;

use crate::args::control::{Bound, ControlArgs};
use crate::args::target::{GRACE, shell_status};
use crate::exit::{CommandStatus, Unsupported, Usage};
use crate::kept_history;
use anyhow::Context;
use control::Control;
use isotherm_compat::admin::Admin;
use isotherm_compat::debugfs::Debugfs;
use isotherm_compat::files::{Combined, Files};
use isotherm_compat::live::LiveStarter;
use isotherm_compat::lru_gen::LruGen;
use isotherm_compat::lru_gen::live::LiveMachine;
use isotherm_compat::modules::{Module, Which};
use isotherm_compat::mount::{MountError, Mounted};
use isotherm_compat::registry::Registry;
use isotherm_compat::tree::{ROOT, Tree};
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::namespace::{mount_at, private_mounts};
use isotherm_linux::ready::{Interest, wait};
use isotherm_linux::roots::Roots;
use isotherm_linux::run_command::run_command;
use isotherm_linux::signals::StopSignals;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the kernel has the files.
const USUAL_PLACE: &str = "/sys/kernel/mm/damon";
/// Where it had them before they were in sysfs.
const DEBUGFS_PLACE: &str = "/sys/kernel/debug/damon";
/// Where the parameters of modules are.
const MODULES_PLACE: &str = "/sys/module";
/// How often a mount is looked at that somebody else may have removed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Serve the control files of DAMON and of the multi-generational LRU, for programs that know only those.
///
/// The files of a 6.18 kernel's DAMON in sysfs, with Isotherm's engine behind them: damo and scripts made for them work
/// unchanged, also on kernels without DAMON. Besides, the files that it had in debugfs, the parameters of the modules
/// damon_reclaim, damon_lru_sort and damon_stat, and the files of lru_gen: the kernel's own where it has them, else with
/// generations of Isotherm's for each control group. See docs/compat.md for what differs.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
#[command(override_usage = "isotherm mount [OPTIONS] DIR\n       isotherm mount [OPTIONS] --exec COMMAND [ARG]...")]
pub struct Args {
    /// Serve them as DIR/sys/kernel/mm/damon, DIR/sys/kernel/debug/damon, DIR/sys/module/damon_*, DIR/sys/kernel/mm/lru_gen
    /// and DIR/sys/kernel/debug/lru_gen until Ctrl-C. The folder must exist
    #[arg(value_name = "DIR", required_unless_present = "exec")]
    dir: Option<PathBuf>,
    /// Run a command for which they stand at their usual places in /sys; nothing changes for others. Ends with its exit
    /// status. All that follows is the command's: isotherm's own options stand before it
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true, conflicts_with = "dir")]
    exec: Option<Vec<OsString>>,
    /// Keep generations of Isotherm's own behind lru_gen where the kernel has some, too
    #[arg(long)]
    own_lru_gen: bool,
    #[command(flatten)]
    control: ControlArgs,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let command = args.exec.as_deref().map(command_of).transpose()?;
    let signals = StopSignals::catch().context("cannot catch signals")?;
    kept_history::void();
    let bound = || args.control.bind();
    match (&args.dir, command) {
        (_, Some(words)) => exec(words, args.own_lru_gen, bound()?, &signals),
        (Some(dir), None) => serve(dir, args.own_lru_gen, bound()?, &signals),
        (None, None) => Err(Usage("give a folder, or --exec and a command".into()).into()),
    }
}

/// The command among the words after --exec.
fn command_of(words: &[OsString]) -> Result<&[OsString], Usage> {
    // It may be set apart, as behind other commands.
    let words = words.split_first().filter(|(first, _)| *first == "--").map_or(words, |(_, rest)| rest);
    match words.first() {
        None => Err("give a command behind --exec".into()),
        Some(first) if first.as_encoded_bytes().starts_with(b"-") => {
            Err(Usage(format!("{} stands where the command is: options stand before --exec", first.display())))
        }
        Some(_) => Ok(words),
    }
}

fn serve(dir: &Path, own_lru_gen: bool, bound: Bound, signals: &StopSignals) -> anyhow::Result<()> {
    let registry = Registry::new(LiveStarter);
    let mounted = mount(Arc::new(everything(own_lru_gen, &registry)), dir)?;
    let _control = Control::start(bound, dir.display().to_string(), registry)?;
    tracing::info!("serving {}{USUAL_PLACE}; Ctrl-C ends it", dir.display());
    while mounted.is_served() && signals.received().is_none() {
        wait(&[(signals.as_fd(), Interest::Read)], Some(LOOK_EVERY)).context("cannot wait for signals")?;
    }
    Ok(())
}

fn exec(words: &[OsString], own_lru_gen: bool, bound: Bound, signals: &StopSignals) -> anyhow::Result<()> {
    private_mounts().map_err(|e| Unsupported(format!("cannot have mounts of our own: {e}; be root")))?;
    let folder = Folder::new().context("cannot make a folder to mount on")?;
    let registry = Registry::new(LiveStarter);
    let files = Arc::new(everything(own_lru_gen, &registry));
    let mounted = mount(files.clone(), &folder.0)?;
    for place in files.places() {
        let from = folder.0.join(place.strip_prefix("/").unwrap_or(place));
        let refused =
            |e| Unsupported(format!("nothing can be mounted at {}: {e}; use isotherm mount DIR", place.display()));
        mount_at(&from, place).map_err(refused)?;
    }
    let program = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let _control = Control::start(bound, format!("for {program}"), registry)?;
    let status =
        run_command(words, signals, GRACE, || files.stop()).with_context(|| format!("cannot run '{program}'"))?;
    drop(mounted);
    match shell_status(status) {
        0 => Ok(()),
        code => Err(CommandStatus { code, text: format!("'{program}' ended: {status}") }.into()),
    }
}

/// A new folder of the user's alone, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        // A pid alone is also that of somebody else in another pid namespace.
        let name = format!("isotherm-mount-{}-{}", std::process::id(), monotonic_ns());
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is empty, and in nobody's way.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// All files at their usual places below one folder.
fn everything(own_lru_gen: bool, registry: &Registry) -> Combined {
    let mut files = Combined::new();
    let starter = || Box::new(registry.clone());
    let admin = files.add(Arc::new(Admin::new(Tree::damon(), starter())));
    files.place(USUAL_PLACE, admin, ROOT);
    let debugfs = files.add(Arc::new(Debugfs::new(starter())));
    files.place(DEBUGFS_PLACE, debugfs, ROOT);
    for which in Which::ALL {
        let module = files.add(Arc::new(Module::new(which, starter())));
        files.place(&format!("{MODULES_PLACE}/{}", which.name()), module, ROOT);
    }
    let roots = Roots::system();
    let lru_gen = if own_lru_gen { LruGen::own(Box::new(LiveMachine::new(&roots))) } else { LruGen::here(&roots) };
    let places = lru_gen.places();
    let lru_gen = files.add(Arc::new(lru_gen));
    places.into_iter().for_each(|(path, inode)| files.place(path, lru_gen, inode));
    files
}

fn mount(files: Arc<dyn Files>, at: &Path) -> anyhow::Result<Mounted> {
    Mounted::new(files, at).map_err(|e| match &e {
        MountError::Refused { at, .. } if !at.is_dir() => Usage(e.to_string()).into(),
        _ => Unsupported(e.to_string()).into(),
    })
}
