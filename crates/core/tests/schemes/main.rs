//! Schemes over a memory that the test can see through, driven by the real monitor.

mod run;
mod shared;
#[path = "../toy/mod.rs"]
mod toy;
mod unmapped;

use isotherm_core::addr::{AddrRange, PAGE_SIZE, total_len};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::clock::Clock;
use isotherm_core::engine::Engine;
use isotherm_core::event::{Event, RunInfo, Step, Subscriber};
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::filter::{Filter, FilterType};
use isotherm_core::scheme::idle::IdleReason;
use isotherm_core::scheme::pattern::AccessPattern;
use isotherm_core::scheme::watermark::{WatermarkMetric, Watermarks};
use run::*;

#[test]
fn what_is_cold_goes_and_what_is_hot_stays() {
    // Hot pages scattered into cold memory, so that regions alone cannot tell them apart.
    let mut hot: Vec<_> = (0..40).map(|i| pages(1000 + i * 97, 1001 + i * 97)).collect();
    hot.push(pages(6000, 7000));
    let mut run = Run::new(&[pages(1000, 9000)], &hot, vec![page_out()]);
    run.run(20 * S);
    let hot_bytes = total_len(&hot);
    let cold = 8000 * P - hot_bytes;
    assert!(run.out() > cold * 9 / 10, "{} of {cold} bytes went: {:?}", run.out(), run.idle());
    let stats = run.stats();
    assert_eq!(stats.effect.back_60s, 0, "a hot page went: {stats:?}");
    assert_eq!(stats.sz_applied, run.out());
    assert_eq!(stats.effect.saved_now, run.out());
}

/// Blocks of 512 pages: in use as a whole, by 300 pages scattered over it, by 100, and not at all; and a piece of one.
#[test]
fn blocks_become_huge_pages_where_enough_of_them_is_in_use() {
    let block = |i: u64| pages(i * 512, (i + 1) * 512);
    let scattered = |i: u64, count: u64| (0..count).map(move |n| i * 512 + n * 512 / count).map(|p| pages(p, p + 1));
    let mut hot = vec![block(0), pages(4 * 512, 4 * 512 + 400)];
    hot.extend(scattered(1, 300).chain(scattered(2, 100)));
    let scheme = |action| Scheme {
        used_within_ns: 5 * S,
        min_density_bp: 5000,
        ..Scheme::new(action, AccessPattern::default())
    };
    let mapped = [pages(0, 4 * 512 + 400)];
    let mut run = Run::new(&mapped, &hot, vec![scheme(Action::Collapse), scheme(Action::Stat)]);
    // The first walks find all that is there.
    run.run(4 * S);
    assert!(run.hands.borrow().requests.iter().all(|r| r.0 >= S), "before anything is known of use");
    let mut run = Run::new(&mapped, &hot, vec![scheme(Action::Collapse), scheme(Action::Stat)]);
    run.run(60 * S);
    let asked = |action, late: u64| -> Vec<AddrRange> {
        let hands = run.hands.borrow();
        let requests = hands.requests.iter().filter(|r| r.1.action == action && r.0 > late);
        let mut all: Vec<_> = requests.flat_map(|r| r.1.ranges.clone()).collect();
        isotherm_core::addr::normalize(&mut all);
        all
    };
    let both = vec![pages(0, 1024)];
    assert_eq!(asked(Action::Collapse, 0), both);
    assert_eq!(asked(Action::Collapse, 30 * S), both, "what did not succeed is tried again after a while");
    assert_eq!((asked(Action::Stat, 0), asked(Action::Stat, 30 * S)), (both, Vec::new()), "counted once");
    let requests = run.hands.borrow().requests.iter().filter(|r| r.1.action == Action::Collapse).count();
    assert!(requests <= 7, "not in every turn: {requests}");
}

#[test]
fn where_a_quota_ends_a_look_at_blocks_the_next_goes_on() {
    // The second is too large to be looked at wholly in each turn.
    [7, 4200].into_iter().for_each(goes_on);
}

