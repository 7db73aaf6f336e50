//! Runs `isotherm` as users do, and ends what it started.

use anyhow::{Context, bail};
use isotherm_core::addr::AddrRange;
use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The binary under test: beside this one, as cargo puts both into one folder.
pub fn isotherm() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own path")?;
    let path = own.with_file_name("isotherm");
    if !path.exists() {
        bail!("{} is missing: build it with cargo build --release -p isotherm", path.display());
    }
    Ok(path)
}

/// Runs `isotherm` with `arguments` and returns what it printed. Fails with what it said if it does.
pub fn run(arguments: &[String]) -> anyhow::Result<String> {
    let output = Command::new(isotherm()?).args(arguments).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("nothing was said").to_owned();
        bail!("isotherm {}: {}: {last}", arguments.join(" "), output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A running `isotherm workload`; ends with this value.
#[derive(Debug)]
pub struct RunningWorkload {
    child: Child,
    /// Its process.
    pub pid: u32,
    /// The memory that it touches.
    pub arena: AddrRange,
}

#[derive(Deserialize)]
struct Ready {
    pid: u32,
    start: u64,
    end: u64,
}

impl RunningWorkload {
    /// Starts `isotherm workload` with `arguments` and waits until its memory is populated.
    pub fn start(arguments: &[String], truth: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(isotherm()?)
            .arg("workload")
            .args(arguments)
            .arg("--truth")
            .arg(truth)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let out = child.stdout.take();
        let mut started = Self { pid: child.id(), child, arena: AddrRange::new(0, 0) };
        let mut line = String::new();
        if let Some(out) = out {
            BufReader::new(out).read_line(&mut line)?;
        }
        let ready: Ready = serde_json::from_str(&line)
            .with_context(|| format!("isotherm workload {} did not start", arguments.join(" ")))?;
        started.pid = ready.pid;
        started.arena = AddrRange::new(ready.start, ready.end);
        Ok(started)
    }
}

impl Drop for RunningWorkload {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
