//! Every parameter, declared once: those of Linux 6.18 with their modes and defaults, and `kdamond_pid` of `damon_stat`,
//! which came later.

use crate::schema::{Entry, FileKind, figure, file, folder, number, value};
use crate::value::Form;

const fn flag(name: &'static str) -> Entry {
    value(name, Form::Flag, "N")
}

const KDAMOND_PID: Entry = file("kdamond_pid", 0o400, FileKind::Pid, "-1");

/// `/sys/module/damon_reclaim`.
pub(super) static RECLAIM: [Entry; 1] = [folder(
    "parameters",
    &[
        flag("enabled"),
        flag("commit_inputs"),
        number("min_age", "120000000"),
        number("quota_ms", "10"),
        number("quota_sz", "134217728"),
        number("quota_reset_interval_ms", "1000"),
        number("quota_mem_pressure_us", "0"),
        number("quota_autotune_feedback", "0"),
        number("wmarks_interval", "5000000"),
        number("wmarks_high", "500"),
        number("wmarks_mid", "400"),
        number("wmarks_low", "200"),
        number("sample_interval", "5000"),
        number("aggr_interval", "100000"),
        number("min_nr_regions", "10"),
        number("max_nr_regions", "1000"),
        number("monitor_region_start", "0"),
        number("monitor_region_end", "0"),
        number("addr_unit", "1"),
        flag("skip_anon"),
        KDAMOND_PID,
        figure("nr_reclaim_tried_regions"),
        figure("bytes_reclaim_tried_regions"),
        figure("nr_reclaimed_regions"),
        figure("bytes_reclaimed_regions"),
        figure("nr_quota_exceeds"),
    ],
)];

/// `/sys/module/damon_lru_sort`.
pub(super) static LRU_SORT: [Entry; 1] = [folder(
    "parameters",
    &[
        flag("enabled"),
        flag("commit_inputs"),
        number("hot_thres_access_freq", "500"),
        number("cold_min_age", "120000000"),
        number("quota_ms", "10"),
        number("quota_reset_interval_ms", "1000"),
        number("wmarks_interval", "5000000"),
        number("wmarks_high", "200"),
        number("wmarks_mid", "150"),
        number("wmarks_low", "50"),
        number("sample_interval", "5000"),
        number("aggr_interval", "100000"),
        number("min_nr_regions", "10"),
        number("max_nr_regions", "1000"),
        number("monitor_region_start", "0"),
        number("monitor_region_end", "0"),
        number("addr_unit", "1"),
        KDAMOND_PID,
        figure("nr_lru_sort_tried_hot_regions"),
        figure("bytes_lru_sort_tried_hot_regions"),
        figure("nr_lru_sorted_hot_regions"),
        figure("bytes_lru_sorted_hot_regions"),
        figure("nr_hot_quota_exceeds"),
        figure("nr_lru_sort_tried_cold_regions"),
        figure("bytes_lru_sort_tried_cold_regions"),
        figure("nr_lru_sorted_cold_regions"),
        figure("bytes_lru_sorted_cold_regions"),
        figure("nr_cold_quota_exceeds"),
    ],
)];

/// `/sys/module/damon_stat`.
pub(super) static STAT: [Entry; 1] = [folder(
    "parameters",
    &[
        flag("enabled"),
        figure("estimated_memory_bandwidth"),
        figure("memory_idle_ms_percentiles"),
        figure("aggr_interval_us"),
        KDAMOND_PID,
    ],
)];
