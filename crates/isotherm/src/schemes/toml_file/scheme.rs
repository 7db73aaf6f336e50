//! One `[[scheme]]`.

use super::filter;
use super::goal;
use super::tables::{
    Brake, BrakeTable, Cell, PatternTable, QuotaTable, SchemeTable, WatermarksTable, WeightsTable, optional,
};
use crate::args::refused::Refused;
use crate::schemes::fault::{FileError, Source};
use crate::schemes::value::{self, End, Scalar, end_of};
use isotherm_core::actuator::Destination;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::brake::BrakeSpec;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::priority::Weights;
use isotherm_core::scheme::quota::{QuotaError, QuotaSpec};
use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};
use isotherm_core::scheme::{Scheme, SchemeError};
use toml::Spanned;

/// DAMON_RECLAIM's watermarks.
pub const DEFAULT_WATERMARKS: Watermarks = Watermarks {
    metric: WatermarkMetric::FreeMemRate,
    interval_us: 5_000_000,
    high_bp: 5000,
    mid_bp: 4000,
    low_bp: 2000,
};

/// Reads a scheme and checks it.
pub fn read(source: Source, table: &Spanned<SchemeTable>) -> Result<Scheme, FileError> {
    let t = table.get_ref();
    let action: Action = t.action.get_ref().parse().map_err(|e| source.fault(&t.action.span(), "scheme.action", e))?;
    let mut scheme = Scheme::new(action, pattern(source, t.pattern.as_ref())?);
    scheme.apply_ns =
        optional(source, "scheme.apply_interval", t.apply_interval.as_ref(), value::time_ns)?.unwrap_or(0);
    if let Some(ns) = optional(source, "scheme.confirm", t.confirm.as_ref(), value::time_ns)? {
        scheme.confirm_ns = ns;
    }
    if let Some(bp) = optional(source, "scheme.min_density", t.min_density.as_ref(), value::share_bp)? {
        scheme.min_density_bp = bp;
    }
    if let Some(q) = &t.quota {
        scheme.quota = quota(source, q.get_ref())?;
        let checked = scheme.quota.validate();
        checked.map_err(|e| source.fault(&quota_span(&e, q), "scheme.quota", e))?;
    }
    scheme.quota.goals = t.goal.iter().map(|g| goal::read(source, action, g)).collect::<Result<_, _>>()?;
    scheme.watermarks = t.watermarks.as_ref().map(|w| watermarks(source, w)).transpose()?;
    scheme.filters = t.filter.iter().map(|f| filter::read(source, f)).collect::<Result<_, _>>()?;
    if let Some(b) = &t.brake {
        scheme.brake = brake(source, b.get_ref())?;
    }
    scheme.destinations = destinations(source, t)?;
    scheme.validate().map_err(|e| source.fault(&fault_span(&e, table), "scheme", e))?;
    Ok(scheme)
}

/// The place of what the check complains about.
fn quota_span(error: &QuotaError, table: &Spanned<QuotaTable>) -> std::ops::Range<usize> {
    let t = table.get_ref();
    let cell = match error {
        QuotaError::TooSmall(_) => t.bytes.as_ref(),
        QuotaError::NoTime => t.time.as_ref(),
        QuotaError::ZeroInterval => t.reset_interval.as_ref(),
        QuotaError::Goal(_) => None,
    };
    cell.map_or(table.span(), Spanned::span)
}

fn fault_span(error: &SchemeError, table: &Spanned<SchemeTable>) -> std::ops::Range<usize> {
    let t = table.get_ref();
    match error {
        SchemeError::NoDestination(_) | SchemeError::UselessDestination(_) => t.action.span(),
        SchemeError::NoWeight => t.destinations.as_ref().map_or(table.span(), Spanned::span),
        _ => table.span(),
    }
}

fn pattern(source: Source, table: Option<&PatternTable>) -> Result<AccessPattern, FileError> {
    let all = AccessPattern::default();
    let Some(t) = table else { return Ok(all) };
    Ok(AccessPattern {
        size: range(source, "scheme.pattern.size", t.size.as_ref(), all.size, value::size)?,
        rate_bp: range(source, "scheme.pattern.access_rate", t.access_rate.as_ref(), all.rate_bp, value::share_bp)?,
        age_us: range(source, "scheme.pattern.age", t.age.as_ref(), all.age_us, value::time_us)?,
    })
}

fn range<T: Copy + PartialOrd>(
    source: Source,
    key: &str,
    cells: Option<&Spanned<Vec<Cell>>>,
    all: Bounds<T>,
    read: impl Fn(&Scalar) -> Result<T, Refused>,
) -> Result<Bounds<T>, FileError> {
    let Some(cells) = cells else { return Ok(all) };
    let [least, largest] = cells.get_ref().as_slice() else {
        let why = format!("a range has two values, the least and the largest, not {}", cells.get_ref().len());
        return Err(source.fault(&cells.span(), key, why));
    };
    let end = |c: &Cell, end| end_of(c.get_ref(), end, all, &read).map_err(|why| source.fault(&c.span(), key, why));
    let bounds = Bounds::new(end(least, End::Least)?, end(largest, End::Largest)?);
    if bounds.min > bounds.max {
        let why = format!("the least value, {}, is above the largest, {}", least.get_ref(), largest.get_ref());
        return Err(source.fault(&cells.span(), key, why));
    }
    Ok(bounds)
}

