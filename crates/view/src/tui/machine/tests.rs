use crate::heat::terminal::Colours;
use crate::machine::MachineBuilder;
use crate::testdata::{MIB, paged_record};
use crate::tui::Command;
use crate::tui::state::Top;
use isotherm_core::event::{Event, Subscriber};
use isotherm_core::target::{Footprint, TargetInfo};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::collections::BTreeMap;

/// A machine of the process of a record, 4242, and of another one of which only its size is known.
fn machine() -> Top {
    let mut top = Top::machine(Colours::None);
    let mut builder = MachineBuilder::default();
    let mut events = paged_record(1, 20);
    let name = "odd \u{1b}[31m".to_owned();
    events.push(Event::Target(TargetInfo { target: 1, pid: Some(77), name }));
    let footprint = Footprint { time_ns: 1, target: 1, vsz: 9 * MIB, rss: 3 * MIB, swap: None };
    events.push(Event::Footprint(footprint));
    for event in &events {
        top.event(event);
        builder.event(event).unwrap();
    }
    let group_of = |pid| Some(if pid == 77 { "/user.slice" } else { "/docker/0123" }.to_owned());
    let tree = builder.tree(group_of, |_| None);
    top.show_machine(tree, BTreeMap::from([("/docker/0123".to_owned(), "redis".to_owned())]));
    top
}

/// What the screen shows, line by line.
fn screen(top: &mut Top, width: u16, height: u16) -> Vec<String> {
    let (rows, cols) = top.heat_cells(width, height);
    top.refresh(rows, cols);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| top.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).filter_map(|x| buffer.cell((x, y))).map(|c| c.symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

/// The first words of the lines of the table, the total last.
fn names(top: &mut Top) -> Vec<String> {
    let lines = screen(top, 80, 20);
    let table = lines[3..].iter().take_while(|line| !line.is_empty() && !line.starts_with("q quit"));
    table.map(|line| line.chars().take(34).collect::<String>().trim_end().to_owned()).collect()
}

#[test]
fn groups_open_down_to_the_heatmap_of_a_process() {
    let mut top = machine();
    assert_eq!(names(&mut top), ["+ docker", "+ user.slice", "total"]);
    assert!(!top.command(Command::Zoom));
    assert_eq!(names(&mut top), ["- docker", "  + redis", "+ user.slice", "total"]);
    top.command(Command::Down);
    top.command(Command::Zoom);
    assert!(names(&mut top)[2].starts_with("      4242 "), "{:?}", names(&mut top));
    top.command(Command::Down);
    top.command(Command::Zoom);
    let heatmap = screen(&mut top, 80, 24).join("\n");
    assert!(heatmap.contains("working set") && heatmap.contains("MAPPING"), "{heatmap}");
    top.command(Command::Back);
    assert_eq!(names(&mut top).len(), 5, "back to what was open");
    top.command(Command::Up);
    top.command(Command::Zoom);
    assert_eq!(names(&mut top), ["- docker", "  + redis", "+ user.slice", "total"], "closed again");
}

#[test]
fn names_cannot_send_commands_and_what_is_not_known_is_no_zero() {
    let mut top = machine();
    top.command(Command::Down);
    top.command(Command::Zoom);
    let lines = screen(&mut top, 80, 20);
    assert!(lines.iter().all(|line| line.chars().count() <= 80 && !line.contains('\u{1b}')));
    let odd = lines.iter().find(|line| line.contains("77 odd \\u{1b}[31m")).unwrap();
    let figures: Vec<&str> = odd.split_whitespace().rev().take(6).collect();
    assert_eq!(figures, ["-", "-", "-", "-", "MiB", "3.00"]);
}

#[test]
fn what_is_chosen_stays_chosen_when_the_order_changes() {
    let mut top = machine();
    top.command(Command::Down);
    for (order, heading) in [("used", "USED*"), ("rss", "RSS*"), ("name", "NAME*"), ("cold", "COLD*")] {
        top.command(Command::Sort);
        let lines = screen(&mut top, 80, 20);
        assert!(lines[2].contains(heading) && lines[19].contains(&format!("sort: {order}")), "{lines:#?}");
    }
    top.command(Command::Zoom);
    assert!(names(&mut top).iter().any(|line| line == "- user.slice"));
}

#[test]
fn an_end_is_said_and_a_paused_picture_stays() {
    let mut top = machine();
    top.command(Command::Pause);
    top.show_machine(crate::machine::Tree::default(), BTreeMap::new());
    assert_eq!(names(&mut top).len(), 3, "paused");
    assert!(screen(&mut top, 80, 20)[0].contains("PAUSED"));
    top.command(Command::Pause);
    top.show_machine(crate::machine::Tree::default(), BTreeMap::new());
    assert_eq!(names(&mut top).len(), 0);
    top.ended("every target has ended");
    assert!(screen(&mut top, 80, 20)[0].contains("every target has ended"));
}