fn goes_on(blocks: u64) {
    let all = pages(0, blocks * 512);
    let mut scheme = Scheme { used_within_ns: 5 * S, ..Scheme::new(Action::Collapse, AccessPattern::default()) };
    scheme.quota.bytes = Some(2 * 512 * P);
    scheme.quota.reset_ns = S;
    scheme.apply_ns = 100 * MS;
    let mut run = Run::new(&[all], &[all], vec![scheme]);
    run.run(8 * S);
    let hands = run.hands.borrow();
    let mut asked: Vec<(u64, AddrRange)> = Vec::new();
    hands.requests.iter().for_each(|r| asked.extend(r.1.ranges.iter().map(|range| (r.0, *range))));
    let first = asked[0].0;
    let before = |end: u64| -> u64 {
        let requests = asked.iter().filter(|(at, _)| *at < first + end);
        requests.map(|(_, range)| range.len() / (512 * P)).sum()
    };
    assert_eq!(before(900 * MS), 2, "{asked:?}");
    assert_eq!(before(3900 * MS), blocks.min(8), "within four intervals, each once: {asked:?}");
    let order: Vec<u64> = asked.iter().map(|(_, range)| range.start).take(4).collect();
    assert!(order.is_sorted() && order[0] == 0, "{asked:?}");
}

/// As the kernel's own DAMON, which tells regions alone.
#[test]
fn without_a_page_history_no_block_is_taken_to_be_in_use() {
    let all = pages(0, 1024);
    let scheme = Scheme { used_within_ns: 5 * S, ..Scheme::new(Action::Collapse, AccessPattern::default()) };
    let mut run = Run::new(&[all], &[all], vec![scheme]);
    run.run(200 * MS);
    assert_eq!(run.idle(), Some(IdleReason::NoPageHistory { targets: Some(1) }), "not walked twice yet");
    let before = run.hands.borrow().requests.len();
    run.engine.step(Step::AfterAggregate, run.clock.now_ns() + S);
    assert_eq!(run.idle(), Some(IdleReason::NoPageHistory { targets: None }));
    assert_eq!(run.hands.borrow().requests.len(), before);
}

#[test]
fn a_quota_is_never_exceeded() {
    let mut scheme = page_out();
    scheme.quota.bytes = Some(1 << 20);
    scheme.quota.reset_ns = 100 * MS;
    scheme.apply_ns = 10 * MS;
    scheme.confirm_ns = 0;
    let mut run = Run::new(&[pages(0, 4000)], &[pages(0, 10)], vec![scheme]);
    run.run(4 * S);
    let hands = run.hands.borrow();
    assert!(!hands.requests.is_empty());
    for (time, _) in &hands.requests {
        let within = |t: u64| *time <= t && t < time + 100 * MS;
        let bytes: u64 = hands.requests.iter().filter(|r| within(r.0)).map(|r| total_len(&r.1.ranges)).sum();
        // Windows begin at fixed times: an interval of that length touches two of them.
        assert!(bytes <= 2 << 20, "{bytes} bytes within 100 ms");
    }
    let last = hands.requests.last().expect("some").0;
    // As many as a time of that length can touch: the first request may come in the middle of one.
    let windows = (last - hands.requests[0].0) / (100 * MS) + 2;
    let all: u64 = hands.requests.iter().map(|r| total_len(&r.1.ranges)).sum();
    assert!(all <= windows << 20, "{all} bytes in {windows} windows");
    drop(hands);
    assert!(run.stats().qt_exceeds >= windows - 3, "{:?} of {windows}", run.stats());
}

#[test]
fn shorter_apply_intervals_try_more_often() {
    let tried = |apply_ns| {
        let mut scheme = Scheme::new(Action::Stat, AccessPattern::default());
        scheme.apply_ns = apply_ns;
        let mut run = Run::new(&[pages(0, 1000)], &[pages(0, 100)], vec![scheme]);
        let attrs = MonitorAttrs { sample_us: 5000, ..MonitorAttrs::default() };
        let info = RunInfo {
            source: "toy".into(),
            algorithm: "isotherm".into(),
            attrs,
            cpu_budget: None,
            kernel: String::new(),
            realtime_offset_ns: 0,
        };
        run.engine.event(&Event::Run(info)).expect("it never fails");
        run.run(5 * S).stats().nr_tried as f64
    };
    let ratio = tried(10 * MS) / tried(100 * MS);
    assert!(ratio >= 9.0, "{ratio}");
    assert_eq!(tried(1), tried(5 * MS), "not more often than there are samples");
}

