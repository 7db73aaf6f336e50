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

/// What a scheme is assumed to manage per ms before it has been seen working: 16 us a page, as paging out to zram takes. DAMOS
/// begins with 1024 pages, a hundred times what that took here, and so spends ten times its first window's time.
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
    #[error("the quota's reset interval is 0; give at least 1ms")]
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
            self.effective = self.next_effective(start);
        }
    }

    /// Replaces the goals alone: what was tuned so far is where tuning goes on.
    pub(crate) fn set_goals(&mut self, goals: Vec<Goal>) {
        self.goals = goals.iter().cloned().map(GoalState::new).collect();
        self.spec.goals = goals;
    }

    /// Begins a new window if the last one is over; whether it did. Tunes the effective quota then.
    pub fn turn(&mut self, now_ns: u64, meter: &mut dyn Meter, targets: &[LiveTarget]) -> bool {
        let early_ns = (self.spec.reset_ns / 20).min(MOST_EARLY_NS);
        let end_ns = self.window_start_ns.map_or(now_ns, |start| start + self.spec.reset_ns);
        if now_ns + early_ns < end_ns {
            return false;
        }
        if self.window_start_ns.is_some() && self.is_used_up() && self.spec.is_limited() {
            self.exceeds += 1;
        }
        // Not before the last is over, so that no more is done over many of them.
        self.window_start_ns = Some(now_ns.max(end_ns));
        self.charged = 0;
        for goal in &mut self.goals {
            goal.update(now_ns, self.spec.reset_ns, meter, targets);
        }
        self.effective = self.next_effective(now_ns);
        true
    }

    fn next_effective(&mut self, now_ns: u64) -> u64 {
        // What was charged in this window is taken off both.
        let bytes = self.spec.bytes.unwrap_or(u64::MAX).min(self.room.saturating_add(self.charged));
        let mut effective = bytes;
        if !self.spec.goals.is_empty() {
            self.tune(now_ns);
            // What is tuned beyond the byte limit has no effect but would have to be tuned down again first.
            self.tuned_bp = self.tuned_bp.min(bytes.saturating_mul(10_000));
            // Where the goal is a number of bytes that the scheme takes away, what is missing is known.
            effective = self.goals.iter().filter_map(GoalState::missing).fold(effective, u64::min);
            effective = effective.min(if self.tuned_bp == u64::MAX { u64::MAX } else { self.tuned_bp / 10_000 });
        }
        // Nobody knows how far from the goals the world is.
        if !self.goals.is_empty() && self.goals.iter().all(|goal| goal.error.is_some()) {
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
        self.room < PAGE_SIZE || self.goals.is_empty() && self.effective < PAGE_SIZE
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
mod tests {
    use super::*;
    use crate::meter::{MeterError, Metric};
    use crate::scheme::goal::GoalMetric;
    use proptest::prelude::*;

    struct NoMeter;

    impl Meter for NoMeter {
        fn read(&mut self, metric: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
            Err(MeterError { metric: metric.to_string(), reason: "none here".into(), remedy: String::new() })
        }
    }

    const MS: u64 = 1_000_000;

    fn turn(q: &mut Quota, ms: u64) -> bool {
        q.turn(ms * MS, &mut NoMeter, &[])
    }

    #[test]
    fn a_window_gives_its_bytes_once() {
        let mut q = Quota::new(QuotaSpec { bytes: Some(1 << 20), reset_ns: 100 * MS, ..Default::default() });
        assert!(turn(&mut q, 0));
        assert_eq!(q.left(), 1 << 20);
        q.charge(1 << 20);
        assert!(q.left() == 0 && !turn(&mut q, 95));
        assert!(turn(&mut q, 100));
        assert_eq!((q.left(), q.exceeds), (1 << 20, 1));
        turn(&mut q, 200);
        assert_eq!(q.exceeds, 1, "that window was not used up");
    }

    #[test]
    fn room_is_given_once_over_all_windows() {
        let mut q = Quota::new(QuotaSpec { reset_ns: 100 * MS, ..Default::default() });
        q.set_room(5 << 20);
        let mut done = 0;
        for ms in 0..1000 {
            turn(&mut q, ms);
            let next = q.left().min(1 << 20);
            q.charge(next);
            done += next;
        }
        assert_eq!((done, q.left(), q.is_room_used_up()), (5 << 20, 0, true));
        // A smaller one holds at once, and other limits do not give it anew.
        q.set_room(2 << 20);
        turn(&mut q, 1100);
        q.set_room(1 << 20);
        assert_eq!(q.left(), 1 << 20);
        let mut next = Quota::new(QuotaSpec { bytes: Some(8 << 20), reset_ns: 100 * MS, ..Default::default() });
        next.follow(q);
        turn(&mut next, 1200);
        assert_eq!(next.left(), 1 << 20);
        // Nor does what was charged in a window that goes on count twice.
        next.charge(PAGE_SIZE);
        let mut last = Quota::new(QuotaSpec { bytes: Some(4 << 20), ..next.spec.clone() });
        last.follow(next);
        assert_eq!(last.left(), (1 << 20) - PAGE_SIZE);
        last.set_room(u64::MAX);
        turn(&mut last, 1300);
        assert_eq!((last.left(), last.is_room_used_up()), (4 << 20, false));
    }

    #[test]
    fn other_limits_do_not_give_a_window_twice() {
        let of = |mib: u64| Quota::new(QuotaSpec { bytes: Some(mib << 20), reset_ns: 1000 * MS, ..Default::default() });
        let mut q = of(3);
        turn(&mut q, 0);
        q.charge(3 << 20);
        turn(&mut q, 1000);
        q.charge(3 << 20);
        for (mib, left) in [(2, 0), (3, 0), (4, 1), (8, 5)] {
            let mut next = of(mib);
            next.follow(q);
            assert!(!turn(&mut next, 1500), "the window goes on");
            assert_eq!((next.left(), next.exceeds), (left << 20, 1), "{mib} MiB");
            q = next;
        }
        q.charge(5 << 20);
        assert!(turn(&mut q, 2000));
        assert_eq!((q.left(), q.exceeds), (8 << 20, 2));
        // With goals, tuning begins anew; the counter does not.
        let goal = Goal { metric: GoalMetric::UserInput, target: 10_000, window_ns: 0, falls: false };
        let mut next = Quota::new(QuotaSpec { bytes: Some(1 << 30), goals: vec![goal], ..Default::default() });
        next.follow(q);
        assert!(turn(&mut next, 2500));
        assert_eq!(next.exceeds, 2);
    }

    #[test]
    fn turns_that_come_as_often_as_windows_each_get_one_and_no_more_in_sum() {
        let mut q = Quota::new(QuotaSpec { bytes: Some(1 << 20), reset_ns: 100 * MS, ..Default::default() });
        let windows = |q: &mut Quota, every_ms: &dyn Fn(u64) -> u64, turns: u64| {
            (0..turns).filter(|&i| turn(q, every_ms(i))).count()
        };
        // Now early, now late by a millisecond.
        assert_eq!(windows(&mut q, &|i| 100 * i + if i % 2 == 0 { 2 } else { 1 }, 50), 50);
        // All of them early: what came early is not gained.
        let mut q = Quota::new(QuotaSpec { bytes: Some(1 << 20), reset_ns: 100 * MS, ..Default::default() });
        assert!(windows(&mut q, &|i| 97 * i, 100) <= 97, "9.6 s have 97 windows");
    }

    #[test]
    fn time_becomes_bytes_by_the_speed_seen() {
        let mut q = Quota::new(QuotaSpec { time_ns: Some(10 * MS), ..Default::default() });
        turn(&mut q, 0);
        assert_eq!(q.effective(), 10 * 4096 * 64, "the first estimate");
        q.learn(1 << 20, 0);
        turn(&mut q, 1000);
        assert_eq!(q.effective(), u64::MAX, "it took no time");
        q.learn(0, 5 * MS);
        turn(&mut q, 2000);
        assert_eq!(q.effective(), 2 << 20);
        // Other memory takes ten times as long.
        (0..40).for_each(|_| q.learn(1 << 20, 50 * MS));
        turn(&mut q, 3000);
        assert!((205..215).contains(&(q.effective() >> 10)), "{}", q.effective());
    }

    #[test]
    fn where_no_goal_can_be_read_nothing_is_done() {
        let goal = |metric| Goal { metric, target: 10_000, window_ns: 0, falls: false };
        let unreadable = goal(GoalMetric::Read(Metric::SomeMemPsi(None)));
        let mut q = Quota::new(QuotaSpec { goals: vec![unreadable.clone()], ..Default::default() });
        turn(&mut q, 0);
        assert_eq!((q.effective(), q.left()), (0, 0));
        q.set_goals(vec![unreadable, goal(GoalMetric::UserInput)]);
        turn(&mut q, 1000);
        assert!(q.effective() > 0, "another one can be followed");
    }

    #[test]
    fn goals_move_the_quota_up_and_down() {
        let goal = Goal { metric: GoalMetric::UserInput, target: 10_000, window_ns: 0, falls: false };
        let mut q = Quota::new(QuotaSpec { bytes: Some(1 << 30), goals: vec![goal], ..Default::default() });
        let mut last = 0;
        for second in 0..40 {
            q.goals[0].push(0);
            turn(&mut q, second * 1000);
            assert!(q.effective() >= last);
            last = q.effective();
        }
        assert_eq!(last, 1 << 30, "bounded by the bytes");
        for (second, score, rises) in [(40, 15_000, false), (41, 5_000, true), (42, 18_000, false)] {
            q.goals[0].push(score);
            turn(&mut q, second * 1000);
            assert_eq!(q.effective() > last, rises, "{score}");
            last = q.effective();
        }
    }

    #[test]
    fn no_more_is_taken_than_a_goal_in_bytes_lacks() {
        struct Rss(u64);
        impl Meter for Rss {
            fn read(&mut self, _: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
                Ok(self.0)
            }
        }
        let metric = GoalMetric::Read(Metric::TargetRss);
        let goal = Goal { metric, target: 600 << 20, window_ns: 0, falls: true };
        let mut q = Quota::new(QuotaSpec { goals: vec![goal], ..Default::default() });
        let mut rss = Rss(1 << 30);
        for second in 0..100 {
            q.turn(second * 1000 * MS, &mut rss, &[]);
            rss.0 -= q.left().min(rss.0);
        }
        assert_eq!(rss.0, 600 << 20, "reached and not undershot");
        rss.0 += 8 << 20;
        for second in 100..120 {
            q.turn(second * 1000 * MS, &mut rss, &[]);
            rss.0 -= q.left();
        }
        assert_eq!(rss.0, 600 << 20, "and reached again after memory came back");
    }

    #[test]
    fn a_burst_lowers_the_quota_once_and_not_for_long() {
        let goal = Goal { metric: GoalMetric::UserInput, target: 10_000, window_ns: 10_000 * MS, falls: false };
        let mut q = Quota::new(QuotaSpec { bytes: Some(256 << 20), goals: vec![goal], ..Default::default() });
        let mut second = 0;
        let mut run = |q: &mut Quota, score, seconds| {
            for _ in 0..seconds {
                q.goals[0].push(score);
                turn(q, second * 1000);
                second += 1;
            }
            q.effective()
        };
        assert_eq!(run(&mut q, 0, 20), 256 << 20);
        assert_eq!(run(&mut q, 15_000, 10), 128 << 20, "the same burst, ten times in the window");
        assert_eq!(run(&mut q, 30_000, 5), 1, "far beyond the goal: at once to nothing");
        assert!(run(&mut q, 0, 9) >= 128 << 20, "and up again from 1 MiB");
    }

    #[test]
    fn nonsense_is_refused() {
        let q = QuotaSpec::default();
        assert_eq!(q.validate(), Ok(()));
        assert_eq!(QuotaSpec { bytes: Some(10), ..q.clone() }.validate(), Err(QuotaError::TooSmall(10)));
        assert_eq!(QuotaSpec { time_ns: Some(0), ..q.clone() }.validate(), Err(QuotaError::NoTime));
        assert_eq!(QuotaSpec { reset_ns: 0, ..q.clone() }.validate(), Err(QuotaError::ZeroInterval));
        let goal = Goal { metric: GoalMetric::UserInput, target: 0, window_ns: 0, falls: false };
        assert!(QuotaSpec { goals: vec![goal], ..q }.validate().unwrap_err().to_string().contains("goal of 0"));
    }

    proptest! {
        #[test]
        fn no_window_gives_more_than_its_bytes(bytes in 4096u64..1 << 24, asks in prop::collection::vec((0u64..300, 1u64..1 << 22), 1..100)) {
            let mut q = Quota::new(QuotaSpec { bytes: Some(bytes), reset_ns: 100 * MS, ..Default::default() });
            let (mut now, mut given) = (0, 0);
            for (wait, ask) in asks {
                now += wait;
                if turn(&mut q, now) { given = 0; }
                let grant = (ask / 4096 * 4096).min(q.left());
                q.charge(grant);
                given += grant;
                prop_assert!(given <= bytes);
            }
        }
    }
}
