//! How the host side of hinting stands.

use isotherm_core::units::{format_size, format_time};
use isotherm_daemon::instance::Instance;
use isotherm_hint::host::status::GuestStatus;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

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

/// The status for people.
pub fn text(status: &HostStatus) -> String {
    let mut text = status.instance.heading();
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
