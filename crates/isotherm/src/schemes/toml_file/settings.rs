//! The `[monitor]` and `[target]` tables.

use crate::args::monitor::cpu_budget;
use crate::args::refused::Refused;
use crate::schemes::fault::FileError;
use crate::schemes::node::Node;
use crate::schemes::settings::{MonitorSettings, TargetSettings};
use crate::schemes::value::{self, Scalar};
use clap::ValueEnum;
use isotherm_core::attrs::MonitorAttrs;
use std::path::PathBuf;
use std::time::Duration;

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

/// Reads `[monitor]`.
pub fn monitor(node: &Node) -> Result<MonitorSettings, FileError> {
    node.only(&[
        "source",
        "sample",
        "aggr",
        "update",
        "min_regions",
        "max_regions",
        "cpu_budget",
        "mode",
        "algorithm",
        "damon_rules",
        "tune_intervals",
        "three_regions",
        "seed",
    ])?;
    let settings = MonitorSettings {
        source: node.optional("source", name)?,
        sample: node.optional("sample", duration)?,
        aggr: node.optional("aggr", duration)?,
        update: node.optional("update", duration)?,
        min_regions: node.optional("min_regions", value::count32)?,
        max_regions: node.optional("max_regions", value::count32)?,
        cpu_budget: node.optional("cpu_budget", |v| cpu_budget(&v.to_string()))?,
        mode: node.optional("mode", name)?,
        algorithm: node.optional("algorithm", name)?,
        damon_rules: node.optional("damon_rules", name)?,
        tune_intervals: node.optional("tune_intervals", value::flag)?,
        three_regions: node.optional("three_regions", value::flag)?,
        seed: node.optional("seed", value::count)?,
    };
    settings.over(&MonitorAttrs::default()).validate().map_err(|e| node.fault(e))?;
    Ok(settings)
}

/// Reads `[target]`.
pub fn target(node: &Node) -> Result<TargetSettings, FileError> {
    node.only(&["pid", "children", "name", "cgroup", "all"])?;
    let pids = node.each("pid", |pid| match pid.read(value::count32)? {
        0 => Err(pid.fault("0 names no process")),
        pid => Ok(pid),
    })?;
    let names = texts(node, "name", "an empty name is no process's")?;
    let cgroups: Vec<PathBuf> =
        texts(node, "cgroup", "an empty path names no control group")?.into_iter().map(PathBuf::from).collect();
    let all = node.optional("all", value::flag)?.unwrap_or(false);
    let no_one = |node: &Node| match node.is_list() && node.items()?.is_empty() {
        true => Err(node.fault("an empty list names nobody; leave it out")),
        false => Ok(()),
    };
    for key in ["pid", "name", "cgroup"] {
        node.part(key, no_one)?;
    }
    let given = [("pid", !pids.is_empty()), ("name", !names.is_empty()), ("cgroup", !cgroups.is_empty()), ("all", all)];
    let mut given = given.into_iter().filter_map(|(key, is_given)| is_given.then_some(key));
    if let (Some(first), Some(last)) = (given.next(), given.next_back()) {
        return Err(node.fault_at(last, format!("both {first} and {last} are given; leave one out")));
    }
    let children = node.optional("children", value::flag)?.unwrap_or(false);
    Ok(TargetSettings { pids, children, names, cgroups, all })
}

/// One text or a list of them.
fn texts(node: &Node, key: &str, empty: &str) -> Result<Vec<String>, FileError> {
    let text = |node: &Node| match node.read(value::text)? {
        text if text.is_empty() => Err(node.fault(empty)),
        text => Ok(text),
    };
    let read =
        |node: &Node| if node.is_list() { node.items()?.iter().map(text).collect() } else { Ok(vec![text(node)?]) };
    Ok(node.part(key, read)?.unwrap_or_default())
}
