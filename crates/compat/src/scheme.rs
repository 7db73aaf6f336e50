//! A scheme's files as a scheme of the engine, by the kernel's rules: nothing that Isotherm adds to DAMOS by default
//! (confirming page by page, the brake) is switched on.

use crate::folder::Folder;
use crate::refused::Refused;
use isotherm_core::actuator::Destination;
use isotherm_core::addr::AddrRange;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::meter::Metric;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::filter::{Filter, FilterType, core_first};
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use isotherm_core::scheme::pattern::{AccessPattern, Bounds, FULL_RATE_BP};
use isotherm_core::scheme::priority::Weights;
use isotherm_core::scheme::quota::QuotaSpec;
use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};

/// Goals of a scheme.
#[derive(Debug, Clone, Default)]
pub struct Goals {
    /// The goals.
    pub goals: Vec<Goal>,
    /// The last value that was pushed for those that wait for one.
    pub pushed: Option<u64>,
}

/// Reads a scheme's folder and checks it.
pub(crate) fn read(folder: &Folder, attrs: &MonitorAttrs) -> Result<Scheme, Refused> {
    let action: Action = folder.text("action")?.parse().map_err(Refused::new)?;
    let apply_us: u64 = folder.number("apply_interval_us")?;
    if folder.number::<u64>("stats/max_nr_snapshots")? > 0 {
        return Err(Refused::new("schemes do not end by themselves; write 0 to max_nr_snapshots"));
    }
    let scheme = Scheme {
        apply_ns: apply_us.saturating_mul(1000),
        quota: quota(&folder.folder("quotas")?)?,
        watermarks: watermarks(&folder.folder("watermarks")?)?,
        filters: filters(folder)?,
        confirm_ns: 0,
        min_density_bp: 0,
        used_within_ns: 0,
        brake: None,
        destinations: destinations(folder, action)?,
        ..Scheme::new(action, pattern(&folder.folder("access_pattern")?, attrs)?)
    };
    scheme.validate().map_err(Refused::new)?;
    Ok(scheme)
}

/// Reads the goals of a folder of quotas.
pub(crate) fn goals(quotas: &Folder) -> Result<Goals, Refused> {
    let mut read = Goals::default();
    for folder in quotas.numbered("goals")? {
        let target: u64 = folder.number("target_value")?;
        if target == 0 {
            // The kernel skips those.
            continue;
        }
        let nid = || -> Result<u32, Refused> { folder.number("nid") };
        let metric = match folder.text("target_metric")?.as_str() {
            "some_mem_psi_us" => GoalMetric::Read(Metric::SomeMemPsi(None)),
            "node_mem_used_bp" => GoalMetric::Read(Metric::NodeMemUsed(nid()?)),
            "node_mem_free_bp" => GoalMetric::Read(Metric::NodeMemFree(nid()?)),
            "active_mem_bp" => GoalMetric::Read(Metric::ActiveMem),
            "inactive_mem_bp" => GoalMetric::Read(Metric::InactiveMem),
            _ => {
                read.pushed = Some(folder.number("current_value")?);
                GoalMetric::UserInput
            }
        };
        read.goals.push(Goal { metric, target, window_ns: 0, falls: false });
    }
    Ok(read)
}

fn pattern(folder: &Folder, attrs: &MonitorAttrs) -> Result<AccessPattern, Refused> {
    let range = |name: &str| -> Result<Bounds<u64>, Refused> {
        let range = folder.folder(name)?;
        Ok(Bounds::new(range.number("min")?, range.number("max")?))
    };
    Ok(pattern_of(range("sz")?, range("nr_accesses")?, range("age")?, attrs))
}

/// A pattern in DAMON's units: bytes, samples, aggregation intervals.
pub(crate) fn pattern_of(
    size: Bounds<u64>,
    samples: Bounds<u64>,
    age: Bounds<u64>,
    attrs: &MonitorAttrs,
) -> AccessPattern {
    let most = u64::from(attrs.max_nr_accesses());
    let possible = |r: &Bounds<u64>| r.min <= r.max;
    if ![size, samples, age].iter().all(possible) || samples.min > most {
        // The kernel takes such a pattern, and it matches nothing.
        return AccessPattern { size: Bounds::new(u64::MAX, u64::MAX), ..AccessPattern::default() };
    }
    // Rounded down as the rates of regions are, so that equal counts are equal rates.
    let rate_bp = |samples: u64| (samples.min(most) * u64::from(FULL_RATE_BP) / most) as u32;
    let age_us = |intervals: u64| intervals.saturating_mul(attrs.aggr_us);
    AccessPattern {
        size,
        rate_bp: Bounds::new(rate_bp(samples.min), rate_bp(samples.max)),
        age_us: Bounds::new(age_us(age.min), age_us(age.max)),
    }
}

