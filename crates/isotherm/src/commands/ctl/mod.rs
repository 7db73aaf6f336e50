//! `isotherm ctl`.

mod show;

use super::hint::status as hint;
use super::lru::run::status as lru;
use super::mount::status as mount;
use super::node::status as node;
use super::schemes::control::question::{GoalBody, SENT_FILE};
use super::schemes::control::status as schemes;
use crate::exit::Usage;
use crate::instances::{Which, ask};
use crate::stderr::printable_lines;
use anyhow::{Context, bail};
use clap::Subcommand;
use isotherm_daemon::client::call;
use isotherm_daemon::http::MOST_BODY;
use isotherm_daemon::instance::Instance;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::proc::PidFd;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Talk to a running isotherm.
///
/// Every isotherm that keeps running (schemes, reclaim, thp, tier, lru run, node, mount, hint host) listens on a socket.
/// Where one alone runs it is found; otherwise --pid or --socket says which is meant.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
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
    /// Replace its schemes; what the monitor has seen is kept, and what a scheme in the same place with the same action
    /// has learnt
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

/// How long it may take from the end of the socket to that of the process, which may have a command to end first.
const EXIT_TIME: Duration = Duration::from_secs(10);

pub fn run(args: Args) -> anyhow::Result<()> {
    // Before anybody is looked for: a file that cannot be read is no reason to ask who runs.
    let file = match &args.what {
        What::Tune { config } => read(config)?,
        _ => Vec::new(),
    };
    let command = match &args.what {
        What::Tune { .. } | What::Goal { .. } => Some(schemes::COMMAND),
        What::Status { .. } | What::Stop => None,
    };
    let socket = args.which.find(command)?;
    match args.what {
        What::Status { json } => status(&socket, json),
        What::Tune { config } => done(&socket, "/tune", &file).map_err(|e| named(e, &config)),
        What::Goal { scheme, value, metrics, .. } => {
            let goals = value.is_none().then_some(metrics);
            let body = serde_json::to_vec(&GoalBody { scheme, value, goals })?;
            done(&socket, "/goal", &body)
        }
        What::Stop => stop(&socket),
    }
}

/// A file, at most a byte more of it than is taken: a device given by mistake is not read to its end.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|f| f.take(MOST_BODY as u64 + 1).read_to_end(&mut bytes));
    file.with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() > MOST_BODY {
        return Err(Usage(format!("{} is longer than 1 MiB, so it is no scheme file", path.display())).into());
    }
    Ok(bytes)
}

/// The server does not know what the file that it was sent is called here.
fn named(e: anyhow::Error, path: &Path) -> anyhow::Error {
    match e.downcast::<Usage>() {
        Ok(Usage(text)) => Usage(text.replacen(SENT_FILE, &path.display().to_string(), 1)).into(),
        Err(e) => e,
    }
}

/// Asks the instance at `socket`: the body of a good answer; a refusal becomes an error that names the socket. What was wrong
/// with the question is bad usage.
fn asked(socket: &Path, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
    let response = call(socket, method, path, body)?;
    if response.status == 200 {
        return Ok(response.body);
    }
    let error = serde_json::from_slice::<serde_json::Value>(&response.body).ok();
    let text = error.and_then(|e| e["error"].as_str().map(str::to_owned));
    let text = text.unwrap_or_else(|| format!("it refused with status {}", response.status));
    let place = socket.display();
    match response.status {
        404 => Err(Usage(format!("what answers at {place} does not take this command: {text}")).into()),
        400 | 409 | 413 => Err(Usage(format!("{text} (said at {place})")).into()),
        _ => bail!("{text} (said at {place})"),
    }
}

/// Sends a change, and prints what came of it.
fn done(socket: &Path, path: &str, body: &[u8]) -> anyhow::Result<()> {
    let answer: serde_json::Value = serde_json::from_slice(&asked(socket, "POST", path, body)?)?;
    say!("{}", answer["done"].as_str().unwrap_or("done"));
    Ok(())
}

/// Prints the status of the instance at `socket`.
pub fn status(socket: &Path, json: bool) -> anyhow::Result<()> {
    let body = asked(socket, "GET", "/status", b"")?;
    let text = if json {
        body
    } else {
        let text = text(&body, socket)
            .context("the running isotherm is of another version; use its own `isotherm ctl`, or --json")?;
        printable_lines(&text).into_bytes()
    };
    let mut out = std::io::stdout().lock();
    out.write_all(&text).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// The status of whatever kind of instance, for people.
pub fn text(body: &[u8], socket: &Path) -> serde_json::Result<String> {
    let instance: Instance = serde_json::from_slice(body)?;
    Ok(match instance.command.as_str() {
        hint::COMMAND => hint::text(&serde_json::from_slice(body)?),
        lru::COMMAND => lru::text(&serde_json::from_slice(body)?),
        node::COMMAND => node::text(&serde_json::from_slice(body)?),
        mount::COMMAND => mount::text(&serde_json::from_slice(body)?, monotonic_ns()),
        _ => show::text(&serde_json::from_slice::<schemes::Status>(body)?, socket, monotonic_ns()),
    })
}

fn stop(socket: &Path) -> anyhow::Result<()> {
    // Held from before, so that its end is seen even if the number goes to another process.
    let process = ask(socket).and_then(|instance| PidFd::open(instance.pid).ok());
    asked(socket, "POST", "/stop", b"")?;
    let deadline = Instant::now() + STOP_TIME;
    while UnixStream::connect(socket).is_ok() {
        if Instant::now() >= deadline {
            bail!("it was asked to stop and still runs after {} s", STOP_TIME.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // In another pid namespace the number is somebody else's: then the end of the socket must do.
    if let Some(process) = process {
        process.wait_exit(EXIT_TIME);
    }
    say!("stopped");
    Ok(())
}
