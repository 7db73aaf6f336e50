//! `docs/figures.md` follows from the declarations: `ISOTHERM_WRITE_DOCS=1 cargo test -p isotherm figures_doc` writes
//! it.

use crate::commands::mount::status::SchemeStatus;
use crate::commands::node::status::{CacheReclaimed, Collapsed, GroupMemory, NodeFigures, Reclaimed};
use crate::commands::schemes::control::status::{GoalStatus, MonitorStatus, TargetStatus};
use isotherm_core::keeper::figures::{LimitFigures, MemoryFigures};
use isotherm_core::scheme::ahead::AheadTotals;
use isotherm_core::scheme::effect::Effect;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_daemon::documentation::table;
use isotherm_daemon::instance::Instance;
use isotherm_hint::host::status::{GuestStatus, ScanStatus};

const HEAD: &str = "# Figures

Every figure that a running Isotherm tells, as it is declared in the source: its field in JSON (`ctl status --json`, `hint status
--json`, `--stats`), and its name in OpenMetrics (`--metrics`, `GET /metrics`). JSON has the unit of the field's name (`_ns`, `_us`;
sizes in bytes), metrics have base units. What is not known is `null` in JSON, and has no sample. This file is written from the
declarations, and a test compares it with them.
";

const GOALS: &str = "`goals` of a scheme; labels `scheme`, `goal`, `metric`. `current` and `target`, and `goals` and `goal_targets` in lines of \
`--stats`, have the unit of the metric:

| `metric` | JSON | metrics |
|---|---|---|
| `free_mem_rate`, `node_mem_used`, `node_mem_free`, `active_mem`, `inactive_mem` | basis points: 10000 is all | share of one |
| `target_rss`, `cgroup_mem_used`, `cgroup_mem_free` | bytes | bytes |
| `some_mem_psi`, `full_mem_psi`, `target_stall` | microseconds within `window_ns` | seconds a second |
| `swap_in`, `refault` | bytes within `window_ns` | bytes a second |
| `target_major_faults` | faults within `window_ns` | faults a second |
| `user_input` | as pushed | as pushed |";

fn text() -> String {
    let sections = [
        (
            "Every instance",
            "Beside it `isotherm_info` is 1 and has the labels `version` and `command`: which Isotherm it is, both fields in JSON.",
            table::<Instance>(""),
        ),
        ("The monitor of schemes", "`monitor` in JSON.", table::<MonitorStatus>("")),
        ("Targets", "`targets`; labels `target`, `pid`, `name`.", table::<TargetStatus>("target_")),
        (
            "Schemes",
            "`schemes`; labels `scheme`, `action`. Beside them `isotherm_scheme_active` is 1 while the scheme acts, 0 while something holds \
             it back; in JSON that is told by `idle_reason`, which is `null` while it acts.",
            table::<SchemeStats>("scheme_"),
        ),
        ("What became of memory that was paged out", "Beside the former.", table::<Effect>("scheme_")),
        ("Goals", GOALS, table::<GoalStatus>("goal_")),
        ("Huge pages ahead of faults", "`ahead`, of `thp`.", table::<AheadTotals>("ahead_")),
        ("Limits of `lru run`", "`limits`; labels `domain`, `engine`.", table::<LimitFigures>("lru_")),
        (
            "Memories below a limit",
            "`memories` of a limit; labels `domain`, `memcg`.",
            table::<MemoryFigures>("lru_memory_"),
        ),
        (
            "Schemes behind the files of `mount`",
            "`schemes` of one of the `kdamonds`; labels `kdamond`, `scheme`, `action`.",
            table::<SchemeStatus>("kdamond_scheme_"),
        ),
        ("The agent of the machine, `node`", "", table::<NodeFigures>("")),
        (
            "Control groups that `node` watches",
            "`groups`; labels `cgroup` and, where known, `namespace`, `pod`, `container`. Beside them `isotherm_memory_idle_bytes` and \
             `isotherm_memory_reaccessed_bytes_total` have the label `min_age_seconds`, and `isotherm_memory_working_set_bytes` the label \
             `window_seconds`; in JSON they follow from `ages` and `reaccessed`.",
            table::<GroupMemory>("memory_"),
        ),
        (
            "Rules of `node`",
            "`rule` of one of the `groups`, with their labels. Beside them `isotherm_refaulted_bytes_total` has the label `within_seconds`; in \
             JSON it is the list `refaulted`.",
            table::<Reclaimed>(""),
        ),
        ("Huge pages by rules of `node`", "Beside the former.", table::<Collapsed>("")),
        (
            "Page cache by rules of `node`",
            "`page_cache` of a `rule`, with the labels of its group.",
            table::<CacheReclaimed>(""),
        ),
        (
            "Guests of `hint host`",
            "`guests`; labels `guest`, `pid`. Beside them `isotherm_hint_guest_problem` is 1 while something is in the way of one; in JSON \
             `problem` says what.",
            table::<GuestStatus>("hint_guest_"),
        ),
        ("Scans of guests without an agent", "`scan` of a guest.", table::<ScanStatus>("hint_guest_")),
    ];
    let section = |(title, note, table): (&str, &str, String)| {
        let note = if note.is_empty() { String::new() } else { format!("{note}\n\n") };
        format!("\n## {title}\n\n{note}{table}")
    };
    HEAD.to_owned() + &sections.map(section).concat()
}

#[test]
fn figures_doc_is_what_is_declared() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures.md");
    if std::env::var_os("ISOTHERM_WRITE_DOCS").is_some() {
        std::fs::write(path, text()).unwrap();
    }
    let hint = "run ISOTHERM_WRITE_DOCS=1 cargo test -p isotherm figures_doc";
    assert!(std::fs::read_to_string(path).unwrap_or_default() == text(), "docs/figures.md is out of date: {hint}");
}