#[test]
fn nothing_is_sampled_while_all_schemes_are_off() {
    let mut scheme = page_out();
    let watermarks = Watermarks {
        metric: WatermarkMetric::FreeMemRate,
        interval_us: 1_000_000,
        high_bp: 5000,
        mid_bp: 4000,
        low_bp: 2000,
    };
    scheme.watermarks = Some(watermarks);
    let mut run = Run::new(&[pages(0, 1000)], &[], vec![scheme]);
    *run.free_bp.borrow_mut() = 6000;
    assert!(!run.engine.turn_gates(0));
    assert!(matches!(run.idle(), Some(IdleReason::WatermarkHigh { value_bp: 6000, mid_bp: 4000 })));
    run.monitor.follow_targets(&mut run.clock, &mut run.engine).expect("the toy never fails");
    assert_eq!(run.world.borrow().cost.pages_read, 0);
    *run.free_bp.borrow_mut() = 3000;
    assert!(!run.engine.turn_gates(S / 2), "it is looked at once a second");
    assert!(run.engine.turn_gates(S));
    run.run(10 * S);
    assert!(run.out() > 0);
}

#[test]
fn what_comes_back_pulls_the_brake() {
    let mut scheme = page_out();
    scheme.confirm_ns = 0;
    let mut run = Run::new(&[pages(0, 4096)], &[], vec![scheme]);
    run.run(3 * S);
    assert_eq!(run.out(), 4096 * P);
    run.world.borrow_mut().hot.push(pages(0, 2048));
    run.run(3 * S);
    let stats = run.stats();
    assert_eq!(stats.effect.back_10s, 2048 * P);
    assert_eq!(stats.brake_pulled, 1, "{stats:?}");
    assert!(run.idle().expect("stopped").to_string().contains("emergency brake: 50%"));
}

/// Walks take what comes back for new memory; how long it had been idle is known by when it went, and at which age.
#[test]
fn of_what_comes_back_it_is_known_how_long_it_had_been_idle() {
    let mut run = Run::new(&[pages(0, 4096)], &[], vec![Scheme::new(Action::PageOut, idle_for(5 * S))]);
    run.run(9 * S);
    assert_eq!(run.out(), 4096 * P);
    let back = |run: &mut Run| run.engine.status().remove(0).back.pages();
    assert_eq!(back(&mut run)[0], 0);
    run.world.borrow_mut().hot.push(pages(0, 1000));
    run.run(3 * S);
    assert_eq!((back(&mut run)[3], back(&mut run)[5]), (1000, 0), "5 s and more, and less than 30");
    run.run(150 * S);
    assert_eq!(back(&mut run)[0], 1000);
    run.world.borrow_mut().hot.push(pages(1000, 3000));
    run.run(15 * S);
    assert_eq!((back(&mut run)[3], back(&mut run)[7], back(&mut run)[8]), (3000, 2000, 0), "2 min and less than 4");
}

#[test]
fn filters_spare_what_they_name() {
    let mut scheme = page_out();
    scheme.filters.push(Filter { what: FilterType::Addr(pages(100, 200)), matching: true, allow: false });
    let mut run = Run::new(&[pages(0, 1000)], &[], vec![scheme]);
    run.run(10 * S);
    let world = run.world.borrow();
    assert!(world.out.len() > 800);
    assert!((100..200).all(|page| !world.out.contains(&(page * P))));
    drop(world);
    assert!(run.stats().sz_filtered >= 100 * P);
}

