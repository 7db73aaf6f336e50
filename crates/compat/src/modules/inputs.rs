//! What a module's kdamond is to do, as its parameters say it.

use crate::folder::Folder;
use crate::refused::Refused;
use crate::scheme::Goals;
use crate::settings::{KdamondTargets, Settings};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::meter::Metric;
use isotherm_core::monitor::config::Algorithm;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::filter::{Filter, FilterType};
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::priority::Weights;
use isotherm_core::scheme::quota::QuotaSpec;
use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};

const MS: u64 = 1_000_000;
/// A share of all accesses that none can be above, permil.
const ALL_PERMIL: u64 = 1000;
/// What `quota_autotune_feedback` is to become.
const FEEDBACK_TARGET: u64 = 10_000;

/// What `damon_reclaim` does.
pub(super) fn reclaim(parameters: &Folder) -> Result<Settings, Refused> {
    let attrs = attrs(parameters)?;
    let mut scheme = cold(Action::PageOut, parameters.number("min_age")?);
    let goals = reclaim_goals(parameters)?;
    let limit = |number: u64| Some(number).filter(|&number| number > 0);
    scheme.quota = QuotaSpec {
        bytes: limit(parameters.number("quota_sz")?),
        time_ns: limit(parameters.number::<u64>("quota_ms")?.saturating_mul(MS)),
        weights: Weights { size: 0, access_rate: 0, age: 1 },
        goals: goals.goals.clone(),
        ..quota(parameters)?
    };
    scheme.watermarks = Some(watermarks(parameters)?);
    if parameters.flag("skip_anon")? {
        scheme.filters = vec![Filter { what: FilterType::Anon, matching: true, allow: false }];
    }
    settings(attrs, scheme, goals)
}

fn reclaim_goals(parameters: &Folder) -> Result<Goals, Refused> {
    let mut goals = Goals::default();
    let goal = |metric, target| Goal { metric, target, window_ns: 0, falls: false };
    let pressure: u64 = parameters.number("quota_mem_pressure_us")?;
    if pressure > 0 {
        goals.goals.push(goal(GoalMetric::Read(Metric::SomeMemPsi(None)), pressure));
    }
    let feedback: u64 = parameters.number("quota_autotune_feedback")?;
    if feedback > 0 {
        goals.goals.push(goal(GoalMetric::UserInput, FEEDBACK_TARGET));
        goals.pushed = Some(feedback);
    }
    Ok(goals)
}

/// What `damon_lru_sort` does with cold memory. Nothing here makes the kernel take memory for hot, so it must not be
/// asked for that.
pub(super) fn lru_sort(parameters: &Folder) -> Result<Settings, Refused> {
    let attrs = attrs(parameters)?;
    if parameters.number::<u64>("hot_thres_access_freq")? <= ALL_PERMIL {
        let why = "hot memory cannot be prioritised from user space (lru_prio); write 1001 to hot_thres_access_freq to \
                   have cold memory alone sorted";
        return Err(Refused::new(why));
    }
    let mut scheme = cold(Action::LruDeprio, parameters.number("cold_min_age")?);
    // Half of it is for hot memory.
    let time_ns = (parameters.number::<u64>("quota_ms")? / 2).saturating_mul(MS);
    scheme.quota = QuotaSpec {
        time_ns: Some(time_ns).filter(|&ns| ns > 0),
        weights: Weights { size: 0, access_rate: 1, age: 1 },
        ..quota(parameters)?
    };
    scheme.watermarks = Some(watermarks(parameters)?);
    settings(attrs, scheme, Goals::default())
}

/// What `damon_stat` does: it watches.
pub(super) fn stat() -> Settings {
    Settings {
        attrs: MonitorAttrs::default(),
        algorithm: Algorithm::Isotherm,
        intervals_goal: None,
        watched: KdamondTargets::All,
        schemes: Vec::new(),
        goals: Vec::new(),
    }
}

fn settings(attrs: MonitorAttrs, scheme: Scheme, goals: Goals) -> Result<Settings, Refused> {
    scheme.validate().map_err(Refused::new)?;
    Ok(Settings { attrs, schemes: vec![scheme], goals: vec![goals], ..stat() })
}

/// What was not accessed for so long, us.
fn cold(action: Action, min_age_us: u64) -> Scheme {
    let pattern = AccessPattern {
        rate_bp: Bounds::new(0, 0),
        age_us: Bounds::new(min_age_us, u64::MAX),
        ..AccessPattern::default()
    };
    Scheme::new(action, pattern)
}

/// Without limits, but for how often they begin anew.
fn quota(parameters: &Folder) -> Result<QuotaSpec, Refused> {
    let reset_ns = parameters.number::<u64>("quota_reset_interval_ms")?.saturating_mul(MS).max(MS);
    Ok(QuotaSpec { bytes: None, time_ns: None, reset_ns, ..QuotaSpec::default() })
}

fn watermarks(parameters: &Folder) -> Result<Watermarks, Refused> {
    let mark = |name: &str| -> Result<u32, Refused> { Ok(parameters.number::<u32>(name)?.saturating_mul(10)) };
    Ok(Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval_us: parameters.number("wmarks_interval")?,
        high_bp: mark("wmarks_high")?,
        mid_bp: mark("wmarks_mid")?,
        low_bp: mark("wmarks_low")?,
    })
}

fn attrs(parameters: &Folder) -> Result<MonitorAttrs, Refused> {
    let aggr_us = parameters.number("aggr_interval")?;
    let attrs = MonitorAttrs {
        sample_us: parameters.number("sample_interval")?,
        aggr_us,
        update_us: MonitorAttrs::default().update_us.max(aggr_us),
        min_regions: parameters.number("min_nr_regions")?,
        max_regions: parameters.number("max_nr_regions")?,
    };
    attrs.validate().map_err(Refused::new)?;
    for name in ["monitor_region_start", "monitor_region_end"] {
        if parameters.number::<u64>(name)? != 0 {
            return Err(Refused::new(format_args!("{name} is a physical address, and processes are watched; write 0")));
        }
    }
    Ok(attrs)
}
