//! Workloads as plain data: which areas of an arena are touched, how often relative to each other, in which order, and
//! for how long.
//!
//! The same [`Workload`] drives real memory (through a [`Generator`](generator::Generator)) and the simulated machine,
//! and tells the truth about either (through [`truth`]).

pub mod generator;
pub mod members;
pub mod patterns;
pub mod phases;
pub mod sweep;
pub mod truth;
pub mod truth_file;
pub mod zipf;

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use members::Members;
use sweep::Sweep;
use zipf::Zipf;

/// In which order the pages of an area are touched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    /// In address order, round after round.
    Sequential,
    /// Every page once per round, scattered over the area.
    Scattered,
    /// At random, page ranks Zipf-distributed with exponent `theta`. With `scattered`, the popular pages lie all over
    /// the area; otherwise the first page is the most popular.
    Zipf {
        /// Exponent; 0 makes all pages alike.
        theta: f64,
        /// Whether popular pages are spread out.
        scattered: bool,
    },
}

/// How touches fall on the pages of an area that are touched, by their numbers; precomputed from [`Order`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Plan {
    /// Every page once per round.
    Round(Sweep),
    /// Independent draws: `order` maps ranks to pages.
    Draw {
        ranks: Zipf,
        /// The page of a rank.
        order: Sweep,
    },
}

/// A part of the arena that is touched.
#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    range: AddrRange,
    weight: f64,
    members: Members,
    plan: Plan,
}

impl Area {
    /// An area at `range` (byte offsets in the arena, page aligned) that gets touches in proportion to `weight`.
    pub fn new(range: AddrRange, weight: f64, order: Order) -> Self {
        Self::sparse(range, weight, order, Members::All)
    }

    /// The same, of which only some pages are touched.
    pub fn sparse(range: AddrRange, weight: f64, order: Order, members: Members) -> Self {
        let pages = members.count(range.len() / PAGE_SIZE);
        let plan = match order {
            Order::Sequential => Plan::Round(Sweep::sequential(pages)),
            Order::Scattered => Plan::Round(Sweep::scattered(pages)),
            Order::Zipf { theta, scattered } => Plan::Draw {
                ranks: Zipf::new(pages, theta),
                order: if scattered { Sweep::scattered(pages) } else { Sweep::sequential(pages) },
            },
        };
        Self { range, weight, members, plan }
    }

    /// Its byte offsets in the arena.
    pub const fn range(&self) -> AddrRange {
        self.range
    }

    /// Its pages, touched or not.
    pub const fn pages(&self) -> u64 {
        self.range.len() / PAGE_SIZE
    }

    /// Which of its pages are touched.
    pub const fn members(&self) -> Members {
        self.members
    }

    /// The page with number `index` among those that are touched.
    pub fn page(&self, index: u64) -> u64 {
        self.members.page(index, self.pages())
    }

    /// Its share of the stage's touches relative to other areas' weights.
    pub const fn weight(&self) -> f64 {
        self.weight
    }

    /// How touches fall on those of its pages that are touched.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// What happens for some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Name, for people.
    pub name: String,
    /// How long, ns; more than 0.
    pub duration_ns: u64,
    /// What is touched; empty: nothing.
    pub areas: Vec<Area>,
}

impl Stage {
    /// The share of the touches that go to area `index`, 0 to 1.
    pub fn share(&self, index: usize) -> f64 {
        let sum: f64 = self.areas.iter().map(Area::weight).sum();
        if sum > 0.0 { self.areas[index].weight / sum } else { 0.0 }
    }
}

/// Why a workload makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    #[error("the arena holds no whole page; give --size of at least 4K")]
    NoPages,
    /// A part that does not fit.
    #[error(
        "stage '{stage}': the area {start:#x}-{end:#x} is empty, not page aligned, or outside the arena of {size} bytes"
    )]
    BadArea {
        stage: String,
        start: u64,
        end: u64,
        /// Arena size in bytes.
        size: u64,
    },
    /// A weight that is no share.
    #[error("stage '{stage}': a weight must be a number above 0")]
    BadWeight { stage: String },
    /// A stage that takes no time.
    #[error("stage '{stage}': its duration is 0; give at least 1ms")]
    NoDuration { stage: String },
    /// No stage at all.
    #[error("the workload has no stage; describe at least one")]
    NoStage,
    /// A parameter out of its bounds.
    #[error("{what}: {why}")]
    BadParameter {
        what: &'static str,
        /// What is wrong and what would be right.
        why: String,
    },
}

/// A stage in force at some moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Current<'a> {
    /// Which stage of the workload.
    pub index: usize,
    pub stage: &'a Stage,
    /// When it began, ns since the workload's start.
    pub start_ns: u64,
    /// When it ends, ns since the workload's start.
    pub end_ns: u64,
}

