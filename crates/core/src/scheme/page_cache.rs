//! How much of a control group's page cache goes next: files in memory that no process maps, which page tables do not
//! show. The kernel tells how much of it is in its inactive list, chooses what goes, and counts what is read again.

use super::growth::{Grown, Growth};
use super::stops::Stops;
use crate::addr::PAGE_SIZE;
use crate::units::{format_size, format_time};
use std::collections::VecDeque;
use std::fmt;

/// Time between two steps, ns.
pub const STEP_NS: u64 = 5_000_000_000;
/// A step takes one part in so many of what has rested ...
const PART: u64 = 10;
/// ... or this, which is also the least that tells anything about a ratio.
const LEAST: u64 = 1 << 20;
/// Over which time pressure is taken, ns.
const PRESSURE_NS: u64 = 10_000_000_000;
/// Over which time it is counted what came back, ns.
const BACK_NS: u64 = 60_000_000_000;
/// Largest share of what went within [`BACK_NS`] that may have been read again in it.
const MOST_BACK: f64 = 0.1;
/// How long the brake holds, ns: at first, and at most.
const FIRST_STOP_NS: u64 = 60_000_000_000;
const LONGEST_STOP_NS: u64 = 3_600_000_000_000;

/// What a rule wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CachePolicy {
    /// For how long memory must have been in the inactive list, ns.
    pub min_age_ns: u64,
    /// For how much of the time some task of the group may wait for memory; `None`: that does not matter.
    pub stall: Option<f64>,
}

/// A control group at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheView {
    /// Bytes that could go: of files, in the inactive list, mapped by no process, written back.
    pub idle: u64,
    /// For how long some task has waited for memory, microseconds since the group was made; `None`: not known.
    pub stall_us: Option<u64>,
    /// Bytes of files read again after they were dropped, since the group was made.
    pub refaulted: u64,
}

/// Why nothing goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CacheIdle {
    /// Not watched for long enough: for how long, and what it takes, ns.
    Watching(u64, u64),
    /// Pressure is not known.
    NoPressure,
    /// Tasks wait for memory for this share of the time, and may for the second.
    Pressure(f64, f64),
    /// The brake is pulled: this share of what went was read again; for how long still, ns.
    Brake(f64, u64),
    /// Nothing has rested for so long, ns.
    NothingRests(u64),
    /// The rules together may do no more just now.
    PaceUsed,
}

/// What has been learnt of a control group.
#[derive(Debug, Clone)]
pub struct CacheReclaim {
    /// Since when [`idle`](CacheView::idle) is known, ns.
    known_from_ns: Option<u64>,
    /// Its smallest values: each is the smallest since the one before. Times ns.
    least: VecDeque<(u64, u64)>,
    stalls: Growth,
    refaulted: Growth,
    taken: VecDeque<(u64, u64)>,
    /// The share that pulled the brake.
    cause: Option<f64>,
    stops: Stops,
}

impl Default for CacheReclaim {
    fn default() -> Self {
        Self {
            known_from_ns: None,
            least: VecDeque::new(),
            stalls: Growth::default(),
            refaulted: Growth::default(),
            taken: VecDeque::new(),
            cause: None,
            stops: Stops::new(FIRST_STOP_NS, LONGEST_STOP_NS),
        }
    }
}

impl CacheReclaim {
    /// How often the brake was pulled.
    pub const fn brakes(&self) -> u64 {
        self.stops.count
    }

    /// Takes in that so many bytes have gone at `now_ns`.
    pub fn took(&mut self, now_ns: u64, bytes: u64) {
        self.taken.push_back((now_ns, bytes));
    }

    /// Looks at the group at `now_ns`; to be called every [`STEP_NS`]. How many bytes go, at most `room` (what protects
    /// the group and the pace leave), or why none do.
    pub fn step(&mut self, now_ns: u64, view: &CacheView, policy: &CachePolicy, room: u64) -> Result<u64, CacheIdle> {
        let rested = self.rested(now_ns, view.idle, policy.min_age_ns);
        let pressure = self.pressure(now_ns, view.stall_us);
        self.brake(now_ns, view.refaulted)?;
        let rested = rested?;
        let share = match policy.stall {
            None => 1.0,
            Some(most) => match pressure.map_err(|why| why.unwrap_or(CacheIdle::NoPressure))? {
                share if share >= most => return Err(CacheIdle::Pressure(share, most)),
                share => 1.0 - share / most,
            },
        };
        let wanted = ((rested / PART).max(LEAST).min(rested) as f64 * share) as u64;
        let whole = |bytes: u64| bytes / PAGE_SIZE * PAGE_SIZE;
        match (whole(wanted), whole(wanted.min(room))) {
            (0, _) => Err(CacheIdle::NothingRests(policy.min_age_ns)),
            (_, 0) => Err(CacheIdle::PaceUsed),
            (_, bytes) => Ok(bytes),
        }
    }

