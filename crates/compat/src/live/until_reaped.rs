//! How long a target lasts: in the kernel, until somebody has waited for its process. A program that starts DAMON on a
//! child of its own relies on it: until it has looked, the kdamond is there.

use isotherm_core::addr::AddrRange;
use isotherm_core::bits::{Seen, TableBits, Window};
use isotherm_core::history::pages::PageHistory;
use isotherm_core::mapping::Mapping;
use isotherm_core::source::{AccessSource, Clear, Cost, SourceError};
use isotherm_core::target::{Footprint, Start, TargetId, TargetInfo};
use isotherm_linux::proc::ProcessDir;
use isotherm_linux::proc::stat::Stat;
use std::collections::BTreeMap;

/// A source whose targets last until their processes have been waited for. Of one that has exited nothing is present
/// any more, at the addresses at which it had its mappings.
#[derive(Debug)]
pub(super) struct UntilReaped<S> {
    source: S,
    /// `None`: they last as long as the source says.
    processes: Option<BTreeMap<TargetId, Known>>,
}

#[derive(Debug)]
struct Known {
    pid: u32,
    start_ticks: u64,
    mappings: Vec<Mapping>,
}

impl Known {
    /// Whether the process's entry is still there: a pid is given to nobody else before it goes.
    fn is_left(&self) -> bool {
        Stat::read(&ProcessDir::live(self.pid)).is_ok_and(|stat| stat.start_ticks == self.start_ticks)
    }
}

impl<S> UntilReaped<S> {
    pub(super) const fn new(source: S) -> Self {
        Self { source, processes: Some(BTreeMap::new()) }
    }

    /// The source alone: where all processes are watched, many end at any time that nobody waits for soon.
    pub(super) const fn never(source: S) -> Self {
        Self { source, processes: None }
    }

    pub(super) const fn inner(&mut self) -> &mut S {
        &mut self.source
    }

    /// Of targets with other ids nothing is left from now on: they are none any more.
    pub(super) fn keep(&mut self, targets: &[TargetId]) {
        if let Some(processes) = &mut self.processes {
            processes.retain(|target, _| targets.contains(target));
        }
    }

    /// The source's answer, or that there was nothing of a process that has exited and is left.
    fn or_nothing<T>(
        &mut self,
        target: TargetId,
        answer: Result<T, SourceError>,
        nothing: impl FnOnce(&Known) -> T,
    ) -> Result<T, SourceError> {
        let Err(SourceError::Gone { .. }) = answer else { return answer };
        let Some(processes) = &mut self.processes else { return answer };
        match processes.get(&target) {
            Some(known) if known.is_left() => Ok(nothing(known)),
            _ => {
                processes.remove(&target);
                answer
            }
        }
    }
}

fn clear(windows: &mut [Window]) {
    windows.iter_mut().for_each(|window| window.seen = Seen { leaf_shift: 12, ..Seen::default() });
}

