use super::*;
use crate::testdata::{MIB, ages, page_frame};
use isotherm_core::history::frame::{IdlePages, MappingPages, PageFrame, bytes};
use isotherm_core::history::times::AGES_NS;
use isotherm_core::target::TargetInfo;
use std::collections::BTreeSet;

const S: u64 = 1_000_000_000;

fn target(target: u32, name: &str) -> Event {
    Event::Target(TargetInfo { target, pid: Some(100 + target), name: name.to_owned() })
}

fn footprint(target: u32, mib: u64) -> Event {
    Event::Footprint(Footprint { time_ns: S, target, vsz: mib * MIB, rss: mib * MIB, swap: Some(MIB) })
}

/// What each owns; where nothing else is said, a later walk has found the same.
fn together(owned: Vec<(u32, PageAges)>) -> Event {
    let all = isotherm_core::history::frame::sum(owned.iter().map(|(_, ages)| ages));
    let owned: Vec<Owned> = owned
        .into_iter()
        .map(|(target, ages)| Owned { target, walked_ns: u64::MAX, mapped: ages.clone(), ages })
        .collect();
    Event::Together(TogetherFrame { time_ns: S, targets: owned.len() as u32, one_in: 1, ages: all, owned })
}

/// Two of 1000 and 500 pages, of which 900 and 100 are cold for 10 s; the second has 200 cold ones of the first's.
pub(super) fn two() -> MachineBuilder {
    let mut machine = MachineBuilder::default();
    for event in [target(0, "redis"), target(1, "nginx"), footprint(0, 100), footprint(1, 50)] {
        machine.event(&event).unwrap();
    }
    for (target, ages) in [(0, ages(1000, &[950, 930, 910, 900], 10)), (1, ages(500, &[400, 350, 310, 300], 0))] {
        let frame = page_frame(target, 20);
        let mappings = vec![MappingPages { range: frame.mappings[0].range, ages }];
        machine.event(&Event::Pages(PageFrame { mappings, ..frame })).unwrap();
    }
    machine
        .event(&together(vec![(0, ages(1000, &[950, 930, 910, 900], 10)), (1, ages(300, &[200, 150, 110, 100], 0))]))
        .unwrap();
    machine
}

fn cold(row: &Row) -> Option<u64> {
    row.divided(10 * S).map(|divided| divided.cold)
}

fn group(pid: u32) -> Option<String> {
    Some(if pid == 100 { "/a".to_owned() } else { "/b".to_owned() })
}

#[test]
fn groups_count_shared_pages_once_and_add_up_to_the_total() {
    let machine = two().finish(group, |_| None);
    let cold = |row: &Row| cold(row).map(|b| b / 4096);
    assert_eq!(machine.processes.iter().map(cold).collect::<Vec<_>>(), [Some(900), Some(300)], "all that they map");
    assert_eq!(machine.groups.iter().map(cold).collect::<Vec<_>>(), [Some(900), Some(100)], "what is their own");
    assert_eq!(cold(&machine.total), Some(1000));
    assert_eq!(machine.total.rss, Some(bytes(1310)));
    assert_eq!(machine.total.rss, machine.groups.iter().map(|g| g.rss).sum());
    assert_eq!((machine.total.swap, machine.total.processes), (Some(2 * MIB), 2));
    assert_eq!(machine.shared, Shared::CountedOnce);
}

#[test]
fn a_group_of_one_process_says_what_the_process_says_whenever_it_was_walked() {
    let mut machine = two();
    for owned in machine.together.iter_mut().flat_map(|t| &mut t.owned) {
        owned.walked_ns = 0;
        owned.mapped = if owned.target == 0 { owned.ages.clone() } else { ages(500, &[400, 350, 310, 300], 0) };
    }
    let frame = page_frame(0, 20);
    let mappings =
        vec![MappingPages { range: frame.mappings[0].range, ages: ages(1200, &[1150, 1130, 1110, 1100], 10) }];
    machine.event(&Event::Pages(PageFrame { mappings, ..frame })).unwrap();
    let tree = machine.tree(group, |_| None);
    let machine = machine.finish(group, |_| None);
    assert_eq!(machine.groups[0].ages, machine.processes[0].ages);
    assert_eq!(machine.groups[1].rss, Some(bytes(300)), "the part of it that is its own");
    assert_eq!((machine.total.rss, cold(&machine.total)), (Some(bytes(1510)), Some(bytes(1200))));
    let lines = tree.lines(&BTreeSet::new(), Order::Name);
    let in_tree: Vec<_> = lines.iter().map(|line| (&*line.row.name, line.row.rss)).collect();
    assert_eq!(in_tree, [("a", machine.groups[0].rss), ("b", machine.groups[1].rss)], "the tree says the same");
}

