//! How `lru run` stands.

use isotherm_core::figure::Figured;
use isotherm_core::keeper::figures::LimitFigures;
use isotherm_core::units::format_time;
use isotherm_daemon::instance::Instance;
use isotherm_daemon::openmetrics::{Exposition, Labels};
use isotherm_daemon::service::Status;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What an instance that keeps limits calls what it runs.
pub const COMMAND: &str = "lru run";

/// How it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LruStatus {
    /// Which Isotherm it is.
    #[serde(flatten)]
    pub instance: Instance,
    /// The limits.
    pub limits: Vec<LimitFigures>,
}

impl Status for LruStatus {
    fn write_metrics(&self, out: &mut Exposition) {
        self.instance.write_metrics(out);
        let labels = |limit: &LimitFigures| -> Labels {
            vec![("domain", limit.domain.clone()), ("engine", limit.engine.clone())]
        };
        out.figures("lru_", &self.limits.iter().map(|limit| (labels(limit), limit)).collect::<Vec<_>>());
        let memories = self.limits.iter().flat_map(|limit| limit.memories.iter().map(move |memory| (limit, memory)));
        let of = |(limit, memory): (&LimitFigures, _)| (limit.domain.clone(), memory);
        let memories = memories.map(of).map(|(domain, memory): (_, &isotherm_core::keeper::figures::MemoryFigures)| {
            (vec![("domain", domain), ("memcg", memory.memcg.clone())], memory)
        });
        out.figures("lru_memory_", &memories.collect::<Vec<_>>());
    }
}

/// The status for people.
pub fn text(status: &LruStatus) -> String {
    let mut text = status.instance.heading();
    for limit in &status.limits {
        let _ = writeln!(text, "\n{} (generations of {})", limit.domain, limit.engine);
        for figure in LimitFigures::FIGURES {
            if let Some(value) = figure.text(limit) {
                let _ = writeln!(text, "  {:<14} {value:>10}  {}", figure.name, figure.help);
            }
        }
        if let Some(since) = limit.thrashing_since_ns {
            let time = format_time(limit.time_ns.saturating_sub(since));
            let _ = writeln!(text, "  thrashing for {time}: its working set does not fit below the limit");
        }
        for pid in &limit.frozen {
            let _ = writeln!(text, "  pid {pid} is stopped");
        }
        if let Some(reason) = &limit.idle_reason {
            let _ = writeln!(text, "  idle: {reason}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::keeper::figures::MemoryFigures;
    use isotherm_daemon::openmetrics_check::checked;

    fn status() -> LruStatus {
        let memory = MemoryFigures { memcg: "/a".into(), evicted: 4096, evictable: 8192 };
        let limit = LimitFigures {
            domain: "/a".into(),
            engine: "user".into(),
            limit: Some(1 << 30),
            used_share: Some(0.25),
            walk_ns: 1_500_000_000,
            memories: vec![memory],
            idle_reason: Some("there is no swap".into()),
            ..LimitFigures::default()
        };
        LruStatus { instance: Instance::default(), limits: vec![limit] }
    }

    #[test]
    fn metrics_keep_to_the_format_and_leave_out_what_is_not_known() {
        let mut out = Exposition::default();
        status().write_metrics(&mut out);
        let samples = checked(&out.finish());
        let at = |name: &str| samples.get(&format!("isotherm_lru_{name}")).copied();
        assert_eq!(at("limit_bytes{domain=\"/a\",engine=\"user\"}"), Some(1_073_741_824.0));
        assert_eq!(at("walk_cpu_seconds_total{domain=\"/a\",engine=\"user\"}"), Some(1.5));
        assert_eq!(at("memory_evicted_bytes_total{domain=\"/a\",memcg=\"/a\"}"), Some(4096.0));
        assert!(!samples.keys().any(|k| k.contains("lru_used_bytes")), "not known has no sample");
    }

    #[test]
    fn people_see_every_figure_that_is_known() {
        let text = text(&status());
        for part in ["limit            1.00 GiB", "25.00 %", "idle: there is no swap", "CPU time for walks"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("\n  used  "), "{text}");
    }
}