fn quota(source: Source, t: &QuotaTable) -> Result<QuotaSpec, FileError> {
    let default = QuotaSpec::default();
    let tuner = optional(source, "scheme.quota.tuner", t.tuner.as_ref(), |name| name.to_string().parse())?;
    Ok(QuotaSpec {
        bytes: optional(source, "scheme.quota.bytes", t.bytes.as_ref(), value::size)?,
        time_ns: optional(source, "scheme.quota.time", t.time.as_ref(), value::time_ns)?,
        reset_ns: optional(source, "scheme.quota.reset_interval", t.reset_interval.as_ref(), value::time_ns)?
            .unwrap_or(default.reset_ns),
        weights: t.weights.as_ref().map_or(Ok(default.weights), |w| weights(source, w))?,
        goals: Vec::new(),
        tuner: tuner.unwrap_or_default(),
    })
}

/// What is not named has no weight, unless nothing is named.
fn weights(source: Source, t: &WeightsTable) -> Result<Weights, FileError> {
    let one = |key: &str, cell: Option<&Cell>| optional(source, key, cell, value::count32);
    let size = one("scheme.quota.weights.size", t.size.as_ref())?;
    let access_rate = one("scheme.quota.weights.access_rate", t.access_rate.as_ref())?;
    let age = one("scheme.quota.weights.age", t.age.as_ref())?;
    if size.is_none() && access_rate.is_none() && age.is_none() {
        return Ok(Weights::default());
    }
    Ok(Weights { size: size.unwrap_or(0), access_rate: access_rate.unwrap_or(0), age: age.unwrap_or(0) })
}

fn watermarks(source: Source, table: &Spanned<WatermarksTable>) -> Result<Watermarks, FileError> {
    let (t, default) = (table.get_ref(), DEFAULT_WATERMARKS);
    optional(source, "scheme.watermarks.metric", t.metric.as_ref(), |v| match v {
        Scalar::Text(name) if name == "free_mem_rate" => Ok(()),
        other => Err(Refused::new(other, "is not a metric of watermarks; there is free_mem_rate")),
    })?;
    let mark = |key: &str, cell: Option<&Cell>| optional(source, key, cell, value::share_bp);
    let read = Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval_us: optional(source, "scheme.watermarks.interval", t.interval.as_ref(), value::time_us)?
            .unwrap_or(default.interval_us),
        high_bp: mark("scheme.watermarks.high", t.high.as_ref())?.unwrap_or(default.high_bp),
        mid_bp: mark("scheme.watermarks.mid", t.mid.as_ref())?.unwrap_or(default.mid_bp),
        low_bp: mark("scheme.watermarks.low", t.low.as_ref())?.unwrap_or(default.low_bp),
    };
    read.validate().map_err(|e| source.fault(&table.span(), "scheme.watermarks", e))?;
    Ok(read)
}

fn brake(source: Source, brake: &Brake) -> Result<Option<BrakeSpec>, FileError> {
    let default = BrakeSpec::default();
    let table: &BrakeTable = match brake {
        Brake::Switch(on) => return Ok(on.then_some(default)),
        Brake::Limits(table) => table,
    };
    let limit = |v: &Scalar| match v {
        // 0.3 could be meant as 30 % or as 0.3 %.
        Scalar::Text(_) => value::share(v),
        other => Err(Refused::new(other, "could be a fraction or a percentage; write for example \"30%\"")),
    };
    let one = |key: &str, cell: Option<&Cell>| optional(source, key, cell, limit);
    Ok(Some(BrakeSpec {
        refault_ratio: one("scheme.brake.refault_ratio", table.refault_ratio.as_ref())?
            .unwrap_or(default.refault_ratio),
        some_psi: one("scheme.brake.some_psi", table.some_psi.as_ref())?.unwrap_or(default.some_psi),
    }))
}

fn destinations(source: Source, t: &SchemeTable) -> Result<Vec<Destination>, FileError> {
    let node = optional(source, "scheme.target_nid", t.target_nid.as_ref(), value::count32)?;
    let list = match (&t.destinations, node) {
        (None, None) => return Ok(Vec::new()),
        (None, Some(node)) => return Ok(vec![Destination { node, weight: 1 }]),
        (Some(list), Some(_)) => {
            let why = "both target_nid and destinations are given; leave one out";
            return Err(source.fault(&list.span(), "scheme.destinations", why));
        }
        (Some(list), None) => list,
    };
    let one =
        |cell: &Cell, key: &str| value::count32(cell.get_ref()).map_err(|why| source.fault(&cell.span(), key, why));
    list.get_ref()
        .iter()
        .map(|d| {
            let node = one(&d.node, "scheme.destinations.node")?;
            let weight = d.weight.as_ref().map_or(Ok(1), |w| one(w, "scheme.destinations.weight"))?;
            Ok(Destination { node, weight })
        })
        .collect()
}