impl<S: AccessSource> AccessSource for UntilReaped<S> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        let new = self.source.poll_targets()?;
        if let Some(processes) = &mut self.processes {
            for info in &new {
                let Some(pid) = info.pid else { continue };
                if let Ok(Stat { start_ticks, .. }) = Stat::read(&ProcessDir::live(pid)) {
                    processes.insert(info.target, Known { pid, start_ticks, mappings: Vec::new() });
                }
            }
        }
        Ok(new)
    }

    fn may_gain_targets(&self) -> bool {
        self.source.may_gain_targets()
    }

    fn start(&mut self, target: TargetId) -> Option<Start> {
        self.source.start(target)
    }

    fn cpu_ns(&mut self, target: TargetId) -> Option<u64> {
        self.source.cpu_ns(target)
    }

    fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        self.source.footprint(target, now_ns)
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        let answer = self.source.mappings(target, out);
        if answer.is_ok()
            && let Some(known) = self.processes.as_mut().and_then(|processes| processes.get_mut(&target))
        {
            known.mappings.clone_from(out);
        }
        self.or_nothing(target, answer, |known| out.clone_from(&known.mappings))
    }

    fn populated(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<AddrRange>,
    ) -> Result<(), SourceError> {
        let answer = self.source.populated(target, ranges, out);
        self.or_nothing(target, answer, |_| out.clear())
    }

    fn arm(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        let answer = self.source.arm(target, windows);
        self.or_nothing(target, answer, |_| clear(windows))
    }

    fn look(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        let answer = self.source.look(target, windows);
        self.or_nothing(target, answer, |_| clear(windows))
    }

    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        let answer = self.source.scan(target, ranges, clear, sink);
        self.or_nothing(target, answer, |_| ())
    }

    fn frames(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        one_in: u32,
        sink: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, SourceError> {
        let answer = self.source.frames(target, ranges, one_in, sink);
        self.or_nothing(target, answer, |_| true)
    }

    fn cost(&self) -> Cost {
        self.source.cost()
    }

    fn page_history(&self, target: TargetId) -> Option<&PageHistory> {
        self.source.page_history(target)
    }

    fn continue_history(&mut self, target: TargetId, history: PageHistory) {
        self.source.continue_history(target, history);
    }

    fn ask_age(&mut self, age_ns: u64) {
        self.source.ask_age(age_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// Sees one process, in which everything was accessed.
    struct One {
        pid: u32,
        reported: bool,
        ended: bool,
    }

    impl One {
        fn answer(&self) -> Result<(), SourceError> {
            if self.ended { Err(SourceError::Gone { target: 0, pid: self.pid }) } else { Ok(()) }
        }
    }

    impl AccessSource for One {
        fn name(&self) -> &'static str {
            "one"
        }

        fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
            let info = TargetInfo { target: 0, pid: Some(self.pid), name: String::new() };
            Ok(if std::mem::replace(&mut self.reported, true) { Vec::new() } else { vec![info] })
        }

        fn mappings(&mut self, _: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
            out.clear();
            self.answer()?;
            out.push(Mapping::anon(4096, 8192));
            Ok(())
        }

        fn arm(&mut self, _: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
            self.look(0, windows)
        }

        fn look(&mut self, _: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
            windows.iter_mut().for_each(|w| w.seen = Seen { present: 1, accessed: 1, blind: 0, leaf_shift: 12 });
            self.answer()
        }

        fn scan(
            &mut self,
            _: TargetId,
            _: &[AddrRange],
            _: Clear<'_>,
            _: &mut dyn FnMut(&TableBits),
        ) -> Result<(), SourceError> {
            self.answer()
        }

        fn cost(&self) -> Cost {
            Cost::default()
        }
    }

    /// A process that has exited, and that nobody has waited for.
    fn exited() -> Child {
        let mut child = Command::new("sh").args(["-c", "read x"]).stdin(Stdio::piped()).spawn().unwrap();
        drop(child.stdin.take());
        let dir = ProcessDir::live(child.id());
        while !matches!(Stat::read(&dir), Ok(Stat { state: 'Z', .. })) {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn a_target_lasts_until_its_process_has_been_waited_for() {
        let mut child = exited();
        let mut source = UntilReaped::new(One { pid: child.id(), reported: false, ended: false });
        assert_eq!(source.poll_targets().unwrap().len(), 1);
        let (mut mappings, mut windows) = (Vec::new(), [Window::new(4096, 1)]);
        source.mappings(0, &mut mappings).unwrap();
        source.inner().ended = true;

        mappings.clear();
        source.mappings(0, &mut mappings).unwrap();
        assert_eq!(mappings, [Mapping::anon(4096, 8192)], "where they were");
        source.look(0, &mut windows).unwrap();
        assert_eq!((windows[0].seen.present, windows[0].seen.accessed), (0, 0), "nothing is there any more");

        child.wait().unwrap();
        assert!(matches!(source.look(0, &mut windows), Err(SourceError::Gone { .. })));
        assert!(matches!(source.mappings(0, &mut mappings), Err(SourceError::Gone { .. })));
    }

    #[test]
    fn where_all_are_watched_it_ends_with_its_process() {
        let mut child = exited();
        let mut source = UntilReaped::never(One { pid: child.id(), reported: false, ended: true });
        source.poll_targets().unwrap();
        assert!(matches!(source.arm(0, &mut [Window::new(4096, 1)]), Err(SourceError::Gone { .. })));
        child.wait().unwrap();
    }
}
