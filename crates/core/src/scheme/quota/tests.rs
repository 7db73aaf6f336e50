use super::*;
use crate::meter::{MeterError, Metric, NoMeter};
use crate::scheme::goal::GoalMetric;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn turn(q: &mut Quota, ms: u64) -> bool {
    q.turn(ms * MS, 0, &mut NoMeter, &[])
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
    let windows =
        |q: &mut Quota, every_ms: &dyn Fn(u64) -> u64, turns: u64| (0..turns).filter(|&i| turn(q, every_ms(i))).count();
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
    assert_eq!(q.effective(), 0, "no program has pushed a value");
    q.goals[1].push(5000);
    turn(&mut q, 2000);
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
        q.turn(second * 1000 * MS, 0, &mut rss, &[]);
        rss.0 -= q.left().min(rss.0);
    }
    assert_eq!(rss.0, 600 << 20, "reached and not undershot");
    rss.0 += 8 << 20;
    for second in 100..120 {
        q.turn(second * 1000 * MS, 0, &mut rss, &[]);
        rss.0 -= q.left();
    }
    assert_eq!(rss.0, 600 << 20, "and reached again after memory came back");
    // What is being written out is still resident.
    let mut rss = Rss(620 << 20);
    q.turn(130_000 * MS, 15 << 20, &mut rss, &[]);
    assert_eq!(q.left(), 5 << 20);
    q.turn(140_000 * MS, 25 << 20, &mut rss, &[]);
    assert_eq!(q.left(), 0);
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
