//! What a record is about: run, targets, duration. The first pass of most reports.

use crate::error::ViewError;
use crate::keyed::Keyed;
use crate::names;
use crate::replay::Replay;
use isotherm_core::event::{Event, RunInfo};
use isotherm_core::target::{TargetEnd, TargetInfo};

/// A target and how much of it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetOverview {
    /// Index, process and name.
    pub info: TargetInfo,
    pub snapshots: u64,
    /// Begin of the first snapshot, ns.
    pub start_ns: u64,
    /// End of the last snapshot, ns.
    pub end_ns: u64,
    /// When and why it ended, if it did while being recorded.
    pub ended: Option<(u64, TargetEnd)>,
}

impl TargetOverview {
    /// `redis-server *:6379 (pid 42)`, `target 3 (pid 43)` for a nameless one.
    pub fn title(&self) -> String {
        title(&self.info)
    }
}

/// What a record says, which is empty where it does not know.
pub(crate) fn told(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// A target's name and process for people. The command keeps its arguments and loses its folder.
pub fn title(info: &TargetInfo) -> String {
    let name = match info.name.split_once(' ') {
        Some((program, rest)) => format!("{} {rest}", names::short(program)),
        None => names::short(&info.name).to_owned(),
    };
    let name = if name.is_empty() { format!("target {}", info.target) } else { name };
    match info.pid {
        Some(pid) => format!("{name} (pid {pid})"),
        None => name,
    }
}

/// What a record is about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overview {
    /// How it was recorded; `None` for a record that does not tell.
    pub run: Option<RunInfo>,
    /// Targets with at least one snapshot, by index.
    pub targets: Vec<TargetOverview>,
    /// Begin of the first snapshot of any target, ns.
    pub start_ns: u64,
    /// End of the last snapshot of any target, ns.
    pub end_ns: u64,
}

impl Overview {
    /// Reads all events once. A record without any snapshot is an error.
    pub fn read(events: &(impl Replay + ?Sized)) -> Result<Self, ViewError> {
        let mut run = None;
        let mut targets = Keyed::new();
        events.replay(&mut |event| {
            match event {
                Event::Run(info) if run.is_none() => run = Some(info.clone()),
                Event::Target(info) => entry(&mut targets, info.target).info = info.clone(),
                Event::Snapshot(s) => {
                    let t = entry(&mut targets, s.target);
                    if t.snapshots == 0 {
                        t.start_ns = s.start_ns;
                    }
                    t.snapshots += 1;
                    t.end_ns = t.end_ns.max(s.end_ns);
                    t.info.pid = t.info.pid.or(s.pid);
                }
                Event::End { time_ns, target, why } => entry(&mut targets, *target).ended = Some((*time_ns, *why)),
                _ => {}
            }
            Ok(())
        })?;
        let mut targets = targets.into_items();
        targets.retain(|t| t.snapshots > 0);
        targets.sort_by_key(|t| t.info.target);
        let start_ns = targets.iter().map(|t| t.start_ns).min().ok_or(ViewError::NoSnapshot)?;
        let end_ns = targets.iter().map(|t| t.end_ns).max().unwrap_or(start_ns);
        Ok(Self { run, targets, start_ns, end_ns })
    }

    /// The targets to report on: `wanted`, or all.
    pub fn select(&self, wanted: Option<u32>) -> Result<Vec<&TargetOverview>, ViewError> {
        let chosen: Vec<_> = self.targets.iter().filter(|t| wanted.is_none_or(|w| w == t.info.target)).collect();
        match (chosen.is_empty(), wanted) {
            (true, Some(target)) => {
                Err(ViewError::NoTarget { target, have: self.targets.iter().map(|t| t.info.target).collect() })
            }
            _ => Ok(chosen),
        }
    }
}

fn entry(targets: &mut Keyed<u32, TargetOverview>, target: u32) -> &mut TargetOverview {
    targets.entry(target, || {
        let info = TargetInfo { target, pid: None, name: String::new() };
        TargetOverview { info, snapshots: 0, start_ns: 0, end_ns: 0, ended: None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{AGGR_NS, BASE_NS, small_record, snapshot};

    #[test]
    fn a_small_record() {
        let o = Overview::read(&small_record(30)).expect("has snapshots");
        assert_eq!((o.start_ns, o.end_ns), (BASE_NS, BASE_NS + 30 * AGGR_NS));
        assert_eq!(o.targets.len(), 1);
        assert_eq!(o.targets[0].title(), "server --port 1 (pid 4242)");
        assert_eq!(o.select(None).map(|t| t.len()).ok(), Some(1));
        assert!(matches!(o.select(Some(3)), Err(ViewError::NoTarget { target: 3, .. })));
    }

    #[test]
    fn no_snapshot_is_an_error() {
        assert!(matches!(Overview::read(&small_record(0)), Err(ViewError::NoSnapshot)));
    }

    #[test]
    fn many_targets_are_told_apart_and_in_order() {
        let count = 3000;
        let mut events = Vec::new();
        for target in (0..count).rev() {
            events.push(Event::Target(TargetInfo {
                target,
                pid: Some(target),
                name: format!("/bin/program {target}"),
            }));
            // Every third one is gone before anything is known of it.
            let snapshots = if target % 3 == 0 { 0 } else { 2 };
            events.extend((0..snapshots).map(|i| Event::Snapshot(snapshot(target, i, Vec::new()))));
            events.push(Event::End { time_ns: u64::from(target), target, why: TargetEnd::Exited });
        }
        let targets = Overview::read(&events).expect("has snapshots").targets;
        let numbers: Vec<u32> = targets.iter().map(|t| t.info.target).collect();
        assert_eq!(numbers, (0..count).filter(|t| t % 3 != 0).collect::<Vec<_>>());
        for t in &targets {
            let number = t.info.target;
            assert_eq!(t.title(), format!("program {number} (pid {number})"));
            assert_eq!((t.snapshots, t.ended), (2, Some((u64::from(number), TargetEnd::Exited))));
        }
    }
}
