//! Tiering: cold memory to swap or a slower node, hot memory to huge pages or a faster node, and back again.

use super::limit::{Limit, age, limit, rate};
use super::{checked, huge_pages};
use crate::exit::Usage;
use crate::schemes::goal_text::{self, GoalText};
use isotherm_core::actuator::Destination;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds, FULL_RATE_BP};
use isotherm_core::scheme::{DEFAULT_DENSITY_BP, Scheme};

const HUGE_PAGE: u64 = 2 << 20;

/// Memory is cold or hot by how often and since when it is accessed. Cold memory goes to swap or to a slower node and
/// gets no huge pages any more; hot memory is backed with huge pages, and comes back to the fast node where one is
/// named.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Tiers")]
pub struct TierArgs {
    /// Memory is cold once it was accessed at no more than this rate (pages are moved only if they were not accessed at
    /// all, except with --algorithm damon)...
    #[arg(long, value_name = "P", default_value = "0%", value_parser = rate)]
    cold_rate: u32,
    /// ...for this time
    #[arg(long, value_name = "T", default_value = "30s", value_parser = age)]
    cold_age: u64,
    /// Memory is hot once it was accessed at least at this rate...
    #[arg(long, value_name = "P", default_value = "50%", value_parser = rate)]
    hot_rate: u32,
    /// ...for this time
    #[arg(long, value_name = "T", default_value = "1s", value_parser = age)]
    hot_age: u64,
    /// Move cold memory to this node instead of paging it out
    #[arg(long, value_name = "N")]
    slow_node: Option<u32>,
    /// Move hot memory to this node
    #[arg(long, value_name = "N", requires = "slow_node")]
    fast_node: Option<u32>,
    /// Leave huge pages as they are
    #[arg(long)]
    keep_pages: bool,
    /// Move no more than this in each direction, for example 128M/s ("none": unlimited)
    #[arg(long, value_name = "SIZE/T", default_value = "128M/s", value_parser = limit)]
    quota: Limit,
    /// Tune the amount of cold memory that is moved for this: psi=0.5%, stall=0.5%, rss=2G, free=20%,
    /// swap-in=1M/s. Repeatable; the least aggressive rules
    #[arg(long = "goal", value_name = "NAME=TARGET", value_parser = goal_text::parse)]
    goals: Vec<GoalText>,
}

impl TierArgs {
    /// The schemes that are asked for. `always`: the kernel makes huge pages without being asked.
    pub fn schemes(&self, always: bool) -> Result<Vec<Scheme>, Usage> {
        if self.hot_rate <= self.cold_rate {
            return Err(Usage("--hot-rate must be above --cold-rate: else the same memory would be both".into()));
        }
        if self.fast_node.is_some() && self.fast_node == self.slow_node {
            return Err(Usage("--fast-node and --slow-node are the same node".into()));
        }
        let since = |ns: u64| Bounds::new(ns / 1000, u64::MAX);
        let any = AccessPattern::default();
        let cold = AccessPattern { rate_bp: Bounds::new(0, self.cold_rate), age_us: since(self.cold_age), ..any };
        let hot =
            AccessPattern { rate_bp: Bounds::new(self.hot_rate, FULL_RATE_BP), age_us: since(self.hot_age), ..any };
        let huge = |pattern| AccessPattern { size: Bounds::new(HUGE_PAGE, u64::MAX), ..pattern };
        let mut schemes = Vec::new();
        if !self.keep_pages {
            schemes.extend(huge_pages(huge(hot), huge(cold), DEFAULT_DENSITY_BP, always));
        }
        let down = if self.slow_node.is_some() { Action::MigrateCold } else { Action::PageOut };
        schemes.push(self.moving(down, cold));
        if self.fast_node.is_some() {
            schemes.push(self.moving(Action::MigrateHot, hot));
        }
        checked(schemes)
    }

    fn moving(&self, action: Action, pattern: AccessPattern) -> Scheme {
        let mut scheme = Scheme::new(action, pattern);
        let node = match action {
            Action::MigrateCold => self.slow_node,
            Action::MigrateHot => self.fast_node,
            _ => None,
        };
        scheme.destinations = node.map(|node| Destination { node, weight: 1 }).into_iter().collect();
        if let Some(quota) = self.quota.0 {
            scheme.quota.bytes = Some(quota.bytes);
            scheme.quota.reset_ns = quota.per_ns;
        }
        if action != Action::MigrateHot {
            scheme.quota.goals = self.goals.iter().map(|g| g.of(action)).collect();
        }
        scheme
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        tier: TierArgs,
    }

    fn schemes(args: &[&str]) -> anyhow::Result<Vec<Scheme>> {
        Ok(Cli::try_parse_from([&["x"], args].concat())?.tier.schemes(true)?)
    }

    fn actions(args: &[&str]) -> Vec<Action> {
        schemes(args).unwrap().iter().map(|s| s.action).collect()
    }

    #[test]
    fn cold_memory_goes_and_hot_memory_gets_huge_pages() {
        assert_eq!(actions(&[]), [Action::NoHugePage, Action::HugePage, Action::Collapse, Action::PageOut]);
        assert_eq!(actions(&["--keep-pages"]), [Action::PageOut]);
        assert_eq!(
            actions(&["--keep-pages", "--slow-node", "1", "--fast-node", "0"]),
            [Action::MigrateCold, Action::MigrateHot]
        );
    }

    #[test]
    fn thresholds_and_nodes() {
        let args = ["--cold-rate", "1%", "--cold-age", "5s", "--hot-rate", "60%", "--hot-age", "2s"];
        let got =
            schemes(&[&args[..], &["--slow-node", "1", "--fast-node", "0", "--goal", "psi=1%"]].concat()).unwrap();
        let (off, on, down, up) = (&got[0], &got[2], &got[3], &got[4]);
        assert_eq!((off.pattern.rate_bp, off.pattern.size.min), (Bounds::new(0, 100), HUGE_PAGE));
        assert_eq!((on.pattern.rate_bp, on.pattern.age_us.min), (Bounds::new(6000, 10_000), 2_000_000));
        assert_eq!((down.pattern.size.min, down.pattern.age_us.min), (0, 5_000_000));
        assert_eq!((down.destinations[0].node, up.destinations[0].node), (1, 0));
        assert_eq!((down.quota.goals.len(), up.quota.goals.len()), (1, 0));
        assert_eq!((down.quota.bytes, up.quota.bytes), (Some(128 << 20), Some(128 << 20)));
    }

    #[test]
    fn cold_memory_is_what_reclaim_calls_so() {
        #[derive(Debug, Parser)]
        struct Reclaim {
            #[command(flatten)]
            reclaim: super::super::ReclaimArgs,
        }
        let reclaim = Reclaim::try_parse_from(["x", "--min-age", "5s"]).unwrap().reclaim.schemes().unwrap().remove(0);
        let tier = schemes(&["--keep-pages", "--cold-age", "5s"]).unwrap().remove(0);
        assert_eq!((tier.action, tier.pattern), (reclaim.action, reclaim.pattern));
        assert_eq!((tier.confirm_ns, tier.apply_ns), (reclaim.confirm_ns, reclaim.apply_ns));
    }

    #[test]
    fn contradictions_are_refused() {
        for args in [
            &["--hot-rate", "5%", "--cold-rate", "5%"][..],
            &["--slow-node", "1", "--fast-node", "1"],
            &["--fast-node", "0"],
            &["--quota", "1K/s"],
        ] {
            assert!(schemes(args).is_err(), "{args:?}");
        }
    }
}
