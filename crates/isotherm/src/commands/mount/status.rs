//! How `mount` stands.

use isotherm_compat::registry::{Refusal, Registry, RunningKdamond};
use isotherm_compat::settings::{KdamondTargets, TargetRanges};
use isotherm_core::figure::Figured;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::units::format_time;
use isotherm_daemon::instance::Instance;
use isotherm_daemon::openmetrics::{Exposition, Labels};
use isotherm_daemon::service::Status;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What an instance that serves control files calls what it runs.
pub const COMMAND: &str = "mount";
/// Refusals that people are shown.
const LAST_REFUSALS: usize = 8;

/// How it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MountStatus {
    /// Which Isotherm it is.
    #[serde(flatten)]
    pub instance: Instance,
    /// What runs behind the files.
    pub kdamonds: Vec<KdamondStatus>,
    /// What was written and could not be done; the last at the end.
    pub refused: Vec<RefusalStatus>,
}

/// A kdamond that runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KdamondStatus {
    /// The files that it stands behind.
    pub files: String,
    /// Its thread, which `pid` of those files tells.
    pub tid: i32,
    /// `vaddr` or `fvaddr`; `None`: all processes are watched.
    pub operations: Option<String>,
    /// Targets, in the order of their folders.
    pub pids: Vec<u32>,
    /// Sampling interval as it was committed, us.
    pub sample_us: u64,
    /// Aggregation interval as it was committed, us.
    pub aggr_us: u64,
    /// Its schemes, in the order of their folders.
    pub schemes: Vec<SchemeStatus>,
}

isotherm_core::figures! {
    /// A scheme behind control files, since its kdamond has it.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    pub struct SchemeStatus {
        nr_tried: u64 = Counter Count, "Times that the action was tried on (part of) a region.";
        sz_tried: u64 = Counter Bytes, "Memory that the action was tried on.";
        nr_applied: u64 = Counter Count, "Ranges that the action succeeded for.";
        sz_applied: u64 = Counter Bytes, "Memory that the action succeeded for.";
        qt_exceeds: u64 = Counter Count, "Reset intervals in which the quota was used up.";
        effective_quota: u64 = Gauge Bytes, "Memory per reset interval that may be done at present; 0 without a limit.";
    }
    and {
        /// Its index.
        scheme: usize;
        /// What it does.
        action: String;
    }
}

/// What was written and could not be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RefusalStatus {
    /// When, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The files that it was written to.
    pub files: String,
    /// Why, and what can be done.
    pub reason: String,
}

impl MountStatus {
    /// What a registry knows.
    pub fn of(instance: Instance, registry: &Registry) -> Self {
        let kdamonds = registry.running().into_iter().map(KdamondStatus::of).collect();
        let refusal = |Refusal { time_ns, files, reason }| RefusalStatus { time_ns, files, reason };
        Self { instance, kdamonds, refused: registry.refusals().into_iter().map(refusal).collect() }
    }
}

impl KdamondStatus {
    fn of(kdamond: RunningKdamond) -> Self {
        let settings = kdamond.settings;
        let (operations, pids) = match &settings.watched {
            KdamondTargets::All => (None, Vec::new()),
            KdamondTargets::Processes(processes) => {
                let operations = processes.first().map_or("vaddr", |process| TargetRanges::operations(&process.space));
                (Some(operations.to_owned()), processes.iter().map(|process| process.pid).collect())
            }
        };
        let none = SchemeStats::default();
        let stats = kdamond.stats.iter().chain(std::iter::repeat(&none));
        let scheme = |(index, (scheme, stats)): (usize, (&Scheme, &SchemeStats))| SchemeStatus {
            scheme: index,
            action: scheme.action.to_string(),
            nr_tried: stats.nr_tried,
            sz_tried: stats.sz_tried,
            nr_applied: stats.nr_applied,
            sz_applied: stats.sz_applied,
            qt_exceeds: stats.qt_exceeds,
            effective_quota: stats.effective_quota.unwrap_or(0),
        };
        Self {
            files: kdamond.files,
            tid: kdamond.tid,
            operations,
            pids,
            sample_us: settings.attrs.sample_us,
            aggr_us: settings.attrs.aggr_us,
            schemes: settings.schemes.iter().zip(stats).enumerate().map(scheme).collect(),
        }
    }

    fn watched(&self) -> String {
        match &self.operations {
            None => "all processes".to_owned(),
            Some(operations) => {
                let pids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
                format!("pid {} ({operations})", pids.join(", "))
            }
        }
    }
}

