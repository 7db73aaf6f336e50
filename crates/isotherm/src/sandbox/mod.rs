//! The sandbox of commands that run on: what each declares to need once it is set up, and its way in.
//!
//! All that takes more is done before [`SandboxArgs::enter`]: commands that are targets are forked, guards started,
//! sockets bound, eBPF programs loaded. Threads are started after it, as they inherit what is left of capabilities.

pub mod guard;
pub mod hint;
pub mod lru_run;
pub mod schemes;

use crate::exit::Unsupported;
use isotherm_daemon::sandbox::Sandbox;
use isotherm_linux::confine::{Confined, Landlock, Needs, confine, names};

/// Why Landlock is not used by commands that look into processes.
pub const LOOKS_INTO_PROCESSES: &str =
    "not used, as it would forbid looking into other processes, which is what this command does";

/// Whether to be confined.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Security")]
pub struct SandboxArgs {
    /// Keep all rights: give up no capability, filter no system call, restrict no files
    #[arg(long)]
    pub no_sandbox: bool,
}

impl SandboxArgs {
    /// Gives up for good what is not among `needs`. A process that cannot be confined is [`Unsupported`], so that
    /// nobody who relies on it goes without.
    pub fn enter(self, needs: &Needs) -> anyhow::Result<Sandbox> {
        if self.no_sandbox {
            tracing::debug!("not confined (--no-sandbox)");
            return Ok(Sandbox::default());
        }
        let confined = confine(needs).map_err(|e| {
            Unsupported(format!("this process cannot be confined: {e}; give --no-sandbox to run with all its rights"))
        })?;
        if confined.landlock == Landlock::Absent {
            tracing::info!(
                "this kernel has no Landlock, so files are not restricted; all else of the sandbox is in force"
            );
        }
        let sandbox = reported(&confined);
        tracing::debug!("sandbox {}", sandbox.text());
        Ok(sandbox)
    }
}

fn reported(confined: &Confined) -> Sandbox {
    let landlock = match confined.landlock {
        Landlock::Full => "full",
        Landlock::Partial => "partial: an older one, which enforces what it knows",
        Landlock::Absent => "absent: this kernel has none",
        Landlock::NotUsed(why) => why,
    };
    Sandbox { on: true, capabilities: names(confined.capabilities), landlock: landlock.into() }
}
