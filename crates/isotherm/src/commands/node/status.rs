//! How a node stands, for people and as metrics.

pub use super::rules::status::{CacheReclaimed, Collapsed, Reclaimed};
use super::rules::status::{RuleStatus, WITHIN_S};
use isotherm_core::figure::{FigureKind, Value};
use isotherm_core::history::frame::{PageAges, bytes};
use isotherm_core::history::reaccessed::Reaccessed;
use isotherm_core::history::times::{AGES_NS, IDLE_NS};
use isotherm_core::units::{format_size, format_time};
use isotherm_daemon::instance::Instance;
use isotherm_daemon::openmetrics::{Exposition, Family, Labels};
use isotherm_daemon::service::Status;
use isotherm_linux::cgroup::names::GroupNames;
use isotherm_view::machine::{Machine, Row};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What an instance that watches the machine calls what it runs.
pub const COMMAND: &str = "node";
/// From this age on memory is counted as idle in metrics, ns.
const LEAST_IDLE_NS: u64 = 10_000_000_000;
/// Groups that people are shown.
const SHOWN: usize = 10;

isotherm_core::figures! {
    /// What the agent watches and costs.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    pub struct NodeFigures {
        processes: u64 = Gauge Count as "node_processes", "Processes that are watched.";
        not_watched: u64 = Gauge Count as "node_processes_not_watched", "Of these, how many have not been watched for long enough to say anything.";
        group_unknown: u64 = Gauge Count as "node_processes_group_unknown", "Of these, how many are in control groups that cannot be named from here, or are just ending.";
        refused: u64 = Gauge Count as "node_processes_refused", "Processes that cannot be watched: this user may not look into them, or there is no room for more.";
        cpu_budget: Option<f64> = Gauge Ratio as "node_cpu_budget", "Part of a core that both may take together; without a value there is no limit.";
        monitor_ns: Option<u64> = Counter Nanoseconds as "monitor_cpu_ns", "CPU time of watching.";
        target_ns: Option<u64> = Counter Nanoseconds as "target_cost_ns", "Estimated CPU time that the processes lost to it.";
    }
}

isotherm_core::figures! {
    /// What is known of a control group's memory, beside its age.
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    pub struct GroupMemory {
        resident: Option<u64> = Gauge Bytes, "Memory that its processes map and that is present; a page that several groups map counts in one.";
        swapped: Option<u64> = Gauge Bytes, "Its memory in swap: the larger one of its processes' counts and of what the kernel charges it with, in which shared memory is.";
        unobservable: Option<u64> = Gauge Bytes, "Of the resident memory, what cannot be observed: neither idle nor in use.";
        limit: Option<u64> = Gauge Bytes, "The lowest limit that it is under: its own, or that of a group above it.";
        page_cache_active: Option<u64> = Gauge Bytes, "Files in memory, in it and in groups below it, that the kernel takes to be in use.";
        page_cache_inactive: Option<u64> = Gauge Bytes, "The same, of those to be dropped first.";
        page_cache_mapped: Option<u64> = Gauge Bytes, "Files and shared memory in it and in groups below it that a process maps, and that are counted as resident; shared memory is in neither of the two above.";
        processes: u64 = Gauge Count, "Processes in it.";
    }
}

/// A control group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its path.
    pub cgroup: String,
    /// What people call it.
    #[serde(flatten)]
    pub names: GroupNames,
    /// Sizes.
    #[serde(flatten)]
    pub memory: GroupMemory,
    /// How old its pages are; `None`: not known yet.
    pub ages: Option<PageAges>,
    /// Bytes accessed again since it is watched, by how long they had been idle; `None`: not known.
    pub reaccessed: Option<[u64; IDLE_NS.len()]>,
    /// The rule that is for it, if there is one.
    #[serde(default)]
    pub rule: Option<RuleStatus>,
}

