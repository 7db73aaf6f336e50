//! `isotherm doctor`: what this machine allows, and why the rest does not work.

use anyhow::Context;
use isotherm_core::units::format_size;
use isotherm_linux::doctor::{Finding, Survey, survey};
use isotherm_linux::facts::{Environment, Lockdown};
use isotherm_linux::roots::Roots;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

/// Show what works on this machine, and why the rest does not
///
/// Lists every access source, action and meter with yes or no, the reason and the remedy. Actions are tried on a child
/// process of isotherm's own, sources on its own memory; nothing else is touched. `yes` means that this machine allows
/// it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let survey = survey(&Roots::system());
    let text = if args.json {
        format!("{}\n", to_json(&survey))
    } else {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        to_text(&survey, colour)
    };
    std::io::stdout().write_all(text.as_bytes()).context("writing to stdout")
}

fn to_json(survey: &Survey) -> Value {
    let list = |findings: &[Finding]| -> Vec<Value> {
        let entry = |f: &Finding| json!({"name": f.name, "usable": f.usable, "reason": f.reason, "remedy": f.remedy, "detail": f.detail});
        findings.iter().map(entry).collect()
    };
    let env = &survey.environment;
    json!({
        "kernel": env.kernel,
        "sources": list(&survey.sources),
        "actions": list(&survey.actions),
        "meters": list(&survey.meters),
        "environment": {
            "page_table_levels": env.page_table_levels,
            "btf_bytes": env.btf_bytes,
            "lockdown": (env.lockdown != Lockdown::Unknown).then(|| env.lockdown.to_string()),
            "capabilities": env.capabilities.map(|c| format!("{c:x}")),
            "missing_capabilities": env.missing_capabilities(),
            "cgroup": {
                "setup": env.cgroup.describe(),
                "v2": env.cgroup.v2,
                "v2_controllers": env.cgroup.v2_controllers,
                "v1_memory": env.cgroup.v1_memory,
            },
            "psi": {"usable": env.psi.is_ok(), "reason": env.psi.as_ref().err().map(ToString::to_string)},
            "thp": env.thp.map(|mode| mode.to_string()),
            "swap": env.swap.iter().map(|s| json!({"name": s.name, "size": s.size, "used": s.used})).collect::<Vec<_>>(),
            "mglru": env.mglru,
            "damon": {
                "present": env.damon.present,
                "operations": env.damon.operations,
                "users": env.damon.users.iter().map(|u| json!({"owner": u.owner, "pid": u.pid, "what": u.what})).collect::<Vec<_>>(),
            },
            "hypervisor": env.hypervisor.below,
            "kvm_processes": env.hypervisor.guests,
            "idle_page_tracking": env.idle_page_tracking,
            "memory_nodes": env.memory_nodes,
        },
    })
}

/// Facts in the order a reader wants them: name and text.
fn facts(env: &Environment) -> Vec<(&'static str, String)> {
    let unknown = || "unknown".to_owned();
    let missing = env.missing_capabilities();
    let swap: Vec<String> = env
        .swap
        .iter()
        .map(|s| format!("{} ({} used of {})", s.name, format_size(s.used), format_size(s.size)))
        .collect();
    let guests: Vec<String> = env.hypervisor.guests.iter().map(u32::to_string).collect();
    vec![
        ("kernel", env.kernel.clone()),
        ("page tables", env.page_table_levels.map_or_else(unknown, |l| format!("{l} levels"))),
        ("BTF", env.btf_bytes.map_or_else(|| "missing".to_owned(), |b| format!("present ({})", format_size(b)))),
        ("lockdown", env.lockdown.to_string()),
        (
            "capabilities",
            if missing.is_empty() {
                "all that Isotherm can use".into()
            } else {
                format!("without {}", missing.join(", "))
            },
        ),
        ("control groups", env.cgroup.describe()),
        ("pressure (PSI)", env.psi.as_ref().map_or_else(|reason| format!("no: {reason}"), |()| "measured".to_owned())),
        ("huge pages", env.thp.map_or_else(|| "not built in".into(), |mode| mode.to_string())),
        ("swap", if swap.is_empty() { "none".into() } else { swap.join(", ") }),
        ("memory nodes", env.memory_nodes.len().to_string()),
        (
            "multi-gen LRU",
            match env.mglru {
                None => "not built in".into(),
                Some(0) => "off".into(),
                Some(mask) => format!("on ({mask:#06x})"),
            },
        ),
        (
            "kernel DAMON",
            match (env.damon.present, env.damon.users.is_empty()) {
                (false, _) => "no control files".into(),
                (true, true) => "free".into(),
                (true, false) => {
                    format!(
                        "in use: {}; while it is on, it clears accessed bits, and huge pages may look idle",
                        env.damon.describe_users()
                    )
                }
            },
        ),
        ("runs under", env.hypervisor.below.clone().unwrap_or_else(|| "no hypervisor seen".into())),
        (
            "KVM guests",
            if guests.is_empty() {
                "none seen".into()
            } else {
                format!("held by pid {}; their accesses do not show in these processes' page tables", guests.join(", "))
            },
        ),
    ]
}

fn to_text(survey: &Survey, colour: bool) -> String {
    let mut out = String::new();
    for (name, text) in facts(&survey.environment) {
        let _ = writeln!(out, "{name:<16} {text}");
    }
    for (title, findings) in [("Sources", &survey.sources), ("Actions", &survey.actions), ("Meters", &survey.meters)] {
        let _ = writeln!(out, "\n{}", paint(title, "1", colour));
        let width = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
        for f in findings {
            let verdict = if f.usable { paint("yes", "32", colour) } else { paint("no ", "31", colour) };
            let why = if f.usable { &f.detail } else { &f.reason };
            let line = format!("  {:<width$}  {verdict}  {why}", f.name);
            let _ = writeln!(out, "{}", line.trim_end());
            if !f.remedy.is_empty() {
                let _ = writeln!(out, "  {:width$}       -> {}", "", f.remedy);
            }
        }
    }
    out
}

fn paint(text: &str, code: &str, colour: bool) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Survey {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::captured(dir.path());
        Survey {
            environment: Environment::read(&roots),
            sources: vec![Finding::unusable("idle", "it is missing", "build it in")],
            actions: vec![Finding::usable("stat", "")],
            meters: vec![Finding::usable("target_rss", "whole")],
        }
    }

    #[test]
    fn json_has_the_promised_shape() {
        let v = to_json(&sample());
        assert_eq!(v["kernel"], "unknown");
        assert_eq!(v["sources"][0]["name"], "idle");
        assert_eq!(v["sources"][0]["usable"], false);
        assert_eq!(v["sources"][0]["reason"], "it is missing");
        assert_eq!(v["actions"][0]["usable"], true);
        assert_eq!(v["actions"][0]["reason"], "");
        assert_eq!(v["meters"][0]["detail"], "whole");
        assert!(v["environment"]["lockdown"].is_null(), "what the kernel does not tell");
    }

    #[test]
    fn text_is_plain_unless_colour_is_asked_for() {
        let plain = to_text(&sample(), false);
        assert!(!plain.contains('\x1b'));
        assert!(plain.contains("  idle  no   it is missing\n             -> build it in\n"), "{plain}");
        assert!(plain.contains("  stat  yes\n"));
        assert!(to_text(&sample(), true).contains("\x1b[31mno \x1b[0m"));
    }
}
