//! Reclaim: page out what has not been used for a while. Defaults are those of the kernel's DAMON_RECLAIM.

use super::checked;
use super::limit::{Limit, age, limit, quota_time, rate};
use crate::args::refused::Refused;
use crate::exit::Usage;
use crate::schemes::goal_text::{self, GoalText};
use crate::schemes::value;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::priority::Weights;
use isotherm_core::scheme::quota::QuotaSpec;
use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};

/// Only what has not been accessed for a while is paged out, and only as much as the quota allows; goals make it less.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Reclaim")]
pub struct ReclaimArgs {
    /// Page out what has not been used for this time
    #[arg(long, value_name = "T", default_value = "2m", value_parser = age)]
    min_age: u64,
    /// With --algorithm damon: count as unused regions that are accessed at no more than this rate. Else pages are
    /// chosen one by one, and only those not accessed at all
    #[arg(long, value_name = "P", default_value = "0%", value_parser = rate)]
    max_rate: u32,
    /// Page out no more than this, for example 128M/s or 1M/100ms ("none": unlimited)
    #[arg(long, value_name = "SIZE/T", default_value = "128M/s", value_parser = limit)]
    quota: Limit,
    /// Spend no more time on it than this within the quota's interval ("none": unlimited)
    #[arg(long, value_name = "T", default_value = "10ms", value_parser = quota_time)]
    quota_time: OptionalTime,
    /// Tune the amount for this: psi=0.5% (some task of the machine waits for memory during that share of 10 s),
    /// stall=0.5% (the targets do, by their faults), rss=2G (resident memory of all targets), free=20% (of the
    /// machine's memory), swap-in=1M/s. Repeatable; the least aggressive rules
    #[arg(long = "goal", value_name = "NAME=TARGET", value_parser = goal_text::parse)]
    goals: Vec<GoalText>,
    /// Work only while the machine's free memory is below MID (then until it is above HIGH) and not below LOW, where
    /// the kernel's own reclaim must have its way. Without this flag, reclaim works whatever is free: whoever names a
    /// target wants it smaller
    #[arg(
        long,
        value_name = "HIGH,MID,LOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "50%,40%,20%",
        value_parser = watermarks
    )]
    watermarks: Option<Watermarks>,
}

/// An alias: clap takes `Option` itself for a flag that may be missing.
type OptionalTime = std::option::Option<u64>;

/// `HIGH,MID,LOW`, shares of free memory, looked at every 5 s.
fn watermarks(text: &str) -> Result<Watermarks, Refused> {
    let marks: Vec<u32> = text.split(',').map(|part| value::share_bp(&part.trim().into())).collect::<Result<_, _>>()?;
    let [high_bp, mid_bp, low_bp] = marks.as_slice() else {
        return Err(Refused::new(text, "is not three marks; write for example 50%,40%,20%"));
    };
    let (high_bp, mid_bp, low_bp) = (*high_bp, *mid_bp, *low_bp);
    let marks = Watermarks { metric: WatermarkMetric::FreeMemRate, interval_us: 5_000_000, high_bp, mid_bp, low_bp };
    marks.validate().map_err(|e| Refused::new(text, format!("cannot be: {e}")))?;
    Ok(marks)
}

impl ReclaimArgs {
    /// The scheme that is asked for.
    pub fn schemes(&self) -> Result<Vec<Scheme>, Usage> {
        let pattern = AccessPattern {
            rate_bp: Bounds::new(0, self.max_rate),
            age_us: Bounds::new(self.min_age / 1000, u64::MAX),
            ..AccessPattern::default()
        };
        let mut scheme = Scheme::new(Action::PageOut, pattern);
        let default = QuotaSpec::default();
        scheme.quota = QuotaSpec {
            bytes: self.quota.0.map(|q| q.bytes),
            time_ns: self.quota_time,
            reset_ns: self.quota.0.map_or(default.reset_ns, |q| q.per_ns),
            weights: Weights { size: 0, access_rate: 0, age: 1 },
            goals: self.goals.iter().map(|g| g.of(Action::PageOut)).collect(),
            tuner: default.tuner,
        };
        scheme.watermarks = self.watermarks;
        checked(vec![scheme])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        reclaim: ReclaimArgs,
    }

    fn scheme(args: &[&str]) -> anyhow::Result<Scheme> {
        let cli = Cli::try_parse_from([&["x"], args].concat())?;
        Ok(cli.reclaim.schemes()?.remove(0))
    }

    #[test]
    fn defaults_are_those_of_the_kernel_but_for_watermarks() {
        let s = scheme(&[]).unwrap();
        assert_eq!(s.action, Action::PageOut);
        assert_eq!(s.pattern.rate_bp, Bounds::new(0, 0));
        assert_eq!(s.pattern.age_us, Bounds::new(120_000_000, u64::MAX));
        assert_eq!((s.quota.bytes, s.quota.time_ns), (Some(128 << 20), Some(10_000_000)));
        assert_eq!(s.quota.reset_ns, 1_000_000_000);
        assert!(s.watermarks.is_none() && s.brake.is_some() && s.confirm_ns > 0);
    }

    #[test]
    fn flags_change_them() {
        let args = ["--min-age", "5s", "--max-rate", "5%", "--quota", "1M/100ms", "--quota-time", "none"];
        let s = scheme(&[&args[..], &["--goal", "psi=0.5%", "--goal", "rss=2G", "--watermarks"]].concat()).unwrap();
        assert_eq!((s.pattern.rate_bp.max, s.pattern.age_us.min), (500, 5_000_000));
        assert_eq!((s.quota.bytes, s.quota.reset_ns, s.quota.time_ns), (Some(1 << 20), 100_000_000, None));
        assert_eq!(s.quota.goals.iter().map(|g| g.falls).collect::<Vec<_>>(), [false, true]);
        let marks = s.watermarks.unwrap();
        assert_eq!((marks.high_bp, marks.mid_bp, marks.low_bp, marks.interval_us), (5000, 4000, 2000, 5_000_000));
        let marks = scheme(&["--watermarks=30%,20%,1%"]).unwrap().watermarks.unwrap();
        assert_eq!((marks.high_bp, marks.mid_bp, marks.low_bp), (3000, 2000, 100));
        let s = scheme(&["--quota", "none"]).unwrap();
        assert_eq!((s.quota.bytes, s.quota.reset_ns), (None, 1_000_000_000));
    }

    #[test]
    fn nonsense_is_refused() {
        for args in [
            &["--min-age", "5"][..],
            &["--quota", "100"],
            &["--quota", "1M/0s"],
            &["--quota-time", "0"],
            &["--max-rate", "101%"],
            &["--goal", "psi=0%"],
            &["--watermarks=10%,20%,30%"],
            &["--watermarks=10%"],
        ] {
            assert!(scheme(args).is_err(), "{args:?}");
        }
    }
}
