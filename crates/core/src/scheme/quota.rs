//! Quotas: how much a scheme may do within an interval.
//!
//! Source of the rules: DAMOS (kernel `mm/damon/core.c`); see docs/schemes.md.

use super::goal::{Goal, GoalError, GoalState, Tuner, tune};
use super::priority::Weights;
use crate::addr::PAGE_SIZE;
use crate::meter::{LiveTarget, Meter};
use crate::target::TargetId;

/// How much too early a turn may come for the next window, ns (at most a twentieth of the window): turns that are as
/// far apart as windows are long come now a little earlier, now a little later, and every other one would find the
/// quota used up. The kernel counts in jiffies, of which one lasts up to 10 ms.
const MOST_EARLY_NS: u64 = 4_000_000;

/// What a scheme is assumed to manage per ms before it has been seen working: 16 us a page, about what paging out to zram
/// takes here. DAMOS begins with 1024 pages, sixteen times as many, and so its first window takes many times as long as it may.
const FIRST_THROUGHPUT: u64 = PAGE_SIZE * 64;

/// The speed is that of about so much work, ns: it changes with the memory that goes.
const SPEED_OVER_NS: u64 = 1_000_000_000;

/// Where tuning begins, bytes per reset interval. DAMOS begins at one byte and needs half a minute of doubling to get
/// anywhere.
const FIRST_TUNED: u64 = 1 << 20;

/// The limits of a scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaSpec {
    /// Bytes within a reset interval.
    pub bytes: Option<u64>,
    /// Time within a reset interval, ns.
    pub time_ns: Option<u64>,
    /// The reset interval, ns.
    pub reset_ns: u64,
    /// Which regions come first.
    pub weights: Weights,
    /// What the effective quota is tuned for; empty: not tuned.
    pub goals: Vec<Goal>,
    /// How it is tuned.
    pub tuner: Tuner,
}

impl Default for QuotaSpec {
    fn default() -> Self {
        Self {
            bytes: None,
            time_ns: None,
            reset_ns: 1_000_000_000,
            weights: Weights::default(),
            goals: Vec::new(),
            tuner: Tuner::default(),
        }
    }
}

/// Why a quota is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// Below one page.
    #[error("a quota of {0} bytes is below one page; nothing would ever be done")]
    TooSmall(u64),
    /// No time at all.
    #[error("a quota of no time; nothing would ever be done")]
    NoTime,
    /// An interval that is over at once.
    #[error("the quota's reset interval is below 1ms; give at least that")]
    ZeroInterval,
    /// A goal.
    #[error(transparent)]
    Goal(#[from] GoalError),
}

impl QuotaSpec {
    /// Checks the values.
    pub fn validate(&self) -> Result<(), QuotaError> {
        if let Some(bytes) = self.bytes.filter(|&b| b < PAGE_SIZE) {
            return Err(QuotaError::TooSmall(bytes));
        }
        if self.time_ns == Some(0) {
            return Err(QuotaError::NoTime);
        }
        if self.reset_ns < 1_000_000 {
            return Err(QuotaError::ZeroInterval);
        }
        self.goals.iter().try_for_each(Goal::validate).map_err(QuotaError::Goal)
    }

    /// Whether there is any limit.
    pub const fn is_limited(&self) -> bool {
        self.bytes.is_some() || self.time_ns.is_some() || !self.goals.is_empty()
    }
}

/// The course of a quota.
#[derive(Debug, Clone)]
pub(crate) struct Quota {
    /// The limits.
    pub spec: QuotaSpec,
    /// Goals with their readings.
    pub goals: Vec<GoalState>,
    window_start_ns: Option<u64>,
    charged: u64,
    total_charged: u64,
    total_ns: u64,
    /// The effective quota in basis points of a byte, as goals tune it.
    tuned_bp: u64,
    /// When goals lowered it last.
    lowered_ns: Option<u64>,
    effective: u64,
    /// What all schemes together have left, bytes.
    pace: u64,
    /// What this one may still do until that is set anew, over however many windows, bytes.
    room: u64,
    /// Where the last window stopped.
    pub resume: Option<(TargetId, u64)>,
    /// Windows that ended with the quota used up.
    pub exceeds: u64,
    /// Whether in this window something was left that is larger than what remains.
    pub(super) too_little_left: bool,
}

