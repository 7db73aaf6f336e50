//! Metrics of goals: their names in files, the units of their targets, and which way an action moves them.

use super::value::{self, Scalar};
use crate::args::refused::Refused;
use isotherm_core::meter::Metric;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use std::fmt;
use std::str::FromStr;

/// Over which time the growth of a counter is taken, unless said otherwise.
pub const DEFAULT_WINDOW_NS: u64 = 10_000_000_000;

/// A metric as files name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricName {
    UserInput,
    SomeMemPsi,
    FullMemPsi,
    SomeMemPsiUs,
    FullMemPsiUs,
    FreeMemRate,
    NodeMemUsed,
    NodeMemFree,
    CgroupMemUsed,
    CgroupMemFree,
    TargetRss,
    ActiveMem,
    InactiveMem,
    SwapIn,
    Refault,
    TargetMajorFaults,
    TargetStall,
}

use MetricName as Name;

impl MetricName {
    const ALL: [Self; 17] = [
        Name::UserInput,
        Name::SomeMemPsi,
        Name::FullMemPsi,
        Name::SomeMemPsiUs,
        Name::FullMemPsiUs,
        Name::FreeMemRate,
        Name::NodeMemUsed,
        Name::NodeMemFree,
        Name::CgroupMemUsed,
        Name::CgroupMemFree,
        Name::TargetRss,
        Name::ActiveMem,
        Name::InactiveMem,
        Name::SwapIn,
        Name::Refault,
        Name::TargetMajorFaults,
        Name::TargetStall,
    ];