fn quota(folder: &Folder) -> Result<QuotaSpec, Refused> {
    const MS: u64 = 1_000_000;
    let default = QuotaSpec::default();
    let ms = |name: &str| -> Result<u64, Refused> { Ok(folder.number::<u64>(name)?.saturating_mul(MS)) };
    if folder.number::<u32>("fail_charge_denom")? > 0 {
        return Err(Refused::new("what an action fails for is charged in full; write 0 to fail_charge_denom"));
    }
    let weights = folder.folder("weights")?;
    let mut quota = QuotaSpec {
        bytes: Some(folder.number("bytes")?).filter(|&bytes| bytes > 0),
        time_ns: Some(ms("ms")?).filter(|&ns| ns > 0),
        // Of 0 the kernel makes a new window at every turn.
        reset_ns: ms("reset_interval_ms")?.max(MS),
        weights: Weights {
            size: weights.number("sz_permil")?,
            access_rate: weights.number("nr_accesses_permil")?,
            age: weights.number("age_permil")?,
        },
        goals: goals(folder)?.goals,
        tuner: folder.text("goal_tuner")?.parse().map_err(Refused::new)?,
    };
    if !quota.is_limited() {
        quota.reset_ns = default.reset_ns;
    }
    Ok(quota)
}

fn watermarks(folder: &Folder) -> Result<Option<Watermarks>, Refused> {
    if folder.text("metric")? == "none" {
        return Ok(None);
    }
    let mark = |name: &str| -> Result<u32, Refused> { Ok(folder.number::<u32>(name)?.saturating_mul(10)) };
    Ok(Some(Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval_us: folder.number("interval_us")?,
        high_bp: mark("high")?,
        mid_bp: mark("mid")?,
        low_bp: mark("low")?,
    }))
}

/// Those of the core first, then those of single pages; those of the folder of old after the others of their kind.
fn filters(scheme: &Folder) -> Result<Vec<Filter>, Refused> {
    let mut filters = Vec::new();
    for name in ["core_filters", "ops_filters", "filters"] {
        for folder in scheme.numbered(name)? {
            filters.push(filter(&folder)?);
        }
    }
    core_first(&mut filters);
    Ok(filters)
}

fn filter(folder: &Folder) -> Result<Filter, Refused> {
    let bounds = |least: &str, most: &str| -> Result<(u64, u64), Refused> {
        let (least, most) = (folder.number(least)?, folder.number(most)?);
        if least > most {
            return Err(Refused::new("a filter's least value is above its largest"));
        }
        Ok((least, most))
    };
    let what = match folder.text("type")?.as_str() {
        "anon" => FilterType::Anon,
        "young" => FilterType::Young,
        "memcg" => FilterType::Cgroup(folder.text("memcg_path")?),
        "target" => FilterType::Target(folder.number("damon_target_idx")?),
        "addr" => {
            let (start, end) = bounds("addr_start", "addr_end")?;
            FilterType::Addr(AddrRange::new(start, end))
        }
        "hugepage_size" => {
            let (min, max) = bounds("min", "max")?;
            FilterType::HugepageSize { min, max }
        }
        other => {
            let why = format!("whether pages are '{other}' cannot be seen here; use anon, memcg, young, hugepage_size");
            return Err(Refused::new(why));
        }
    };
    Ok(Filter { what, matching: folder.flag("matching")?, allow: folder.flag("allow")? })
}

fn destinations(folder: &Folder, action: Action) -> Result<Vec<Destination>, Refused> {
    if !matches!(action, Action::MigrateHot | Action::MigrateCold) {
        // The kernel ignores them then.
        return Ok(Vec::new());
    }
    let dests = folder.numbered("dests")?;
    if dests.is_empty() {
        let node: i32 = folder.number("target_nid")?;
        return Ok(u32::try_from(node).map(|node| Destination { node, weight: 1 }).into_iter().collect());
    }
    dests.iter().map(|d| Ok(Destination { node: d.number("id")?, weight: d.number("weight")? })).collect()
}