#[test]
fn says_why_nothing_happens() {
    let mut hot = Run::new(&[pages(0, 1000)], &[pages(0, 1000)], vec![page_out()]);
    let text = hot.run(3 * S).idle().expect("idle").to_string();
    assert_eq!(text, "no page of 3.91 MiB has been idle for 2.00 s");

    let mut young = Run::new(&[pages(0, 1000)], &[], vec![Scheme::new(Action::PageOut, idle_for(60 * S))]);
    let text = young.run(3 * S).idle().expect("idle").to_string();
    assert_eq!(text, "watched for 3.00 s so far; pages must be idle for 1 m 00 s");

    let mut none = Run::new(&[pages(0, 1000)], &[], vec![page_out()]);
    none.hands.borrow_mut().refuse = Some("there is no swap".into());
    assert_eq!(none.run(3 * S).idle().expect("idle").to_string(), "pageout: there is no swap");

    let mut busy = Run::new(&[pages(0, 1000)], &[], vec![page_out()]);
    busy.hands.borrow_mut().full = true;
    assert_eq!(busy.run(9 * S).idle(), Some(IdleReason::Busy));
    assert_eq!(busy.stats().sz_applied, 0);

    let mut done = Run::new(&[pages(0, 1000)], &[], vec![page_out()]);
    assert_eq!(done.run(20 * S).idle(), Some(IdleReason::NothingPresent));
}

#[test]
fn memory_that_cannot_be_observed_is_left_alone() {
    let mut run = Run::new(&[pages(0, 1000)], &[], vec![page_out()]);
    run.world.borrow_mut().blind.push(pages(500, 1000));
    run.run(20 * S);
    let world = run.world.borrow();
    assert!((500..1000).all(|page| !world.out.contains(&(page * P))));
    assert!((0..400).all(|page| world.out.contains(&(page * P))));
}

#[test]
fn advice_is_given_once_until_the_memory_ages_again() {
    let mut run = Run::new(&[pages(0, 1000)], &[], vec![Scheme::new(Action::Cold, idle_for(10 * S))]);
    run.run(19 * S);
    let asked: u64 = run.hands.borrow().requests.iter().map(|r| total_len(&r.1.ranges)).sum();
    assert_eq!(asked, 1000 * P, "once");
    run.run(10 * S);
    let asked: u64 = run.hands.borrow().requests.iter().map(|r| total_len(&r.1.ranges)).sum();
    assert_eq!(asked, 2000 * P, "and again after its least age");
}

#[test]
fn only_dense_blocks_become_huge() {
    let mut scheme = Scheme::new(Action::Collapse, AccessPattern::default());
    scheme.apply_ns = 100 * MS;
    // Block 1 is full; of block 2 a tenth is there; block 3 begins in the middle.
    let mut run = Run::new(&[pages(512, 1024 + 51), pages(1536 + 256, 2048)], &[], vec![scheme]);
    run.run(5 * S);
    let hands = run.hands.borrow();
    assert!(!hands.requests.is_empty());
    assert!(hands.requests.iter().all(|(_, r)| r.ranges == [pages(512, 1024)]), "{:?}", hands.requests);
    assert_eq!(hands.requests.len(), 1, "not tried again within 10 s");
}

#[test]
fn what_the_kernel_refuses_is_not_called_done() {
    let mut run = Run::new(&[pages(0, 1024)], &[], vec![Scheme::new(Action::HugePage, AccessPattern::default())]);
    run.hands.borrow_mut().error = Some("EINVAL".into());
    assert_eq!(run.run(5 * S).idle(), Some(IdleReason::Refused("EINVAL".into())));
    assert_eq!(run.stats().sz_tried, 1024 * P, "it is not tried again at once");
    run.hands.borrow_mut().error = None;
    assert_eq!(run.run(10 * S).idle(), Some(IdleReason::DoneAlready));
}

#[test]
fn what_lasts_is_not_done_again_at_once() {
    let times = |action| {
        let mut run = Run::new(&[pages(0, 1024)], &[], vec![Scheme::new(action, AccessPattern::default())]);
        run.run(12 * S);
        run.stats().sz_tried / (1024 * PAGE_SIZE)
    };
    assert_eq!(times(Action::HugePage), 2, "at once, and after 10 s");
    assert!(times(Action::Stat) > 100);
}

