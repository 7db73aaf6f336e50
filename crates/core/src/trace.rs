//! DAMON's tracepoints: what a context tells, while it runs, to whoever listens.
//!
//! Names, fields and text are those of the kernel's `include/trace/events/damon.h`: `damon_aggregated`,
//! `damos_before_apply` and `damon_monitor_intervals_tune` of Linux 6.17 and 6.18, and two of later kernels.

use crate::scheme::stats::SchemeStats;
use crate::snapshot::{RegionInfo, Snapshot};
use std::fmt;

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tracepoint {
    /// A region at the end of an aggregation interval.
    Aggregated,
    /// The intervals have changed.
    IntervalsTune,
    /// A scheme is about to act on a range.
    BeforeApply,
    /// A quota's reset interval begins.
    EffectiveQuota,
    /// A scheme's turn is over.
    StatAfterApplyInterval,
}

impl Tracepoint {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Aggregated, Self::IntervalsTune, Self::BeforeApply, Self::EffectiveQuota, Self::StatAfterApplyInterval];

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aggregated => "damon_aggregated",
            Self::IntervalsTune => "damon_monitor_intervals_tune",
            Self::BeforeApply => "damos_before_apply",
            Self::EffectiveQuota => "damos_esz",
            Self::StatAfterApplyInterval => "damos_stat_after_apply_interval",
        }
    }
}

/// An event. A context is the only one of its kdamond, so its index is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEvent {
    /// [`Tracepoint::Aggregated`].
    Aggregated {
        /// Index of the target.
        target: u64,
        /// How many regions the target has.
        nr_regions: u32,
        /// First address.
        start: u64,
        /// First address after the region.
        end: u64,
        /// Accesses seen in the aggregation interval.
        nr_accesses: u32,
        /// Aggregation intervals for which the access rate stayed about the same.
        age: u32,
    },
    /// [`Tracepoint::IntervalsTune`].
    IntervalsTune {
        /// The sampling interval in force, microseconds.
        sample_us: u64,
    },
    /// [`Tracepoint::BeforeApply`].
    BeforeApply {
        /// Index of the context.
        context: u32,
        /// Index of the scheme.
        scheme: u32,
        /// Index of the target.
        target: u64,
        /// First address of the range.
        start: u64,
        /// First address after it.
        end: u64,
        /// Accesses of its region, seen in the last aggregation interval.
        nr_accesses: u32,
        /// Age of its region, aggregation intervals.
        age: u32,
        /// How many regions the target has.
        nr_regions: u32,
    },
    /// [`Tracepoint::EffectiveQuota`].
    EffectiveQuota {
        /// Index of the context.
        context: u32,
        /// Index of the scheme.
        scheme: u32,
        /// Bytes that may be done in the reset interval.
        esz: u64,
    },
    /// [`Tracepoint::StatAfterApplyInterval`]. Counters are totals since the scheme was installed.
    StatAfterApplyInterval {
        /// Index of the context.
        context: u32,
        /// Index of the scheme.
        scheme: u32,
        /// Times that the action was tried.
        nr_tried: u64,
        /// Bytes that it was tried on.
        sz_tried: u64,
        /// Ranges that it succeeded for.
        nr_applied: u64,
        /// Their bytes.
        sz_applied: u64,
        /// Bytes that passed the filters of pages.
        sz_ops_filter_passed: u64,
        /// Reset intervals in which the quota was used up.
        qt_exceeds: u64,
        /// Snapshots that the scheme has seen.
        nr_snapshots: u64,
    },
}

/// The most fields that an event has.
pub const MOST_FIELDS: usize = 9;

impl TraceEvent {
    /// A region of a snapshot.
    pub fn aggregated(snapshot: &Snapshot, region: &RegionInfo) -> Self {
        Self::Aggregated {
            target: snapshot.target.into(),
            nr_regions: snapshot.regions.len() as u32,
            start: region.start,
            end: region.end,
            nr_accesses: region.nr_accesses,
            age: region.age,
        }
    }

    /// The figures of a scheme. `qt_exceeds` comes apart, as it is counted by the quota.
    pub(crate) fn stat(scheme: usize, stats: &SchemeStats, qt_exceeds: u64) -> Self {
        Self::StatAfterApplyInterval {
            context: 0,
            scheme: scheme as u32,
            nr_tried: stats.nr_tried,
            sz_tried: stats.sz_tried,
            nr_applied: stats.nr_applied,
            sz_applied: stats.sz_applied,
            sz_ops_filter_passed: stats.sz_tried,
            qt_exceeds,
            nr_snapshots: stats.nr_snapshots,
        }
    }

    /// Its kind.
    pub const fn tracepoint(&self) -> Tracepoint {
        match self {
            Self::Aggregated { .. } => Tracepoint::Aggregated,
            Self::IntervalsTune { .. } => Tracepoint::IntervalsTune,
            Self::BeforeApply { .. } => Tracepoint::BeforeApply,
            Self::EffectiveQuota { .. } => Tracepoint::EffectiveQuota,
            Self::StatAfterApplyInterval { .. } => Tracepoint::StatAfterApplyInterval,
        }
    }

