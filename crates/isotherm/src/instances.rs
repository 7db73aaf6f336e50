//! Finding instances that run.

use crate::exit::Usage;
use anyhow::{Context, bail};
use isotherm_core::units::format_time;
use isotherm_daemon::client::{ClientError, call_within};
use isotherm_daemon::instance::Instance;
use isotherm_daemon::socket_folders::{SocketFolders, forbidden, live, name};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long each of several is asked who it is: one that hangs must not hide the others.
const GLANCE: Duration = Duration::from_secs(3);

/// Which instance is meant.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// The one that listens here
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "pid")]
    socket: Option<PathBuf>,
    /// The one with this process number
    #[arg(long, value_name = "N", global = true)]
    pid: Option<u32>,
}

impl Which {
    /// The socket of the one that is meant. `command`: only those that run it; any kind, if not given.
    pub fn find(&self, command: Option<&str>) -> anyhow::Result<PathBuf> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        let folders = SocketFolders::from_env().all();
        let listed = || folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(" or ");
        let kind = command.map_or(String::new(), |command| format!(" {command}"));
        if let Some(pid) = self.pid {
            let mut named = folders.iter().map(|f| f.join(name(pid)));
            // One whose socket has a name of its own tells its number when asked.
            let has_pid = |socket: &PathBuf| ask(socket).is_some_and(|i| i.pid == pid);
            let found = named.find(|p| p.exists()).or_else(|| live(&folders).into_iter().find(has_pid));
            return found.with_context(|| {
                let (listed, unseen) = (listed(), unseen(&folders));
                format!(
                    "no isotherm{kind} with pid {pid} listens in {listed}{unseen}; one started with --socket may need --socket"
                )
            });
        }
        let all = live(&folders);
        // One that does not answer may be the one.
        let may_be = |socket: &PathBuf| {
            command.is_none_or(|command| ask(socket).is_none_or(|instance| instance.command == command))
        };
        let meant: Vec<PathBuf> = all.into_iter().filter(may_be).collect();
        match meant.as_slice() {
            [path] => Ok(path.clone()),
            [] => bail!(
                "no isotherm{kind} runs that listens in {}{}; start one with `isotherm {}`, or give --socket PATH",
                listed(),
                unseen(&folders),
                command.unwrap_or("schemes")
            ),
            several => {
                let mut text = "several run; say which with --pid N or --socket PATH:".to_owned();
                for path in several {
                    text += &format!("\n  {}: {}", path.display(), about(path));
                }
                Err(Usage(text).into())
            }
        }
    }
}

/// Words for where somebody may listen without being found, as this user may not look; empty if there is no such place.
fn unseen(folders: &[PathBuf]) -> String {
    let places: Vec<String> = forbidden(folders).iter().map(|path| path.display().to_string()).collect();
    if places.is_empty() {
        return String::new();
    }
    let places = places.join(" and ");
    format!(", as far as this user may look ({places} may not be read: run this as root, or as whoever started it)")
}

/// Who listens at `socket`, if it answers.
pub fn ask(socket: &Path) -> Option<Instance> {
    try_ask(socket).ok()?
}

/// The same, with the reason why it does not; `None`: it says something else.
pub fn try_ask(socket: &Path) -> Result<Option<Instance>, ClientError> {
    Ok(serde_json::from_slice(&call_within(GLANCE, socket, "GET", "/status", b"")?.body).ok())
}

/// What an instance does, in a few words.
fn about(socket: &Path) -> String {
    let words = |i: Instance| format!("pid {}, {}: {}, for {}", i.pid, i.command, i.about, format_time(i.uptime_ns));
    ask(socket).map_or_else(|| "does not answer".to_owned(), words)
}
