//! One scheme of damo's.

use super::filter;
use super::quota;
use super::words::{self, US};
use crate::args::refused::Refused;
use crate::schemes::fault::FileError;
use crate::schemes::node::Node;
use crate::schemes::value::{self, Scalar};
use isotherm_core::actuator::Destination;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::filter::core_first;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};

/// What damo writes that is not a setting, or is read elsewhere.
const KEYS: [&str; 11] = [
    "action",
    "dests",
    "target_nid",
    "access_pattern",
    "apply_interval_us",
    "quotas",
    "watermarks",
    "filters",
    "stats",
    "tried_regions",
    "tried_bytes",
];

/// Reads a scheme and checks it.
pub fn read(node: &Node, attrs: &MonitorAttrs, physical: bool) -> Result<Scheme, FileError> {
    node.only(&KEYS)?;
    // Without an action, damo's schemes only count.
    let action = node.optional("action", |v| v.to_string().parse())?.unwrap_or(Action::Stat);
    let pattern = node.part("access_pattern", |p| pattern(p, attrs))?.unwrap_or_default();
    let mut scheme = Scheme::new(action, pattern);
    scheme.apply_ns = node.optional("apply_interval_us", |v| words::interval_ns(v, US))?.unwrap_or(0);
    scheme.quota = node.part("quotas", |q| quota::read(q, action))?.unwrap_or(scheme.quota);
    scheme.watermarks = node.part("watermarks", watermarks)?.flatten();
    scheme.filters = node.each("filters", |f| filter::read(f, physical))?;
    core_first(&mut scheme.filters);
    scheme.destinations = destinations(node)?;
    scheme.validate().map_err(|e| node.fault(e))?;
    Ok(scheme)
}

fn pattern(node: &Node, attrs: &MonitorAttrs) -> Result<AccessPattern, FileError> {
    node.only(&["sz_bytes", "nr_accesses", "age"])?;
    let all = AccessPattern::default();
    Ok(AccessPattern {
        size: range(node, "sz_bytes", all.size, words::size)?,
        rate_bp: range(node, "nr_accesses", all.rate_bp, |v| words::rate_bp(v, attrs))?,
        age_us: range(node, "age", all.age_us, |v| words::age_us(v, attrs))?,
    })
}

fn range<T: Copy + PartialOrd>(
    node: &Node,
    key: &str,
    all: Bounds<T>,
    read: impl Fn(&Scalar) -> Result<T, Refused>,
) -> Result<Bounds<T>, FileError> {
    let Some(node) = node.get(key)? else { return Ok(all) };
    node.only(&["min", "max"])?;
    let min = node.optional("min", &read)?.unwrap_or(all.min);
    let max = node.optional("max", &read)?.unwrap_or(all.max);
    if min > max {
        return Err(node.fault("the least value is above the largest"));
    }
    Ok(Bounds::new(min, max))
}

fn watermarks(node: &Node) -> Result<Option<Watermarks>, FileError> {
    node.only(&["metric", "interval_us", "high_permil", "mid_permil", "low_permil"])?;
    match node.optional("metric", value::text)?.as_deref() {
        None | Some("none") => return Ok(None),
        Some("free_mem_rate") => {}
        Some(other) => {
            let why = Refused::new(other, "is not a metric of watermarks; there are none and free_mem_rate");
            return Err(node.fault(why));
        }
    }
    let mark = |key| node.optional(key, |v| words::share_bp(v, 1000.0)).map(Option::unwrap_or_default);
    let read = Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval_us: node.optional("interval_us", |v| words::interval_ns(v, US))?.unwrap_or(0) / US,
        high_bp: mark("high_permil")?,
        mid_bp: mark("mid_permil")?,
        low_bp: mark("low_permil")?,
    };
    read.validate().map_err(|e| node.fault(e))?;
    Ok(Some(read))
}

fn destinations(node: &Node) -> Result<Vec<Destination>, FileError> {
    let list = node.each("dests", |dest| {
        let weight = dest.optional("weight", words::count32)?.unwrap_or(1);
        Ok(Destination { node: dest.need("id")?.read(words::count32)?, weight })
    })?;
    if !list.is_empty() {
        return Ok(list);
    }
    let node = node.optional("target_nid", words::count32)?;
    Ok(node.map(|node| Destination { node, weight: 1 }).into_iter().collect())
}
