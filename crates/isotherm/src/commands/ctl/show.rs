//! The status of schemes for people.

use crate::commands::schemes::control::status::{GoalStatus, MonitorStatus, SchemeStatus, Status};
use crate::commands::schemes::control::words::one_line;
use isotherm_core::action_log::Entry;
use isotherm_core::units::{format_size, format_time};
use isotherm_view::summary::cost::budget_words;
use std::fmt::Write;
use std::path::Path;

/// Entries of the log that are shown.
const LAST_ACTIONS: usize = 8;

/// Everything. `now_ns` is on the clock of the log.
pub fn text(status: &Status, socket: &Path, now_ns: u64) -> String {
    let mut out = String::new();
    let dry = if status.dry_run { ", dry run: nothing is really done" } else { "" };
    let _ = writeln!(
        out,
        "isotherm {}, pid {}, for {}, at {}{dry}",
        status.instance.version,
        status.instance.pid,
        format_time(status.instance.uptime_ns),
        socket.display()
    );
    if let Some(error) = &status.reload_error {
        let _ = writeln!(out, "reload    failed, the old schemes are in force: {error}");
    }
    let _ = writeln!(out, "monitor   {}", monitor(&status.monitor));
    if let Some(sandbox) = &status.instance.sandbox {
        let _ = writeln!(out, "sandbox   {}", sandbox.text());
    }
    if status.targets.is_empty() {
        out += "target    none is alive\n";
    }
    for t in &status.targets {
        let pid = t.pid.map_or(String::new(), |pid| format!("pid {pid}  "));
        let size = |what: &str, bytes: Option<u64>| bytes.map(|b| format!("{} {what}", format_size(b)));
        let sizes: Vec<String> = [size("resident", t.rss), size("swapped", t.swap), size("in use", t.accessed)]
            .into_iter()
            .flatten()
            .collect();
        let _ = writeln!(out, "target {:<2} {pid}{}  {}", t.target, one_line(&t.name), sizes.join(", "));
    }
    for s in &status.schemes {
        scheme(&mut out, s);
    }
    if let Some(ahead) = &status.ahead {
        let _ = writeln!(out, "ahead     of faults: {ahead}");
    }
    last_actions(&mut out, &status.log, now_ns);
    out
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn monitor(m: &MonitorStatus) -> String {
    if m.source.is_empty() {
        return "has not begun".to_owned();
    }
    let mut text = m.source.clone();
    if let (Some(sample), Some(aggr)) = (m.sample_us, m.aggr_us) {
        let time = |us: u64| format_time(us.saturating_mul(1000));
        text += &format!(", every {} in intervals of {}", time(sample), time(aggr));
    }
    if let Some(n) = m.nr_regions {
        text += &format!(", {n} regions");
    }
    if let (Some(ours), Some(theirs)) = (m.monitor_share, m.target_share) {
        let budget = budget_words(m.cpu_budget);
        text += &format!("; monitor {} + target {} of one core ({budget})", percent(ours), percent(theirs));
    }
    text
}

fn scheme(out: &mut String, s: &SchemeStatus) {
    let stats = &s.stats;
    let _ = writeln!(out, "\nscheme {:<2} {}", s.scheme, s.action);
    let mut row = |name: &str, text: &str| {
        let _ = writeln!(out, "  {name:<7} {text}");
    };
    row("memory", &s.pattern.words);
    row(
        "done",
        &format!(
            "tried {} ({}), applied to {} ({})",
            format_size(stats.sz_tried),
            stats.nr_tried,
            format_size(stats.sz_applied),
            stats.nr_applied
        ),
    );
    if stats.sz_filtered > 0 {
        row("spared", &format!("{} by filters", format_size(stats.sz_filtered)));
    }
    if let Some(text) = quota(s) {
        row("quota", &text);
    }
    for g in &s.goals {
        row("goal", &goal(g));
    }
    let e = &stats.effect;
    if e.out > 0 {
        let back = |bytes: u64| percent(bytes as f64 / e.out as f64);
        row(
            "effect",
            &format!(
                "{} went out; {} of it came back within 10 s, {} within 60 s; {} saved now",
                format_size(e.out),
                back(e.back_10s),
                back(e.back_60s),
                format_size(e.saved_now)
            ),
        );
    }
    if stats.brake_pulled > 0 {
        row("brake", &format!("pulled {} times", stats.brake_pulled));
    }
    row("now", s.idle_reason.as_deref().map_or("acting".to_owned(), |r| format!("idle: {r}")).as_str());
}

fn quota(s: &SchemeStatus) -> Option<String> {
    let interval = format_time(s.quota_reset_ns);
    let limits: Vec<String> =
        [s.quota_bytes.map(format_size), s.quota_ns.map(format_time)].into_iter().flatten().collect();
    let limit = if limits.is_empty() { String::new() } else { format!(" (limit {})", limits.join(", ")) };
    let now = s.stats.effective_quota.map(|bytes| format!("{} per {interval}", format_size(bytes)));
    let now = now.or_else(|| (!limits.is_empty()).then(|| format!("none in force yet, per {interval}")))?;
    let exceeds = match s.stats.qt_exceeds {
        0 => String::new(),
        n => format!("; used up {n} times"),
    };
    Some(format!("{now}{limit}{exceeds}"))
}

fn goal(g: &GoalStatus) -> String {
    match g.score {
        Some(score) => format!("{}, {:.0} % of the way", g.words, score as f64 / 100.0),
        None => g.words.clone(),
    }
}

fn last_actions(out: &mut String, log: &[Entry], now_ns: u64) {
    if log.is_empty() {
        return;
    }
    out.push_str("\nlast actions\n");
    for entry in log.iter().rev().take(LAST_ACTIONS) {
        let ago = format_time(now_ns.saturating_sub(entry.time_ns));
        let pid = entry.pid.map_or(format!("target {}", entry.target), |pid| format!("pid {pid}"));
        let _ = write!(
            out,
            "  {ago:>8} ago  scheme {} {} {pid}: {} of {} in {}",
            entry.scheme,
            entry.action,
            format_size(entry.applied),
            format_size(entry.asked),
            format_time(entry.took_ns)
        );
        match &entry.error {
            Some(error) => {
                let _ = writeln!(out, "; {error}");
            }
            None => out.push('\n'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::schemes::control::testing;

    #[test]
    fn everything_that_matters_is_there() {
        let mut status = testing::status();
        let text = super::text(&status, Path::new("/run/x.sock"), 10_000_000_000);
        for part in [
            "isotherm 1.2.3, pid 7",
            "/run/x.sock",
            "monitor 0.40 % + target 0.10 % of one core (budget 1 %)",
            "pid 42  \\odd \"name\"\\n  12.0 KiB resident, 4.00 KiB swapped, 4.00 KiB in use",
            "scheme 0  pageout",
            "not accessed, for 5.00 s or longer",
            "1.00 MiB per 1.00 s (limit 128 MiB)",
            "some_mem_psi 0.05% of 0.5%, 10 % of the way",
            "8.00 KiB went out; 50.00 % of it came back within 10 s",
            "4.00 KiB saved now",
            "now     acting",
            "ahead     of faults: asked for huge pages 3 times, for 8.00 KiB without a page then; collapsed 4.00 KiB; took 1 back",
            "1.00 s ago  scheme 0 pageout pid 42: 4.00 KiB of 8.00 KiB in 1.00 ms; 0x1000-0x2000: no",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        status.schemes[0].idle_reason = Some("no target is alive".into());
        status.reload_error = Some("line 3".into());
        let text = super::text(&status, Path::new("/run/x.sock"), 10_000_000_000);
        assert!(text.contains("idle: no target is alive") && text.contains("line 3"), "{text}");
    }
}
