//! The agent: takes in what the engine sees, and answers those who ask.

use super::answers::{LastAnswer, SharedStatus};
use super::jumps::{Jump, Jumps, WINDOW_NS};
use super::kept::Kept;
use super::paths::GroupPaths;
use super::promotions::Promotions;
use super::refusal::nobody_may_be_watched;
use super::rules::Rules;
use super::status::{COMMAND, GroupMemory, GroupStatus, NodeFigures, NodeMachine, NodeStatus};
use super::windows::{Moment, Sources, Windows};
use crate::args::target::TargetArgs;
use crate::exit::Unsupported;
use crate::groups::Groups;
use isotherm_core::context::Operator;
use isotherm_core::event::{Event, MonitorStats, Step, Subscriber, SubscriberError};
use isotherm_core::history::frame::{PageFrame, bytes};
use isotherm_core::printable::printable;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::source::{AccessSource, Refused};
use isotherm_core::units::format_size;
use isotherm_daemon::instance::Instance;
use isotherm_daemon::sandbox::Sandbox;
use isotherm_daemon::server::Server;
use isotherm_daemon::service::{Answer, Ask, Refusal, Service};
use isotherm_linux::clock::{monotonic_ns, thread_cpu_ns, unix_us};
use isotherm_linux::notify::Notify;
use isotherm_linux::signals;
use isotherm_view::machine::{Machine, MachineBuilder, Row};
use std::path::PathBuf;

/// How long a request may wait for the loop to look, ns.
const LOOK_EVERY_NS: u64 = 200_000_000;
/// Requests fulfilled in one go: whoever asks without end does not keep the loop.
const MOST_AT_ONCE: usize = 4;
/// How often names of containers are read anew, ns.
const NAMES_EVERY_NS: u64 = 30_000_000_000;
/// Where `isotherm ps` asks for all that is known.
pub const MACHINE: &str = "/machine";

/// What can be asked of a node.
#[derive(Debug, Clone, Copy)]
pub struct NodeService;

/// All that is known of processes and groups.
#[derive(Debug, Clone, Copy)]
pub struct WholeMachine;

impl Service for NodeService {
    type Question = WholeMachine;
    type Status = SharedStatus;
    const QUESTIONS: &'static [&'static str] = &[MACHINE];

    fn read(&self, _: &str, _: &[u8]) -> Result<WholeMachine, Refusal> {
        Ok(WholeMachine)
    }
}

/// What is reported of an instance's start.
#[derive(Debug)]
pub struct About {
    /// What it watches, in a few words.
    pub words: String,
    pub target: TargetArgs,
    /// Whether this process has no CAP_SYS_PTRACE.
    pub lacks_right: bool,
    pub sandbox: Sandbox,
}

/// Sits beside the engine in its thread.
pub struct Agent {
    machine: MachineBuilder,
    groups: Groups,
    groups_ns: u64,
    paths: GroupPaths,
    stats: Option<MonitorStats>,
    cpu_budget: Option<f64>,
    jumps: Jumps,
    jumps_ns: u64,
    promotions: Promotions,
    windows: Option<Windows>,
    rules: Option<Rules>,
    kept: Option<Kept>,
    server: Option<Server<NodeService>>,
    last_status: LastAnswer<SharedStatus>,
    last_whole: LastAnswer<Result<Vec<u8>, Refusal>>,
    notify: Notify,
    alive_ns: u64,
    about: About,
    started_ns: u64,
    looked_ns: u64,
    /// Whether it has looked for what to watch, and whether it has ever found anything.
    has_looked: bool,
    has_found: bool,
    refused: Refused,
    /// Why it cannot go on.
    fault: Option<Unsupported>,
    is_asked_to_stop: bool,
}

impl Agent {
    pub fn new(server: Option<Server<NodeService>>, notify: Notify, about: About) -> Self {
        let now_ns = monotonic_ns();
        Self {
            machine: MachineBuilder::default(),
            groups: Groups::read(),
            groups_ns: now_ns,
            paths: GroupPaths::default(),
            stats: None,
            cpu_budget: None,
            jumps: Jumps::default(),
            jumps_ns: now_ns,
            promotions: Promotions::default(),
            windows: None,
            rules: None,
            kept: None,
            server,
            last_status: LastAnswer::default(),
            last_whole: LastAnswer::default(),
            notify,
            alive_ns: now_ns,
            about,
            started_ns: now_ns,
            looked_ns: now_ns,
            has_looked: false,
            has_found: false,
            refused: Refused::default(),
            fault: None,
            is_asked_to_stop: false,
        }
    }

