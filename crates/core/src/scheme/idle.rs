//! Why a scheme does nothing: a thing that decides to do nothing says so.

use super::action::Action;
use super::brake::Cause;
use super::pattern::{AccessPattern, Mismatch};
use crate::units::{format_size, format_time};
use std::fmt;

/// What held a scheme back the last time it had its turn.
#[derive(Debug, Clone, PartialEq)]
pub enum IdleReason {
    /// No target is left or none has come yet.
    NoTarget,
    /// No target is in the control group that the scheme is for.
    NotInGroup(String),
    /// No aggregation interval has ended yet.
    NoSnapshot,
    /// The watermark metric is above the high mark, or has not fallen below the middle one since.
    WatermarkHigh {
        /// The value, basis points.
        value_bp: u32,
        /// The mark that it must fall below.
        mid_bp: u32,
    },
    /// The watermark metric is below the low mark.
    WatermarkLow {
        /// The value, basis points.
        value_bp: u32,
        /// The mark that it must rise above.
        low_bp: u32,
    },
    /// The watermark metric, or another that is needed, cannot be read.
    Meter(String),
    /// The brake was pulled.
    Brake {
        /// Why.
        cause: Cause,
        /// For how long still, ns.
        left_ns: u64,
    },
    /// The action is not possible just now.
    Obstacle(String),
    /// Goals have brought the quota down to nothing: they are met or overshot.
    GoalMet {
        /// The score of the goal that is met best, 10 000 is on target.
        score: u64,
    },
    /// No goal has had a value yet, so there is no quota.
    GoalUnknown,
    /// This window's quota is used up.
    QuotaUsed {
        /// The effective quota, bytes.
        effective: u64,
    },
    /// In an interval the quota suffices for no huge page, of which none is cut in two.
    QuotaTooSmall {
        /// The effective quota, bytes.
        effective: u64,
    },
    /// What all schemes together may do just now is used up.
    PaceUsed,
    /// What this scheme alone was given to do is used up.
    RoomUsed,
    /// All that matches ranks below what the quota suffices for.
    BelowCutOff,
    /// No region matches.
    NoMatch(Near),
    /// Which blocks are in use is not known of any target.
    NoPageHistory {
        /// Targets whose pages were not walked twice, or are not walked; `None`: the source keeps no page history at all.
        targets: Option<u64>,
    },
    /// Of what is in use no block of 2 MiB is dense enough and not a huge page yet.
    NoDenseBlock {
        /// In use in other blocks, bytes.
        sparse: u64,
        /// In huge pages, bytes.
        huge: u64,
    },
    /// All that matches is rejected by filters.
    Filtered(u64),
    /// No page has been watched for as long as it must have been idle.
    Watching {
        /// For how long pages have been watched, ns.
        watched_ns: u64,
        /// For how long they must have been idle, ns.
        idle_ns: u64,
    },
    /// No page has been idle for long enough.
    InUse {
        /// Bytes that are present, can be observed, and have not.
        bytes: u64,
        /// For how long pages must have been idle, ns.
        idle_ns: u64,
    },
    /// Nothing that matches is in memory (it is out already, or was never there).
    NothingPresent,
    /// Work handed over earlier is not finished.
    Busy,
    /// The action was refused for all that was tried last; it is tried again where that matches still, later.
    Refused(String),
    /// Everything that matches was treated within its least age.
    DoneAlready,
}

/// How far from matching the regions were: how many failed by what, and the nearest values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Near {
    /// Regions in all.
    pub regions: u64,
    /// Could not be observed.
    pub not_observed: u64,
    /// Had another access rate.
    pub rate: u64,
    /// Were too young or too old.
    pub age: u64,
    /// Were too small or too large.
    pub size: u64,
    /// The greatest age among those that failed by age alone, microseconds.
    pub oldest_us: u64,
    /// The least age asked for, microseconds.
    pub wanted_age_us: u64,
}

impl Near {
    /// Counts a region that did not match.
    pub fn add(&mut self, why: Mismatch, age_us: u64, pattern: &AccessPattern) {
        self.regions += 1;
        self.wanted_age_us = pattern.age_us.min;
        match why {
            Mismatch::NotObserved => self.not_observed += 1,
            Mismatch::Rate => self.rate += 1,
            Mismatch::Size => self.size += 1,
            Mismatch::Age => {
                self.age += 1;
                self.oldest_us = self.oldest_us.max(age_us);
            }
        }
    }
}

impl IdleReason {
    /// A word for programs: which reason it is, without its figures.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::NotInGroup(_) => "not_in_group",
            Self::NoSnapshot => "no_snapshot",
            Self::WatermarkHigh { .. } => "watermark_high",
            Self::WatermarkLow { .. } => "watermark_low",
            Self::Meter(_) => "meter",
            Self::Brake { .. } => "brake",
            Self::Obstacle(_) => "obstacle",
            Self::GoalMet { .. } => "goal_met",
            Self::GoalUnknown => "goal_unknown",
            Self::QuotaUsed { .. } => "quota_used",
            Self::QuotaTooSmall { .. } => "quota_too_small",
            Self::PaceUsed => "pace_used",
            Self::RoomUsed => "room_used",
            Self::BelowCutOff => "below_cut_off",
            Self::NoMatch(_) => "no_match",
            Self::NoPageHistory { .. } => "no_page_history",
            Self::NoDenseBlock { .. } => "no_dense_block",
            Self::Filtered(_) => "filtered",
            Self::Watching { .. } => "watching",
            Self::InUse { .. } => "in_use",
            Self::NothingPresent => "nothing_present",
            Self::Busy => "busy",
            Self::Refused(_) => "refused",
            Self::DoneAlready => "done_already",
        }
    }
}

