use super::*;
use crate::heat::terminal::Colours;
use crate::testdata::{paged_record, small_record, together};
use crate::tui::Command;
use isotherm_core::event::Event;
use isotherm_core::target::TargetEnd;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn top(intervals: u64) -> Top {
    let mut top = Top::new(Colours::None);
    small_record(intervals).iter().for_each(|e| top.event(e));
    top
}

/// What the screen shows, line by line without trailing blanks.
fn screen(top: &mut Top, width: u16, height: u16) -> String {
    let (rows, cols) = top.heat_cells(width, height);
    top.refresh(rows, cols);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test terminal");
    terminal.draw(|frame| top.draw(frame)).expect("draws");
    let buffer = terminal.backend().buffer();
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