    /// Writes a row for each control group at each window's end.
    pub fn write(&mut self, windows: Windows) {
        self.windows = Some(windows);
    }

    /// Acts by these rules. The engine must be theirs.
    pub fn act(&mut self, rules: Rules) {
        self.rules = Some(rules);
    }

    /// Goes on with the page history of an earlier node, and keeps it for a later one.
    pub fn keep(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    /// Between two turns of the loop: what is due by the clock. False: it is to end.
    pub fn after_turn(&mut self) -> anyhow::Result<bool> {
        if let Some(fault) = self.fault.take() {
            return Err(fault.into());
        }
        // With rules this is theirs.
        if self.rules.is_none() && signals::take_reload() {
            tracing::info!("SIGHUP changes nothing: there is no file of rules (--config) to read again");
        }
        let now_ns = monotonic_ns();
        self.serve(now_ns);
        if now_ns.saturating_sub(self.jumps_ns) >= WINDOW_NS {
            self.jumps_ns = now_ns;
            self.look_at_groups(now_ns);
        }
        if self.windows.as_ref().is_some_and(|windows| windows.is_due(Moment::now())) {
            self.end_window(now_ns);
        }
        if self.rules.as_ref().is_some_and(|rules| rules.is_window_over(now_ns)) {
            let machine = self.machine(now_ns);
            self.rules.iter_mut().for_each(|rules| rules.learn(&machine, &self.promotions, now_ns));
        }
        Ok(!self.is_asked_to_stop)
    }

    /// Writes what is not yet written; of `source` what is known of pages.
    pub fn finish(mut self, source: Option<&mut dyn AccessSource>) {
        self.notify.stopping();
        if let (Some(kept), Some(source)) = (self.kept.take(), source) {
            kept.write(source);
        }
        self.end_window(monotonic_ns());
        if let Some(windows) = self.windows {
            windows.finish();
        }
    }

    fn end_window(&mut self, now_ns: u64) {
        let Some(mut windows) = self.windows.take() else { return };
        let machine = self.machine(now_ns);
        let Self { promotions, groups, rules, stats, .. } = self;
        let now = Moment { unix_us: unix_us(), ns: now_ns };
        let sources =
            Sources { machine: &machine, promotions, groups, rules: rules.as_ref(), stats: stats.as_ref(), now };
        windows.end(sources);
        self.windows = Some(windows);
    }

    /// All that is known now.
    fn machine(&mut self, now_ns: u64) -> Machine {
        if now_ns.saturating_sub(self.groups_ns) >= NAMES_EVERY_NS {
            (self.groups, self.groups_ns) = (Groups::read(), now_ns);
        }
        let Self { machine, groups, paths, about, .. } = self;
        let group_of = |pid| paths.of(pid, now_ns, |pid| groups.path_of(pid));
        machine.finish(group_of, |path| groups.swapped(path, &about.target))
    }

    /// Tells of working sets that jump, and forgets groups that have gone.
    fn look_at_groups(&mut self, now_ns: u64) {
        let machine = self.machine(now_ns);
        self.promotions.keep(machine.groups.iter().filter_map(|row| row.cgroup.as_deref()));
        let used = machine.groups.iter().filter_map(|row| {
            let accessed = row.ages.as_ref()?.accessed_within(WINDOW_NS)?;
            Some((row.cgroup.as_deref()?, bytes(accessed.pages)))
        });
        for Jump { cgroup, from, to } in self.jumps.look(used) {
            let (name, from, to) = (printable(&cgroup), format_size(from), format_size(to));
            tracing::info!("working set of {name} (60 s) went from {from} to {to}");
        }
    }

    fn serve(&mut self, now_ns: u64) {
        if self.notify.watchdog_every().is_some_and(|every| u128::from(now_ns - self.alive_ns) >= every.as_nanos()) {
            self.alive_ns = now_ns;
            self.notify.alive();
        }
        for _ in 0..MOST_AT_ONCE {
            let Some((ask, responder)) = self.server.as_ref().and_then(Server::try_next) else { break };
            responder.send(match ask {
                Ask::Status => Ok(Answer::Status(Box::new(self.shared_status(now_ns)))),
                Ask::Question(WholeMachine) => self.whole(now_ns).map(Answer::Json),
                Ask::Stop => {
                    self.is_asked_to_stop = true;
                    Ok(Answer::Done("stopping".into()))
                }
            });
        }
        // Answering may take long: the loop has its time before the next one all the same.
        self.looked_ns = now_ns.max(monotonic_ns());
    }

    /// The last status if it is new enough, else how it stands now.
    fn shared_status(&mut self, now_ns: u64) -> SharedStatus {
        self.last_or_new(now_ns, |agent| &mut agent.last_status, |agent| agent.status(now_ns).into())
    }

    /// All that is known, as JSON; what was found last if it is new enough.
    fn whole(&mut self, now_ns: u64) -> Result<Vec<u8>, Refusal> {
        self.last_or_new(
            now_ns,
            |agent| &mut agent.last_whole,
            |agent| {
                let since_ns = agent.kept.as_ref().map_or(agent.started_ns, Kept::since_ns);
                let machine = agent.machine(now_ns).extended();
                let whole = NodeMachine { watched_ns: now_ns.saturating_sub(since_ns), machine };
                serde_json::to_vec(&whole).map_err(|e| Refusal::new(500, e.to_string()))
            },
        )
    }

    fn last_or_new<T: Clone>(
        &mut self,
        now_ns: u64,
        last: impl Fn(&mut Self) -> &mut LastAnswer<T>,
        make: impl FnOnce(&mut Self) -> T,
    ) -> T {
        if let Some(answer) = last(self).at(now_ns) {
            return answer;
        }
        let begun_ns = thread_cpu_ns();
        let answer = make(self);
        let cost_ns = thread_cpu_ns().saturating_sub(begun_ns);
        last(self).keep(answer.clone(), now_ns, cost_ns);
        answer
    }

    /// What was answered is not true any more.
    fn forget_answers(&mut self) {
        self.last_status.forget();
        self.last_whole.forget();
    }

    fn status(&mut self, now_ns: u64) -> NodeStatus {
        let machine = self.machine(now_ns);
        let socket = self.server.as_ref().and_then(|server| server.path().map(PathBuf::from));
        let instance = Instance::of_this_process(COMMAND, self.about.words.clone(), socket, self.started_ns, now_ns)
            .in_sandbox(&self.about.sandbox);
        let figures = NodeFigures {
            processes: machine.total.processes as u64,
            not_watched: machine.total.not_watched as u64,
            group_unknown: machine.processes.iter().filter(|row| row.cgroup.is_none()).count() as u64,
            refused: self.refused.processes,
            cpu_budget: self.cpu_budget,
            monitor_ns: self.stats.map(|stats| stats.monitor_ns),
            target_ns: self.stats.map(|stats| stats.target_ns),
        };
        let group = |row: &Row| {
            let path = row.cgroup.as_deref()?;
            let mut group = GroupStatus::of(row, self.groups.names(path), self.sizes(path), self.promotions.of(path))?;
            group.rule = self
                .rules
                .as_ref()
                .and_then(|rules| rules.status_with_cache(row, &self.promotions, &self.groups, now_ns));
            Some(group)
        };
        NodeStatus {
            instance,
            source: self.machine.source().unwrap_or_default().to_owned(),
            figures,
            rules: self.rules.as_ref().map(Rules::words),
            groups: machine.groups.iter().filter_map(group).collect(),
            total: machine.total.ages,
        }
    }

    fn count(&mut self, frame: &PageFrame) {
        let (Some(now), Some(pid)) = (frame.reaccessed.as_deref(), self.machine.pid_of(frame.target)) else { return };
        let groups = &self.groups;
        if let Some(path) = self.paths.of(pid, monotonic_ns(), |pid| groups.path_of(pid)) {
            self.promotions.count(frame.target, &path, *now);
        }
    }

    /// What the kernel counts for the group at `path`.
    fn sizes(&self, path: &str) -> GroupMemory {
        let Some(group) = self.groups.memcg(path) else { return GroupMemory::default() };
        let cache = group.cache().ok();
        GroupMemory {
            limit: group.limit().ok().flatten().map(|limit| limit.bytes),
            page_cache_active: cache.map(|cache| cache.active),
            page_cache_inactive: cache.map(|cache| cache.inactive),
            page_cache_mapped: cache.map(|cache| cache.mapped),
            ..GroupMemory::default()
        }
    }
}

impl Subscriber for Agent {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        match event {
            Event::Run(run) => {
                self.cpu_budget = run.cpu_budget;
                self.windows.iter_mut().for_each(|windows| windows.set_source(&run.source));
            }
            Event::Target(info) => {
                self.has_found = true;
                info.pid.into_iter().for_each(|pid| self.paths.forget(pid));
            }
            Event::Stats(stats) => self.stats = Some(*stats),
            Event::Pages(frame) => self.count(frame),
            Event::End { target, .. } => self.promotions.end(*target),
            _ => {}
        }
        self.kept.iter_mut().for_each(|kept| kept.event(event));
        self.machine.event(event)
    }

