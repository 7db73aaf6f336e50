//! Tells how much host CPU time goes into simulating, so that the rest is known to be the monitor's own work.

use isotherm_core::addr::AddrRange;
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::history::pages::PageHistory;
use isotherm_core::mapping::Mapping;
use isotherm_core::source::{AccessSource, Clear, Cost, SourceError};
use isotherm_core::target::{Footprint, Start, TargetId, TargetInfo};
use isotherm_linux::clock::thread_cpu_ns;

/// A source that counts the CPU time spent inside of another.
#[derive(Debug)]
pub struct Metered<S> {
    inner: S,
    inside_ns: u64,
}

impl<S> Metered<S> {
    /// Counts the time spent in `inner`.
    pub const fn new(inner: S) -> Self {
        Self { inner, inside_ns: 0 }
    }

    /// CPU time spent inside so far, ns.
    pub const fn inside_ns(&self) -> u64 {
        self.inside_ns
    }

    fn timed<T>(&mut self, f: impl FnOnce(&mut S) -> T) -> T {
        let start = thread_cpu_ns();
        let result = f(&mut self.inner);
        self.inside_ns += thread_cpu_ns() - start;
        result
    }
}

impl<S: AccessSource> AccessSource for Metered<S> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        self.timed(S::poll_targets)
    }

    fn may_gain_targets(&self) -> bool {
        self.inner.may_gain_targets()
    }

    fn start(&mut self, target: TargetId) -> Option<Start> {
        self.timed(|s| s.start(target))
    }

    fn cpu_ns(&mut self, target: TargetId) -> Option<u64> {
        self.timed(|s| s.cpu_ns(target))
    }

    fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        self.timed(|s| s.footprint(target, now_ns))
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        self.timed(|s| s.mappings(target, out))
    }

    fn populated(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<AddrRange>,
    ) -> Result<(), SourceError> {
        self.timed(|s| s.populated(target, ranges, out))
    }

    fn arm(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.timed(|s| s.arm(target, windows))
    }

    fn look(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.timed(|s| s.look(target, windows))
    }

    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        // What the monitor does with the bits is counted as simulating; it is little beside drawing them.
        self.timed(|s| s.scan(target, ranges, clear, sink))
    }

    fn frames(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        one_in: u32,
        sink: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, SourceError> {
        self.timed(|s| s.frames(target, ranges, one_in, sink))
    }

    fn cost(&self) -> Cost {
        self.inner.cost()
    }

    fn page_history(&self, target: TargetId) -> Option<&PageHistory> {
        self.inner.page_history(target)
    }

    fn continue_history(&mut self, target: TargetId, history: PageHistory) {
        self.inner.continue_history(target, history);
    }

    fn ask_age(&mut self, age_ns: u64) {
        self.inner.ask_age(age_ns);
    }
}
