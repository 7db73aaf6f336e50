//! Answers `isotherm ctl` while files are served: in a thread of its own, since a command may run meanwhile.

use super::status::{COMMAND, MountStatus};
use crate::args::control::Bound;
use anyhow::Context;
use isotherm_compat::registry::Registry;
use isotherm_daemon::instance::Instance;
use isotherm_daemon::server::Server;
use isotherm_daemon::service::StatusOnly;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::proc::{PidFd, Signal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long somebody who asks waits at most for the thread to look.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Answers until it is dropped.
#[derive(Debug)]
pub(super) struct Control {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Answerer {
    server: Server<StatusOnly<MountStatus>>,
    registry: Registry,
    about: String,
    started_ns: u64,
}

impl Control {
    /// Answers where something was bound. `about`: what is served, in a few words.
    pub(super) fn start(bound: Bound, about: String, registry: Registry) -> anyhow::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let Some(server) = bound.serve(StatusOnly::default()).context("cannot listen")? else {
            return Ok(Self { ended, thread: None });
        };
        let answerer = Answerer { server, registry, about, started_ns: monotonic_ns() };
        let over = Arc::clone(&ended);
        let answer = move || {
            while !over.load(Ordering::Acquire) {
                answerer.answer();
                std::thread::park_timeout(LOOK_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("answers".into()).spawn(answer).context("cannot listen")?;
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // What it has said by then is all that it had to say.
            let _ = thread.join();
        }
    }
}

impl Answerer {
    fn answer(&self) {
        if self.server.answer(|server| self.status(server)) {
            stop();
        }
    }

    fn status(&self, server: &Server<StatusOnly<MountStatus>>) -> MountStatus {
        let socket = server.path().map(PathBuf::from);
        let about = self.about.clone();
        let instance = Instance::of_this_process(COMMAND, about, socket, self.started_ns, monotonic_ns());
        MountStatus::of(instance, &self.registry)
    }
}

/// As `kill` does: with --exec, the command gets the signal, too.
fn stop() {
    if let Err(e) = PidFd::open(std::process::id()).and_then(|this| this.send_signal(Signal::TERM)) {
        tracing::error!("cannot stop this process (pid {}), end it by `kill`: {e}", std::process::id());
    }
}
