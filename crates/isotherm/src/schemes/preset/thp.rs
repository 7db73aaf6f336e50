//! Huge pages where they are used: the "ethp" scheme of DAMON's evaluation.

use super::limit::{age, rate};
use super::{checked, huge_pages};
use crate::args::units::size;
use crate::exit::Usage;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::filter::{Filter, FilterType};
use isotherm_core::scheme::pattern::{AccessPattern, Bounds, FULL_RATE_BP};
use isotherm_core::scheme::quota::QuotaSpec;

/// How often what is in use all over is looked for, ns, and how long it may be collapsed for then.
const SCATTERED_EVERY_NS: u64 = 1_000_000_000;
const SCATTERED_NS: u64 = SCATTERED_EVERY_NS / 100;

/// Memory in use is backed with huge pages; what is not used for a while gets none.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Huge pages")]
pub struct ThpArgs {
    /// Back with huge pages what is accessed at least at this rate
    #[arg(long, value_name = "P", default_value = "5%", value_parser = rate)]
    hot_rate: u32,
    /// Make huge pages only of what has been accessed like that for this time: the copy takes a while to pay for itself
    #[arg(long, value_name = "T", default_value = "5s", value_parser = age, conflicts_with = "advise")]
    hot_age: u64,
    /// Forbid huge pages for what has not been accessed for this time, where the kernel makes them without being asked
    #[arg(long, value_name = "T", default_value = "7s", value_parser = age)]
    cold_age: u64,
    /// Leave smaller regions alone
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = size)]
    min_size: u64,
    /// Make huge pages only of blocks of which at least this share is populated, or, where their rate is lower, was accessed within
    /// --hot-age
    #[arg(long, value_name = "P", default_value = "50%", value_parser = rate, conflicts_with = "advise")]
    min_density: u32,
    /// Advise the kernel to use huge pages in its own time, as ethp does, instead of making them at once: then what is
    /// sparse grows, too
    #[arg(long)]
    pub advise: bool,
}

impl ThpArgs {
    /// The schemes that are asked for; `always`: the kernel makes huge pages without being asked.
    pub fn schemes(&self, always: bool) -> Result<Vec<Scheme>, Usage> {
        if self.hot_rate == 0 {
            let why = "--hot-rate 0% would back memory with huge pages that nobody uses; give at least 0.01%";
            return Err(Usage(why.into()));
        }
        let size = Bounds::new(self.min_size, u64::MAX);
        let any = AccessPattern { size, ..AccessPattern::default() };
        let hot = AccessPattern { rate_bp: Bounds::new(self.hot_rate, FULL_RATE_BP), ..any };
        let cold =
            AccessPattern { rate_bp: Bounds::new(0, 0), age_us: Bounds::new(self.cold_age / 1000, u64::MAX), ..any };
        checked(if self.advise {
            vec![Scheme::new(Action::HugePage, hot), Scheme::new(Action::NoHugePage, cold)]
        } else {
            let hot = AccessPattern { age_us: Bounds::new(self.hot_age / 1000, u64::MAX), ..hot };
            let mut schemes = huge_pages(hot, cold, self.min_density, always);
            // Without an age nothing says what "lately" is.
            schemes.extend((self.hot_age > 0).then(|| self.scattered()));
            schemes
        })
    }

    /// What is in use all over, each page too seldom for a rate: at least once within `--hot-age`. Whether that pays for the copy, which
    /// takes half a millisecond a block, is not known, so it may take a hundredth of the time.
    fn scattered(&self) -> Scheme {
        Scheme {
            used_within_ns: self.hot_age,
            min_density_bp: self.min_density,
            apply_ns: SCATTERED_EVERY_NS,
            quota: QuotaSpec { time_ns: Some(SCATTERED_NS), reset_ns: SCATTERED_EVERY_NS, ..QuotaSpec::default() },
            // Files are shared with whoever reads them, and few kernels have huge pages for them.
            filters: vec![Filter { what: FilterType::Anon, matching: true, allow: true }],
            ..Scheme::new(Action::Collapse, AccessPattern::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::line;
    use clap::Parser;
    use isotherm_core::attrs::MonitorAttrs;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        thp: ThpArgs,
    }

    fn schemes(args: &[&str], always: bool) -> Result<Vec<(Action, AccessPattern)>, Usage> {
        let cli = Cli::try_parse_from([&["x"], args].concat()).unwrap();
        Ok(cli.thp.schemes(always)?.iter().map(|s| (s.action, s.pattern)).collect())
    }

    #[test]
    fn advice_is_given_by_the_published_lines() {
        let lines = ["2M null 5 null null null hugepage", "2M max min min 7s max nohugepage"];
        let lines = lines.map(|l| line::parse(l, &MonitorAttrs::default()).unwrap());
        assert_eq!(schemes(&["--advise"], false).unwrap(), lines.map(|s| (s.action, s.pattern)));
    }

    #[test]
    fn flags_change_them() {
        let args = ["--hot-rate", "20%", "--hot-age", "1s", "--cold-age", "1m", "--min-size", "4M"];
        let got = schemes(&args, true).unwrap();
        let (collapse, scattered) = (Action::Collapse, Action::Collapse);
        assert_eq!(
            got.iter().map(|s| s.0).collect::<Vec<_>>(),
            [Action::NoHugePage, Action::HugePage, collapse, scattered]
        );
        assert_eq!((got[2].1.rate_bp.min, got[2].1.age_us.min), (2000, 1_000_000));
        assert_eq!((got[0].1.age_us.min, got[0].1.size.min), (60_000_000, 4 << 20));
        assert!(schemes(&["--hot-rate", "0%"], false).is_err());
    }

    #[test]
    fn nothing_is_forbidden_that_the_kernel_does_not_do() {
        assert_eq!(schemes(&[], false).unwrap().iter().map(|s| s.0).collect::<Vec<_>>(), [Action::Collapse; 2]);
        assert_eq!(schemes(&["--hot-age", "0s"], false).unwrap().len(), 1, "by rates alone");
    }
}