    const fn text(self) -> &'static str {
        match self {
            Name::UserInput => "user_input",
            Name::SomeMemPsi => "some_mem_psi",
            Name::FullMemPsi => "full_mem_psi",
            Name::SomeMemPsiUs => "some_mem_psi_us",
            Name::FullMemPsiUs => "full_mem_psi_us",
            Name::FreeMemRate => "free_mem_rate",
            Name::NodeMemUsed => "node_mem_used",
            Name::NodeMemFree => "node_mem_free",
            Name::CgroupMemUsed => "cgroup_mem_used",
            Name::CgroupMemFree => "cgroup_mem_free",
            Name::TargetRss => "target_rss",
            Name::ActiveMem => "active_mem",
            Name::InactiveMem => "inactive_mem",
            Name::SwapIn => "swap_in",
            Name::Refault => "refault",
            Name::TargetMajorFaults => "target_major_faults",
            Name::TargetStall => "target_stall",
        }
    }

    /// The name that a goal is written with.
    pub const fn of(goal: &Goal) -> Self {
        let per_reset = goal.window_ns == 0;
        match &goal.metric {
            GoalMetric::UserInput => Name::UserInput,
            GoalMetric::Read(metric) => match metric {
                Metric::SomeMemPsi(_) if per_reset => Name::SomeMemPsiUs,
                Metric::FullMemPsi(_) if per_reset => Name::FullMemPsiUs,
                Metric::SomeMemPsi(_) => Name::SomeMemPsi,
                Metric::FullMemPsi(_) => Name::FullMemPsi,
                Metric::FreeMemRate => Name::FreeMemRate,
                Metric::NodeMemUsed(_) => Name::NodeMemUsed,
                Metric::NodeMemFree(_) => Name::NodeMemFree,
                Metric::CgroupMemUsed(_) => Name::CgroupMemUsed,
                Metric::CgroupMemFree(_) => Name::CgroupMemFree,
                Metric::TargetRss => Name::TargetRss,
                Metric::ActiveMem => Name::ActiveMem,
                Metric::InactiveMem => Name::InactiveMem,
                Metric::SwapIn => Name::SwapIn,
                Metric::Refault => Name::Refault,
                Metric::TargetMajorFaults => Name::TargetMajorFaults,
                Metric::TargetStall => Name::TargetStall,
            },
        }
    }

    /// Whether its target is a growth within a window that the user may choose.
    pub const fn has_window(self) -> bool {
        matches!(
            self,
            Name::SomeMemPsi
                | Name::FullMemPsi
                | Name::SwapIn
                | Name::Refault
                | Name::TargetMajorFaults
                | Name::TargetStall
        )
    }

    /// The window where none is given; 0 where it is the reset interval or has no meaning.
    pub const fn default_window_ns(self) -> u64 {
        if self.has_window() { DEFAULT_WINDOW_NS } else { 0 }
    }

    /// Whether it is about a memory node.
    pub const fn wants_node(self) -> bool {
        matches!(self, Name::NodeMemUsed | Name::NodeMemFree)
    }

    const fn needs_path(self) -> bool {
        matches!(self, Name::CgroupMemUsed | Name::CgroupMemFree)
    }

    /// Whether it is or may be about a control group.
    const fn takes_path(self) -> bool {
        matches!(self, Name::SomeMemPsi | Name::FullMemPsi | Name::SomeMemPsiUs | Name::FullMemPsiUs)
            || self.needs_path()
    }

    /// Why a node or a path makes no sense for it.
    pub fn unwanted(self, node: Option<u32>, path: Option<&str>) -> Option<Refused> {
        if node.is_some() && !self.wants_node() {
            return Some(Refused::new(self, "is not about a memory node; leave that out"));
        }
        (path.is_some() && !self.takes_path())
            .then(|| Refused::new(self, "is not about a control group; leave that out"))
    }

    pub fn metric(self, node: Option<u32>, path: Option<&str>) -> Result<GoalMetric, Refused> {
        let node = || node.ok_or_else(|| Refused::new(self, "needs the number of a memory node: node = 0"));
        let group = || match path {
            Some(p) if !p.trim().is_empty() => Ok(p.to_owned()),
            _ => Err(Refused::new(self, "needs the path of a control group, for example path = \"/system.slice\"")),
        };
        let maybe_group = || path.map(str::to_owned);
        Ok(GoalMetric::Read(match self {
            Name::UserInput => return Ok(GoalMetric::UserInput),
            Name::SomeMemPsi | Name::SomeMemPsiUs => Metric::SomeMemPsi(maybe_group()),
            Name::FullMemPsi | Name::FullMemPsiUs => Metric::FullMemPsi(maybe_group()),
            Name::FreeMemRate => Metric::FreeMemRate,
            Name::NodeMemUsed => Metric::NodeMemUsed(node()?),
            Name::NodeMemFree => Metric::NodeMemFree(node()?),
            Name::CgroupMemUsed => Metric::CgroupMemUsed(group()?),
            Name::CgroupMemFree => Metric::CgroupMemFree(group()?),
            Name::TargetRss => Metric::TargetRss,
            Name::ActiveMem => Metric::ActiveMem,
            Name::InactiveMem => Metric::InactiveMem,
            Name::SwapIn => Metric::SwapIn,
            Name::Refault => Metric::Refault,
            Name::TargetMajorFaults => Metric::TargetMajorFaults,
            Name::TargetStall => Metric::TargetStall,
        }))
    }

    /// A target as it is written, in the unit that goals use.
    pub fn target(self, written: &Scalar, window_ns: u64) -> Result<u64, Refused> {
        let per_second = |rate: u64| {
            let grown = (u128::from(rate) * u128::from(window_ns) + 500_000_000) / 1_000_000_000;
            u64::try_from(grown).map_err(|_| Refused::new(written, "is too large"))
        };
        let target = match self {
            Name::UserInput | Name::SomeMemPsiUs | Name::FullMemPsiUs => value::count(written),
            Name::SomeMemPsi | Name::FullMemPsi | Name::TargetStall => psi_us(written, window_ns),
            Name::FreeMemRate | Name::NodeMemUsed | Name::NodeMemFree | Name::ActiveMem | Name::InactiveMem => {
                value::share_bp(written).map(u64::from)
            }
            Name::CgroupMemUsed | Name::CgroupMemFree | Name::TargetRss => value::size(written),
            Name::SwapIn | Name::Refault => value::size_per_second(written).and_then(per_second),
            Name::TargetMajorFaults => value::count(written).and_then(per_second),
        }?;
        if target == 0 {
            return Err(Refused::new(written, "is a goal of 0, which cannot be tuned for; give a target above 0"));
        }
        Ok(target)
    }

    /// A target as it would be written.
    pub fn written(self, target: u64, window_ns: u64) -> Written {
        let window = window_ns.max(1);
        let per_second = (u128::from(target) * 1_000_000_000 + u128::from(window / 2)) / u128::from(window);
        let per_second = per_second.min(u128::from(u64::MAX)) as u64;
        match self {
            Name::UserInput | Name::SomeMemPsiUs | Name::FullMemPsiUs => Written::Number(target),
            Name::SomeMemPsi | Name::FullMemPsi | Name::TargetStall => {
                Written::Percent(target as f64 * 1e5 / window as f64)
            }
            Name::FreeMemRate | Name::NodeMemUsed | Name::NodeMemFree | Name::ActiveMem | Name::InactiveMem => {
                Written::Percent(target as f64 / 100.0)
            }
            Name::CgroupMemUsed | Name::CgroupMemFree | Name::TargetRss => Written::Size(target),
            Name::SwapIn | Name::Refault => Written::Size(per_second),
            Name::TargetMajorFaults => Written::Number(per_second),
        }
    }
}