/// How it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Which Isotherm it is.
    #[serde(flatten)]
    pub instance: Instance,
    /// How it watches; empty before it does.
    pub source: String,
    /// What it watches and costs.
    #[serde(flatten)]
    pub figures: NodeFigures,
    /// The rules in a few words; `None`: it only watches.
    #[serde(default)]
    pub rules: Option<String>,
    /// All together.
    pub total: Option<PageAges>,
    /// Control groups in which processes are, by path.
    pub groups: Vec<GroupStatus>,
}

/// What `isotherm ps` gets from a node.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeMachine {
    /// For how long it has watched, earlier nodes that it goes on with included, ns.
    pub watched_ns: u64,
    /// All that it watches.
    pub machine: Machine,
}

impl GroupStatus {
    /// Of a row that is a group.
    pub fn of(row: &Row, names: GroupNames, more: GroupMemory, reaccessed: Option<Reaccessed>) -> Option<Self> {
        let memory = GroupMemory {
            resident: row.ages.as_ref().map(|ages| bytes(ages.resident)),
            swapped: row.swap,
            unobservable: row.ages.as_ref().map(|ages| bytes(ages.unobservable)),
            processes: row.processes as u64,
            ..more
        };
        Some(Self {
            cgroup: row.cgroup.clone()?,
            names,
            memory,
            ages: row.ages.clone(),
            reaccessed: reaccessed.map(|r| r.pages().map(bytes)),
            rule: None,
        })
    }

    fn labels(&self) -> Labels {
        let names =
            [("namespace", &self.names.namespace), ("pod", &self.names.pod), ("container", &self.names.container)];
        let names = names.into_iter().filter_map(|(key, name)| Some((key, name.clone()?)));
        [("cgroup", self.cgroup.clone())].into_iter().chain(names).collect()
    }

    fn idle(&self, age_ns: u64) -> Option<u64> {
        Some(bytes(self.ages.as_ref()?.known_for(age_ns)?.pages))
    }

    fn again(&self, idle_ns: u64) -> Option<u64> {
        Some(self.reaccessed?[IDLE_NS.iter().position(|&time| time == idle_ns)?])
    }

    fn refaulted(&self, within_s: u64) -> Option<u64> {
        Some(self.rule.as_ref()?.refaulted?[WITHIN_S.iter().position(|&time| time == within_s)?])
    }

    fn accessed(&self, window_ns: u64) -> Option<u64> {
        Some(bytes(self.ages.as_ref()?.known_within(window_ns)?.pages))
    }
}

impl Status for NodeStatus {
    fn write_metrics(&self, out: &mut Exposition) {
        self.instance.write_metrics(out);
        out.figures("", &[(Labels::new(), &self.figures)]);
        let labelled: Vec<(Labels, &GroupStatus)> = self.groups.iter().map(|group| (group.labels(), group)).collect();
        let memories: Vec<(Labels, &GroupMemory)> =
            labelled.iter().map(|(labels, group)| (labels.clone(), &group.memory)).collect();
        out.figures("memory_", &memories);
        let idle = Family {
            name: "memory_idle",
            kind: FigureKind::Gauge,
            unit: "bytes",
            help: "Resident memory that has not been accessed for so long; no sample for times that it was not watched for.",
        };
        let ages = || AGES_NS.into_iter().filter(|age| *age >= LEAST_IDLE_NS);
        by_time(out, &idle, "min_age_seconds", &labelled, ages(), GroupStatus::idle);
        self.write_rules(out, &labelled);
        let again = Family {
            name: "memory_reaccessed",
            kind: FigureKind::Counter,
            unit: "bytes",
            help: "Memory accessed again after it had been idle for so long, each time that it was; of what processes share, each counts its own accesses.",
        };
        let times = IDLE_NS.into_iter().filter(|age| *age >= LEAST_IDLE_NS);
        by_time(out, &again, "min_age_seconds", &labelled, times, GroupStatus::again);
        let used = Family {
            name: "memory_working_set",
            kind: FigureKind::Gauge,
            unit: "bytes",
            help: "Resident memory that was accessed within so long; no sample for times that it was not watched for.",
        };
        by_time(out, &used, "window_seconds", &labelled, AGES_NS.into_iter(), GroupStatus::accessed);
    }
}