    /// An event by its fields, in the order in which the kernel declares them; `None` where there are too few, or one
    /// is too large for its type.
    pub fn from_fields(tracepoint: Tracepoint, fields: &[u64]) -> Option<Self> {
        let int = |n: u64| u32::try_from(n).ok();
        Some(match (tracepoint, fields) {
            (Tracepoint::Aggregated, &[target, nr_regions, start, end, nr_accesses, age, ..]) => Self::Aggregated {
                target,
                nr_regions: int(nr_regions)?,
                start,
                end,
                nr_accesses: int(nr_accesses)?,
                age: int(age)?,
            },
            (Tracepoint::IntervalsTune, &[sample_us, ..]) => Self::IntervalsTune { sample_us },
            (Tracepoint::BeforeApply, &[context, scheme, target, start, end, nr_accesses, age, nr_regions, ..]) => {
                Self::BeforeApply {
                    context: int(context)?,
                    scheme: int(scheme)?,
                    target,
                    start,
                    end,
                    nr_accesses: int(nr_accesses)?,
                    age: int(age)?,
                    nr_regions: int(nr_regions)?,
                }
            }
            (Tracepoint::EffectiveQuota, &[context, scheme, esz, ..]) => {
                Self::EffectiveQuota { context: int(context)?, scheme: int(scheme)?, esz }
            }
            (
                Tracepoint::StatAfterApplyInterval,
                &[
                    context,
                    scheme,
                    nr_tried,
                    sz_tried,
                    nr_applied,
                    sz_applied,
                    sz_ops_filter_passed,
                    qt_exceeds,
                    nr_snapshots,
                    ..,
                ],
            ) => Self::StatAfterApplyInterval {
                context: int(context)?,
                scheme: int(scheme)?,
                nr_tried,
                sz_tried,
                nr_applied,
                sz_applied,
                sz_ops_filter_passed,
                qt_exceeds,
                nr_snapshots,
            },
            _ => return None,
        })
    }
}

/// The text that the kernel prints of it, without the event's name.
impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Aggregated { target, nr_regions, start, end, nr_accesses, age } => {
                write!(f, "target_id={target} nr_regions={nr_regions} {start}-{end}: {nr_accesses} {age}")
            }
            Self::IntervalsTune { sample_us } => write!(f, "sample_us={sample_us}"),
            Self::BeforeApply { context, scheme, target, start, end, nr_accesses, age, nr_regions } => write!(
                f,
                "ctx_idx={context} scheme_idx={scheme} target_idx={target} nr_regions={nr_regions} \
                 {start}-{end}: {nr_accesses} {age}"
            ),
            Self::EffectiveQuota { context, scheme, esz } => {
                write!(f, "ctx_idx={context} scheme_idx={scheme} esz={esz}")
            }
            Self::StatAfterApplyInterval {
                context,
                scheme,
                nr_tried,
                sz_tried,
                nr_applied,
                sz_applied,
                sz_ops_filter_passed,
                qt_exceeds,
                nr_snapshots,
            } => write!(
                f,
                "ctx_idx={context} scheme_idx={scheme} nr_tried={nr_tried} sz_tried={sz_tried} \
                 nr_applied={nr_applied} sz_applied={sz_applied} sz_ops_filter_passed={sz_ops_filter_passed} \
                 qt_exceeds={qt_exceeds} nr_snapshots={nr_snapshots}"
            ),
        }
    }
}

/// Listens to events.
pub trait Tracer {
    /// Takes an event in; false where nobody listens to events of its kind at present, so that those which would follow
    /// need not be reported.
    fn trace(&mut self, event: &TraceEvent) -> bool;
}

/// Nobody listens.
impl Tracer for () {
    fn trace(&mut self, _: &TraceEvent) -> bool {
        false
    }
}

/// All of them listen.
impl Tracer for Vec<Box<dyn Tracer>> {
    fn trace(&mut self, event: &TraceEvent) -> bool {
        self.iter_mut().fold(false, |listened, tracer| tracer.trace(event) | listened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_kernels() {
        let reported = |tracepoint, fields: &[u64]| TraceEvent::from_fields(tracepoint, fields).map(|e| e.to_string());
        for (tracepoint, fields, text) in [
            (Tracepoint::Aggregated, &[1, 10, 4096, 8192, 3, 12][..], "target_id=1 nr_regions=10 4096-8192: 3 12"),
            (Tracepoint::IntervalsTune, &[10_000], "sample_us=10000"),
            (
                Tracepoint::BeforeApply,
                &[0, 2, 1, 4096, 8192, 3, 12, 10],
                "ctx_idx=0 scheme_idx=2 target_idx=1 nr_regions=10 4096-8192: 3 12",
            ),
            (Tracepoint::EffectiveQuota, &[0, 2, 1 << 40], "ctx_idx=0 scheme_idx=2 esz=1099511627776"),
            (
                Tracepoint::StatAfterApplyInterval,
                &[0, 2, 3, 4, 5, 6, 7, 8, 9],
                "ctx_idx=0 scheme_idx=2 nr_tried=3 sz_tried=4 nr_applied=5 sz_applied=6 sz_ops_filter_passed=7 \
                 qt_exceeds=8 nr_snapshots=9",
            ),
        ] {
            assert_eq!(reported(tracepoint, fields).as_deref(), Some(text));
            assert_eq!(reported(tracepoint, &fields[..fields.len() - 1]), None, "a field too few");
        }
        assert_eq!(reported(Tracepoint::Aggregated, &[0, 1 << 32, 0, 1, 0, 0]), None, "no unsigned int");
    }
}
