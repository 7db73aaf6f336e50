//! Schemes: what to do to memory of a certain access pattern, how much of it, and tuned to what.
//!
//! A [`SchemeEngine`](engine::SchemeEngine) subscribes to a monitor: it sees its snapshots and gets its turn between
//! samples. At each apply interval a scheme goes through
//!
//! ```text
//! watermarks ─▶ brake ─▶ quota (tuned by goals) ─▶ pattern ─▶ filters ─▶ priority ─▶ proof page by page ─▶ actuator
//! ```
//!
//! and whichever of them stops it is what [`IdleReason`](idle::IdleReason) tells. Rules and formulas are DAMOS's where
//! it has them; docs/schemes.md lists where they differ and why.

pub mod action;
pub mod ahead;
mod apply;
pub mod brake;
mod by_block;
mod by_page;
mod by_region;
pub mod effect;
pub mod engine;
pub mod filter;
pub mod goal;
mod growth;
pub mod idle;
mod left_out;
mod look;
mod pace;
pub mod page_cache;
mod page_rule;
mod patience;
pub mod pattern;
pub mod priority;
pub mod quota;
mod runner;
pub mod stats;
mod stops;
mod supply;
mod tally;
mod target_view;
pub mod threshold;
mod treated;
mod victims;
pub mod watermark;

use crate::actuator::Destination;
use action::Action;
use brake::BrakeSpec;
use filter::Filter;
use pattern::{AccessPattern, PatternError};
use quota::{QuotaError, QuotaSpec};
use watermark::{WatermarkError, Watermarks};

/// A scheme.
#[derive(Debug, Clone)]
pub struct Scheme {
    /// Which regions.
    pub pattern: AccessPattern,
    /// What is done to them.
    pub action: Action,
    /// How often, ns. 0: at every aggregation interval.
    pub apply_ns: u64,
    /// How much.
    pub quota: QuotaSpec,
    /// When at all.
    pub watermarks: Option<Watermarks>,
    /// The control group whose processes alone it is for, this path and none below; goals, brake and figures then speak of
    /// these alone, too. `None`: for all targets.
    pub group: Option<String>,
    /// What is spared.
    pub filters: Vec<Filter>,
    /// For how long a page must be seen unused, by its own accessed bit, before an action that would hurt hot pages
    /// touches it; ns. 0: the region's figures suffice, as in DAMOS. A scheme with goals stretches it while much of
    /// what went comes back.
    pub confirm_ns: u64,
    /// Only for 2 MiB blocks of which at least this share of pages is present, in basis points: so that huge pages
    /// waste no memory. 0: wherever the pattern matches, as in DAMOS.
    pub min_density_bp: u32,
    /// Blocks of 2 MiB are its victims, wherever they lie: those of which [`min_density_bp`](Self::min_density_bp) of the
    /// pages were accessed within so long, by the page history; ns. 0: regions or single pages decide.
    pub used_within_ns: u64,
    /// When it is stopped because it does harm. `None`: never.
    pub brake: Option<BrakeSpec>,
    /// Where pages go, for migration.
    pub destinations: Vec<Destination>,
}

/// How long pages are watched before an action that hurts hot pages, unless said otherwise.
pub const DEFAULT_CONFIRM_NS: u64 = 2_000_000_000;

/// How dense a block must be to be collapsed into a huge page, unless said otherwise.
pub const DEFAULT_DENSITY_BP: u32 = 5_000;

impl Scheme {
    /// The control groups that it names, to be written as a process's is told.
    pub fn groups_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.filters.iter_mut().filter_map(|filter| filter.what.group_mut()).chain(&mut self.group)
    }

    /// Whether it matters which control group a target is in.
    pub fn goes_by_group(&self) -> bool {
        self.group.is_some() || self.filters.iter().any(|filter| filter.what.group().is_some())
    }

    /// A scheme that does `action` to all memory that matches `pattern`, without limit.
    pub fn new(action: Action, pattern: AccessPattern) -> Self {
        let careful = action.harms_hot_pages();
        Self {
            pattern,
            action,
            apply_ns: 0,
            quota: QuotaSpec::default(),
            watermarks: None,
            group: None,
            filters: Vec::new(),
            min_density_bp: if action == Action::Collapse { DEFAULT_DENSITY_BP } else { 0 },
            used_within_ns: 0,
            confirm_ns: if careful { DEFAULT_CONFIRM_NS } else { 0 },
            brake: careful.then(BrakeSpec::default),
            destinations: Vec::new(),
        }
    }

    /// Whether it acts on single pages by how long they have been idle, whatever their region's figures are: its least age
    /// and [`confirm_ns`](Self::confirm_ns) mean the same then, the greater counts, and access rates mean nothing.
    /// `by_region`: the monitor's algorithm is DAMON's.
    pub fn chooses_pages(&self, by_region: bool) -> bool {
        !by_region && self.pattern.rate_bp.min == 0 && self.action.is_for_idle_pages()
    }

    /// Checks all of it.
    pub fn validate(&self) -> Result<(), SchemeError> {
        self.pattern.validate()?;
        self.quota.validate()?;
        self.watermarks.as_ref().map_or(Ok(()), Watermarks::validate)?;
        let migrates = matches!(self.action, Action::MigrateHot | Action::MigrateCold);
        if migrates && self.destinations.is_empty() {
            return Err(SchemeError::NoDestination(self.action));
        }
        if migrates && self.destinations.iter().all(|d| d.weight == 0) {
            return Err(SchemeError::NoWeight);
        }
        if self.min_density_bp > 10_000 {
            return Err(SchemeError::DensityAboveFull);
        }
        if self.used_within_ns > 0 && !matches!(self.action, Action::Collapse | Action::Stat) {
            return Err(SchemeError::UselessWithin(self.action));
        }
        if !migrates && !self.destinations.is_empty() {
            return Err(SchemeError::UselessDestination(self.action));
        }
        Ok(())
    }
}

/// Why a scheme is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    /// The pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The quota.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The watermarks.
    #[error(transparent)]
    Watermarks(#[from] WatermarkError),
    /// Migration to nowhere.
    #[error("{0} needs a node to move pages to: give target_nid or destinations")]
    NoDestination(Action),
    /// More pages than a block has.
    #[error("a density of more than 100% cannot be")]
    DensityAboveFull,
    /// Migration to nodes that get nothing.
    #[error("all destinations have weight 0")]
    NoWeight,
    /// Blocks in use, for something else than making huge pages of them.
    #[error("{0} is not for blocks that are in use: used_within is for collapse and stat")]
    UselessWithin(Action),
    /// A destination for something that does not move pages.
    #[error("{0} moves no pages, so it takes no destination")]
    UselessDestination(Action),
}
