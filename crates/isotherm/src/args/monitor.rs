//! `MONITOR`: how to watch.

use super::refused::Refused;
use super::units;
use crate::exit::Usage;
use clap::{Args as _, FromArgMatches, ValueEnum};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::Mode;
use isotherm_core::monitor::config::{Algorithm, DamonRules, MonitorConfig};
use isotherm_core::monitor::intervals::IntervalsGoal;
use isotherm_core::space::SpaceRule;
use isotherm_core::units::micros;
use std::time::Duration;

/// Where accesses are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SourceName {
    /// Page tables; refs where these cannot be read
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

/// Which version of DAMON's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RulesName {
    /// Mainline's
    Mainline,
    /// The v12 patch set's
    V12,
}

/// A CPU budget: a percentage of one core, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuBudget(pub Option<f64>);

/// Parses a CPU budget.
pub fn cpu_budget(text: &str) -> Result<CpuBudget, Refused> {
    if text == "none" {
        return Ok(CpuBudget(None));
    }
    let share = units::percent(text)?;
    if !(0.0001..=64.0).contains(&share) {
        return Err(Refused::new(text, "is no budget; give a share of one core from 0.01% to 6400%, or none"));
    }
    Ok(CpuBudget(Some(share)))
}

/// The options that say how regions are drawn.
const OF_REGIONS: [&str; 8] =
    ["sample", "min-regions", "max-regions", "mode", "algorithm", "damon-rules", "tune-intervals", "three-regions"];

/// For the help of a command that shows single pages of processes: leaves out what is about regions or knows no processes.
pub fn pages_only(arg: clap::Arg) -> clap::Arg {
    if arg.get_long() == Some("source") {
        let help = "Where accesses are seen: auto or pagetable (page tables), or idle (idle page tracking)";
        return arg.help(help).hide_possible_values(true);
    }
    let hidden = arg.get_long().is_some_and(|name| OF_REGIONS.contains(&name) || name == "physical");
    arg.hide(hidden)
}

/// For the help of a command that simulates: leaves out what is about this machine.
pub fn simulated(arg: clap::Arg) -> clap::Arg {
    let hidden = arg.get_long().is_some_and(|name| ["source", "physical", "nice"].contains(&name));
    // Left as it is where others have hidden it.
    if hidden { arg.hide(true) } else { arg }
}

/// Intervals, limits, source and algorithm.
#[derive(Debug, Clone, PartialEq, clap::Args)]
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
    /// Interval at which mappings are read again [default: 1s, or the aggregation interval if that is longer]
    #[arg(long, value_name = "T", value_parser = units::time)]
    pub update: Option<Duration>,
    /// Least number of regions
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub min_regions: u32,
    /// Largest number of regions
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub max_regions: u32,
    /// Share of one core that monitoring may cost, the targets' losses counted; intervals are stretched to keep it
    /// ("none": unlimited)
    #[arg(long, value_name = "P", default_value = "1%", value_parser = cpu_budget)]
    pub cpu_budget: CpuBudget,
    /// The monitor's nice value: it lets the programs it watches run first, and so does not delay their slowest
    /// requests. Kept as it is where isotherm was started with another than 0
    #[arg(long, value_name = "0-19", default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=19))]
    pub nice: u8,
    /// How pages are chosen
    #[arg(long, value_enum, default_value = "auto")]
    pub mode: ModeName,
    /// Which algorithm draws the regions
    #[arg(long, value_enum, default_value = "isotherm")]
    pub algorithm: AlgorithmName,
    /// With --algorithm damon: which version of its rules
    #[arg(long, value_enum, default_value = "mainline")]
    pub damon_rules: RulesName,
    /// Let the intervals follow the amount of access seen (DAMON's auto-tuning: aim at 4 % every 3 aggregations, 5ms to
    /// 10s)
    #[arg(long)]
    pub tune_intervals: bool,
    /// Monitor DAMON's three regions (the whole span without its two widest gaps) instead of the real mappings
    #[arg(long)]
    pub three_regions: bool,
    /// With --source damon: watch all physical memory instead of a target
    #[arg(long)]
    pub physical: bool,
    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

