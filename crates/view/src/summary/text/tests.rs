use super::*;
use crate::overview::Overview;
use crate::testdata::{MIB, paged_record, small_record, together};
use isotherm_core::event::Event;

fn text(events: &Vec<Event>) -> String {
    let overview = Overview::read(events).expect("has snapshots");
    let all = overview.select(None).expect("all");
    let mut out = Vec::new();
    write(&Summaries::read(events, &overview, &all).expect("has snapshots"), &mut out).expect("writes to memory");
    String::from_utf8(out).expect("is text")
}

#[test]
fn one_page() {
    let expected = "\
server --port 1 (pid 4242)
recorded        12.0 s, 120 snapshots, source sim, algorithm isotherm

working set     5.25 MiB (p50), 6.25 MiB (p95), 6.25 MiB (p99): memory accessed
                within 1 s, over time
  at the end    6.25 MiB within 1 s, 6.25 MiB within 10 s, not known within 1
                min, not known within 5 min
resident        77.0 MiB of 83.0 MiB virtual; the working set (p50) is 6.8 % of
                it
cold > 10 s     75.8 MiB
cold > 1 min    not known: not watched for that long
cold > 5 min    not known: not watched for that long
cold > 30 min   not known: not watched for that long
present         83.0 MiB in pages:
                  6.25 MiB  accessed within 10 s
                  75.8 MiB  cold > 10 s
                       0 B  not resolved: accessed before the watch began, not known when
                  1.00 MiB  not observable: neither hot nor cold

mappings, most cold memory first       size   resident used in 10 s  cold > 10 s
  7f0000000000-7f0004000000        64.0 MiB   64.0 MiB     1.25 MiB     62.8 MiB
  [heap]                           16.0 MiB   16.0 MiB     4.00 MiB     12.0 MiB
  libdemo.so.1                     2.00 MiB   2.00 MiB     1.00 MiB     1.00 MiB
  [anon:locked]                    1.00 MiB   1.00 MiB            not observable

monitor's cost  0.5 % of one core (0.4 % the monitor, 0.1 % the targets,
                estimated), within the budget of 1 %; sampling every 5.00 ms,
                40000 checks/s
";
    assert_eq!(text(&paged_record(1, 12)), expected);
}

#[test]
fn the_total_comes_first_and_the_rest_in_one_line() {
    let mut events = paged_record(12, 12);
    // One target holds half as much cold memory as the others: it is among the rest.
    for event in &mut events {
        if let Event::Pages(f) = event
            && f.target == 3
        {
            f.mappings.remove(1);
        }
    }
    let all = text(&events);
    assert!(all.starts_with("all 12 targets together\n"), "{all}");
    assert!(all.contains("shared pages    count for each target"), "{all}");
    assert!(all.contains("\ncold > 10 s     846 MiB\n"), "11 x 75.75 and 13 MiB: {all}");
    assert_eq!(all.matches("\nserver --port 1 (pid ").count(), 10);
    assert!(!all.contains("(pid 4245)"), "{all}");
    assert!(
        all.ends_with("\nand 2 more targets: 88.8 MiB cold > 10 s, 9.25 MiB in their working sets (p50), 154 MiB resident; --target N shows one\n"),
        "{all}"
    );
    assert!(all.contains("resident        924 MiB of 996 MiB virtual; each target counts what it shares"), "{all}");
    assert_eq!(all.matches("monitor's cost").count(), 1);
}

#[test]
fn shared_pages_count_once_where_that_is_known() {
    let mut events = paged_record(12, 12);
    events.extend((0..12).map(|second| together(12, second)));
    let all = text(&events);
    let total: Vec<&str> = all.lines().take_while(|l| !l.starts_with("server")).collect();
    for line in [
        "shared pages    count once, and are cold where none of the targets used them",
        "working set     5.25 MiB (p50), 6.25 MiB (p95), 6.25 MiB (p99): memory accessed",
        "cold > 10 s     75.8 MiB",
        "present         83.0 MiB in pages:",
    ] {
        assert!(total.contains(&line), "{line}\n{total:#?}");
    }
}

#[test]
fn both_ends_are_shown_where_they_differ() {
    let mut events = paged_record(1, 12);
    for event in &mut events {
        if let Event::Pages(f) = event {
            for idle in &mut f.mappings[1].ages.idle {
                (idle.least, idle.most) = (idle.pages - 256, idle.pages + 256);
            }
        }
    }
    let text = text(&events);
    assert!(text.contains("6.25 MiB (5.25 to 7.25) within 1 s, 6.25 MiB (5.25 to 7.25)"), "{text}");
    assert!(text.contains("\ncold > 10 s     75.8 MiB\n"), "2 of 76 MiB are less than 5 %: {text}");
}

#[test]
fn a_budget_that_is_kept_is_not_exceeded() {
    let of = |monitor: f64| {
        let events = paged_record(1, 12);
        let overview = Overview::read(&events).expect("has snapshots");
        let mut all = Summaries::read(&events, &overview, &overview.select(None).expect("all")).expect("has snapshots");
        if let Some(c) = &mut all.targets[0].cost {
            (c.monitor, c.target) = (monitor, 0.0);
        }
        cost(all.targets[0].cost)
    };
    assert!(of(0.0107).starts_with("1.07 % of one core") && of(0.0107).contains(", above the budget of 1 %;"));
    assert!(of(0.010_03).starts_with("1 % of one core") && of(0.010_03).contains(", within the budget of 1 %;"));
}