#[test]
fn shared_memory_in_swap_counts_by_the_charge_of_its_group() {
    let swap = |rows: &[Row]| rows.iter().map(|row| row.swap).collect::<Vec<_>>();
    let charged = |path: &str| (path == "/b").then_some(5 * MIB);
    let machine = two().finish(group, charged);
    assert_eq!(swap(&machine.processes), [Some(MIB), Some(MIB)], "the kernel's counts");
    assert_eq!(swap(&machine.groups), [Some(MIB), Some(5 * MIB)]);
    assert_eq!(machine.total.swap, Some(6 * MIB), "groups add up to the total");
    assert_eq!(two().finish(group, |_| Some(0)).total.swap, Some(2 * MIB), "charged elsewhere before they came");
    let nested = |pid| Some(if pid == 100 { "/a".to_owned() } else { "/a/b".to_owned() });
    let tree = two().tree(nested, |path| (path == "/a/b").then_some(5 * MIB));
    let lines = tree.lines(&BTreeSet::from(["/".to_owned(), "/a".to_owned()]), Order::Name);
    let groups: Vec<_> = lines.iter().filter(|line| line.row.pid.is_none()).map(|line| line.row.swap).collect();
    assert_eq!(groups, [Some(6 * MIB), Some(5 * MIB)], "those below are counted in those above");
}

#[test]
fn who_ends_is_left_out_and_who_came_late_is_not_cold() {
    let mut machine = two();
    machine.event(&target(2, "new")).unwrap();
    machine.event(&Event::End { time_ns: S, target: 0, why: TargetEnd::Exited }).unwrap();
    let machine = machine.finish(group, |_| None);
    assert_eq!(machine.processes.len(), 2);
    assert_eq!((machine.total.not_watched, machine.processes[1].pages()), (1, None));
    assert_eq!(cold(&machine.total), Some(bytes(100)));
    let mut machine = two();
    machine.event(&Event::End { time_ns: S, target: 1, why: TargetEnd::Replaced }).unwrap();
    assert_eq!(machine.finish(group, |_| None).processes[1].pages(), None, "another program");
}

#[test]
fn a_copy_that_was_not_compared_yet_counts_none_of_its_parents_pages_again() {
    for (forked, counted) in [(true, 1310), (false, 1310 + 700)] {
        let mut machine = two();
        machine.event(&target(2, "nginx")).unwrap();
        let frame = PageFrame { forked, ..page_frame(2, 20) };
        let mappings = vec![MappingPages { range: frame.mappings[0].range, ages: ages(700, &[600, 600, 600, 600], 0) }];
        machine.event(&Event::Pages(PageFrame { mappings, ..frame })).unwrap();
        let Machine { processes, total, .. } = machine.finish(group, |_| None);
        assert_eq!((total.rss, total.not_watched), (Some(bytes(counted)), usize::from(forked)));
        assert_eq!(processes[2].ages.as_ref().map(|ages| ages.resident), Some(700), "what it maps itself");
    }
}

#[test]
fn what_one_process_has_not_told_yet_is_open_though_all_together_have() {
    let mut machine = two();
    assert!(machine.is_known_for(10 * S) && machine.is_known_for(7 * S), "of 7 s by what is counted for 5 s");
    let ages = machine.processes.get_mut(&1).unwrap().ages.as_mut().unwrap();
    ages.idle[3].unresolved = 100;
    assert!(!machine.is_known_for(10 * S), "a fifth of its pages");
    assert!(machine.is_known_for(S), "of a second all is known");
    let idle = &mut machine.processes.get_mut(&1).unwrap().ages.as_mut().unwrap().idle[3];
    // A tenth of all 1500 pages that can be seen.
    (idle.unresolved, idle.most) = (0, idle.least + 150);
    assert!(machine.is_known_for(10 * S));
    let idle = &mut machine.processes.get_mut(&1).unwrap().ages.as_mut().unwrap().idle[3];
    idle.most += 1;
    assert!(!machine.is_known_for(10 * S), "more than that is estimated");
    assert!(!machine.is_known_for(60 * S), "nobody has watched for so long");
}

