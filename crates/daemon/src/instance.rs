//! What every running instance says of itself.

use crate::openmetrics::{Exposition, Labels};
use crate::sandbox::Sandbox;
use isotherm_core::figures;
use isotherm_core::units::format_time;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

figures! {
    /// The head of every status.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    pub struct Instance {
        uptime_ns: u64 = Gauge Nanoseconds, "For how long it has run.";
    }
    and {
        /// Isotherm's version.
        version: String;
        /// What it runs: `schemes`, `hint host` or `lru run`.
        #[serde(default)]
        command: String;
        /// What that is about, in a few words.
        #[serde(default)]
        about: String;
        /// Its process.
        pid: u32;
        /// Where it listens; `None`: only for metrics.
        #[serde(default)]
        socket: Option<PathBuf>;
        /// When this was drawn up, ns of CLOCK_MONOTONIC.
        #[serde(default)]
        time_ns: u64;
        /// How it is confined; `None`: it does not tell.
        #[serde(default)]
        sandbox: Option<Sandbox>;
    }
}

impl Instance {
    /// Of this process, which has run `command` since `started_ns`.
    pub fn of_this_process(
        command: &str,
        about: String,
        socket: Option<PathBuf>,
        started_ns: u64,
        now_ns: u64,
    ) -> Self {
        Self {
            about,
            uptime_ns: now_ns.saturating_sub(started_ns),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.to_owned(),
            pid: std::process::id(),
            socket,
            time_ns: now_ns,
            sandbox: None,
        }
    }

    /// Confined like this.
    #[must_use]
    pub fn in_sandbox(self, sandbox: &Sandbox) -> Self {
        Self { sandbox: Some(sandbox.clone()), ..self }
    }

    /// The first lines of its status for people: which Isotherm it is, and how it is confined.
    pub fn heading(&self) -> String {
        let Self { version, command, pid, .. } = self;
        let time = format_time(self.uptime_ns);
        let sandbox = self.sandbox.as_ref().map(|sandbox| format!("sandbox   {}\n", sandbox.text()));
        format!("isotherm {version} {command}, pid {pid}, running for {time}\n{}", sandbox.unwrap_or_default())
    }

    /// Its own metrics.
    pub fn write_metrics(&self, out: &mut Exposition) {
        let labels = vec![("version", self.version.clone()), ("command", self.command.clone())];
        out.info(&labels, "Which Isotherm this is.");
        out.figures("", &[(Labels::new(), self)]);
    }
}