impl NodeStatus {
    fn write_rules(&self, out: &mut Exposition, groups: &[(Labels, &GroupStatus)]) {
        let with_rule = groups
            .iter()
            .filter_map(|(labels, group)| Some((labels.clone(), group.rule.as_ref()?)))
            .collect::<Vec<_>>();
        if with_rule.is_empty() {
            return;
        }
        let figures: Vec<(Labels, &Reclaimed)> = with_rule.iter().map(|(l, rule)| (l.clone(), &rule.figures)).collect();
        out.figures("", &figures);
        let huge: Vec<(Labels, &Collapsed)> = with_rule.iter().map(|(l, rule)| (l.clone(), &rule.huge)).collect();
        out.figures("", &huge);
        let cache =
            |(labels, rule): &(Labels, &RuleStatus)| Some((labels.clone(), rule.page_cache.as_ref()?.figures.clone()));
        let caches: Vec<(Labels, CacheReclaimed)> = with_rule.iter().filter_map(cache).collect();
        out.figures("", &caches.iter().map(|(labels, figures)| (labels.clone(), figures)).collect::<Vec<_>>());
        let refaulted = Family {
            name: "refaulted",
            kind: FigureKind::Counter,
            unit: "bytes",
            help: "Of what a rule has paged out: what came back within so long.",
        };
        let times = WITHIN_S.map(|s| s * 1_000_000_000).into_iter();
        by_time(out, &refaulted, "within_seconds", groups, times, |group, ns| group.refaulted(ns / 1_000_000_000));
    }
}

/// A family with a sample for each group and each of `times`, ns.
fn by_time(
    out: &mut Exposition,
    family: &Family<'_>,
    label: &'static str,
    groups: &[(Labels, &GroupStatus)],
    times: impl Iterator<Item = u64> + Clone,
    value: impl Fn(&GroupStatus, u64) -> Option<u64>,
) {
    let samples: Vec<(Labels, Option<Value>)> = groups
        .iter()
        .flat_map(|(labels, group)| times.clone().map(move |age| (labels, group, age)))
        .map(|(labels, group, age)| {
            let labels = labels.iter().cloned().chain([(label, (age / 1_000_000_000).to_string())]).collect();
            (labels, value(group, age).map(Value::Whole))
        })
        .collect();
    out.family(family, samples.iter().map(|(labels, value)| (labels, *value)));
}

/// The status for people.
pub fn text(status: &NodeStatus) -> String {
    let instance = &status.instance;
    let mut text = instance.heading();
    let mut row = |name: &str, words: &str| {
        let _ = writeln!(text, "{name:<9} {words}");
    };
    let figures = &status.figures;
    let source = if status.source.is_empty() { "has not begun" } else { &status.source };
    row("monitor", source);
    row("watches", &format!("{} processes in {} control groups", figures.processes, status.groups.len()));
    if figures.not_watched > 0 {
        row("", &format!("{} of them not for long enough to say anything", figures.not_watched));
    }
    if figures.group_unknown > 0 {
        row("", &format!("{} of them in groups that are not known here", figures.group_unknown));
    }
    if figures.refused > 0 {
        row("", &format!("{} more cannot be watched; the log tells why", figures.refused));
    }
    let share = |ns: u64| ns as f64 / instance.uptime_ns.max(1) as f64 * 100.0;
    if let (Some(ours), Some(theirs)) = (figures.monitor_ns.map(share), figures.target_ns.map(share)) {
        row("cost", &format!("monitor {ours:.2} % + processes {theirs:.2} % of one core since the start"));
    }
    text + &groups_text(status) + &rules_text(status)
}