impl Quota {
    /// A quota whose first window has not begun.
    pub fn new(spec: QuotaSpec) -> Self {
        let goals = spec.goals.iter().cloned().map(GoalState::new).collect();
        Self {
            spec,
            goals,
            window_start_ns: None,
            charged: 0,
            total_charged: 0,
            total_ns: 0,
            tuned_bp: FIRST_TUNED * 10_000,
            lowered_ns: None,
            effective: 0,
            pace: u64::MAX,
            room: u64::MAX,
            resume: None,
            exceeds: 0,
            too_little_left: false,
        }
    }

    /// Goes on where `old`, of the same action, ended. The counter goes on and what is known of the work's speed stays;
    /// what was charged in this window counts against the new limits, which hold at once. With other goals, tuning and
    /// its window begin anew.
    pub(crate) fn follow(&mut self, old: Self) {
        if old.spec == self.spec {
            *self = old;
            return;
        }
        (self.total_charged, self.total_ns) = (old.total_charged, old.total_ns);
        (self.resume, self.exceeds, self.room) = (old.resume, old.exceeds, old.room);
        if let (Some(start), true) = (old.window_start_ns, self.goals.is_empty() && old.goals.is_empty()) {
            (self.window_start_ns, self.charged) = (Some(start), old.charged);
            // Without goals, what is under way does not count.
            self.effective = self.next_effective(start, 0);
        }
    }

    /// Replaces the goals alone: what was tuned so far is where tuning goes on.
    pub(crate) fn set_goals(&mut self, goals: Vec<Goal>) {
        self.goals = goals.iter().cloned().map(GoalState::new).collect();
        self.spec.goals = goals;
    }

    /// Begins a new window if the last one is over; whether it did. Tunes the effective quota then. `under_way`: bytes handed
    /// over and not finished, which goals do not show yet.
    pub fn turn(&mut self, now_ns: u64, under_way: u64, meter: &mut dyn Meter, targets: &[LiveTarget]) -> bool {
        let early_ns = (self.spec.reset_ns / 20).min(MOST_EARLY_NS);
        let end_ns = self.window_start_ns.map_or(now_ns, |start| start + self.spec.reset_ns);
        if now_ns + early_ns < end_ns {
            return false;
        }
        let held_back = std::mem::take(&mut self.too_little_left) || self.is_used_up();
        if self.window_start_ns.is_some() && held_back && self.spec.is_limited() {
            self.exceeds += 1;
        }
        // Not before the last is over, so that no more is done over many of them.
        self.window_start_ns = Some(now_ns.max(end_ns));
        self.charged = 0;
        for goal in &mut self.goals {
            goal.update(now_ns, self.spec.reset_ns, meter, targets);
        }
        self.effective = self.next_effective(now_ns, under_way);
        true
    }

    fn next_effective(&mut self, now_ns: u64, under_way: u64) -> u64 {
        // What was charged in this window is taken off both.
        let bytes = self.spec.bytes.unwrap_or(u64::MAX).min(self.room.saturating_add(self.charged));
        let mut effective = bytes;
        if !self.spec.goals.is_empty() {
            self.tune(now_ns);
            // What is tuned beyond the byte limit has no effect but would have to be tuned down again first.
            self.tuned_bp = self.tuned_bp.min(bytes.saturating_mul(10_000));
            // Where the goal is a number of bytes that the scheme takes away, what is missing is known.
            let missing = self.goals.iter().filter_map(GoalState::missing);
            effective = missing.map(|bytes| bytes.saturating_sub(under_way)).fold(effective, u64::min);
            effective = effective.min(if self.tuned_bp == u64::MAX { u64::MAX } else { self.tuned_bp / 10_000 });
        }
        // Nobody knows how far from the goals the world is.
        if !self.goals.is_empty() && self.goals.iter().all(GoalState::is_unknown) {
            return 0;
        }
        if let Some(time_ns) = self.spec.time_ns {
            let by_time = match (self.total_charged, self.total_ns) {
                (0, _) => u128::from(FIRST_THROUGHPUT) * u128::from(time_ns) / 1_000_000,
                (_, 0) => u128::MAX,
                (bytes, ns) => u128::from(bytes) * u128::from(time_ns) / u128::from(ns),
            };
            effective = effective.min((by_time.min(u128::from(u64::MAX)) as u64).max(PAGE_SIZE));
        }
        effective
    }