impl MonitorArgs {
    /// What they are where nothing is given.
    pub fn defaults() -> Self {
        let command = Self::augment_args(clap::Command::new("isotherm")).no_binary_name(true);
        // It has no argument that must be given.
        Self::from_arg_matches(&command.get_matches_from([""; 0])).unwrap_or_else(|e| e.exit())
    }

    /// Refuses what is about regions, for those who draw none: it would silently not be done.
    pub fn refuse_regions(&self) -> Result<(), Usage> {
        let usual = Self::defaults();
        let given = [
            self.sample != usual.sample,
            self.min_regions != usual.min_regions,
            self.max_regions != usual.max_regions,
            self.mode != usual.mode,
            self.algorithm != usual.algorithm,
            self.damon_rules != usual.damon_rules,
            self.tune_intervals,
            self.three_regions,
        ];
        match OF_REGIONS.iter().zip(given).find(|(_, given)| *given) {
            None => Ok(()),
            Some((name, _)) => Err(Usage(format!(
                "--{name} is about regions, and this looks at single pages only; leave it out, or use `record` or `report`"
            ))),
        }
    }

    /// The attributes, checked.
    pub fn attrs(&self) -> Result<MonitorAttrs, Usage> {
        let (sample_us, aggr_us) = (micros(self.sample), micros(self.aggr));
        let update_us = self.update.map_or(aggr_us.max(1_000_000), micros);
        let attrs = MonitorAttrs {
            sample_us,
            aggr_us,
            update_us,
            min_regions: self.min_regions,
            max_regions: self.max_regions,
        };
        attrs.validate().map_err(|e| Usage(e.to_string()))?;
        Ok(attrs)
    }

    /// Everything a monitor needs to know; `kernel` and the clocks' distance are for the record.
    pub fn config(&self, kernel: String, realtime_offset_ns: i64) -> Result<MonitorConfig, Usage> {
        let algorithm = match (self.algorithm, self.damon_rules) {
            (AlgorithmName::Isotherm, _) => Algorithm::Isotherm,
            (AlgorithmName::Damon, RulesName::Mainline) => Algorithm::Damon(DamonRules::Mainline),
            (AlgorithmName::Damon, RulesName::V12) => Algorithm::Damon(DamonRules::V12),
        };
        if self.algorithm != AlgorithmName::Damon && self.damon_rules != RulesName::Mainline {
            return Err(Usage(
                "--damon-rules v12 needs --algorithm damon: Isotherm's own algorithm does not follow them".into(),
            ));
        }
        let mode = match self.mode {
            ModeName::Auto => None,
            ModeName::Sample => Some(Mode::Sample),
            ModeName::Scan => Some(Mode::Scan),
        };
        if mode == Some(Mode::Scan) && self.algorithm == AlgorithmName::Damon {
            return Err(Usage(
                "--algorithm damon samples only: leave --mode scan out, or use --algorithm isotherm".into(),
            ));
        }
        if self.physical && self.source != SourceName::Damon {
            return Err(Usage("--physical needs --source damon: other sources watch processes".into()));
        }
        let attrs = self.attrs()?;
        Ok(MonitorConfig {
            walks: true,
            attrs,
            algorithm,
            mode,
            cpu_budget: self.cpu_budget.0,
            intervals_goal: self
                .tune_intervals
                .then(|| IntervalsGoal { min_sample_us: attrs.sample_us, ..IntervalsGoal::default() }),
            space: if self.three_regions { SpaceRule::ThreeRegions } else { SpaceRule::Mappings },
            seed: self.seed,
            kernel,
            realtime_offset_ns,
        })
    }
}