#[test]
fn pages_go_as_soon_as_they_are_old_enough() {
    let mut scheme = Scheme::new(Action::PageOut, idle_for(10 * S));
    scheme.confirm_ns = 5 * S;
    let mut run = Run::new(&[pages(0, 4000)], &[], vec![scheme]);
    run.run(14 * S);
    let first = run.hands.borrow().requests.first().expect("some").0;
    assert!((10 * S..12 * S).contains(&first), "{first}");
    assert_eq!(run.out(), 4000 * P);
}

#[test]
fn what_is_used_a_moment_before_is_spared() {
    let first = |used: Option<(u64, AddrRange)>| {
        let mut run = Run::new(&[pages(0, 2000)], &[], vec![Scheme::new(Action::PageOut, idle_for(5 * S))]);
        run.used = used;
        run.run(8 * S);
        let hands = run.hands.borrow();
        let (time, request) = hands.requests.first().expect("some");
        assert!(hands.requests.len() == 1, "once");
        (*time, request.ranges.clone(), run.engine.status().remove(0).stats.effect)
    };
    let (time, all, _) = first(None);
    assert_eq!(all, [pages(0, 2000)]);
    let (again, spared, effect) = first(Some((time, pages(700, 701))));
    assert_eq!((again, spared), (time, vec![pages(0, 700), pages(701, 2000)]));
    assert_eq!((effect.out, effect.back_60s), (1999 * P, 0));
}

#[test]
fn what_refuses_to_go_is_not_asked_again_at_once() {
    let mut run = Run::new(&[pages(0, 1000)], &[], vec![Scheme::new(Action::PageOut, idle_for(5 * S))]);
    run.hands.borrow_mut().in_vain = true;
    run.run(9 * S);
    assert_eq!(run.hands.borrow().requests.len(), 1);
    assert_eq!(run.idle(), Some(IdleReason::DoneAlready));
    run.run(4 * S);
    assert_eq!(run.hands.borrow().requests.len(), 2, "but after its least age");
    assert_eq!(run.stats().sz_applied, 0);
}

/// As memory that other processes map, too: it stays the oldest, and would come first again and again.
#[test]
fn what_refuses_to_go_does_not_use_up_the_quota_for_ever() {
    let (stuck, free) = (pages(0, 1000), pages(1000, 1500));
    let mut scheme = Scheme::new(Action::PageOut, idle_for(5 * S));
    scheme.quota.bytes = Some(64 * P);
    scheme.quota.reset_ns = S;
    let mut run = Run::new(&[stuck, free], &[], vec![scheme]);
    run.hands.borrow_mut().stuck = Some(stuck);
    run.run(35 * S);
    assert_eq!(run.out(), free.len());
    run.run(400 * S);
    let asked: u64 = run.hands.borrow().requests.iter().map(|r| total_len(&r.1.ranges)).sum();
    let again = (asked - free.len()) as f64 / stuck.len() as f64;
    assert!((2.0..4.0).contains(&again), "asked for {again} times in 435 s");
}

/// Memory in parts too small for the scheme stays the oldest, and must not keep the quota from what is large enough.
#[test]
fn of_memory_of_a_size_the_oldest_goes_first_however_old_smaller_parts_are() {
    let (small, large) = (pages(0, 800), pages(800, 1600));
    let mut scheme = Scheme::new(Action::PageOut, idle_for(5 * S));
    scheme.pattern.size.min = 600 * P;
    scheme.quota.bytes = Some(64 * P);
    scheme.quota.reset_ns = S;
    let every_eighth: Vec<AddrRange> = (0..100).map(|i| pages(8 * i + 7, 8 * i + 8)).collect();
    let mut run = Run::new(&[small, large], &every_eighth, vec![scheme]);
    let in_use = |run: &Run, range| run.world.borrow_mut().hot.push(range);
    in_use(&run, pages(800, 1200));
    in_use(&run, pages(1200, 1600));
    run.run(10 * S);
    run.world.borrow_mut().hot.pop();
    run.run(3 * S);
    run.world.borrow_mut().hot.pop();
    run.run(4 * S);
    assert_eq!(run.out(), 0, "half of it is not large enough");
    run.run(5 * S);
    // The younger half, which came to rest later, goes last.
    let parts = |run: &Run| {
        let world = run.world.borrow();
        let within = |range: AddrRange| world.out.iter().filter(|&&p| range.contains(p)).count();
        [small, pages(800, 1200), pages(1200, 1600)].map(within)
    };
    let [_, younger, older] = parts(&run);
    assert!(older > 64 && younger == 0, "{younger} {older}");
    run.run(16 * S);
    assert_eq!(parts(&run), [0, 400, 400]);
}

