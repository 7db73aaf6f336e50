//! Schemes of control groups, and what all schemes share.

use crate::run::*;
use isotherm_core::addr::total_len;
use isotherm_core::clock::Clock;
use isotherm_core::meter::{LiveTarget, Meter, MeterError, Metric};
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::scheme::filter::{Filter, FilterType};
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use isotherm_core::scheme::idle::IdleReason;
use std::cell::RefCell;
use std::rc::Rc;

/// Stall of the targets it is asked about, of which there is one.
struct StallOf(Rc<RefCell<Vec<usize>>>);

impl Meter for StallOf {
    fn read(&mut self, metric: &Metric, targets: &[LiveTarget]) -> Result<u64, MeterError> {
        if *metric == Metric::TargetStall {
            self.0.borrow_mut().push(targets.len());
        }
        Ok(0)
    }
}

#[test]
fn a_scheme_of_a_group_is_for_its_processes_alone_also_when_they_move() {
    let mut scheme = page_out();
    scheme.group = Some("/a".into());
    let metric = GoalMetric::Read(Metric::TargetStall);
    scheme.quota.goals = vec![Goal { metric, target: 1000, window_ns: S, falls: false }];
    let mut run = Run::new(&[pages(0, 4000)], &[pages(0, 10)], vec![scheme.clone()]);
    let asked = Rc::new(RefCell::new(Vec::new()));
    let actuator = ToyActuator { world: run.world.clone(), hands: run.hands.clone() };
    run.engine = SchemeEngine::new(vec![scheme], Box::new(actuator), Box::new(StallOf(asked.clone())));
    run.run(5 * S);
    let elsewhere = Some(IdleReason::NotInGroup("/a".into()));
    assert_eq!((run.out(), run.idle(), asked.borrow().len()), (0, elsewhere, 0), "in no group");
    run.engine.locate(|_| Some("/a/b".into()));
    assert_eq!(run.run(5 * S).out(), 0, "in one below it");
    run.engine.locate(|_| Some("/a".into()));
    assert!(run.run(10 * S).out() > 0, "{:?}", run.idle());
    assert!(asked.borrow().iter().all(|&targets| targets == 1) && !asked.borrow().is_empty());
}

/// The control group that the target is in.
struct GroupOf(Rc<RefCell<&'static str>>);

impl Meter for GroupOf {
    fn read(&mut self, metric: &Metric, _: &[LiveTarget]) -> Result<u64, MeterError> {
        Err(MeterError { metric: metric.to_string(), reason: "not asked for".into(), remedy: "none".into() })
    }

    fn cgroup_of(&mut self, _: LiveTarget) -> Option<String> {
        Some((*self.0.borrow()).to_owned())
    }
}

#[test]
fn where_nobody_tells_the_engine_looks_itself_who_has_moved() {
    let protect = |path: &str| Filter { what: FilterType::Cgroup(path.into()), matching: true, allow: false };
    let of_group = Scheme { group: Some("/a".into()), ..page_out() };
    let spares_b = Scheme { filters: vec![protect("/b")], ..page_out() };
    for scheme in [of_group, spares_b] {
        let mut run = Run::new(&[pages(0, 4000)], &[pages(0, 10)], vec![scheme.clone()]);
        let group = Rc::new(RefCell::new("/b"));
        let actuator = ToyActuator { world: run.world.clone(), hands: run.hands.clone() };
        run.engine = SchemeEngine::new(vec![scheme], Box::new(actuator), Box::new(GroupOf(group.clone())));
        assert_eq!(run.run(5 * S).out(), 0, "{:?}", run.idle());
        *group.borrow_mut() = "/a";
        let out = run.run(5 * S).out();
        assert!(out > 0, "{:?}", run.idle());
    }
}

#[test]
fn a_dry_run_tells_when_it_would_have_acted() {
    let mut run = Run::new(&[pages(0, 4000)], &[], Vec::new()).dry(vec![page_out()]);
    run.run(5 * S);
    let times: Vec<u64> = run.engine.log().entries().map(|entry| entry.time_ns).collect();
    assert!(!times.is_empty() && times.iter().all(|&ns| (S..=6 * S).contains(&ns)), "{times:?}");
}

#[test]
fn all_schemes_together_keep_the_pace_and_share_it() {
    let mut run = Run::new(&[pages(0, 8000)], &[pages(0, 10)], vec![page_out(), page_out(), page_out()]);
    run.engine.set_pace(Some(1 << 20));
    run.run(12 * S);
    let hands = run.hands.borrow();
    let bytes = |scheme: Option<usize>| -> u64 {
        let of = hands.requests.iter().filter(|(_, r)| scheme.is_none_or(|s| r.scheme == s));
        of.map(|(_, r)| total_len(&r.ranges)).sum()
    };
    let first = hands.requests.first().expect("some").0;
    let most = ((run.clock.now_ns() - first) / S + 2) << 20;
    assert!(bytes(None) <= most && bytes(None) > most / 2, "{} of {most}", bytes(None));
    assert!((0..3).all(|scheme| bytes(Some(scheme)) > bytes(None) / 5), "none goes without");
    drop(hands);
    run.engine.set_pace(None);
    let before = run.out();
    run.run(3 * S);
    assert!(run.out() > before + (6 << 20), "no limit any more: {before}, {}", run.out());
}

#[test]
fn a_limit_of_one_scheme_keeps_what_it_has_learnt() {
    let mut run = Run::new(&[pages(0, 8000)], &[pages(0, 10)], vec![page_out()]);
    assert!(run.engine.limit(0, Some(0)) && !run.engine.limit(1, None));
    assert_eq!(run.run(10 * S).out(), 0);
    assert!(run.engine.limit(0, None));
    assert!(run.run(5 * S).out() > 0);
    let applied = run.stats().sz_applied;
    run.engine.limit(0, Some(0));
    let done = run.run(2 * S).out();
    assert_eq!((run.run(5 * S).out(), run.stats().sz_applied >= applied), (done, true));
}

#[test]
fn a_limit_holds_over_any_number_of_windows() {
    let mut run = Run::new(&[pages(0, 8000)], &[pages(0, 10)], vec![page_out()]);
    for (mib, out) in [(4, 4), (4, 8), (1, 9)] {
        run.engine.limit(0, Some(mib << 20));
        assert_eq!(run.run(20 * S).out(), out << 20);
    }
    let status = run.engine.status_without_meters();
    assert_eq!(status[0].idle.map(|idle| idle.code()), Some("room_used"));
}

#[test]
fn a_goal_that_nothing_is_known_of_is_not_called_met() {
    let mut scheme = page_out();
    scheme.quota.goals = vec![Goal { metric: GoalMetric::UserInput, target: 70, window_ns: 0, falls: false }];
    let mut run = Run::new(&[pages(0, 4000)], &[pages(0, 10)], vec![scheme]);
    let code = |run: &mut Run| run.idle().map(|idle| idle.code());
    run.run(5 * S);
    assert_eq!((run.out(), code(&mut run)), (0, Some("goal_unknown")));
    run.engine.push_feedback(0, 7000);
    run.run(60 * S);
    assert_eq!(code(&mut run), Some("goal_met"), "{:?}", run.idle());
}