/// How much of groups and of all together is idle; empty while nothing is known of any. Where young processes hold much of the memory, groups are
/// known before all together is.
fn groups_text(status: &NodeStatus) -> String {
    let mut groups: Vec<(&GroupStatus, &PageAges)> =
        status.groups.iter().filter_map(|group| Some((group, group.ages.as_ref()?))).collect();
    let longest_of = |ages: &PageAges| AGES_NS.into_iter().rfind(|&age_ns| ages.known_for(age_ns).is_some());
    // The longest age for which nearly all of it is known.
    let total = status.total.as_ref();
    let age_ns = total.and_then(longest_of).or_else(|| groups.iter().filter_map(|(_, ages)| longest_of(ages)).max());
    let Some(age_ns) = age_ns else { return String::new() };
    let cold = |ages: &PageAges| ages.known_for(age_ns).map(|idle| bytes(idle.pages));
    let words = |ages: &PageAges| {
        let cold = cold(ages).map_or_else(|| "not known".to_owned(), format_size);
        format!("{cold:>9} of {:>9}", format_size(bytes(ages.resident)))
    };
    let mut text = format!("\nnot accessed for {}, of what is resident\n", format_time(age_ns));
    groups.sort_by_key(|(_, ages)| std::cmp::Reverse(cold(ages)));
    for (group, ages) in groups.iter().take(SHOWN) {
        let name = group.names.label().unwrap_or_else(|| group.cgroup.clone());
        let _ = writeln!(text, "  {}  {name}", words(ages));
    }
    if groups.len() > SHOWN {
        let _ = writeln!(text, "  ... and {} groups more; `isotherm ps --by cgroup` lists all", groups.len() - SHOWN);
    }
    if let Some(total) = total {
        let _ = writeln!(text, "  {}  all together", words(total));
    }
    text
}