#[test]
fn other_schemes_take_over_what_is_theirs_and_nothing_else() {
    let mut run = Run::new(&[pages(0, 4000)], &[pages(0, 10)], vec![Scheme { confirm_ns: 0, ..page_out() }]);
    while run.hands.borrow().done.is_empty() {
        run.run(1);
    }
    let before = run.stats();
    assert!(before.sz_tried > 0);
    // The same action with another quota: it goes on, and learns what became of the work under way.
    let mut again = Scheme { confirm_ns: 0, ..page_out() };
    again.quota.bytes = Some(1 << 20);
    run.engine.commit(vec![again]);
    assert_eq!(run.stats().sz_tried, before.sz_tried);
    run.run(S);
    assert!(run.stats().sz_applied >= before.sz_tried, "{:?}", run.stats());
    assert_eq!(run.stats().effect.saved_now, run.out());

    // Another action in its place: that work is not its own.
    let mut run = Run::new(&[pages(0, 4000)], &[pages(0, 10)], vec![Scheme { confirm_ns: 0, ..page_out() }]);
    while run.hands.borrow().done.is_empty() {
        run.run(1);
    }
    run.engine.commit(vec![Scheme::new(Action::Cold, idle_for(3600 * S))]);
    run.run(S);
    let stats = run.stats();
    assert_eq!((stats.sz_tried, stats.sz_applied, stats.effect.out), (0, 0, 0));
    assert!(run.engine.log().entries().any(|e| e.action == Action::PageOut), "the log knows all the same");

    // The same action for another control group: what the first one had is not the second one's.
    let mut run = Run::new(&[pages(0, 4000)], &[pages(0, 10)], vec![Scheme::new(Action::Stat, idle_for(0))]);
    run.run(S);
    assert!(run.stats().sz_tried > 0);
    run.engine.commit(vec![Scheme { group: Some("/b".into()), ..Scheme::new(Action::Stat, idle_for(0)) }]);
    assert_eq!(run.stats().sz_tried, 0);
}

#[test]
fn a_brake_stays_pulled_when_schemes_are_put_in_force_again() {
    let scheme = || Scheme { confirm_ns: 0, ..page_out() };
    let mut run = Run::new(&[pages(0, 4096)], &[], vec![scheme()]);
    run.run(3 * S);
    run.world.borrow_mut().hot.push(pages(0, 2048));
    run.run(3 * S);
    run.world.borrow_mut().hot.clear();
    let before = run.stats();
    assert_eq!(before.brake_pulled, 1, "{before:?}");
    // As a node does when another group comes.
    run.engine.commit(vec![scheme()]);
    assert_eq!(run.stats().brake_pulled, 1, "a counter never falls");
    run.run(5 * S);
    assert!(run.idle().expect("stopped").to_string().contains("emergency brake"), "{:?}", run.idle());
    assert_eq!(run.stats().effect.out, before.effect.out);
    run.run(20 * S);
    assert!(run.stats().effect.out > before.effect.out, "but goes on when its time is over");
}

#[test]
fn what_is_under_way_is_not_asked_for_again() {
    let mut run = Run::new(&[pages(0, 4000)], &[], vec![page_out()]);
    run.hands.borrow_mut().slow = true;
    run.run(20 * S);
    let asked: u64 = run.hands.borrow().requests.iter().map(|r| total_len(&r.1.ranges)).sum();
    assert_eq!(asked, 4000 * P);
}
