//! One `[[scheme]]`.

use super::{filter, goal};
use crate::args::refused::Refused;
use crate::schemes::fault::FileError;
use crate::schemes::node::Node;
use crate::schemes::value::{self, End, Scalar, end_of};
use isotherm_core::actuator::Destination;
use isotherm_core::scheme::brake::BrakeSpec;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::priority::Weights;
use isotherm_core::scheme::quota::{QuotaError, QuotaSpec};
use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};
use isotherm_core::scheme::{Scheme, SchemeError};

const DEFAULT_WATERMARKS: Watermarks = Watermarks {
    metric: WatermarkMetric::FreeMemRate,
    interval_us: 5_000_000,
    high_bp: 5000,
    mid_bp: 4000,
    low_bp: 2000,
};

const KEYS: [&str; 14] = [
    "action",
    "group",
    "apply_interval",
    "confirm",
    "min_density",
    "used_within",
    "pattern",
    "quota",
    "goal",
    "watermarks",
    "filter",
    "brake",
    "destinations",
    "target_nid",
];

/// Reads a scheme and checks it.
pub fn read(node: &Node) -> Result<Scheme, FileError> {
    node.only(&KEYS)?;
    let action = node.need("action")?.read(|v| v.to_string().parse())?;
    let mut scheme = Scheme::new(action, node.part("pattern", pattern)?.unwrap_or_default());
    scheme.apply_ns = node.optional("apply_interval", value::time_ns)?.unwrap_or(0);
    scheme.group = node.optional("group", value::text)?;
    scheme.confirm_ns = node.optional("confirm", value::time_ns)?.unwrap_or(scheme.confirm_ns);
    scheme.min_density_bp = node.optional("min_density", value::share_bp)?.unwrap_or(scheme.min_density_bp);
    scheme.used_within_ns = match node.optional("used_within", value::time_ns)? {
        Some(0) => return Err(node.fault_at("used_within", "nothing is used within no time; write for example \"1m\"")),
        within => within.unwrap_or(0),
    };
    scheme.quota = node.part("quota", quota)?.unwrap_or(scheme.quota);
    scheme.quota.goals = node.each("goal", |g| goal::read(g, action))?;
    scheme.watermarks = node.part("watermarks", watermarks)?;
    scheme.filters = node.each("filter", filter::read)?;
    scheme.brake = node.part("brake", brake)?.unwrap_or(scheme.brake);
    scheme.destinations = destinations(node)?;
    let key = |e: &SchemeError| match e {
        SchemeError::NoDestination(_) | SchemeError::UselessDestination(_) => "action",
        SchemeError::NoWeight => "destinations",
        SchemeError::UselessWithin(_) => "used_within",
        _ => "",
    };
    scheme.validate().map_err(|e| node.fault_at(key(&e), e))?;
    Ok(scheme)
}

fn pattern(node: &Node) -> Result<AccessPattern, FileError> {
    node.only(&["size", "access_rate", "age"])?;
    let all = AccessPattern::default();
    Ok(AccessPattern {
        size: range(node, "size", all.size, value::size)?,
        rate_bp: range(node, "access_rate", all.rate_bp, value::share_bp)?,
        age_us: range(node, "age", all.age_us, value::time_us)?,
    })
}

fn range<T: Copy + PartialOrd>(
    node: &Node,
    key: &str,
    all: Bounds<T>,
    read: impl Fn(&Scalar) -> Result<T, Refused>,
) -> Result<Bounds<T>, FileError> {
    let Some(list) = node.get(key)? else { return Ok(all) };
    let ends = list.items()?;
    let [least, largest] = ends.as_slice() else {
        return Err(list.fault(format!("a range has two values, the least and the largest, not {}", ends.len())));
    };
    let end = |node: &Node, end| node.read(|v| end_of(v, end, all, &read));
    let bounds = Bounds::new(end(least, End::Least)?, end(largest, End::Largest)?);
    if bounds.min > bounds.max {
        let written = |node: &Node| node.scalar().map(ToString::to_string).unwrap_or_default();
        let why = format!("the least value, {}, is above the largest, {}", written(least), written(largest));
        return Err(list.fault(why));
    }
    Ok(bounds)
}

