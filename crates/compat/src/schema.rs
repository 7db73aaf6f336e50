//! Every file of the tree, declared once: that of Linux 6.18 (which is 6.12's with what came until then), and what is
//! documented of later kernels. What the engine here cannot do is refused when it is switched on.

use crate::value::Form;

/// A file or a folder.
#[derive(Debug)]
pub(crate) struct Entry {
    pub name: &'static str,
    pub what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    File(File),
    /// A folder of fixed content.
    Folder(&'static [Entry]),
    /// A folder with numbered folders besides its fixed content: as many as its count says, or as were found.
    Numbered {
        fixed: &'static [Entry],
        each: &'static [Entry],
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct File {
    /// Who may do what: 0600, 0400 or 0200.
    pub mode: u16,
    pub kind: FileKind,
    /// What it holds at first.
    pub default: &'static str,
}

/// What a write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// It replaces the value.
    Value(Form),
    /// It makes that many numbered folders beside the file, all new; at most so many.
    Count { most: i32 },
    /// It is a command to the kdamond.
    State,
    /// Nothing; what is shown is the thread's id, or -1.
    Pid,
}

pub(crate) const fn file(name: &'static str, mode: u16, kind: FileKind, default: &'static str) -> Entry {
    Entry { name, what: What::File(File { mode, kind, default }) }
}

pub(crate) const fn value(name: &'static str, form: Form, default: &'static str) -> Entry {
    file(name, 0o600, FileKind::Value(form), default)
}

pub(crate) const fn number(name: &'static str, default: &'static str) -> Entry {
    value(name, Form::Ulong, default)
}

/// A figure that only the kdamond writes.
pub(crate) const fn figure(name: &'static str) -> Entry {
    file(name, 0o400, FileKind::Value(Form::Ulong), "0")
}

const fn count(name: &'static str, most: i32) -> Entry {
    file(name, 0o600, FileKind::Count { most }, "0")
}

pub(crate) const fn folder(name: &'static str, entries: &'static [Entry]) -> Entry {
    Entry { name, what: What::Folder(entries) }
}

const fn numbered(name: &'static str, fixed: &'static [Entry], each: &'static [Entry]) -> Entry {
    Entry { name, what: What::Numbered { fixed, each } }
}

/// What stands in `/sys/kernel/mm/damon`.
pub(crate) static DAMON: [Entry; 1] =
    [folder("admin", &[numbered("kdamonds", &[count("nr_kdamonds", i32::MAX)], &KDAMOND)])];

static KDAMOND: [Entry; 4] = [
    file("state", 0o600, FileKind::State, "off"),
    file("pid", 0o400, FileKind::Pid, "-1"),
    value("refresh_ms", Form::Uint, "0"),
    numbered("contexts", &[count("nr_contexts", 1)], &CONTEXT),
];

static CONTEXT: [Entry; 7] = [
    file("avail_operations", 0o400, FileKind::Value(Form::Text), "vaddr\nfvaddr"),
    value("operations", Form::Word(&["vaddr", "fvaddr", "paddr"]), "vaddr"),
    number("addr_unit", "1"),
    value("pause", Form::Flag, "N"),
    folder("monitoring_attrs", &MONITORING_ATTRS),
    numbered("targets", &[count("nr_targets", i32::MAX)], &TARGET),
    numbered("schemes", &[count("nr_schemes", i32::MAX)], &SCHEME),
];

static MONITORING_ATTRS: [Entry; 3] = [
    folder(
        "intervals",
        &[
            number("sample_us", "5000"),
            number("aggr_us", "100000"),
            number("update_us", "60000000"),
            folder(
                "intervals_goal",
                &[
                    number("access_bp", "0"),
                    number("aggrs", "0"),
                    number("min_sample_us", "0"),
                    number("max_sample_us", "0"),
                ],
            ),
        ],
    ),
    folder("nr_regions", &[number("min", "10"), number("max", "1000")]),
    numbered("probes", &[count("nr_probes", i32::MAX)], &PROBE),
];

static PROBE: [Entry; 2] = [
    value("weight", Form::Uint, "0"),
    numbered(
        "filters",
        &[count("nr_filters", i32::MAX)],
        &[
            value("type", Form::Word(&["anon", "memcg"]), "anon"),
            value("path", Form::Text, ""),
            value("matching", Form::Flag, "N"),
            value("allow", Form::Flag, "N"),
        ],
    ),
];

static TARGET: [Entry; 3] = [
    value("pid_target", Form::Int, "0"),
    value("obsolete_target", Form::Flag, "N"),
    numbered("regions", &[count("nr_regions", i32::MAX)], &[number("start", "0"), number("end", "0")]),
];

const ACTIONS: Form = Form::Word(&[
    "willneed",
    "cold",
    "pageout",
    "hugepage",
    "nohugepage",
    "collapse",
    "lru_prio",
    "lru_deprio",
    "migrate_hot",
    "migrate_cold",
    "stat",
]);

static SCHEME: [Entry; 12] = [
    value("action", ACTIONS, "stat"),
    number("apply_interval_us", "0"),
    value("target_nid", Form::Int, "-1"),
    folder("access_pattern", &[folder("sz", &RANGE), folder("nr_accesses", &RANGE), folder("age", &RANGE)]),
    folder("quotas", &QUOTAS),
    folder(
        "watermarks",
        &[
            value("metric", Form::Word(&["none", "free_mem_rate"]), "none"),
            number("interval_us", "0"),
            number("high", "0"),
            number("mid", "0"),
            number("low", "0"),
        ],
    ),
    numbered("filters", &[count("nr_filters", i32::MAX)], &FILTER),
    numbered("core_filters", &[count("nr_filters", i32::MAX)], &CORE_FILTER),
    numbered("ops_filters", &[count("nr_filters", i32::MAX)], &OPS_FILTER),
    numbered(
        "dests",
        &[count("nr_dests", i32::MAX)],
        &[value("id", Form::Uint, "0"), value("weight", Form::Uint, "0")],
    ),
    folder(
        "stats",
        &[
            figure("nr_tried"),
            figure("sz_tried"),
            figure("nr_applied"),
            figure("sz_applied"),
            figure("sz_ops_filter_passed"),
            figure("qt_exceeds"),
            figure("nr_snapshots"),
            number("max_nr_snapshots", "0"),
        ],
    ),
    numbered(
        "tried_regions",
        &[figure("total_bytes")],
        &[figure("start"), figure("end"), figure("nr_accesses"), figure("age"), figure("sz_filter_passed")],
    ),
];

static RANGE: [Entry; 2] = [number("min", "0"), number("max", "0")];

static QUOTAS: [Entry; 9] = [
    number("ms", "0"),
    number("bytes", "0"),
    number("reset_interval_ms", "0"),
    figure("effective_bytes"),
    value("fail_charge_num", Form::Uint, "0"),
    value("fail_charge_denom", Form::Uint, "0"),
    value("goal_tuner", Form::Word(&["consist", "temporal"]), "consist"),
    folder(
        "weights",
        &[
            value("sz_permil", Form::Uint, "0"),
            value("nr_accesses_permil", Form::Uint, "0"),
            value("age_permil", Form::Uint, "0"),
        ],
    ),
    numbered("goals", &[count("nr_goals", i32::MAX)], &GOAL),
];

const GOAL_METRICS: Form = Form::Word(&[
    "user_input",
    "some_mem_psi_us",
    "node_mem_used_bp",
    "node_mem_free_bp",
    "active_mem_bp",
    "inactive_mem_bp",
]);

static GOAL: [Entry; 5] = [
    value("target_metric", GOAL_METRICS, "user_input"),
    number("target_value", "0"),
    number("current_value", "0"),
    value("nid", Form::Int, "0"),
    value("path", Form::Text, ""),
];

const fn filter(types: Form) -> [Entry; 9] {
    [
        value("type", types, "anon"),
        value("matching", Form::Flag, "N"),
        value("allow", Form::Flag, "N"),
        value("memcg_path", Form::Text, ""),
        number("addr_start", "0"),
        number("addr_end", "0"),
        number("min", "0"),
        number("max", "0"),
        value("damon_target_idx", Form::Int, "0"),
    ]
}

static FILTER: [Entry; 9] =
    filter(Form::Word(&["anon", "active", "memcg", "young", "hugepage_size", "unmapped", "addr", "target"]));
static CORE_FILTER: [Entry; 9] = filter(Form::Word(&["addr", "target"]));
static OPS_FILTER: [Entry; 9] = filter(Form::Word(&["anon", "active", "memcg", "young", "hugepage_size", "unmapped"]));

/// What stands in `/sys/kernel/debug/damon`. What the files hold is not in the tree.
pub(crate) static DEBUGFS: [Entry; 6] = [
    value("attrs", Form::Text, ""),
    value("init_regions", Form::Text, ""),
    value("monitor_on", Form::Text, ""),
    value("record", Form::Text, ""),
    value("schemes", Form::Text, ""),
    value("target_ids", Form::Text, ""),
];
