//! Workloads described in a file: named regions, and phases that touch some of them.
//!
//! ```toml
//! [[region]]                # laid out in the arena in this order
//! name = "index"
//! size = "64M"
//!
//! [[region]]
//! name = "log"
//! size = "256M"
//!
//! [[phase]]                 # repeated from the first when the last has ended
//! name = "load"
//! duration = "2s"
//! touch = [{ region = "log", order = "sequential" }]
//!
//! [[phase]]
//! name = "serve"
//! duration = "10s"
//! touch = [
//!     { region = "index", weight = 9, order = "zipf", theta = 0.8 },
//!     { region = "log", weight = 1 },
//! ]
//! ```

use super::{Area, Order, Stage, Workload, WorkloadError};
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::units::{UnitError, format_time, parse_size, parse_time_ns};
use serde::Deserialize;

/// Why a phase file is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PhasesError {
    /// Not TOML, or a key that is unknown or missing. The text names line and key.
    #[error("{0}")]
    Syntax(String),
    /// A size or time that is none.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A phase that takes hardly any time: changing from one to the next would be all that is done.
    #[error("phase '{phase}': its duration is {}; give at least 1ms", format_time(*.duration_ns))]
    TooShort {
        phase: String,
        /// Its duration, ns.
        duration_ns: u64,
    },
    /// A phase names a region that is not there.
    #[error("phase '{phase}' touches '{region}', but no region has that name")]
    UnknownRegion { phase: String, region: String },
    /// Two regions of one name.
    #[error("two regions are called '{0}'")]
    SameName(String),
    /// A key that needs another.
    #[error("phase '{phase}': {why}")]
    BadTouch {
        phase: String,
        /// What is wrong and what would be right.
        why: &'static str,
    },
    /// The whole makes no sense.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// Shortest phase, ns.
const SHORTEST_NS: u64 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    region: Vec<RegionEntry>,
    phase: Vec<PhaseEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionEntry {
    name: String,
    size: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseEntry {
    name: String,
    duration: String,
    #[serde(default)]
    touch: Vec<TouchEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TouchEntry {
    region: String,
    #[serde(default = "one")]
    weight: f64,
    #[serde(default)]
    order: OrderEntry,
    theta: Option<f64>,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum OrderEntry {
    #[default]
    Scattered,
    Sequential,
    Zipf,
}

const fn one() -> f64 {
    1.0
}

/// Reads a workload from the text of a phase file. `seed` feeds random draws.
pub fn parse(text: &str, seed: u64) -> Result<Workload, PhasesError> {
    let file: File = toml::from_str(text).map_err(|e| PhasesError::Syntax(e.to_string()))?;
    let mut regions: Vec<(String, AddrRange)> = Vec::new();
    let mut end = 0u64;
    for r in file.region {
        let size = parse_size(&r.size)?.div_ceil(PAGE_SIZE).saturating_mul(PAGE_SIZE);
        let next = end.saturating_add(size);
        if next > super::patterns::MAX_SIZE {
            return Err(WorkloadError::BadParameter {
                what: "region",
                why: format!("'{}' makes the arena larger than an address space", r.name),
            }
            .into());
        }
        if regions.iter().any(|(name, _)| *name == r.name) {
            return Err(PhasesError::SameName(r.name));
        }
        regions.push((r.name, AddrRange::new(end, next)));
        end = next;
    }
    let mut stages = Vec::new();
    for p in file.phase {
        let duration_ns = parse_time_ns(&p.duration)?;
        if duration_ns < SHORTEST_NS {
            return Err(PhasesError::TooShort { phase: p.name, duration_ns });
        }
        let mut areas = Vec::new();
        for t in p.touch {
            let Some((_, range)) = regions.iter().find(|(name, _)| *name == t.region) else {
                return Err(PhasesError::UnknownRegion { phase: p.name, region: t.region });
            };
            let order = match (t.order, t.theta) {
                (OrderEntry::Zipf, theta) => {
                    let theta = theta.unwrap_or(0.99);
                    if !(0.0..=10.0).contains(&theta) {
                        return Err(PhasesError::BadTouch { phase: p.name, why: "theta must lie between 0 and 10" });
                    }
                    Order::Zipf { theta, scattered: false }
                }
                (_, Some(_)) => {
                    return Err(PhasesError::BadTouch { phase: p.name, why: "theta needs order = \"zipf\"" });
                }
                (OrderEntry::Scattered, None) => Order::Scattered,
                (OrderEntry::Sequential, None) => Order::Sequential,
            };
            areas.push(Area::new(*range, t.weight, order));
        }
        stages.push(Stage { name: p.name, duration_ns, areas });
    }
    Ok(Workload::new("phases", end, seed, stages)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [[region]]
        name = "index"
        size = "64K"
        [[region]]
        name = "log"
        size = "5000"
        [[phase]]
        name = "load"
        duration = "2s"
        touch = [{ region = "log", order = "sequential" }]
        [[phase]]
        name = "serve"
        duration = "10s"
        touch = [{ region = "index", weight = 9, order = "zipf", theta = 0.8 }, { region = "log" }]
        [[phase]]
        name = "rest"
        duration = "1s"
    "#;

    #[test]
    fn regions_follow_each_other_and_phases_name_them() {
        let w = parse(GOOD, 1).unwrap();
        assert_eq!(w.size(), 65536 + 8192);
        let names: Vec<_> = w.stages().iter().map(|s| (s.name.as_str(), s.duration_ns, s.areas.len())).collect();
        assert_eq!(names, [("load", 2_000_000_000, 1), ("serve", 10_000_000_000, 2), ("rest", 1_000_000_000, 0)]);
        assert_eq!(w.stages()[0].areas[0].range(), AddrRange::new(65536, 65536 + 8192));
        assert!((w.stages()[1].share(0) - 0.9).abs() < 1e-12);
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, says) in [
            ("weight = 9", "wieght = 9", "wieght"),
            ("region = \"index\"", "region = \"idx\"", "'idx'"),
            ("name = \"log\"", "name = \"index\"", "two regions"),
            ("\"64K\"", "\"lots\"", "'lots'"),
            ("\"2s\"", "\"0\"", "duration is 0"),
            ("\"2s\"", "\"1us\"", "at least 1ms"),
            ("weight = 9", "weight = -1", "weight"),
            ("order = \"sequential\"", "theta = 1", "zipf"),
            ("theta = 0.8", "theta = nan", "theta"),
            ("[[region]]", "[region]", ""),
        ] {
            let bad = GOOD.replace(from, to);
            assert_ne!(bad, GOOD, "{from}");
            let error = parse(&bad, 1).expect_err(to).to_string();
            assert!(error.contains(says), "{to}: {error}");
        }
        assert!(parse("", 1).is_err());
    }
}
