//! `isotherm hint status`.

use super::host::control_folders;
use crate::control::client::call;
use crate::control::socket::{live, name};
use crate::exit::Usage;
use anyhow::{Context, bail};
use isotherm_core::units::{format_size, format_time};
use isotherm_hint::host::status::{GuestStatus, HostStatus};
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

/// Show what the host side has of each guest, and what it has given back
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The one that listens here
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    socket: Option<PathBuf>,
    /// The one with this process number
    #[arg(long, value_name = "N")]
    pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let socket = find(&args)?;
    let response = call(&socket, "GET", "/status", b"").map_err(|e| match e {
        crate::control::client::ClientError::Nobody(path) => anyhow::anyhow!(
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
            .context("what runs there is of another version; use its own `isotherm hint status`, or --json")?;
        out.write_all(text(&status).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn find(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(socket) = &args.socket {
        return Ok(socket.clone());
    }
    let folders = control_folders();
    let listed = || folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(" or ");
    if let Some(pid) = args.pid {
        return folders.iter().map(|f| f.join(name(pid))).find(|p| p.exists()).with_context(|| {
            format!(
                "no `isotherm hint host` with pid {pid} listens in {}; one started with --socket needs --socket",
                listed()
            )
        });
    }
    match live(&folders).as_slice() {
        [path] => Ok(path.clone()),
        [] => bail!("no `isotherm hint host` listens in {}; start one, or give --socket PATH", listed()),
        several => {
            let mut text = "several run; say which with --pid N or --socket PATH:".to_owned();
            several.iter().for_each(|path| text += &format!("\n  {}", path.display()));
            Err(Usage(text).into())
        }
    }
}

fn text(status: &HostStatus) -> String {
    let mut text = format!(
        "isotherm {} hint host, pid {}, running for {}\n",
        status.version,
        status.pid,
        format_time(status.uptime_ns)
    );
    for place in &status.listening {
        let _ = writeln!(text, "listening at {place}");
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