/// A target with the unit that it is written in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Written {
    Number(u64),
    /// Bytes.
    Size(u64),
    /// Percent.
    Percent(f64),
}

/// A share of the time within a window, as microseconds of stall.
fn psi_us(written: &Scalar, window_ns: u64) -> Result<u64, Refused> {
    let share = value::share(written)?;
    if share > 1.0 {
        return Err(Refused::new(written, "is more than 100% of the time, which cannot be"));
    }
    let us = (share * window_ns as f64 / 1e3).round() as u64;
    if us == 0 && share > 0.0 {
        return Err(Refused::new(written, "is less than a microsecond within the window; give more"));
    }
    Ok(us)
}

impl fmt::Display for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

impl FromStr for MetricName {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        Self::ALL.into_iter().find(|m| m.text() == text).ok_or_else(|| {
            Refused::new(text, format!("is not a metric; use one of {}", Self::ALL.map(Self::text).join(", ")))
        })
    }
}

/// Whether more of `action` makes `metric` fall, so that being above the target asks for more.
pub const fn falls(metric: &Metric, action: Action) -> bool {
    let frees = matches!(action, Action::PageOut | Action::Cold | Action::LruDeprio);
    let takes = matches!(action, Action::HugePage | Action::Collapse | Action::WillNeed);
    match metric {
        Metric::TargetRss | Metric::CgroupMemUsed(_) | Metric::NodeMemUsed(_) => {
            frees || matches!(action, Action::MigrateCold | Action::NoHugePage)
        }
        Metric::FreeMemRate | Metric::CgroupMemFree(_) => takes,
        Metric::NodeMemFree(_) => takes || matches!(action, Action::MigrateHot),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in MetricName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        assert!("psi".parse::<MetricName>().unwrap_err().to_string().contains("some_mem_psi"));
    }

    #[test]
    fn targets_have_the_unit_of_their_metric() {
        let target = |name: MetricName, text: &str| name.target(&text.into(), name.default_window_ns());
        assert_eq!(target(Name::SomeMemPsi, "0.5%"), Ok(50_000), "0.5 % of 10 s");
        assert_eq!(target(Name::SomeMemPsiUs, "10000"), Ok(10_000));
        assert_eq!(target(Name::FreeMemRate, "20%"), Ok(2000));
        assert_eq!(target(Name::TargetRss, "2G"), Ok(2 << 30));
        assert_eq!(target(Name::SwapIn, "1M/s"), Ok(10 << 20), "within 10 s");
        assert_eq!(target(Name::UserInput, "7"), Ok(7));
        for (name, bad) in [
            (Name::SomeMemPsi, "0%"),
            (Name::SomeMemPsi, "101%"),
            (Name::SomeMemPsi, "0.000001%"),
            (Name::FreeMemRate, "101%"),
            (Name::TargetRss, "0"),
            (Name::TargetRss, "50%"),
            (Name::UserInput, "1.5"),
            (Name::SwapIn, "16777215P"),
        ] {
            assert!(target(name, bad).is_err(), "{name} {bad}");
        }
    }

    #[test]
    fn the_way_an_action_moves_a_metric() {
        assert!(falls(&Metric::TargetRss, Action::PageOut));
        assert!(falls(&Metric::NodeMemUsed(0), Action::MigrateCold));
        assert!(!falls(&Metric::NodeMemFree(0), Action::MigrateCold));
        assert!(!falls(&Metric::NodeMemUsed(0), Action::MigrateHot));
        assert!(!falls(&Metric::SomeMemPsi(None), Action::PageOut));
        assert!(!falls(&Metric::FreeMemRate, Action::PageOut));
        assert!(falls(&Metric::FreeMemRate, Action::HugePage));
    }
}