    fn step_with(&mut self, step: Step, now_ns: u64, source: &mut dyn AccessSource) {
        if step == Step::AfterUpdate {
            self.refused = source.refused();
            if !std::mem::replace(&mut self.has_looked, true) {
                self.fault = nobody_may_be_watched(self.has_found, self.refused, self.about.lacks_right);
                // Ready is who has found what to watch.
                if self.fault.is_none() {
                    self.notify.ready();
                }
            }
            self.kept.iter_mut().for_each(|kept| kept.recognize(source));
        }
        self.step(step, now_ns);
    }

    fn step(&mut self, _: Step, now_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns) >= LOOK_EVERY_NS {
            self.serve(now_ns);
        }
    }

    fn wanted_ns(&self) -> Option<u64> {
        Some(self.looked_ns + LOOK_EVERY_NS)
    }
}

impl Operator for Agent {
    fn between_steps(&mut self, schemes: &mut SchemeEngine, now_ns: u64) {
        let Self { rules: Some(rules), groups, paths, promotions, .. } = self else { return };
        let has_reloaded = rules.turn(schemes, groups, paths, now_ns);
        rules.back().iter().for_each(|(path, back)| promotions.count_back(path, *back));
        if has_reloaded {
            self.forget_answers();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_daemon::openmetrics::Exposition;
    use isotherm_daemon::service::Status;

    const S: u64 = 1_000_000_000;

    fn agent() -> Agent {
        let (words, target) = (String::from("some processes"), TargetArgs::default());
        let about = About { words, target, lacks_right: false, sandbox: Sandbox::default() };
        Agent::new(None, Notify::default(), about)
    }

    #[test]
    fn who_asks_again_soon_gets_the_same_answer_until_something_has_changed() {
        let (mut agent, now_ns) = (agent(), monotonic_ns());
        let status_at = |agent: &mut Agent, ns| agent.shared_status(now_ns + ns).figures.refused;
        let watched_at = |agent: &mut Agent, ns| agent.whole(now_ns + ns).unwrap();
        agent.refused.processes = 1;
        let whole = watched_at(&mut agent, 0);
        assert_eq!(status_at(&mut agent, 0), 1);
        agent.refused.processes = 2;
        assert_eq!((status_at(&mut agent, S / 2), watched_at(&mut agent, S / 2) == whole), (1, true));
        // However slow this machine is.
        let later_ns = 3600 * S;
        assert_eq!((status_at(&mut agent, later_ns), watched_at(&mut agent, later_ns) == whole), (2, false));
        agent.refused.processes = 3;
        agent.forget_answers();
        assert_eq!(status_at(&mut agent, later_ns), 3);
    }

    #[test]
    fn a_status_that_several_get_reads_like_one_of_its_own() {
        let status = agent().status(monotonic_ns());
        let metrics = |status: &dyn Fn(&mut Exposition)| {
            let mut out = Exposition::default();
            status(&mut out);
            out.finish()
        };
        let own = metrics(&|out| status.write_metrics(out));
        let json = serde_json::to_string(&status).unwrap();
        let shared = SharedStatus::from(status);
        assert!(own.contains("isotherm_node_processes"), "{own}");
        assert_eq!(
            [metrics(&|out| shared.write_metrics(out)), metrics(&|out| shared.write_metrics(out))],
            [own.clone(), own]
        );
        assert_eq!(serde_json::to_string(&shared).unwrap(), json);
    }

    #[test]
    fn the_loop_has_its_time_after_answers_that_took_long() {
        let mut agent = agent();
        let begun_ns = monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        agent.serve(begun_ns);
        assert!(agent.looked_ns >= begun_ns + 2_000_000);
    }
}