    /// Follows the goals. DAMOS does so at every reset interval with what was measured in it. A value over a longer
    /// window still holds a burst long after the quota was lowered for it, so it lowers the quota once in a window
    /// only; and where less than [`FIRST_TUNED`] is left, the way up begins there.
    fn tune(&mut self, now_ns: u64) {
        let next = tune(self.spec.tuner, self.tuned_bp, &self.goals, u64::MAX);
        if self.spec.tuner == Tuner::Temporal || next == self.tuned_bp {
            self.tuned_bp = next;
        } else if next > self.tuned_bp {
            self.tuned_bp = next.max(FIRST_TUNED * 10_000);
        } else if self.lowered_ns.is_none_or(|t| now_ns >= t + self.longest_window_ns()) {
            self.tuned_bp = next;
            self.lowered_ns = Some(now_ns);
        }
    }

    fn longest_window_ns(&self) -> u64 {
        self.goals.iter().map(|g| g.goal.window_ns).max().unwrap_or(0)
    }

    /// Bytes per reset interval that the scheme may do at present; `u64::MAX`: no limit.
    pub const fn effective(&self) -> u64 {
        self.effective
    }

    /// So much may be done until this is called again, whatever windows begin meanwhile; `u64::MAX`: no limit.
    pub(crate) const fn set_room(&mut self, bytes: u64) {
        self.room = bytes;
    }

    /// Whether less than a page of that is left, or was when the window began.
    pub(crate) const fn is_room_used_up(&self) -> bool {
        self.room < PAGE_SIZE || self.room < u64::MAX && self.goals.is_empty() && self.effective < PAGE_SIZE
    }

    /// What all schemes together may do just now, bytes, until it is set anew.
    pub(crate) const fn set_pace(&mut self, left: u64) {
        self.pace = left;
    }

    /// The same, less what was charged since.
    pub(crate) const fn pace(&self) -> u64 {
        self.pace
    }

    /// Bytes left in this window, whole pages: of the scheme's own, as far as its room and the pace of all allow.
    pub fn left(&self) -> u64 {
        let left = self.effective.saturating_sub(self.charged);
        left.min(self.pace).min(self.room) / PAGE_SIZE * PAGE_SIZE
    }

    /// Bytes that may be done within an ns; `None`: no limit.
    pub(crate) fn share(&self) -> Option<f64> {
        (self.effective != u64::MAX).then(|| self.effective.max(PAGE_SIZE) as f64 / self.spec.reset_ns.max(1) as f64)
    }

    /// Whether less than a page is left of the scheme's own, whatever the pace of all allows.
    pub(crate) const fn is_used_up(&self) -> bool {
        self.effective.saturating_sub(self.charged) < PAGE_SIZE
    }

    /// Charges bytes.
    pub fn charge(&mut self, bytes: u64) {
        self.charged = self.charged.saturating_add(bytes);
        self.pace = self.pace.saturating_sub(bytes);
        if self.room != u64::MAX {
            self.room = self.room.saturating_sub(bytes);
        }
    }

    /// Learns how long work took, for the time limit.
    pub fn learn(&mut self, bytes: u64, took_ns: u64) {
        self.total_charged = self.total_charged.saturating_add(bytes);
        self.total_ns = self.total_ns.saturating_add(took_ns);
        if self.total_ns > SPEED_OVER_NS {
            (self.total_charged, self.total_ns) = (self.total_charged / 2, self.total_ns / 2);
        }
    }
}

#[cfg(test)]
mod tests;