#[test]
fn who_came_later_is_not_waited_for() {
    let late = |unresolved, comes_late| {
        let mut machine = two();
        machine.looks = comes_late;
        machine.event(&target(2, "new")).unwrap();
        let mut young = ages(800, &[100, 0, 0, 0], 0);
        young.idle.truncate(1);
        let frame = page_frame(2, 2);
        let mappings = vec![MappingPages { range: frame.mappings[0].range, ages: young }];
        machine.event(&Event::Pages(PageFrame { mappings, ..frame })).unwrap();
        let together = machine.together.as_mut().unwrap();
        together.owned[0].ages.idle[3].unresolved = unresolved;
        let mut open = ages(700, &[0, 0, 0, 0], 0);
        open.idle[3].unresolved = 700;
        let owned = |target| Owned { target, walked_ns: 0, mapped: open.clone(), ages: open.clone() };
        together.owned.extend([owned(2), owned(3)]);
        machine
    };
    assert!(late(0, true).is_known_for(10 * S), "what is open is its own, or of one that has ended");
    assert!(!late(300, true).is_known_for(10 * S), "a fifth of the others'");
    assert!(!late(0, false).is_known_for(10 * S), "it was there when watching began");
    let mut machine = late(0, true);
    for target in [0, 1] {
        machine.event(&Event::End { time_ns: S, target, why: TargetEnd::Exited }).unwrap();
    }
    assert!(!machine.is_known_for(10 * S), "nobody is left that was watched for so long");
}

