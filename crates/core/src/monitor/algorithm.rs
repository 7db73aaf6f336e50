//! What the monitor's loop asks of an algorithm.

use crate::addr::AddrRange;
use crate::attrs::MonitorAttrs;
use crate::event::Mode;
use crate::snapshot::RegionInfo;
use crate::source::{AccessSource, SourceError};
use crate::target::TargetId;

/// What an algorithm wants of the intervals after it has heard its load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Stretch {
    /// Leave them.
    Keep,
    /// Make them longer by this factor (> 1): nothing else is left to give up.
    Longer(f64),
    /// They may become shorter by this factor (> 1) again, down to what the user asked for.
    Shorter(f64),
}

/// Chooses pages, draws regions. Errors of a source concern one target only; the loop removes it.
pub(crate) trait Algorithm {
    /// The target's monitored ranges are now `space`; what is known about unchanged ranges stays. Also adds a target.
    fn set_space(&mut self, target: TargetId, space: &[AddrRange], attrs: &MonitorAttrs);

    /// The target is gone.
    fn drop_target(&mut self, target: TargetId);

    /// What an aggregation interval costs at least, ns: where the budget does not pay for it, intervals are longer from
    /// the start.
    fn least_ns(&self) -> f64 {
        0.0
    }

    /// Before an aggregation interval: what may be spent by now, savings included (below 0: too much was), and what the
    /// interval will bring, in ns; without end where there is no budget.
    fn allow(&mut self, allowance_ns: f64, budget_ns: f64) {
        let _ = (allowance_ns, budget_ns);
    }

    /// Before the sampling interval that begins at `tick` (0 is the first of an aggregation of `per_aggr`).
    fn prepare(
        &mut self,
        target: TargetId,
        tick: u32,
        per_aggr: u32,
        source: &mut dyn AccessSource,
    ) -> Result<(), SourceError>;

    /// The tick at which to look next: more than `tick`, at most `per_aggr`.
    fn next_check(&self, tick: u32, per_aggr: u32) -> u32;

    /// At `tick` (1 is the end of the first sampling interval).
    fn check(
        &mut self,
        target: TargetId,
        tick: u32,
        per_aggr: u32,
        source: &mut dyn AccessSource,
    ) -> Result<(), SourceError>;

    /// Ends the aggregation: regions, rates and ages are final for the snapshot.
    fn aggregate(&mut self, attrs: &MonitorAttrs);

    /// Appends the target's regions for the snapshot.
    fn regions(&self, target: TargetId, out: &mut Vec<RegionInfo>);

    /// After the snapshot was handed out: gets ready for the next aggregation.
    fn reset(&mut self, attrs: &MonitorAttrs);

    /// Rescales ages after the aggregation interval changed from `old_us` to `new_us`.
    fn rescale_ages(&mut self, old_us: u64, new_us: u64);

    /// Hears the load (cost over budget, smoothed) and adapts; says what should become of the intervals.
    fn adapt(&mut self, load: f64, budget_ns: f64, attrs: &MonitorAttrs) -> Stretch;

    /// Regions over all targets.
    fn nr_regions(&self) -> usize;

    /// How it observes now.
    fn mode(&self) -> Mode;
}

/// The age after an aggregation interval was changed: the time it stands for stays.
pub(crate) fn rescaled_age(age: u32, old_us: u64, new_us: u64) -> u32 {
    (u64::from(age) * old_us / new_us.max(1)).min(u64::from(u32::MAX)) as u32
}