/// Stages over an arena, repeated from the first when the last has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    name: String,
    size: u64,
    seed: u64,
    stages: Vec<Stage>,
    cycle_ns: u64,
}

impl Workload {
    /// A workload over an arena of `size` bytes (whole pages). `seed` feeds random draws.
    pub fn new(name: impl Into<String>, size: u64, seed: u64, stages: Vec<Stage>) -> Result<Self, WorkloadError> {
        if size < PAGE_SIZE {
            return Err(WorkloadError::NoPages);
        }
        let size = size - size % PAGE_SIZE;
        if stages.is_empty() {
            return Err(WorkloadError::NoStage);
        }
        for stage in &stages {
            if stage.duration_ns == 0 {
                return Err(WorkloadError::NoDuration { stage: stage.name.clone() });
            }
            for area in &stage.areas {
                let AddrRange { start, end } = area.range;
                if start >= end || end > size || start % PAGE_SIZE != 0 || end % PAGE_SIZE != 0 {
                    return Err(WorkloadError::BadArea { stage: stage.name.clone(), start, end, size });
                }
                if !(area.weight.is_finite() && area.weight > 0.0) {
                    return Err(WorkloadError::BadWeight { stage: stage.name.clone() });
                }
            }
        }
        let cycle_ns = stages.iter().fold(0u64, |sum, s| sum.saturating_add(s.duration_ns));
        Ok(Self { name: name.into(), size, seed, stages, cycle_ns })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the arena.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Seed of random draws.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The stages of a cycle.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Whether only single pages of some area are touched, so that ranges tell little.
    pub fn is_scattered(&self) -> bool {
        let areas = || self.stages.iter().flat_map(|s| &s.areas);
        areas()
            .any(|a| a.members != Members::All || matches!(a.plan, Plan::Draw { order, .. } if !order.is_sequential()))
    }

    /// The stage in force `elapsed_ns` after the start.
    pub fn at(&self, elapsed_ns: u64) -> Current<'_> {
        let mut start_ns = elapsed_ns - elapsed_ns % self.cycle_ns;
        for (index, stage) in self.stages.iter().enumerate() {
            let end_ns = start_ns.saturating_add(stage.duration_ns);
            if elapsed_ns < end_ns || index + 1 == self.stages.len() {
                return Current { index, stage, start_ns, end_ns };
            }
            start_ns = end_ns;
        }
        unreachable!("a workload has at least one stage")
    }

    /// The stages in force during `[from_ns, to_ns)` since the start, each with the part of that time that it fills.
    pub fn during(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = (Current<'_>, u64, u64)> {
        let mut now = from_ns;
        std::iter::from_fn(move || {
            if now >= to_ns {
                return None;
            }
            let current = self.at(now);
            let part = (current, now, current.end_ns.min(to_ns));
            now = part.2;
            Some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, duration_ns: u64) -> Stage {
        Stage { name: name.into(), duration_ns, areas: Vec::new() }
    }

    #[test]
    fn stages_follow_each_other_in_a_cycle() {
        let w = Workload::new("t", 1 << 20, 0, vec![stage("a", 10), stage("b", 5)]).unwrap();
        let seen: Vec<_> = w.during(8, 27).map(|(c, from, to)| (c.stage.name.as_str(), c.start_ns, from, to)).collect();
        assert_eq!(seen, [("a", 0, 8, 10), ("b", 10, 10, 15), ("a", 15, 15, 25), ("b", 25, 25, 27)]);
    }

    #[test]
    fn a_stage_may_last_for_ever() {
        let w = Workload::new("t", 4096, 0, vec![stage("a", u64::MAX)]).unwrap();
        assert_eq!(w.at(u64::MAX - 1).start_ns, 0);
    }

    #[test]
    fn nonsense_is_refused() {
        let area = |start, end, weight| Area::new(AddrRange::new(start, end), weight, Order::Scattered);
        let with =
            |a: Area| Workload::new("t", 1 << 20, 0, vec![Stage { name: "s".into(), duration_ns: 1, areas: vec![a] }]);
        assert!(with(area(0, 4096, 1.0)).is_ok());
        assert!(matches!(with(area(0, 2 << 20, 1.0)), Err(WorkloadError::BadArea { .. })));
        assert!(matches!(with(area(4096, 4096, 1.0)), Err(WorkloadError::BadArea { .. })));
        assert!(matches!(with(area(100, 4096, 1.0)), Err(WorkloadError::BadArea { .. })));
        assert!(matches!(with(area(0, 4096, f64::NAN)), Err(WorkloadError::BadWeight { .. })));
        assert_eq!(Workload::new("t", 4095, 0, vec![stage("a", 1)]), Err(WorkloadError::NoPages));
        assert_eq!(Workload::new("t", 4096, 0, vec![]), Err(WorkloadError::NoStage));
    }
}
