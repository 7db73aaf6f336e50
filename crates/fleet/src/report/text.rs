//! The report for people, on 80 columns.

use super::account::{Account, TWO_MIN, short_time};
use super::fleet::Fleet;
use super::json::rows_left_out;
use crate::input::judge::Inventory;
use isotherm_core::history::times::IDLE_NS;
use isotherm_core::printable::printable;
use isotherm_core::units::format_size;
use std::collections::BTreeMap;
use std::fmt::Write;
use time::OffsetDateTime;

/// Files that are named one by one.
const NAMED: usize = 5;
/// Width of names.
const NAME: usize = 34;

/// All of it; `most` jobs are listed.
pub fn text(fleet: &Fleet, inventory: &Inventory, most: usize) -> String {
    let mut out = String::new();
    let total = &fleet.total;
    let files = inventory.files.len();
    let _ = writeln!(out, "{} hosts, {} rows in {files} files, {}", fleet.hosts.len(), fleet.sums.rows, span(fleet));
    left_out(&mut out, fleet, inventory);
    if fleet.hosts.is_empty() {
        return out;
    }
    let known = |bytes: Option<f64>| bytes.map_or_else(|| "not known".to_owned(), size);
    let share = |bytes| total.share(bytes).map_or_else(|| "-".to_owned(), percent);
    let _ = writeln!(
        out,
        "\nresident        {:>10}  on average over the time that each host was watched",
        known(total.resident)
    );
    let in_use = total.accessed_bytes();
    let _ = writeln!(out, "in use          {:>10}  {:>5} accessed within 2m", known(in_use), share(in_use));
    let _ = writeln!(out, "not observable  {:>10}  {:>5}", known(total.unobservable), share(total.unobservable));
    let _ = writeln!(out, "swapped         {:>10}", known(total.swapped));
    out.push_str("\nidle for       memory   share   hosts: 5 %   half    95 %   used again a minute\n");
    for (i, ns) in IDLE_NS.iter().enumerate().skip(TWO_MIN - 1) {
        let time = short_time(*ns);
        let Some((share, bytes)) = total.cold_share(i).zip(total.cold_bytes(i)) else {
            let _ = writeln!(out, "{time:>8}    not known: nothing was watched for so long");
            continue;
        };
        let quantile = |p| fleet.host_quantile(i, p).map_or_else(|| "-".to_owned(), percent);
        let again = total
            .promoted_share(i)
            .map_or_else(|| "not known".to_owned(), |s| format!("{:.3} % of what is in use", s * 100.0));
        let known = total.known_share(i);
        let limit = if known < 0.95 { format!(" ({} known)", percent(known)) } else { String::new() };
        let bytes = size(bytes);
        let _ = writeln!(
            out,
            "{time:>8} {bytes:>12} {:>7}       {:>6} {:>6}  {:>6}   {again}{limit}",
            percent(share),
            quantile(0.05),
            quantile(0.5),
            quantile(0.95)
        );
    }
    parts(
        &mut out,
        "cluster",
        fleet.clusters.iter().map(|(name, account)| (name.as_deref().unwrap_or("(none)"), account)),
        most,
    );
    parts(
        &mut out,
        "namespace",
        fleet.namespaces.iter().map(|(name, a)| (name.as_deref().unwrap_or("(none)"), a)),
        most,
    );
    parts(&mut out, "job", fleet.jobs_by_cold(TWO_MIN).into_iter(), most);
    out.push_str("\nagents\n");
    for ((kernel, version, source), agents) in &fleet.agents {
        let share = |share: Option<f64>| {
            share.map_or_else(|| "not known".to_owned(), |share| format!("{:.2} %", share * 100.0))
        };
        let name = printable(&format!("{kernel}, isotherm {version}, {source}")).into_owned();
        let (cpu, cost) = (share(agents.cpu_share()), share(agents.cost_share()));
        let _ = writeln!(out, "  {name}: {} hosts; of a core: {cpu}, programs' loss {cost}", agents.hosts);
    }
    out
}

fn parts<'a>(out: &mut String, kind: &str, parts: impl Iterator<Item = (&'a str, &'a Account)>, most: usize) {
    let parts: Vec<_> = parts.collect();
    let _ = writeln!(out, "\n{kind:<NAME$} {:>9} {:>9} {:>9} {:>8}", "resident", "idle 2m", "idle 15m", "hosts");
    for (name, account) in parts.iter().take(most) {
        let name = fit(&printable(name));
        let known = |bytes: Option<f64>| bytes.map_or_else(|| "?".to_owned(), size);
        let resident = known(account.resident);
        let (two, fifteen) = (known(account.cold_bytes(TWO_MIN)), known(account.cold_bytes(TWO_MIN + 3)));
        let _ = writeln!(out, "{name:<NAME$} {resident:>9} {two:>9} {fifteen:>9} {:>8}", account.hosts);
    }
    if parts.len() > most {
        let _ = writeln!(out, "(and {} more; --top N shows N, --json and --csv all)", parts.len() - most);
    }
}

fn left_out(out: &mut String, fleet: &Fleet, inventory: &Inventory) {
    let mut by_code: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in &inventory.left_out {
        by_code.entry(file.fault.code()).or_default().push(format!("{} {}", inventory.name_of(&file.path), file.fault));
    }
    for (host, rows) in &fleet.set_back {
        let text = format!("{rows} rows of {host} are of a time that other rows cover, too: its clock was set back");
        by_code.entry("clock_set_back").or_default().push(text);
    }
    if by_code.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "left out: {} files; {} rows that are known of",
        inventory.left_out.len(),
        rows_left_out(fleet, inventory)
    );
    for (code, texts) in by_code {
        for text in texts.iter().take(NAMED) {
            let _ = writeln!(out, "  {code}: {}", printable(text));
        }
        if texts.len() > NAMED {
            let _ = writeln!(out, "  {code}: {} more (--json names all)", texts.len() - NAMED);
        }
    }
}

/// When it begins, and for how long it goes on.
pub fn span(fleet: &Fleet) -> String {
    let Some(begin) = fleet.begin_s else { return "no time".to_owned() };
    let hours = fleet.end_s.saturating_sub(begin) as f64 / 3600.0;
    let begin = i64::try_from(begin).ok().and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
    let begin = begin.map_or_else(
        || "at an unknown time".to_owned(),
        |t| format!("{:04}-{:02}-{:02} {:02}:{:02} UTC", t.year(), u8::from(t.month()), t.day(), t.hour(), t.minute()),
    );
    format!("{hours:.1} h from {begin}")
}

/// Bytes for people.
pub fn size(bytes: f64) -> String {
    format_size(bytes.round().max(0.0) as u64)
}

/// A share for people.
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "-".to_owned() }
}

/// Names longer than a column lose their middle.
pub fn fit(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= NAME {
        return name.to_owned();
    }
    let end = (NAME - 2) / 2;
    let begin: String = characters[..NAME - 2 - end].iter().collect();
    let rest: String = characters[characters.len() - end..].iter().collect();
    format!("{begin}..{rest}")
}
