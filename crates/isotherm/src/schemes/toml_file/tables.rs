//! The tables and keys of a scheme file, as they are written.

use crate::schemes::fault::{FileError, Source};
use crate::schemes::value::Scalar;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::fmt;
use std::path::PathBuf;
use toml::Spanned;

/// A value with its place.
pub type Cell = Spanned<Scalar>;

/// The value of a key that may be missing.
pub fn optional<T, E: fmt::Display>(
    source: Source,
    key: &str,
    cell: Option<&Cell>,
    read: impl Fn(&Scalar) -> Result<T, E>,
) -> Result<Option<T>, FileError> {
    cell.map(|c| read(c.get_ref()).map_err(|why| source.fault(&c.span(), key, why))).transpose()
}

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileTable {
    #[serde(default)]
    pub scheme: Vec<Spanned<SchemeTable>>,
    pub monitor: Option<Spanned<MonitorTable>>,
    pub target: Option<Spanned<TargetTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonitorTable {
    pub source: Option<Cell>,
    pub sample: Option<Cell>,
    pub aggr: Option<Cell>,
    pub update: Option<Cell>,
    pub min_regions: Option<Cell>,
    pub max_regions: Option<Cell>,
    pub cpu_budget: Option<Cell>,
    pub mode: Option<Cell>,
    pub algorithm: Option<Cell>,
    pub damon_rules: Option<Cell>,
    pub tune_intervals: Option<Cell>,
    pub three_regions: Option<Cell>,
    pub seed: Option<Cell>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetTable {
    pub pid: Option<Vec<Cell>>,
    pub children: Option<bool>,
    pub cgroup: Option<Spanned<PathBuf>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemeTable {
    pub action: Spanned<String>,
    pub apply_interval: Option<Cell>,
    pub confirm: Option<Cell>,
    pub min_density: Option<Cell>,
    pub pattern: Option<PatternTable>,
    pub quota: Option<Spanned<QuotaTable>>,
    #[serde(default)]
    pub goal: Vec<Spanned<GoalTable>>,
    pub watermarks: Option<Spanned<WatermarksTable>>,
    #[serde(default)]
    pub filter: Vec<Spanned<FilterTable>>,
    pub brake: Option<Spanned<Brake>>,
    pub destinations: Option<Spanned<Vec<DestinationTable>>>,
    pub target_nid: Option<Cell>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternTable {
    pub size: Option<Spanned<Vec<Cell>>>,
    pub access_rate: Option<Spanned<Vec<Cell>>>,
    pub age: Option<Spanned<Vec<Cell>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaTable {
    pub bytes: Option<Cell>,
    pub time: Option<Cell>,
    pub reset_interval: Option<Cell>,
    pub weights: Option<WeightsTable>,
    pub tuner: Option<Cell>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightsTable {
    pub size: Option<Cell>,
    pub access_rate: Option<Cell>,
    pub age: Option<Cell>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoalTable {
    pub metric: Spanned<String>,
    pub target: Cell,
    pub window: Option<Cell>,
    pub node: Option<Cell>,
    pub path: Option<Spanned<String>>,
    pub falls: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatermarksTable {
    pub metric: Option<Cell>,
    pub interval: Option<Cell>,
    pub high: Option<Cell>,
    pub mid: Option<Cell>,
    pub low: Option<Cell>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterTable {
    #[serde(rename = "type")]
    pub kind: Spanned<String>,
    /// Whether it speaks of what matches; for mappings, the expression.
    pub matching: Option<Cell>,
    pub invert: Option<Spanned<bool>>,
    pub allow: Option<bool>,
    pub start: Option<Cell>,
    pub end: Option<Cell>,
    pub index: Option<Cell>,
    pub path: Option<Spanned<String>>,
    pub min: Option<Cell>,
    pub max: Option<Cell>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationTable {
    pub node: Cell,
    pub weight: Option<Cell>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrakeTable {
    pub refault_ratio: Option<Cell>,
    pub some_psi: Option<Cell>,
}

/// A brake's limits, or whether there is one at all.
#[derive(Debug)]
pub enum Brake {
    Switch(bool),
    Limits(BrakeTable),
}

struct BrakeVisitor;

impl<'de> Visitor<'de> for BrakeVisitor {
    type Value = Brake;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("false (no brake), true (the usual one), or a table with refault_ratio and some_psi")
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<Brake, E> {
        Ok(Brake::Switch(on))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Brake, A::Error> {
        BrakeTable::deserialize(MapAccessDeserializer::new(map)).map(Brake::Limits)
    }
}

impl<'de> Deserialize<'de> for Brake {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BrakeVisitor)
    }
}