#[test]
fn regions_say_that_they_estimate() {
    let expected = "\
server --port 1 (pid 4242)
recorded        2.00 s, 20 snapshots, source sim, algorithm isotherm

working set     4.00 MiB (p50), 8.00 MiB (p95), 8.00 MiB (p99): memory accessed
                in one aggregation interval, estimated from regions, the first 2
                left out
resident        77.0 MiB of 83.0 MiB virtual; the working set (p50) is 5.2 % of
                it
cold > 10 s     not known: not watched for that long
cold > 1 min    not known: not watched for that long
cold > 5 min    not known: not watched for that long
cold > 30 min   not known: not watched for that long
not observable  1.00 MiB: neither hot nor cold

hottest mappings                        size       accessed    at rate
  [heap]                            16.0 MiB       4.50 MiB      100 %
  libdemo.so.1                      2.00 MiB       1.00 MiB        5 %
  anon                              64.0 MiB            0 B          -
  [anon:locked]                     1.00 MiB            not observable

monitor's cost  0.5 % of one core (0.4 % the monitor, 0.1 % the targets,
                estimated), within the budget of 1 %; sampling every 5.00 ms,
                40000 checks/s
confidence      20 checks a region and interval (median; the least tenth 20):
                one interval shows what is accessed at a rate above 14 % with
                95 % probability
";
    assert_eq!(text(&small_record(20)), expected);
}

#[test]
fn of_targets_that_were_not_walked_twice_nothing_is_known_and_they_are_there() {
    let mut events = paged_record(2, 12);
    let total = |events: &[Event]| {
        let overview = Overview::read(events).expect("has snapshots");
        let all = Summaries::read(events, &overview, &overview.select(None).expect("all")).expect("has snapshots");
        (all.total.targets, all.total.pages.expect("page by page"))
    };
    let (_, of_both) = total(&events);
    events.retain(|e| !matches!(e, Event::Pages(f) if f.target == 1));
    let (targets, pages) = total(&events);
    assert_eq!((targets, pages.cold * 2, pages.accessed * 2), (2, of_both.cold, of_both.accessed));
    assert_eq!(pages.not_resolved, of_both.not_resolved / 2 + 77 * MIB, "its resident memory");
    assert_eq!(pages.resident, of_both.resident / 2 + 77 * MIB);
}

#[test]
fn targets_that_ended_before_are_not_there_any_more() {
    let mut events = paged_record(2, 12);
    let at = crate::testdata::BASE_NS + 5_000_000_000;
    let after = |e: &Event| match e {
        Event::Snapshot(s) => s.target == 1 && s.end_ns > at,
        Event::Pages(f) => f.target == 1 && f.time_ns > at,
        Event::Footprint(f) => f.target == 1 && f.time_ns > at,
        _ => false,
    };
    events.retain(|e| !after(e));
    events.push(Event::End { time_ns: at, target: 1, why: isotherm_core::target::TargetEnd::Exited });
    let overview = Overview::read(&events).expect("has snapshots");
    let all = Summaries::read(&events, &overview, &overview.select(None).expect("all")).expect("has snapshots");
    assert_eq!((all.total.targets, all.total.pages.map(|p| p.resident)), (1, Some(83 * MIB)));
    assert!(text(&events).starts_with("the one target left at the end, without 1 that had ended\n"));
}

#[test]
fn what_is_not_known_of_the_rest_is_not_zero() {
    let last = |events: &Vec<Event>| text(events).lines().last().unwrap_or_default().to_owned();
    let brief = last(&paged_record(12, 5));
    assert!(brief.starts_with("and 2 more targets: not known how much is cold > 10 s, 10.5 MiB in"), "{brief}");
    assert!(brief.ends_with("154 MiB resident; --target N shows one"), "{brief}");

    // Of one target nothing is known at the end: it comes last.
    let mut events = paged_record(12, 12);
    events.retain(|event| match event {
        Event::Pages(f) => f.target != 11 || f.time_ns < crate::testdata::BASE_NS + 5_000_000_000,
        Event::Footprint(_) => false,
        _ => true,
    });
    let one = last(&events);
    assert!(one.contains(": 75.8 MiB cold > 10 s (of 1 not known), "), "{one}");
    assert!(one.contains(", not recorded how much is resident; "), "{one}");
}

#[test]
fn parts_of_the_cost_add_up() {
    let cost_of = |monitor, target| {
        let of = Cost::between(
            &crate::testdata::stats(0, 0, 0),
            &crate::testdata::stats(1_000_000_000, monitor, target),
            None,
        );
        cost(of)
    };
    let text = cost_of(10_700_000, 100_000);
    assert!(text.starts_with("1.08 % of one core (1.07 % the monitor, 0.01 % the targets, estimated)"), "{text}");
}

#[test]
fn what_another_tool_did_not_record_is_left_out() {
    let mut events = paged_record(1, 12);
    for event in &mut events {
        if let Event::Run(run) = event {
            (run.source, run.algorithm) = (String::new(), String::new());
        }
    }
    assert!(text(&events).contains("\nrecorded        12.0 s, 120 snapshots\n"));
}

#[test]
fn when_an_end_was_seen_does_not_contradict_what_was_recorded() {
    let mut events = small_record(1);
    let at = crate::testdata::BASE_NS + 205_000_000;
    events.push(Event::End { time_ns: at, target: 0, why: isotherm_core::target::TargetEnd::Exited });
    let text = text(&events).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("recorded 100 ms, 1 snapshot, source sim"), "{text}");
    assert!(text.contains("; that it exited was seen after 205 ms working set"), "{text}");
}
