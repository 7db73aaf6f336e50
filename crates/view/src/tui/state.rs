//! What is known of a run while it goes on, and what the user looks at.

use super::Command;
use super::history::History;
use super::machine::MachineView;
use super::model::{Model, Order};
use super::selection::Selection;
use crate::heat::terminal::Colours;
use crate::machine::Tree;
use crate::overview::TargetOverview;
use isotherm_core::event::{Event, MonitorStats, RunInfo};
use isotherm_core::history::together_frame::TogetherFrame;
use isotherm_core::target::{Footprint, TargetEnd, TargetInfo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Stats over this time make the present cost, ns.
const COST_WINDOW_NS: u64 = 10_000_000_000;

/// A target while it is watched.
#[derive(Debug)]
pub(crate) struct TargetState {
    /// Whose it is, and since when.
    pub overview: TargetOverview,
    pub history: History,
    pub footprint: Option<Footprint>,
}

impl TargetState {
    /// Whether it has ended for good.
    pub(super) fn has_exited(&self) -> bool {
        matches!(self.overview.ended, Some((_, TargetEnd::Exited)))
    }
}

#[derive(Debug)]
pub struct Top {
    pub(super) colours: Colours,
    pub(super) run: Option<RunInfo>,
    /// By their index: those that live, and the one that is shown.
    pub(super) targets: BTreeMap<u32, TargetState>,
    pub(super) stats: VecDeque<MonitorStats>,
    /// All targets together, where pages that they share are known.
    pub(super) together: Option<TogetherFrame>,
    /// The index of the one that is shown, or would be.
    pub(super) current: Option<u32>,
    /// Whether the user has chosen something: then the view stays with its target.
    pub(super) chosen: bool,
    pub(super) order: Order,
    pub(super) selection: Selection,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// Why nothing more comes.
    pub(super) ended: Option<String>,
    pub(super) model: Option<Model>,
    /// The whole machine, where that is watched.
    pub(super) machine: Option<MachineView>,
    /// Whether one of its processes is looked at.
    pub(super) in_process: bool,
}

impl Top {
    /// A view without any target yet.
    pub fn new(colours: Colours) -> Self {
        Self {
            colours,
            run: None,
            targets: BTreeMap::new(),
            stats: VecDeque::new(),
            together: None,
            current: None,
            chosen: false,
            order: Order::Heat,
            selection: Selection::default(),
            paused: false,
            help: false,
            ended: None,
            model: None,
            machine: None,
            in_process: false,
        }
    }

    /// A view of the whole machine, which begins with its control groups.
    pub fn machine(colours: Colours) -> Self {
        Self { machine: Some(MachineView::new()), ..Self::new(colours) }
    }

    /// Takes new figures of the machine, and what groups are called by their paths; not while paused.
    pub fn show_machine(&mut self, tree: Tree, labels: BTreeMap<String, String>) {
        if let Some(machine) = self.machine.as_mut().filter(|_| !self.paused) {
            machine.set(tree, labels);
        }
    }

    /// The machine, where its screen is the one shown.
    pub(super) fn machine_shown(&self) -> Option<&MachineView> {
        self.machine.as_ref().filter(|_| !self.in_process)
    }

    /// Takes an event of the run.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Run(run) => self.run = Some(run.clone()),
            Event::Target(info) => self.target(info.target).overview.info = info.clone(),
            Event::Mappings { target, .. } => self.target(*target).history.add(event),
            Event::Snapshot(s) => {
                let t = self.target(s.target);
                if t.overview.snapshots == 0 {
                    t.overview.start_ns = s.start_ns;
                }
                t.overview.snapshots += 1;
                t.overview.end_ns = s.end_ns;
                t.overview.info.pid = t.overview.info.pid.or(s.pid);
                t.history.add(event);
            }
            Event::Stats(stats) => {
                self.stats.push_back(*stats);
                let oldest = stats.time_ns.saturating_sub(COST_WINDOW_NS);
                while self.stats.len() > 2 && self.stats.front().is_some_and(|s| s.time_ns < oldest) {
                    self.stats.pop_front();
                }
            }
            Event::Footprint(f) => self.target(f.target).footprint = Some(*f),
            Event::Pages(f) => self.target(f.target).history.add(event),
            Event::Together(f) => self.together = Some(f.clone()),
            Event::End { time_ns, target, why } => {
                // It is reported anew where several are left.
                self.together = None;
                let t = self.target(*target);
                match why {
                    TargetEnd::Exited => {
                        t.overview.ended = Some((*time_ns, *why));
                        self.forget_ended();
                    }
                    TargetEnd::Replaced => {
                        t.history.clear();
                        t.overview.snapshots = 0;
                    }
                }
            }
        }
    }

    fn target(&mut self, target: u32) -> &mut TargetState {
        self.current.get_or_insert(target);
        self.targets.entry(target).or_insert_with(|| {
            let info = TargetInfo { target, pid: None, name: String::new() };
            let overview = TargetOverview { info, snapshots: 0, start_ns: 0, end_ns: 0, ended: None };
            TargetState { overview, history: History::default(), footprint: None }
        })
    }

    /// Forgets who has ended and is not looked at: of a machine where programs come and go they would be ever more.
    pub(super) fn forget_ended(&mut self) {
        let shown = self.current.filter(|_| self.machine_shown().is_none());
        self.targets.retain(|target, t| Some(*target) == shown || !t.has_exited());
        if self.current.is_none_or(|target| !self.targets.contains_key(&target)) {
            self.current = self.targets.keys().next().copied();
        }
    }

    /// Turns to the largest target until the user chooses one: a parent process often does nothing. It must be larger
    /// by a quarter than the one shown, so that the view does not go back and forth.
    pub(super) fn turn_to_largest(&mut self) {
        let size = |t: &TargetState| if t.has_exited() { 0 } else { t.footprint.map_or(0, |f| f.rss) };
        let Some((&largest, t)) = self.targets.iter().max_by_key(|(target, t)| (size(t), Reverse(**target))) else {
            return;
        };
        let shown = self.current.and_then(|target| self.targets.get(&target)).map_or(0, size);
        if !self.chosen && size(t) > shown + shown / 4 {
            self.current = Some(largest);
            self.selection = Selection::default();
        }
    }

    /// Nothing more will come; the last picture stays.
    pub fn ended(&mut self, why: &str) {
        self.ended = Some(why.to_owned());
    }

    /// Does what a key asks for. Returns whether to leave.
    pub fn command(&mut self, command: Command) -> bool {
        match command {
            Command::Quit => return true,
            Command::Pause => self.paused = !self.paused,
            Command::Help => self.help = !self.help,
            Command::Back if self.help => self.help = false,
            command if self.machine_shown().is_some() => {
                if let Some(pid) = self.machine.as_mut().and_then(|machine| machine.command(command)) {
                    self.look_at(pid);
                }
            }
            Command::Sort => {
                self.order = self.order.next();
                if let Some(model) = &mut self.model {
                    model.sort(self.order);
                    self.selection.follow(&model.rows);
                }
            }
            Command::Up => self.select(self.selection.row().saturating_sub(1)),
            Command::Down => self.select(self.selection.row() + 1),
            Command::NextTarget => self.switch(1),
            Command::PreviousTarget => self.switch(self.targets.len().saturating_sub(1)),
            Command::Zoom => {
                self.select(self.selection.row());
                self.selection.toggle_zoom();
            }
            Command::Back if self.selection.is_zoomed() => self.selection.toggle_zoom(),
            Command::Back => self.in_process = false,
        }
        false
    }

    /// Turns to a process that still runs.
    fn look_at(&mut self, pid: u32) {
        let found = self.targets.iter().rfind(|(_, t)| t.overview.info.pid == Some(pid) && !t.has_exited());
        if let Some((&target, _)) = found {
            self.in_process = true;
            self.turn_to(target);
        }
    }

    fn select(&mut self, row: usize) {
        self.selection.choose(row, self.model.as_ref().map_or(&[], |m| &m.rows));
        self.chosen = true;
    }

    /// The target so many places further on, and round.
    fn switch(&mut self, by: usize) {
        let places = self.targets.len();
        let next = (self.position() + by).checked_rem(places).and_then(|at| self.targets.keys().nth(at).copied());
        if let Some(target) = next {
            self.turn_to(target);
        }
    }

    /// Where the one that is shown stands among the targets.
    pub(super) fn position(&self) -> usize {
        self.targets.keys().take_while(|target| self.current.is_some_and(|current| **target < current)).count()
    }

    /// Another target is shown.
    fn turn_to(&mut self, target: u32) {
        self.current = Some(target);
        self.chosen = true;
        self.selection = Selection::default();
        self.model = None;
    }
}