    /// What has been there for `min_age_ns` all the time. The kernel drops what came first, so no page that came later
    /// is among what is asked for, as far as pages have not left the list in between.
    fn rested(&mut self, now_ns: u64, idle: u64, min_age_ns: u64) -> Result<u64, CacheIdle> {
        while self.least.back().is_some_and(|&(_, least)| least >= idle) {
            self.least.pop_back();
        }
        self.least.push_back((now_ns, idle));
        let begin_ns = *self.known_from_ns.get_or_insert(now_ns);
        let Some(from_ns) = now_ns.checked_sub(min_age_ns).filter(|from_ns| begin_ns <= *from_ns) else {
            return Err(CacheIdle::Watching(now_ns - begin_ns, min_age_ns));
        };
        // A longer time may be asked for later: what is forgotten here is not known then.
        self.known_from_ns = Some(from_ns);
        while self.least.front().is_some_and(|&(at_ns, _)| at_ns < from_ns) {
            self.least.pop_front();
        }
        Ok(self.least.front().map_or(idle, |&(_, least)| least))
    }

    /// The share of the time for which tasks waited; an error of `None`: the kernel does not tell.
    fn pressure(&mut self, now_ns: u64, stall_us: Option<u64>) -> Result<f64, Option<CacheIdle>> {
        let Some(stall_us) = stall_us else {
            self.stalls.clear();
            return Err(None);
        };
        let Grown { by, over_ns } = self.stalls.note(now_ns, stall_us, PRESSURE_NS);
        if over_ns < PRESSURE_NS {
            return Err(Some(CacheIdle::Watching(over_ns, PRESSURE_NS)));
        }
        Ok(by as f64 * 1e3 / over_ns as f64)
    }

    /// Pulls the brake where too much has come back, and tells for how long it holds.
    fn brake(&mut self, now_ns: u64, refaulted: u64) -> Result<(), CacheIdle> {
        let back = self.refaulted.note(now_ns, refaulted, BACK_NS).by;
        self.taken.retain(|&(at_ns, _)| now_ns < at_ns + BACK_NS);
        if let Some(share) = self.cause {
            if now_ns < self.stops.until_ns() {
                return Err(CacheIdle::Brake(share, self.stops.until_ns() - now_ns));
            }
            // What had gone before the stop must not pull it again.
            self.cause = None;
            self.taken.clear();
            self.refaulted.clear();
            self.refaulted.note(now_ns, refaulted, BACK_NS);
            return Ok(());
        }
        let went: u64 = self.taken.iter().map(|&(_, bytes)| bytes).sum();
        let share = back as f64 / went.max(1) as f64;
        if went < LEAST || share <= MOST_BACK {
            self.stops.go_on(now_ns);
            return Ok(());
        }
        self.cause = Some(share);
        Err(CacheIdle::Brake(share, self.stops.stop(now_ns) - now_ns))
    }
}

impl CacheIdle {
    /// A word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Watching(..) => "watching",
            Self::NoPressure => "meter",
            Self::Pressure(..) => "goal_met",
            Self::Brake(..) => "brake",
            Self::NothingRests(_) => "in_use",
            Self::PaceUsed => "pace_used",
        }
    }
}

impl fmt::Display for CacheIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Watching(for_ns, of_ns) => {
                write!(f, "watched for {} of {} so far", format_time(for_ns), format_time(of_ns))
            }
            Self::NoPressure => f.write_str(
                "memory.pressure cannot be read, so the goal cannot be kept; boot with psi=1, or write goal = \"none\"",
            ),
            Self::Pressure(share, most) => write!(
                f,
                "tasks waited for memory {:.3}% of the last 10 s, and may {:.3}%",
                share * 100.0,
                most * 100.0
            ),
            Self::Brake(share, left_ns) => write!(
                f,
                "emergency brake: of what went within 1 min {:.0}% was read again; stopped for {} more",
                share * 100.0,
                format_time(left_ns)
            ),
            Self::NothingRests(ns) => {
                write!(f, "less than {} of it has been inactive for {}", format_size(PAGE_SIZE), format_time(ns))
            }
            Self::PaceUsed => f.write_str("all rules together may do no more just now"),
        }
    }
}

#[cfg(test)]
mod tests;