fn table(machine: &Machine) -> String {
    let mut text = Vec::new();
    write_table(machine, Columns::Processes, 80, |row| row.name.clone(), |_| None, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn what_is_hardly_more_than_a_guess_is_marked() {
    let mut machine = two().finish(group, |_| None);
    let text = table(&machine);
    assert!(!text.contains('~'), "{text}");
    let known = |machine: &mut Machine, most| {
        let ten_s = AGES_NS.iter().position(|&age| age == 10 * S).unwrap();
        let idle = &mut machine.processes[0].ages.as_mut().unwrap().idle[ten_s];
        (idle.least, idle.most) = (900, most);
    };
    // Of 1010 resident pages 5 % are 50.5.
    known(&mut machine, 950);
    assert!(!table(&machine).contains('~'));
    known(&mut machine, 951);
    let text = table(&machine);
    let line = text.lines().find(|line| line.contains("redis")).unwrap();
    assert!(line.contains(" 3.52 MiB  ~89% ") && line.len() <= 80, "{line}");
    assert!(text.contains("~: estimated") && text.matches('~').count() == 2, "{text}");
}

#[test]
fn columns_are_of_one_age_and_of_a_second_where_no_more_is_known() {
    let short = || {
        let mut machine = two();
        for known in machine.processes.values_mut() {
            known.ages.as_mut().unwrap().idle.truncate(1);
        }
        let together = machine.together.as_mut().unwrap();
        for ages in together.owned.iter_mut().flat_map(|owned| [&mut owned.ages, &mut owned.mapped]) {
            ages.idle.truncate(1);
        }
        together.ages.idle.truncate(1);
        machine
    };
    let machine = short().finish(group, |_| None);
    assert_eq!(machine.longest_ns(), Some(S));
    let text = table(&machine);
    assert!(text.contains("COLD: not accessed for 1 s. USED: accessed within 1 s."), "{text}");
    let mut machine = two().finish(group, |_| None);
    assert_eq!(machine.longest_ns(), Some(10 * S));
    machine.most_age_ns = Some(5 * S);
    assert_eq!(machine.longest_ns(), Some(S), "not longer than was asked for");
    let mut machine = short();
    machine.processes.clear();
    machine.together = None;
    let text = table(&machine.finish(group, |_| None));
    assert!(text.contains("COLD, USED: not known yet."), "{text}");
}

#[test]
fn without_frames_pages_count_for_each() {
    let mut machine = two();
    machine.together = None;
    let machine = machine.finish(|_| None, |_| None);
    assert_eq!((machine.shared, machine.total.rss), (Shared::CountedForEachTarget, Some(bytes(1510))));
    let groups: Vec<_> = machine.groups.iter().map(|row| (&*row.name, &row.cgroup, row.processes)).collect();
    assert_eq!(groups, [("unknown", &None, 2)], "a group that is not known is no group's");
}

#[test]
fn rows_are_sorted_by_what_is_asked_for() {
    let mut machine = two().finish(group, |_| None);
    let mut names = |order| {
        machine.sort(order);
        machine.processes.iter().map(|row| row.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(Order::Name), ["nginx", "redis"]);
    assert_eq!(names(Order::Cold), ["redis", "nginx"]);
    assert_eq!(names(Order::WorkingSet), ["nginx", "redis"], "200 pages and 100");
    assert_eq!(names(Order::Rss), ["redis", "nginx"]);
}

/// A node that has watched for a minute: who began meanwhile has nothing that is idle for so long, and of who was found late it is known what
/// was accessed lately.
#[test]
fn columns_add_up_to_the_total_whenever_who_came() {
    let mut machine = MachineBuilder::default();
    let minute = AGES_NS.iter().position(|&age| age == 60 * S).unwrap() + 1;
    let old = ages(1000, &vec![900; minute], 0);
    let mut begun = ages(500, &[450, 450], 0);
    begun.longer = vec![IdlePages::default(); AGES_NS.len() - 2];
    let found = ages(200, &[150, 140], 0);
    let all = [("old", old), ("begun", begun), ("found", found)];
    for (index, (name, ages)) in (0..).zip(&all) {
        machine.event(&target(index, name)).unwrap();
        let frame = page_frame(index, 20);
        let mappings = vec![MappingPages { range: frame.mappings[0].range, ages: ages.clone() }];
        machine.event(&Event::Pages(PageFrame { mappings, ..frame })).unwrap();
    }
    machine.event(&together((0..).zip(all.iter().map(|(_, ages)| ages.clone())).collect())).unwrap();
    let path = |pid| Some(format!("/{pid}"));
    let machine = machine.finish(path, |_| None);
    let known = machine.groups.iter().map(|row| row.ages.as_ref().unwrap().idle.len());
    assert_eq!(known.collect::<Vec<_>>(), [minute, 2, 2], "as long as they were watched");
    let mut machine = machine.extended();
    assert_eq!(machine.longest_ns(), Some(60 * S));
    for rows in [&machine.processes, &machine.groups] {
        let columns = |row: &Row| {
            let parts = row.in_sums(60 * S).unwrap();
            [parts.cold, parts.accessed, parts.not_resolved, parts.not_observable].map(|bytes| bytes / 4096)
        };
        assert_eq!(rows.iter().map(columns).collect::<Vec<_>>(), [[900, 100, 0, 0], [0, 500, 0, 0], [0, 60, 140, 0]]);
        assert_eq!(columns(&machine.total), [900, 660, 140, 0]);
        let known = rows.iter().map(|row| row.divided(60 * S).map(|divided| divided.cold / 4096));
        assert_eq!(known.collect::<Vec<_>>(), [Some(900), Some(0), None], "what is not known is no zero");
    }
    assert!(table(&machine).contains("COLD -: not watched for so long"), "{}", table(&machine));
    machine.most_age_ns = Some(S);
    assert_eq!(
        machine.processes[2].divided(machine.longest_ns().unwrap()).map(|divided| divided.cold),
        Some(bytes(150))
    );
}

#[test]
fn the_table_fits_the_screen() {
    let mut machine = two();
    machine.event(&target(2, &"x".repeat(300))).unwrap();
    let mut machine = machine.finish(group, |_| None);
    machine.sort(Order::Cold);
    for (columns, width) in
        [(Columns::Processes, 80), (Columns::Groups, 80), (Columns::Processes, 120), (Columns::Groups, 96)]
    {
        let mut out = Vec::new();
        write_table(&machine, columns, width, |row| row.name.clone(), |_| Some(7 * MIB), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let table: Vec<&str> = text.lines().take_while(|line| !line.starts_with("COLD:")).collect();
        assert!(table.iter().all(|line| line.chars().count() <= width), "{text}");
        assert!(text.contains("89%") && text.contains("3.52 MiB") && text.contains("10 s"), "{text}");
        assert_eq!(text.contains("7.00 MiB"), columns == Columns::Groups && width >= 96, "{text}");
        assert!(text.contains("1 process has not been watched for long enough"), "{text}");
    }
}

#[test]
fn json_has_a_line_for_each_and_null_for_what_is_not_known() {
    #[derive(Default, serde::Serialize)]
    struct More {
        #[serde(skip_serializing_if = "Option::is_none")]
        unit: Option<&'static str>,
    }
    let machine = two().finish(group, |_| None);
    let mut out = Vec::new();
    write_json(&machine, (true, true), |_| More { unit: Some("u") }, &mut out).unwrap();
    let lines: Vec<serde_json::Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["process", "process", "cgroup", "cgroup", "total"]);
    assert_eq!(
        (&lines[0]["pid"], &lines[0]["name"], &lines[0]["cgroup"]),
        (&100.into(), &"redis".into(), &"/a".into())
    );
    assert_eq!(lines[0]["rss_bytes"], 100 * MIB);
    assert_eq!((&lines[2]["unit"], lines[0].get("unit")), (&"u".into(), None));
    let cold = lines[4]["cold"].as_array().unwrap();
    assert_eq!((&cold[0]["for_ns"], &cold[0]["bytes"]), (&(10 * S).into(), &bytes(1000).into()));
    assert!(cold[3]["bytes"].is_null(), "nobody has watched for half an hour");
    assert!(cold[3]["unresolved_bytes"].is_null());
    assert_eq!(lines[4]["working_set"][1]["bytes"], bytes(300));
    assert_eq!(lines[4]["unobservable_bytes"], bytes(10));
}

#[test]
fn json_adds_up_for_each_time() {
    let mut machine = two().finish(group, |_| None);
    let ages = machine.total.ages.as_mut().unwrap();
    let idle = |pages, unresolved| IdlePages { pages, least: pages, most: pages + unresolved, unresolved };
    ages.idle = AGES_NS.iter().map(|&age| if age < 60 * S { idle(700, 40) } else { idle(500, 150) }).collect();
    let mut out = Vec::new();
    write_json(&machine, (false, false), |_| (), &mut out).unwrap();
    let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let of = |at: &serde_json::Value, name: &str| at[name].as_u64().unwrap();
    assert_eq!(of(&line, "unresolved_bytes"), bytes(40), "of 10 s");
    for (cold, used) in [(0, 1), (1, 2), (2, 3)] {
        let (cold, used) = (&line["cold"][cold], &line["working_set"][used]);
        assert_eq!(cold["for_ns"], used["within_ns"]);
        let parts = of(cold, "bytes") + of(used, "bytes") + of(cold, "unresolved_bytes");
        assert_eq!(parts + of(&line, "unobservable_bytes"), of(&line, "rss_bytes"), "{line}");
    }
    assert_eq!(line["cold"][1]["unresolved_bytes"], bytes(150));
}

#[test]
fn who_began_just_now_tells_of_nearly_all_once_it_has_walked_all_twice() {
    let machine = |not_watched, unresolved| {
        let mut machine = two().finish(group, |_| None);
        (machine.total.processes, machine.total.not_watched) = (40, not_watched);
        machine.total.ages.iter_mut().for_each(|ages| ages.idle[0].unresolved = unresolved);
        machine
    };
    // 1300 pages can be seen.
    assert!(machine(2, 26).is_of_nearly_all());
    assert!(!machine(3, 0).is_of_nearly_all(), "more than one in twenty");
    assert!(!machine(0, 27).is_of_nearly_all(), "more than one page in fifty");
    let each = Machine { shared: Shared::CountedForEachTarget, ..machine(0, 0) };
    assert!(!each.is_of_nearly_all(), "shared pages are not known yet");
    let nothing = MachineBuilder::default().finish(group, |_| None);
    assert!(!nothing.is_of_nearly_all());
}