fn percent(bp: u32) -> f64 {
    f64::from(bp) / 100.0
}

impl fmt::Display for IdleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget => f.write_str("no target is alive"),
            Self::NotInGroup(group) => write!(f, "no target is in the control group '{group}'"),
            Self::NoSnapshot => f.write_str("the first aggregation interval has not ended"),
            Self::WatermarkHigh { value_bp, mid_bp } => {
                write!(f, "watermark: {:.1}% is free, it begins below {:.1}%", percent(*value_bp), percent(*mid_bp))
            }
            Self::WatermarkLow { value_bp, low_bp } => write!(
                f,
                "watermark: only {:.1}% is free; below {:.1}% the kernel's own reclaim has its way",
                percent(*value_bp),
                percent(*low_bp)
            ),
            Self::Meter(text) | Self::Obstacle(text) => f.write_str(text),
            Self::Brake { cause: Cause::Refaults(share), left_ns } => write!(
                f,
                "emergency brake: {:.0}% of what went within 10 s came back; stopped for {} more",
                share * 100.0,
                format_time(*left_ns)
            ),
            Self::Brake { cause: Cause::Pressure(share), left_ns } => write!(
                f,
                "emergency brake: tasks waited for memory {:.0}% of the last 10 s; stopped for {} more",
                share * 100.0,
                format_time(*left_ns)
            ),
            Self::GoalMet { score } => {
                write!(f, "the goal is reached ({:.0}% of it): the quota is tuned to nothing", *score as f64 / 100.0)
            }
            Self::GoalUnknown => f.write_str("nothing is known of the goal yet: the quota is nothing"),
            Self::QuotaUsed { effective } => {
                write!(f, "the quota of {} for this interval is used up", format_size(*effective))
            }
            Self::QuotaTooSmall { effective } => {
                write!(f, "the quota of {} is less than a huge page, and none is cut in two", format_size(*effective))
            }
            Self::PaceUsed => f.write_str("all schemes together may do no more just now"),
            Self::RoomUsed => f.write_str("all that it may do for now is done"),
            Self::BelowCutOff => f.write_str("other memory comes first for the quota"),
            Self::NoMatch(near) => near.fmt(f),
            Self::NoPageHistory { targets: Some(targets) } => {
                write!(
                    f,
                    "which blocks are in use is not known of any of {targets} targets: they were not walked twice yet"
                )
            }
            Self::NoPageHistory { targets: None } => {
                f.write_str("which blocks are in use is known by the page history, and this source keeps none")
            }
            Self::NoDenseBlock { sparse, huge } => write!(
                f,
                "no further block of 2 MiB is used densely enough: {} in use lie elsewhere, {} are huge pages",
                format_size(*sparse),
                format_size(*huge)
            ),
            Self::Filtered(bytes) => write!(f, "filters reject all {} that match", format_size(*bytes)),
            Self::Watching { watched_ns, idle_ns } => write!(
                f,
                "watched for {} so far; pages must be idle for {}",
                format_time(*watched_ns),
                format_time(*idle_ns)
            ),
            Self::InUse { bytes, idle_ns } => {
                write!(f, "no page of {} has been idle for {}", format_size(*bytes), format_time(*idle_ns))
            }
            Self::NothingPresent => f.write_str("nothing of what matches is in memory"),
            Self::Busy => f.write_str("earlier work is not finished"),
            Self::Refused(text) => write!(f, "the kernel refused: {text}"),
            Self::DoneAlready => f.write_str("what matches was treated already and has not changed since"),
        }
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no region matches: of {}, ", self.regions)?;
        let mut failed = Vec::new();
        if self.rate > 0 {
            failed.push((self.rate, "by access rate".to_owned()));
        }
        if self.age > 0 {
            let (oldest, wanted) = (format_time(self.oldest_us * 1000), format_time(self.wanted_age_us * 1000));
            failed.push(if self.oldest_us < self.wanted_age_us {
                (self.age, format!("by age (the oldest is {oldest} of {wanted})"))
            } else {
                (self.age, "by age".to_owned())
            });
        }
        if self.size > 0 {
            failed.push((self.size, "by size".to_owned()));
        }
        for (i, (count, why)) in failed.iter().enumerate() {
            match i {
                0 => write!(f, "{count} {} {why}", if *count == 1 { "fails" } else { "fail" })?,
                _ => write!(f, ", {count} {why}")?,
            }
        }
        match (self.not_observed, failed.is_empty()) {
            (0, false) => Ok(()),
            (count, true) => write!(f, "{count} could not be observed"),
            (count, false) => write!(f, ", and {count} could not be observed"),
        }
    }
}

/// The reason when an action may not be done to any of the targets.
pub fn obstacle(action: Action, text: &str) -> IdleReason {
    IdleReason::Obstacle(format!("{action}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_kept_regions_from_matching() {
        let p = AccessPattern::default();
        let mut near = Near { wanted_age_us: 5_000_000, ..Default::default() };
        near.add(Mismatch::Rate, 0, &p);
        near.add(Mismatch::Age, 2_100_000, &p);
        near.wanted_age_us = 5_000_000;
        let text = IdleReason::NoMatch(near).to_string();
        assert_eq!(text, "no region matches: of 2, 1 fails by access rate, 1 by age (the oldest is 2.10 s of 5.00 s)");
        let of = |near| IdleReason::NoMatch(near).to_string();
        let several = Near { regions: 30, rate: 21, size: 2, not_observed: 7, ..Default::default() };
        let text = "no region matches: of 30, 21 fail by access rate, 2 by size, and 7 could not be observed";
        assert_eq!(of(several), text);
        let unseen = Near { regions: 7, not_observed: 7, ..Default::default() };
        assert_eq!(of(unseen), "no region matches: of 7, 7 could not be observed");
    }
}