fn quota(node: &Node) -> Result<QuotaSpec, FileError> {
    node.only(&["bytes", "time", "reset_interval", "weights", "tuner"])?;
    let default = QuotaSpec::default();
    let quota = QuotaSpec {
        bytes: node.optional("bytes", value::size)?,
        time_ns: node.optional("time", value::time_ns)?,
        reset_ns: node.optional("reset_interval", value::time_ns)?.unwrap_or(default.reset_ns),
        weights: node.part("weights", weights)?.unwrap_or(default.weights),
        goals: Vec::new(),
        tuner: node.optional("tuner", |name| name.to_string().parse())?.unwrap_or_default(),
    };
    let key = |e: &QuotaError| match e {
        QuotaError::TooSmall(_) => "bytes",
        QuotaError::NoTime => "time",
        QuotaError::ZeroInterval => "reset_interval",
        QuotaError::Goal(_) => "",
    };
    quota.validate().map_err(|e| node.fault_at(key(&e), e))?;
    Ok(quota)
}

/// What is not named has no weight, unless nothing is named.
fn weights(node: &Node) -> Result<Weights, FileError> {
    node.only(&["size", "access_rate", "age"])?;
    if node.is_empty() {
        return Ok(Weights::default());
    }
    let one = |key| node.optional(key, value::count32).map(Option::unwrap_or_default);
    Ok(Weights { size: one("size")?, access_rate: one("access_rate")?, age: one("age")? })
}

fn watermarks(node: &Node) -> Result<Watermarks, FileError> {
    node.only(&["metric", "interval", "high", "mid", "low"])?;
    let default = DEFAULT_WATERMARKS;
    node.optional("metric", |v| match v {
        Scalar::Text(name) if name == "free_mem_rate" => Ok(()),
        other => Err(Refused::new(other, "is not a metric of watermarks; there is free_mem_rate")),
    })?;
    let marks = Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval_us: node.optional("interval", value::time_us)?.unwrap_or(default.interval_us),
        high_bp: node.optional("high", value::share_bp)?.unwrap_or(default.high_bp),
        mid_bp: node.optional("mid", value::share_bp)?.unwrap_or(default.mid_bp),
        low_bp: node.optional("low", value::share_bp)?.unwrap_or(default.low_bp),
    };
    marks.validate().map_err(|e| node.fault(e))?;
    Ok(marks)
}

fn brake(node: &Node) -> Result<Option<BrakeSpec>, FileError> {
    let default = BrakeSpec::default();
    match node.scalar() {
        Some(Scalar::Bool(on)) => return Ok(on.then_some(default)),
        Some(_) => {
            let why = "write false (no brake), true (the usual one), or a table with refault_ratio and some_psi";
            return Err(node.fault(why));
        }
        None => node.only(&["refault_ratio", "some_psi"])?,
    }
    let limit = |v: &Scalar| match v {
        // 0.3 could be meant as 30 % or as 0.3 %.
        Scalar::Text(_) => match value::share(v)? {
            share if share <= 1.0 => Ok(share),
            _ => Err(Refused::new(v, "is never reached; write brake = false for a scheme without one")),
        },
        other => Err(Refused::new(other, "could be a fraction or a percentage; write for example \"30%\"")),
    };
    Ok(Some(BrakeSpec {
        refault_ratio: node.optional("refault_ratio", limit)?.unwrap_or(default.refault_ratio),
        some_psi: node.optional("some_psi", limit)?.unwrap_or(default.some_psi),
    }))
}

fn destinations(scheme: &Node) -> Result<Vec<Destination>, FileError> {
    let node = scheme.optional("target_nid", value::count32)?;
    let Some(list) = scheme.get("destinations")? else {
        return Ok(node.map(|node| Destination { node, weight: 1 }).into_iter().collect());
    };
    if node.is_some() {
        return Err(list.fault("both target_nid and destinations are given; leave one out"));
    }
    scheme.each("destinations", |d| {
        d.only(&["node", "weight"])?;
        let weight = d.optional("weight", value::count32)?.unwrap_or(1);
        Ok(Destination { node: d.need("node")?.read(value::count32)?, weight })
    })
}
