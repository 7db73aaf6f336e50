//! `MONITOR`: how to watch.

use super::units;
use clap::ValueEnum;
use std::time::Duration;

/// Where accesses are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SourceName {
    /// The first that passes its self-test
    Auto,
    /// Page tables, read by an eBPF program
    Pagetable,
    /// Idle page tracking
    Idle,
    /// The kernel's own DAMON
    Damon,
    /// clear_refs and smaps: whole mappings, without root on one's own processes
    Refs,
}

/// How pages are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Scan where that fits the budget, else sample
    Auto,
    /// Some pages of each region
    Sample,
    /// Every mapped page once per aggregation interval
    Scan,
}

/// Which algorithm draws the regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AlgorithmName {
    /// Isotherm's own
    Isotherm,
    /// DAMON's, to the letter
    Damon,
}

/// Intervals, limits, source and algorithm.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Monitor")]
pub struct MonitorArgs {
    /// Where accesses are seen
    #[arg(long, value_enum, default_value = "auto")]
    pub source: SourceName,
    /// Sampling interval
    #[arg(long, value_name = "T", default_value = "5ms", value_parser = units::time)]
    pub sample: Duration,
    /// Aggregation interval
    #[arg(long, value_name = "T", default_value = "100ms", value_parser = units::time)]
    pub aggr: Duration,
    /// Interval at which mappings are read again
    #[arg(long, value_name = "T", default_value = "1s", value_parser = units::time)]
    pub update: Duration,
    /// Least number of regions
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub min_regions: u32,
    /// Largest number of regions
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub max_regions: u32,
    /// Share of one core that monitoring may cost, the targets' losses counted
    #[arg(long, value_name = "P", default_value = "1%", value_parser = units::percent)]
    pub cpu_budget: f64,
    /// How pages are chosen
    #[arg(long, value_enum, default_value = "auto")]
    pub mode: ModeName,
    /// Which algorithm draws the regions
    #[arg(long, value_enum, default_value = "isotherm")]
    pub algorithm: AlgorithmName,
}
