//! The probes.

use isotherm_core::trace::{TraceEvent, Tracer};
use probe::probe_lazy;

/// The provider's name in the notes.
pub const PROVIDER: &str = "isotherm";

/// Fires the probe of each event's name, with the event's fields in the kernel's order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Probes;

impl Tracer for Probes {
    // Never inlined, or a probe would be in several places.
    #[inline(never)]
    fn trace(&mut self, event: &TraceEvent) -> bool {
        // The names stand in the notes, so they are words, not constants; a test compares them.
        match *event {
            TraceEvent::Aggregated { target, nr_regions, start, end, nr_accesses, age } => {
                probe_lazy!(isotherm, damon_aggregated, target, nr_regions, start, end, nr_accesses, age)
            }
            TraceEvent::IntervalsTune { sample_us } => {
                probe_lazy!(isotherm, damon_monitor_intervals_tune, sample_us)
            }
            TraceEvent::BeforeApply { context, scheme, target, start, end, nr_accesses, age, nr_regions } => {
                probe_lazy!(
                    isotherm,
                    damos_before_apply,
                    context,
                    scheme,
                    target,
                    start,
                    end,
                    nr_accesses,
                    age,
                    nr_regions
                )
            }
            TraceEvent::EffectiveQuota { context, scheme, esz } => {
                probe_lazy!(isotherm, damos_esz, context, scheme, esz)
            }
            TraceEvent::StatAfterApplyInterval {
                context,
                scheme,
                nr_tried,
                sz_tried,
                nr_applied,
                sz_applied,
                sz_ops_filter_passed,
                qt_exceeds,
                nr_snapshots,
            } => {
                probe_lazy!(
                    isotherm,
                    damos_stat_after_apply_interval,
                    context,
                    scheme,
                    nr_tried,
                    sz_tried,
                    nr_applied,
                    sz_applied,
                    sz_ops_filter_passed,
                    qt_exceeds,
                    nr_snapshots
                )
            }
        }
    }
}