/// What rules have done, those groups first in which it is most; empty without rules.
fn rules_text(status: &NodeStatus) -> String {
    let Some(words) = &status.rules else { return String::new() };
    let mut text = format!("\n{words}\n");
    let of_group =
        |group: &GroupStatus| Some((group.names.label().unwrap_or_else(|| group.cgroup.clone()), group.rule.clone()?));
    let mut groups: Vec<(String, RuleStatus)> = status.groups.iter().filter_map(of_group).collect();
    groups
        .sort_by_key(|(_, rule)| std::cmp::Reverse((rule.figures.reclaimed_out, rule.would_save, rule.huge.collapsed)));
    for (name, rule) in groups.iter().take(SHOWN) {
        let _ = writeln!(text, "  {name}: {}", rule.words());
    }
    if groups.len() > SHOWN {
        let _ =
            writeln!(text, "  ... and {} groups more; `isotherm ctl status --json` lists all", groups.len() - SHOWN);
    }
    if groups.is_empty() {
        text += "  no control group is meant\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::history::frame::IdlePages;
    use isotherm_daemon::openmetrics_check::checked;

    const S: u64 = 1_000_000_000;

    fn ages(resident: u64, idle: &[u64]) -> PageAges {
        let idle = idle.iter().map(|&pages| IdlePages { pages, least: pages, most: pages, unresolved: 0 });
        PageAges { resident, unobservable: 1, idle: idle.collect(), ..PageAges::default() }
    }

    fn status() -> NodeStatus {
        let pod = GroupNames {
            namespace: Some("prod".into()),
            pod: Some("web-1".into()),
            container: Some("app\"x".into()),
            ..GroupNames::default()
        };
        let row = |path: &str, ages: Option<PageAges>| Row {
            pid: None,
            name: path.into(),
            cgroup: Some(path.into()),
            processes: 2,
            not_watched: 0,
            rss: None,
            swap: Some(4096),
            ages,
        };
        let more = GroupMemory { limit: Some(1 << 30), ..GroupMemory::default() };
        // Watched for 10 s, and for no time yet.
        let groups = [
            GroupStatus::of(
                &row("/kube/a", Some(ages(1000, &[900, 850, 820, 800]))),
                pod,
                more,
                Some(Reaccessed::default()),
            ),
            GroupStatus::of(&row("/b", None), GroupNames::default(), GroupMemory::default(), None),
        ];
        NodeStatus {
            instance: Instance { uptime_ns: 20 * S, command: COMMAND.into(), ..Instance::default() },
            source: "pagetable".into(),
            figures: NodeFigures {
                processes: 4,
                monitor_ns: Some(S / 10),
                target_ns: Some(S / 20),
                ..NodeFigures::default()
            },
            rules: None,
            total: Some(ages(1000, &[900, 850, 820, 800])),
            groups: groups.into_iter().flatten().collect(),
        }
    }

    #[test]
    fn metrics_have_the_agreed_names_and_leave_out_what_is_not_known() {
        let mut out = Exposition::default();
        status().write_metrics(&mut out);
        let samples = checked(&out.finish());
        let pod = "cgroup=\"/kube/a\",namespace=\"prod\",pod=\"web-1\",container=\"app\\\"x\"";
        let at = |name: &str, labels: &str| samples.get(&format!("isotherm_{name}{{{labels}}}")).copied();
        assert_eq!(at("memory_idle_bytes", &format!("{pod},min_age_seconds=\"10\"")), Some(800.0 * 4096.0));
        assert_eq!(at("memory_idle_bytes", &format!("{pod},min_age_seconds=\"30\"")), None, "not watched for so long");
        assert_eq!(at("memory_idle_bytes", &format!("{pod},min_age_seconds=\"1\"")), None);
        assert_eq!(at("memory_reaccessed_bytes_total", &format!("{pod},min_age_seconds=\"30\"")), Some(0.0));
        assert_eq!(at("memory_reaccessed_bytes_total", "cgroup=\"/b\",min_age_seconds=\"30\""), None);
        assert_eq!(at("memory_working_set_bytes", &format!("{pod},window_seconds=\"10\"")), Some(199.0 * 4096.0));
        assert_eq!(at("memory_unobservable_bytes", pod), Some(4096.0));
        assert_eq!(
            (at("memory_limit_bytes", pod), at("memory_limit_bytes", "cgroup=\"/b\"")),
            (Some(1073741824.0), None)
        );
        assert_eq!(at("memory_resident_bytes", "cgroup=\"/b\""), None);
        assert_eq!(samples.get("isotherm_monitor_cpu_seconds_total"), Some(&0.1));
        assert_eq!(samples.get("isotherm_target_cost_seconds_total"), Some(&0.05));
    }

    #[test]
    fn json_is_read_back() {
        let read: NodeStatus = serde_json::from_slice(&serde_json::to_vec(&status()).unwrap()).unwrap();
        assert_eq!(read.groups[0].names.pod.as_deref(), Some("web-1"));
        assert_eq!((read.groups[0].ages.clone(), read.groups[1].ages.clone()), (status().total, None));
        assert_eq!((read.figures.processes, read.groups[0].memory.processes), (4, 2));
    }

    #[test]
    fn people_see_what_it_watches_and_what_it_costs() {
        let text = text(&status());
        for part in [
            "running for 20.0 s",
            "4 processes in 2 control groups",
            "monitor 0.50 % + processes 0.25 %",
            "not accessed for 10.0 s",
            "3.12 MiB of  3.91 MiB  prod/web-1/app\"x",
            "all together",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let figures = NodeFigures { refused: 3, ..status().figures };
        assert!(super::text(&NodeStatus { figures, ..status() }).contains("3 more cannot be watched"));
        let begun = NodeStatus { total: None, source: String::new(), ..status() };
        assert!(super::text(&begun).contains("has not begun"));
        let open = |resident, unresolved| PageAges {
            idle: vec![IdlePages { pages: 0, least: 0, most: unresolved, unresolved }],
            ..ages(resident, &[])
        };
        // Processes that have begun only now hold half of the memory.
        let young = super::text(&NodeStatus { total: Some(open(2000, 1000)), ..status() });
        for part in
            ["not accessed for 10.0 s", "3.12 MiB of  3.91 MiB  prod/web-1", "not known of  7.81 MiB  all together"]
        {
            assert!(young.contains(part), "{part:?} is not in\n{young}");
        }
    }
}
