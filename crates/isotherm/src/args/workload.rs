//! `PATTERN` and its parameters: a workload, real or simulated.

use super::refused::Refused;
use super::units;
use crate::exit::Usage;
use clap::ValueEnum;
use isotherm_core::units::nanos;
use isotherm_sim::workload::patterns::{Parameters, Pattern};
use isotherm_sim::workload::{Workload, phases};
use std::path::PathBuf;
use std::time::Duration;

/// Which pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PatternName {
    /// One hot area somewhere in the middle, the rest cold
    Hotspot,
    /// The hot area walks through memory, by its own size each period
    Stairs,
    /// Two areas in turn
    Alternate,
    /// Zipf-distributed pages
    Zipf,
    /// All memory in address order, over and over
    Scan,
    /// Single hot pages at random places, always the same
    Random,
    /// Every nth page: one in 1 / --hot
    Every,
    /// Nothing is touched
    Idle,
    /// Regions and phases from a file (--file)
    Phases,
}

/// Whether, for options that default to what the system does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum YesNo {
    /// Yes
    Yes,
    /// No
    No,
}

/// A pattern with its parameters.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArgs {
    /// Which pages are touched when
    #[arg(value_enum)]
    pub pattern: PatternName,
    /// Size of the memory (with `phases`: the sum of its regions)
    #[arg(long, value_name = "S", value_parser = units::size)]
    pub size: Option<u64>,
    /// Hot part of the memory: a fraction (0.1) or a percentage (10%) [default: 0.1; alternate: 0.5; random
    /// and every: 0.02]
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    pub hot: Option<f64>,
    /// Part of the touches that hotspot gives to the cold rest, random and every to all memory: a fraction or a
    /// percentage [default: 0]
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    pub background: Option<f64>,
    /// Exponent of zipf; 0 makes all pages alike [default: 0.99]
    #[arg(long, value_name = "Z")]
    pub theta: Option<f64>,
    /// Spread zipf's popular pages over all memory instead of putting them first
    #[arg(long)]
    pub scattered: bool,
    /// Time between changes of stairs [default: 5s] and alternate [default: 2s]
    #[arg(long, value_name = "T", value_parser = units::time)]
    pub period: Option<Duration>,
    /// Phase file (TOML) of the pattern `phases`
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Parses `0.1` or `10%` into a fraction of one.
fn fraction(text: &str) -> Result<f64, Refused> {
    let number = |t: &str| t.trim().parse::<f64>().ok().filter(|v| v.is_finite());
    let value = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|p| p / 100.0),
        None => number(text),
    };
    value.ok_or_else(|| Refused::new(text, "is no fraction: write for example 0.1 or 10%"))
}

impl WorkloadArgs {
    /// Refuses options that only other patterns take, for those who run one pattern: nothing would come of them.
    pub fn refuse_other_patterns_options(&self) -> Result<(), Usage> {
        use PatternName::{Alternate, Every, Hotspot, Phases, Random, Stairs, Zipf};
        let options: [(&str, bool, &[PatternName]); 6] = [
            ("--hot", self.hot.is_some(), &[Hotspot, Stairs, Alternate, Random, Every]),
            ("--background", self.background.is_some(), &[Hotspot, Random, Every]),
            ("--theta", self.theta.is_some(), &[Zipf]),
            ("--scattered", self.scattered, &[Zipf]),
            ("--period", self.period.is_some(), &[Stairs, Alternate]),
            ("--file", self.file.is_some(), &[Phases]),
        ];
        let name = |pattern: &PatternName| {
            pattern.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
        };
        match options.iter().find(|(_, is_given, takers)| *is_given && !takers.contains(&self.pattern)) {
            None => Ok(()),
            Some((option, _, takers)) => {
                let takers: Vec<String> = takers.iter().map(name).collect();
                let (takers, pattern) = (takers.join(", "), name(&self.pattern));
                Err(Usage(format!("{option} is an option of {takers}, not of {pattern}; leave it out")))
            }
        }
    }

    /// The workload described; a description that makes no sense is a usage error. The same `seed` gives the same
    /// workload.
    pub fn build(&self, seed: u64) -> anyhow::Result<Workload> {
        let usage = |text: String| anyhow::Error::from(Usage(text));
        let pattern = match self.pattern {
            PatternName::Hotspot => Pattern::Hotspot,
            PatternName::Stairs => Pattern::Stairs,
            PatternName::Alternate => Pattern::Alternate,
            PatternName::Zipf => Pattern::Zipf,
            PatternName::Scan => Pattern::Scan,
            PatternName::Random => Pattern::Random,
            PatternName::Every => Pattern::Every,
            PatternName::Idle => Pattern::Idle,
            PatternName::Phases => return self.read_phases(seed),
        };
        if self.file.is_some() {
            return Err(usage(format!("--file belongs to the pattern phases, not to {}", pattern.name())));
        }
        let Some(size) = self.size else {
            return Err(usage("--size is missing; give for example --size 1G".into()));
        };
        let usual = Parameters::new(size);
        let parameters = Parameters {
            size,
            hot: self.hot,
            background: self.background.unwrap_or(usual.background),
            theta: self.theta.unwrap_or(usual.theta),
            scattered: self.scattered,
            period_ns: self.period.map(nanos),
            seed,
        };
        pattern.build(&parameters).map_err(|e| usage(e.to_string()))
    }

    fn read_phases(&self, seed: u64) -> anyhow::Result<Workload> {
        let usage = |text: String| anyhow::Error::from(Usage(text));
        let Some(path) = &self.file else {
            return Err(usage("the pattern phases needs --file FILE".into()));
        };
        let text = std::fs::read_to_string(path)
            .map_err(|e| anyhow::Error::from(e).context(format!("cannot read {}", path.display())))?;
        let workload = phases::parse(&text, seed).map_err(|e| usage(format!("{}: {e}", path.display())))?;
        match self.size {
            Some(size) if size != workload.size() => Err(usage(format!(
                "--size {size} contradicts {}, whose regions sum up to {} bytes; leave --size out",
                path.display(),
                workload.size()
            ))),
            _ => Ok(workload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fraction;

    #[test]
    fn fractions_and_percentages() {
        assert_eq!(fraction("0.1"), Ok(0.1));
        assert_eq!(fraction("10%"), Ok(0.1));
        assert_eq!(fraction("1"), Ok(1.0));
        for bad in ["", "%", "x", "inf", "nan"] {
            assert!(fraction(bad).is_err(), "{bad}");
        }
    }
}
