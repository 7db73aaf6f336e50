//! What a scheme file may say beside schemes: how to watch, and whom.

use crate::args::monitor::{AlgorithmName, CpuBudget, ModeName, MonitorArgs, RulesName, SourceName};
use crate::args::target::TargetArgs;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::units::micros;
use std::path::PathBuf;
use std::time::Duration;

/// The `[monitor]` table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MonitorSettings {
    pub source: Option<SourceName>,
    pub sample: Option<Duration>,
    pub aggr: Option<Duration>,
    pub update: Option<Duration>,
    pub min_regions: Option<u32>,
    pub max_regions: Option<u32>,
    pub cpu_budget: Option<CpuBudget>,
    pub mode: Option<ModeName>,
    pub algorithm: Option<AlgorithmName>,
    pub damon_rules: Option<RulesName>,
    pub tune_intervals: Option<bool>,
    pub three_regions: Option<bool>,
    pub seed: Option<u64>,
}

impl MonitorSettings {
    /// Adds what the command line does not say. `is_given`: whether it has an option, by its name without the dashes and with `_`.
    pub fn fill(&self, args: &mut MonitorArgs, is_given: impl Fn(&str) -> bool) {
        fn put<T: Clone>(to: &mut T, is_given: bool, from: Option<&T>) {
            if let Some(value) = from.filter(|_| !is_given) {
                *to = value.clone();
            }
        }
        put(&mut args.source, is_given("source"), self.source.as_ref());
        put(&mut args.sample, is_given("sample"), self.sample.as_ref());
        put(&mut args.aggr, is_given("aggr"), self.aggr.as_ref());
        put(&mut args.update, is_given("update"), self.update.map(Some).as_ref());
        put(&mut args.min_regions, is_given("min_regions"), self.min_regions.as_ref());
        put(&mut args.max_regions, is_given("max_regions"), self.max_regions.as_ref());
        put(&mut args.cpu_budget, is_given("cpu_budget"), self.cpu_budget.as_ref());
        put(&mut args.mode, is_given("mode"), self.mode.as_ref());
        put(&mut args.algorithm, is_given("algorithm"), self.algorithm.as_ref());
        put(&mut args.damon_rules, is_given("damon_rules"), self.damon_rules.as_ref());
        put(&mut args.tune_intervals, is_given("tune_intervals"), self.tune_intervals.as_ref());
        put(&mut args.three_regions, is_given("three_regions"), self.three_regions.as_ref());
        put(&mut args.seed, is_given("seed"), self.seed.as_ref());
    }

    /// `attrs` with all that is set here.
    pub fn over(&self, attrs: &MonitorAttrs) -> MonitorAttrs {
        let aggr_us = self.aggr.map_or(attrs.aggr_us, micros);
        MonitorAttrs {
            sample_us: self.sample.map_or(attrs.sample_us, micros),
            aggr_us,
            update_us: self.update.map_or(attrs.update_us.max(aggr_us), micros),
            min_regions: self.min_regions.unwrap_or(attrs.min_regions),
            max_regions: self.max_regions.unwrap_or(attrs.max_regions),
        }
    }
}

/// The `[target]` table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetSettings {
    pub pids: Vec<u32>,
    pub children: bool,
    pub names: Vec<String>,
    pub cgroups: Vec<PathBuf>,
    pub all: bool,
}

impl TargetSettings {
    /// Adds the file's target where the command line names none.
    pub fn fill(&self, args: &mut TargetArgs) {
        if !args.is_given() {
            args.pids.clone_from(&self.pids);
            args.names.clone_from(&self.names);
            args.cgroups.clone_from(&self.cgroups);
            args.all = self.all;
        }
        args.children |= self.children;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        monitor: MonitorArgs,
        #[command(flatten)]
        target: TargetArgs,
    }

    fn cli(args: &[&str]) -> Cli {
        Cli::try_parse_from([&["isotherm"], args].concat()).unwrap()
    }

    #[test]
    fn the_command_line_comes_first() {
        let file = MonitorSettings {
            sample: Some(Duration::from_millis(20)),
            aggr: Some(Duration::from_millis(400)),
            cpu_budget: Some(CpuBudget(None)),
            mode: Some(ModeName::Scan),
            ..Default::default()
        };
        // One of them is given as what it is by default.
        let mut args = cli(&["--aggr", "100ms", "--min-regions", "20"]).monitor;
        file.fill(&mut args, |name| ["aggr", "min_regions"].contains(&name));
        assert_eq!((args.sample, args.aggr), (Duration::from_millis(20), Duration::from_millis(100)));
        assert_eq!((args.min_regions, args.cpu_budget, args.mode), (20, CpuBudget(None), ModeName::Scan));
    }

    #[test]
    fn a_target_that_is_given_replaces_the_files() {
        let file = TargetSettings { pids: vec![7], children: true, ..TargetSettings::default() };
        let mut args = cli(&[]).target;
        file.fill(&mut args);
        assert_eq!((args.pids, args.children), (vec![7], true));
        let mut args = cli(&["--cgroup", "/a"]).target;
        file.fill(&mut args);
        assert_eq!((args.pids, args.cgroups), (vec![], vec!["/a".into()]));
    }
}
