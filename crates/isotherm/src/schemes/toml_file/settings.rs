//! The `[monitor]` and `[target]` tables.

use super::tables::{Cell, MonitorTable, TargetTable, optional};
use crate::args::monitor::{CpuBudget, cpu_budget};
use crate::args::refused::Refused;
use crate::schemes::fault::{FileError, Source};
use crate::schemes::settings::{MonitorSettings, TargetSettings};
use crate::schemes::value::{self, Scalar};
use clap::ValueEnum;
use isotherm_core::attrs::MonitorAttrs;
use std::time::Duration;
use toml::Spanned;

fn name<T: ValueEnum>(value: &Scalar) -> Result<T, Refused> {
    T::from_str(&value.to_string(), false).map_err(|_| {
        let all: Vec<String> =
            T::value_variants().iter().filter_map(|v| v.to_possible_value()).map(|v| v.get_name().to_owned()).collect();
        Refused::new(value, format!("is not known here; use one of {}", all.join(", ")))
    })
}

fn duration(value: &Scalar) -> Result<Duration, Refused> {
    value::time_ns(value).map(Duration::from_nanos)
}

fn budget(value: &Scalar) -> Result<CpuBudget, Refused> {
    cpu_budget(&value.to_string())
}

/// Reads `[monitor]`.
pub fn monitor(source: Source, table: &Spanned<MonitorTable>) -> Result<MonitorSettings, FileError> {
    let t = table.get_ref();
    fn get<T>(
        source: Source,
        key: &str,
        cell: &Option<Cell>,
        read: impl Fn(&Scalar) -> Result<T, Refused>,
    ) -> Result<Option<T>, FileError> {
        optional(source, &format!("monitor.{key}"), cell.as_ref(), read)
    }
    let settings = MonitorSettings {
        source: get(source, "source", &t.source, name)?,
        sample: get(source, "sample", &t.sample, duration)?,
        aggr: get(source, "aggr", &t.aggr, duration)?,
        update: get(source, "update", &t.update, duration)?,
        min_regions: get(source, "min_regions", &t.min_regions, value::count32)?,
        max_regions: get(source, "max_regions", &t.max_regions, value::count32)?,
        cpu_budget: get(source, "cpu_budget", &t.cpu_budget, budget)?,
        mode: get(source, "mode", &t.mode, name)?,
        algorithm: get(source, "algorithm", &t.algorithm, name)?,
        damon_rules: get(source, "damon_rules", &t.damon_rules, name)?,
        tune_intervals: get(source, "tune_intervals", &t.tune_intervals, value::flag)?,
        three_regions: get(source, "three_regions", &t.three_regions, value::flag)?,
        seed: get(source, "seed", &t.seed, value::count)?,
    };
    let attrs = settings.attrs(&MonitorAttrs::default());
    attrs.validate().map_err(|e| source.fault(&table.span(), "monitor", e))?;
    Ok(settings)
}

/// Reads `[target]`.
pub fn target(source: Source, table: &Spanned<TargetTable>) -> Result<TargetSettings, FileError> {
    let t = table.get_ref();
    let pid = |cell: &Cell| match value::count32(cell.get_ref()) {
        Ok(0) => Err(source.fault(&cell.span(), "target.pid", "0 names no process")),
        Ok(pid) => Ok(pid),
        Err(why) => Err(source.fault(&cell.span(), "target.pid", why)),
    };
    let pids: Vec<u32> = t.pid.iter().flatten().map(pid).collect::<Result<_, _>>()?;
    let cgroup = t.cgroup.as_ref();
    if let Some(empty) = cgroup.filter(|c| c.get_ref().as_os_str().is_empty()) {
        return Err(source.fault(&empty.span(), "target.cgroup", "an empty path names no control group"));
    }
    if let Some(both) = cgroup.filter(|_| !pids.is_empty()) {
        return Err(source.fault(&both.span(), "target.cgroup", "both pid and cgroup are given; leave one out"));
    }
    Ok(TargetSettings { pids, children: t.children.unwrap_or(false), cgroup: cgroup.map(|c| c.get_ref().clone()) })
}