impl Status for MountStatus {
    fn write_metrics(&self, out: &mut Exposition) {
        self.instance.write_metrics(out);
        let schemes = self.kdamonds.iter().flat_map(|k| k.schemes.iter().map(move |scheme| (k, scheme)));
        let labelled = |(kdamond, scheme): (&KdamondStatus, _)| {
            let of: &SchemeStatus = scheme;
            let labels: Labels = vec![
                ("kdamond", kdamond.files.clone()),
                ("scheme", of.scheme.to_string()),
                ("action", of.action.clone()),
            ];
            (labels, scheme)
        };
        out.figures("kdamond_scheme_", &schemes.map(labelled).collect::<Vec<_>>());
    }
}

/// The status for people. `now_ns` is on the clock of the refusals.
pub fn text(status: &MountStatus, now_ns: u64) -> String {
    let mut text = status.instance.heading();
    let _ = writeln!(text, "files     {}", status.instance.about);
    if status.kdamonds.is_empty() {
        text += "nothing is switched on\n";
    }
    for kdamond in &status.kdamonds {
        let us = |us: u64| format_time(us.saturating_mul(1000));
        let _ = writeln!(
            text,
            "\n{} watches {}, every {} in intervals of {}; thread {}",
            kdamond.files,
            kdamond.watched(),
            us(kdamond.sample_us),
            us(kdamond.aggr_us),
            kdamond.tid
        );
        for scheme in &kdamond.schemes {
            let _ = writeln!(text, "  scheme {} {}", scheme.scheme, scheme.action);
            for figure in SchemeStatus::FIGURES {
                if let Some(value) = figure.text(scheme) {
                    let _ = writeln!(text, "    {:<15} {value:>10}  {}", figure.name, figure.help);
                }
            }
        }
    }
    if !status.refused.is_empty() {
        text += "\nrefused (EINVAL)\n";
    }
    for refusal in status.refused.iter().rev().take(LAST_REFUSALS) {
        let ago = format_time(now_ns.saturating_sub(refusal.time_ns));
        let _ = writeln!(text, "  {ago:>8} ago  {}: {}", refusal.files, refusal.reason);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_daemon::openmetrics_check::checked;

    fn status() -> MountStatus {
        let scheme =
            SchemeStatus { action: "pageout".into(), sz_tried: 1 << 20, nr_tried: 3, ..SchemeStatus::default() };
        let kdamond = KdamondStatus {
            files: "kdamonds/0".into(),
            tid: 77,
            operations: Some("fvaddr".into()),
            pids: vec![4, 2],
            sample_us: 5000,
            aggr_us: 100_000,
            schemes: vec![scheme],
        };
        let all = KdamondStatus { files: "damon_stat".into(), ..KdamondStatus::default() };
        let refused =
            RefusalStatus { time_ns: 1_000_000_000, files: "kdamonds/1".into(), reason: "operations is paddr".into() };
        let instance = Instance { about: "/run/files".into(), ..Instance::default() };
        MountStatus { instance, kdamonds: vec![kdamond, all], refused: vec![refused] }
    }

    #[test]
    fn people_see_what_runs_and_why_something_does_not() {
        let text = text(&status(), 3_000_000_000);
        for part in [
            "files     /run/files",
            "kdamonds/0 watches pid 4, 2 (fvaddr), every 5.00 ms in intervals of 100 ms; thread 77",
            "sz_tried          1.00 MiB",
            "damon_stat watches all processes",
            "2.00 s ago  kdamonds/1: operations is paddr",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let off = MountStatus { kdamonds: Vec::new(), ..status() };
        assert!(super::text(&off, 0).contains("nothing is switched on"));
    }

    #[test]
    fn metrics_keep_to_the_format() {
        let mut out = Exposition::default();
        status().write_metrics(&mut out);
        let samples = checked(&out.finish());
        let labels = "{kdamond=\"kdamonds/0\",scheme=\"0\",action=\"pageout\"}";
        assert_eq!(samples.get(&format!("isotherm_kdamond_scheme_sz_tried_bytes_total{labels}")), Some(&1_048_576.0));
    }

    #[test]
    fn json_is_read_back() {
        let text = serde_json::to_string(&status()).unwrap();
        let read: MountStatus = serde_json::from_str(&text).unwrap();
        assert_eq!(read.kdamonds[0].pids, [4, 2]);
        assert_eq!(read.refused[0].reason, "operations is paddr");
    }
}
