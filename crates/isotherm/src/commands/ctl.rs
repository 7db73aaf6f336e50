//! `isotherm ctl`.

mod show;

use crate::control::client::{Response, call};
use crate::control::request::GoalBody;
use crate::control::socket::{Places, live, name};
use crate::control::status::Status;
use crate::exit::Usage;
use anyhow::{Context, bail};
use clap::Subcommand;
use isotherm_linux::clock::monotonic_ns;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Talk to a running isotherm.
///
/// `isotherm schemes` and its kin listen on a socket. Where one alone runs it is found; otherwise --pid or --socket says which
/// is meant.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The one that listens here
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "pid")]
    socket: Option<PathBuf>,
    /// The one with this process number
    #[arg(long, value_name = "N", global = true)]
    pid: Option<u32>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show what it does, why it does nothing, and what came of it
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Replace its schemes; what the monitor has seen is kept, and what a scheme in the same place with the same action has
    /// learnt
    Tune {
        /// The file with the schemes
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,
    },
    /// Tell a scheme the value that its `user_input` goals wait for, or give it other goals
    Goal {
        /// Number of the scheme, from 0
        scheme: usize,
        /// The value
        #[arg(required_unless_present_any = ["metrics", "none"])]
        value: Option<u64>,
        /// A goal instead of those in force, for example some_mem_psi=0.5% (repeatable)
        #[arg(long = "metric", value_name = "METRIC=TARGET", conflicts_with = "value")]
        metrics: Vec<String>,
        /// No goal any more
        #[arg(long, conflicts_with_all = ["value", "metrics"])]
        none: bool,
    },
    /// End it in good order, and wait for that
    Stop,
}

/// How long a stop may take: work under way is finished first.
const STOP_TIME: Duration = Duration::from_secs(60);

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    // Before anybody is looked for: a file that cannot be read is no reason to ask who runs.
    let file = match &args.what {
        What::Tune { config } => {
            Some(std::fs::read(config).with_context(|| format!("cannot read {}", config.display()))?)
        }
        _ => None,
    };
    let socket = find(&args)?;
    match args.what {
        What::Status { json } => status(&socket, json),
        What::Tune { .. } => done(call(&socket, "POST", "/tune", &file.unwrap_or_default())?),
        What::Goal { scheme, value, metrics, .. } => {
            let goals = value.is_none().then_some(metrics);
            let body = serde_json::to_vec(&GoalBody { scheme, value, goals })?;
            done(call(&socket, "POST", "/goal", &body)?)
        }
        What::Stop => stop(&socket),
    }
}

/// Which instance is meant.
fn find(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(socket) = &args.socket {
        return Ok(socket.clone());
    }
    let places = Places::from_env();
    let folders = places.all();
    if let Some(pid) = args.pid {
        let mut named = folders.iter().map(|f| f.join(name(pid)));
        // One whose socket has a name of its own tells its number when asked.
        let found = named.find(|p| p.exists()).or_else(|| live(&folders).into_iter().find(|p| pid_of(p) == Some(pid)));
        return found.with_context(|| {
            let folders = list(&folders);
            format!("no isotherm with pid {pid} listens in {folders}; one started with --socket may need --socket")
        });
    }
    match live(&folders).as_slice() {
        [path] => Ok(path.clone()),
        [] => bail!(
            "no isotherm runs that listens in {}; start one with `isotherm schemes`, or give --socket PATH",
            list(&folders)
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

fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(" or ")
}

fn ask_status(socket: &Path) -> Option<Status> {
    serde_json::from_slice(&call(socket, "GET", "/status", b"").ok()?.body).ok()
}

fn pid_of(socket: &Path) -> Option<u32> {
    ask_status(socket).map(|s| s.pid)
}

/// What an instance does, in a few words.
fn about(socket: &Path) -> String {
    ask_status(socket).map_or_else(|| "does not answer".to_owned(), |status| show::line(&status))
}

/// The body of a good answer; a refusal becomes an error. What was wrong with the question is bad usage.
fn good(response: Response) -> anyhow::Result<Vec<u8>> {
    if response.status == 200 {
        return Ok(response.body);
    }
    let error = serde_json::from_slice::<serde_json::Value>(&response.body).ok();
    let text = error.and_then(|e| e["error"].as_str().map(str::to_owned));
    let text = text.unwrap_or_else(|| format!("it refused with status {}", response.status));
    match response.status {
        400 | 404 | 409 | 413 => Err(Usage(text).into()),
        _ => bail!(text),
    }
}

fn done(response: Response) -> anyhow::Result<()> {
    let answer: serde_json::Value = serde_json::from_slice(&good(response)?)?;
    eprintln!("{}", answer["done"].as_str().unwrap_or("done"));
    Ok(())
}

fn status(socket: &Path, json: bool) -> anyhow::Result<()> {
    use std::io::Write;
    let body = good(call(socket, "GET", "/status", b"")?)?;
    let mut out = std::io::stdout().lock();
    if json {
        out.write_all(&body)?;
    } else {
        let status: Status = serde_json::from_slice(&body)
            .context("the running isotherm is of another version; use its own `isotherm ctl`, or --json")?;
        out.write_all(show::text(&status, socket, monotonic_ns()).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn stop(socket: &Path) -> anyhow::Result<()> {
    good(call(socket, "POST", "/stop", b"")?)?;
    let deadline = Instant::now() + STOP_TIME;
    while UnixStream::connect(socket).is_ok() {
        if Instant::now() >= deadline {
            bail!("it was asked to stop and still runs after {} s", STOP_TIME.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("stopped");
    Ok(())
}
