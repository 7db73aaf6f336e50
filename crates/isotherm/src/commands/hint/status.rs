//! `isotherm hint status`, and what it shows.

use crate::instances::Which;
use crate::stderr::printable_lines;
use anyhow::{Context, bail};
use isotherm_core::units::{format_size, format_time};
use isotherm_daemon::client::{ClientError, call};
use isotherm_daemon::instance::Instance;
use isotherm_hint::host::status::GuestStatus;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::Write;

/// What the host side of hinting calls what it runs.
pub const COMMAND: &str = "hint host";

/// How the host side stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostStatus {
    /// Which Isotherm it is.
    #[serde(flatten)]
    pub instance: Instance,
    /// Where guests call.
    pub listening: Vec<String>,
    /// What is wrong with connections that belong to no guest.
    pub problem: Option<String>,
    /// The guests, those named on the command line first.
    pub guests: Vec<GuestStatus>,
}

/// Show what the host side has of each guest, and what it has given back
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let socket = args.which.find(Some(COMMAND))?;
    let response = call(&socket, "GET", "/status", b"").map_err(|e| match e {
        ClientError::Nobody(path) => anyhow::anyhow!(
            "no host side of hinting listens at {}; start one with `isotherm hint host`",
            path.display()
        ),
        other => other.into(),
    })?;
    if response.status != 200 {
        bail!("{} refused with status {}; is it an `isotherm hint host`?", socket.display(), response.status);
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        out.write_all(&response.body)?;
    } else {
        let status: HostStatus = serde_json::from_slice(&response.body)
            .context("what runs there is of another version, or no `isotherm hint host`; use --json")?;
        out.write_all(printable_lines(&text(&status)).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

/// The status for people.
pub fn text(status: &HostStatus) -> String {
    let mut text = format!(
        "isotherm {} hint host, pid {}, running for {}\n",
        status.instance.version,
        status.instance.pid,
        format_time(status.instance.uptime_ns)
    );
    if let Some(sandbox) = &status.instance.sandbox {
        let _ = writeln!(text, "sandbox {}", sandbox.text());
    }
    for place in &status.listening {
        let _ = writeln!(text, "listening at {place}");
    }
    if let Some(problem) = &status.problem {
        let _ = writeln!(text, "{problem}");
    }
    let head = ["guest", "pid", "agent", "RAM", "resident", "dropped", "returned", "rate"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    rows.extend(status.guests.iter().map(row));
    let widths: Vec<usize> =
        (0..rows[0].len()).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    for guest in &status.guests {
        if let Some(scan) = guest.scan {
            let _ = writeln!(
                text,
                "{}: {} scans for zeros dropped {}; {} pauses, the longest {}",
                guest.name,
                scan.scans,
                format_size(scan.dropped),
                scan.pauses,
                format_time(scan.longest_pause_ns)
            );
        }
        if guest.refused > 0 || guest.closed > 0 {
            let _ =
                writeln!(text, "{}: {} ranges refused, {} connections closed", guest.name, guest.refused, guest.closed);
        }
        if let Some(problem) = &guest.problem {
            let _ = writeln!(text, "{}: {problem}", guest.name);
        }
    }
    text
}

fn row(guest: &GuestStatus) -> Vec<String> {
    let size = |bytes: Option<u64>| bytes.map_or("?".to_owned(), format_size);
    vec![
        guest.name.clone(),
        guest.pid.map_or("?".to_owned(), |pid| pid.to_string()),
        if guest.connected { "here".into() } else { "none".into() },
        size(guest.ram),
        size(guest.resident),
        format_size(guest.dropped),
        format_size(guest.returned),
        format!("{}/s", format_size(guest.rate)),
    ]
}
