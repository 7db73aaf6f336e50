use super::*;
use crate::heat::terminal::Colours;
use crate::testdata::{MIB, mapping, paged_record, region, run_info, small_record, snapshot, together};
use crate::tui::Command;
use isotherm_core::event::{Event, RunInfo};
use isotherm_core::mapping::MappingKind;
use isotherm_core::target::{TargetEnd, TargetInfo};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn top(intervals: u64) -> Top {
    let mut top = Top::new(Colours::None);
    small_record(intervals).iter().for_each(|e| top.event(e));
    top
}

fn drawn(top: &mut Top, width: u16, height: u16) -> Buffer {
    let (rows, cols) = top.heat_cells(width, height);
    top.refresh(rows, cols);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test terminal");
    terminal.draw(|frame| top.draw(frame)).expect("draws");
    terminal.backend().buffer().clone()
}

/// What the screen shows, line by line without trailing blanks.
fn screen(top: &mut Top, width: u16, height: u16) -> String {
    let buffer = drawn(top, width, height);
    let line = |y| (0..width).filter_map(|x| buffer.cell((x, y))).map(|c| c.symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

#[test]
fn eighty_by_twenty_four() {
    let expected = "\
server --port 1 (pid 4242)                                               20.0 s
working set 8.00 MiB, 10 % of 77.0 MiB resident   p50 4.00 MiB   p95 8.00 MiB
cold        >10 s 69.0 MiB  >1 min not yet  >5 min not yet  not seen 1.00 MiB
watching    0.5 % of a core, budget 1 %; sample 5.00 ms, 4 regions

MAPPING                            SIZE   ACCESSED      RATE     COLD>10s  HEAT*
[heap]                         16.0 MiB   4.60 MiB     100 %     5.00 MiB  ####
libdemo.so.1                   2.00 MiB   1.00 MiB       5 %            -  ###
anon                           64.0 MiB          -         -     64.0 MiB
[anon:locked]                  1.00 MiB                    not observable





 [anon:locked]                                            ?????????????????????
  libdemo.so.1                                            .====================
          anon                                            .....................
                                                          .....................
                                                          .....................
                                                          .....................
        [heap]                                            %%@%@%@%@%@%@%@%@%@%@
               1 m 04 s ago                                                 now
q quit  p pause  s sort: heat  up/down choose  t target  ? help  Enter zoom in
";
    assert_eq!(screen(&mut top(200), 80, 24), expected);
}

#[test]
fn keys_change_what_is_shown() {
    let mut t = top(50);
    let before = screen(&mut t, 80, 24);
    assert!(!t.command(Command::Sort));
    assert!(screen(&mut t, 80, 24).contains("sort: size"));
    t.command(Command::Down);
    t.command(Command::Zoom);
    let zoomed = screen(&mut t, 80, 24);
    assert!(zoomed.contains("Esc zoom out"), "{zoomed}");
    assert_eq!(t.model.as_ref().and_then(|m| m.zoomed_to.clone()).as_deref(), Some("[heap]"));
    t.command(Command::Help);
    assert!(screen(&mut t, 80, 24).contains("hold the picture"));
    t.command(Command::Back);
    t.command(Command::Back);
    (0..4).for_each(|_| assert!(!t.command(Command::Sort)));
    t.command(Command::Up);
    assert_eq!(screen(&mut t, 80, 24), before);
    assert!(t.command(Command::Quit));
}

#[test]
fn pause_holds_the_picture() {
    let mut t = top(20);
    let shown = screen(&mut t, 80, 24);
    t.command(Command::Pause);
    small_record(200).iter().skip(25).for_each(|e| t.event(e));
    let held = screen(&mut t, 80, 24);
    assert!(held.contains("PAUSED"));
    assert_eq!(held.lines().skip(1).collect::<Vec<_>>(), shown.lines().skip(1).collect::<Vec<_>>());
    t.command(Command::Pause);
    assert!(!screen(&mut t, 80, 24).contains("PAUSED"));
}

#[test]
fn the_end_of_a_target_is_told() {
    let mut t = top(20);
    t.event(&Event::End { time_ns: 1, target: 0, why: TargetEnd::Exited });
    assert!(screen(&mut t, 80, 24).contains("EXITED"));
    t.ended("every target has ended");
    assert!(screen(&mut t, 80, 24).contains("every target has ended"));
}

#[test]
fn any_size_and_no_data_work() {
    for (width, height) in [(1, 1), (20, 5), (60, 14), (61, 15), (80, 24), (213, 60)] {
        for intervals in [0, 1, 100] {
            let text = screen(&mut top(intervals), width, height);
            assert_eq!(text.lines().count(), usize::from(height));
        }
    }
    assert!(screen(&mut top(0), 80, 24).contains("waiting for the first"));
    assert!(screen(&mut top(9), 40, 10).contains("40x10 is too small"));
}

#[test]
fn switching_without_targets_does_nothing() {
    let mut t = Top::new(Colours::True);
    for c in [Command::NextTarget, Command::PreviousTarget, Command::Down, Command::Zoom, Command::Sort] {
        assert!(!t.command(c));
    }
    screen(&mut t, 80, 24);
}

#[test]
fn pages_tell_working_set_cold_memory_and_the_total() {
    let mut t = Top::new(Colours::None);
    paged_record(2, 12).iter().for_each(|e| t.event(e));
    let each = screen(&mut t, 90, 24);
    for line in [
        "working set 6.25 MiB, 8.1 % of 77.0 MiB resident   p50 5.25 MiB   p95 6.25 MiB",
        "cold        >10 s 75.8 MiB  >1 min not yet  >5 min not yet  not seen 1.00 MiB",
        "together    2 targets: working set 12.5 MiB of 166 MiB  >10 s 152 MiB  shared for each",
        "7f0000000000-7f0004000000                64.0 MiB   1.25 MiB         -     62.8 MiB",
    ] {
        assert!(each.lines().any(|l| l.starts_with(line)), "{line}\n{each}");
    }
    let narrow = screen(&mut t, 70, 24);
    let line = "cold        >10 s 75.8 MiB  >1 min not yet  not seen 1.00 MiB";
    assert!(narrow.lines().any(|l| l.trim_end() == line), "{narrow}");
    t.event(&together(2, 11));
    let once = screen(&mut t, 90, 24);
    assert!(once.contains("2 targets: working set 6.25 MiB of 83.0 MiB  >10 s 75.8 MiB  shared once"), "{once}");
}

#[test]
fn it_begins_with_the_largest_target() {
    let mut t = Top::new(Colours::None);
    for mut event in paged_record(3, 12) {
        if let Event::Footprint(f) = &mut event {
            f.rss = if f.target == 1 { 500 << 20 } else { 1 << 20 };
        }
        t.event(&event);
    }
    assert!(screen(&mut t, 80, 24).contains("(pid 4243)"), "the second one is largest");
    t.command(Command::NextTarget);
    assert!(screen(&mut t, 80, 24).contains("(pid 4244)"), "the choice of the user stays");
}

#[test]
fn the_choice_stays_on_its_mapping_and_zooms_into_that_only() {
    let mut t = top(50);
    screen(&mut t, 80, 24);
    t.command(Command::Down);
    let chosen = |t: &Top| t.model.as_ref().map(|m| m.rows[t.selection.row()].heat.name.clone());
    assert_eq!(chosen(&t).as_deref(), Some("/usr/lib/libdemo.so.1"));
    for _ in 0..5 {
        t.command(Command::Sort);
        assert_eq!(chosen(&t).as_deref(), Some("/usr/lib/libdemo.so.1"), "before it is drawn anew");
        screen(&mut t, 80, 24);
        assert_eq!(chosen(&t).as_deref(), Some("/usr/lib/libdemo.so.1"));
    }
    t.command(Command::Zoom);
    screen(&mut t, 80, 24);
    let map = t.model.as_ref().and_then(|m| m.heatmap.as_ref()).expect("a heatmap");
    assert_eq!(map.space.total(), 2 * MIB);
}

#[test]
fn the_zoom_shows_nothing_of_what_lies_between_the_pieces() {
    let mut t = Top::new(Colours::None);
    let (lib, anon) = (MappingKind::File, MappingKind::Anon);
    t.event(&Event::Run(run_info()));
    t.event(&Event::Mappings {
        time_ns: 1,
        target: 0,
        mappings: vec![
            mapping(0, MIB, lib, "/data"),
            mapping(MIB, 65 * MIB, anon, ""),
            mapping(65 * MIB, 67 * MIB, lib, "/data"),
        ],
    });
    let regions = vec![
        region(0, MIB, 20, 0),
        region(MIB, 33 * MIB, 1, 0),
        region(33 * MIB, 65 * MIB, 0, 0),
        region(65 * MIB, 67 * MIB, 20, 0),
    ];
    (0..20).for_each(|i| t.event(&Event::Snapshot(snapshot(0, i, regions.clone()))));
    screen(&mut t, 80, 24);
    let at = t.model.as_ref().and_then(|m| m.rows.iter().position(|row| row.heat.name == "/data"));
    (0..at.expect("its row")).for_each(|_| assert!(!t.command(Command::Down)));
    t.command(Command::Zoom);
    screen(&mut t, 80, 24);
    let model = t.model.as_ref().expect("a model");
    assert_eq!(model.zoomed_to.as_deref(), Some("/data"));
    let map = model.heatmap.as_ref().expect("a heatmap");
    assert_eq!(map.space.ranges().iter().map(|r| r.len() / MIB).collect::<Vec<_>>(), [1, 2]);
    assert!(map.names.iter().all(|part| part.name == "/data"), "{:?}", map.names);
}

#[test]
fn who_ended_and_is_not_shown_is_forgotten() {
    let mut t = Top::new(Colours::None);
    for target in 0..500 {
        let name = format!("/bin/sleep {target}");
        t.event(&Event::Target(TargetInfo { target, pid: Some(10 + target), name }));
        t.event(&Event::Snapshot(snapshot(target, 0, vec![region(0, MIB, 1, 0)])));
        if target != 7 {
            t.event(&Event::End { time_ns: 1, target, why: TargetEnd::Exited });
        }
    }
    let shown = screen(&mut t, 80, 24);
    assert!(shown.contains("sleep 0") && shown.contains("[1 of 2]") && shown.contains("EXITED"), "{shown}");
    t.command(Command::NextTarget);
    let shown = screen(&mut t, 80, 24);
    assert!(shown.contains("sleep 7") && !shown.contains(" of "), "{shown}");
    t.command(Command::NextTarget);
    assert!(screen(&mut t, 80, 24).contains("sleep 7"), "there is no other");
}

#[test]
fn the_working_set_is_not_known_before_pages_tell() {
    let mut t = Top::new(Colours::None);
    for mut event in paged_record(1, 3) {
        match &mut event {
            Event::Run(run) => *run = RunInfo { source: "pagetable".into(), ..run_info() },
            Event::Pages(_) => {
                let before = screen(&mut t, 90, 24);
                assert!(before.contains("working set not known yet"), "{before}");
                t.event(&event);
                assert!(screen(&mut t, 90, 24).contains("working set 5.25 MiB"), "of pages");
                return;
            }
            _ => {}
        }
        t.event(&event);
    }
    panic!("no pages");
}

#[test]
fn the_list_of_keys_fits_into_the_smallest_screen() {
    for (width, height) in [LEAST, (80, 24)] {
        let mut t = top(9);
        t.command(Command::Help);
        let shown = screen(&mut t, width, height);
        let missing = KEYS.iter().find(|key| !shown.contains(*key));
        assert_eq!(missing, None, "{shown}");
    }
}

#[test]
fn without_colours_there_are_none() {
    let drawn = drawn(&mut top(50), 80, 24);
    assert!(drawn.content.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
}

#[test]
fn wide_names_take_the_columns_that_they_have() {
    let name = "\u{5bbd}".repeat(60);
    let mut t = top(20);
    t.event(&Event::Target(TargetInfo { target: 0, pid: Some(4242), name: name.clone() }));
    let mut mappings = t.targets[&0].history.mappings().to_vec();
    mappings[0].name = name;
    t.event(&Event::Mappings { time_ns: 1, target: 0, mappings });
    let buffer = drawn(&mut t, 80, 24);
    let column = |y: u16, symbol: &str| (0..80).find(|x| buffer[(*x, y)].symbol() == symbol);
    assert_eq!(column(0, "…"), Some(70), "of the title, before the time");
    // The last digit of the sizes stands below that of their heading.
    let row = (5..14).find(|y| column(*y, "\u{5bbd}") == Some(0)).expect("its row");
    assert_eq!(column(row, "#"), column(row + 1, "#"), "the bars begin in one column");
}
