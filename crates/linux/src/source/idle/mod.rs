//! Idle page tracking: the kernel's bitmap of idle page frames.
//!
//! A page's frame number comes from `/proc/PID/pagemap`; its bit in `/sys/kernel/mm/page_idle/bitmap` is set to mark
//! the page idle, and the kernel drops the mark once it finds, by a reverse lookup in all page tables that map the
//! page, that somebody has accessed it. So this sees what no reading of one process's page table can: accesses by KVM
//! guests to their memory, and pages that several processes share (any of them counts). It does not take pages from the
//! kernel's active lists, for the mark keeps reclaim informed.
//!
//! Limits: only pages on reclaim lists (not hugetlb, not device memory, and not for a moment after a page appears:
//! those are reported as not observable); one mark per folio, so pages of a large folio look alike; translations are
//! not flushed, so memory that lives in a processor's TLB can look idle; another agent that clears accessed bits (the
//! kernel's DAMON on physical memory, another user of the bitmap) takes accesses away from us.
//!
//! It needs `CONFIG_IDLE_PAGE_TRACKING`, which few distributions set, and root. It has been tested on simulated pages,
//! captured files, and one kernel that was built for that (tests/guest). The self-test must pass on the kernel at hand
//! before anything is reported.

mod folios;
mod marks;
mod observer;
mod physical;
mod selftest;
#[cfg(test)]
mod simulated;

use crate::clock::thread_cpu_ns;
use crate::proc::Process;
use crate::roots::Roots;
use crate::source::SourceUnavailable;
use crate::source::watched::{SpaceError, Targets};
use crate::targets::TargetTracker;
use isotherm_core::addr::AddrRange;
use isotherm_core::bits::{TableBits, Window};
use isotherm_core::mapping::Mapping;
use isotherm_core::source::{AccessSource, Clear, Cost, Refused, SourceError};
use isotherm_core::target::TargetId;
use isotherm_core::target::{Footprint, TargetInfo};
use marks::ProcessMarks;
use observer::{ObserveError, Observer};
use physical::{BITMAP, KernelFiles};
use std::fs::File;

/// Watches processes through the bitmap of idle pages.
#[derive(Debug)]
pub struct IdleSource {
    targets: Targets<Kept>,
    observer: Observer<KernelFiles>,
}

#[derive(Debug)]
struct Kept {
    /// Bound to the address space it was opened for: reads as empty once that is gone.
    pagemap: File,
    space: ProcessMarks,
}

impl Kept {
    fn open(process: &Process, target: TargetId) -> Result<Self, SourceError> {
        let pagemap = process.dir().open("pagemap").map_err(|e| e.into_source_error(target))?;
        Ok(Self { pagemap, space: ProcessMarks::default() })
    }
}

impl IdleSource {
    /// Runs the self-test and takes over the targets.
    pub fn new(roots: &Roots, tracker: TargetTracker) -> Result<Self, SourceUnavailable> {
        let cpu_at_start = thread_cpu_ns();
        Ok(Self { observer: ready(roots)?, targets: Targets::new(tracker, cpu_at_start) })
    }

    /// Whether the source works here; if not, why. Marks pages of its own only.
    pub fn probe(roots: &Roots) -> Result<(), SourceUnavailable> {
        ready(roots).map(drop)
    }

    /// Runs `work` on a target's pagemap.
    fn with_pagemap<T>(
        &mut self,
        target: TargetId,
        work: impl FnOnce(&mut Observer<KernelFiles>, &File, &mut ProcessMarks) -> Result<T, ObserveError>,
    ) -> Result<T, SourceError> {
        self.targets.with(
            target,
            &mut self.observer,
            |_, p| Kept::open(p, target),
            |observer, kept, process| {
                work(observer, &kept.pagemap, &mut kept.space).map_err(|e| match e {
                    ObserveError::SpaceGone if process.is_alive() => SpaceError::Replaced,
                    ObserveError::SpaceGone => SpaceError::Gone,
                    ObserveError::Hidden => SpaceError::Failed(format!(
                        "/proc/{}/pagemap hides page frames: run as root (CAP_SYS_ADMIN)",
                        process.pid()
                    )),
                    ObserveError::Io(e) => {
                        SpaceError::Failed(format!("idle page tracking of pid {}: {e}", process.pid()))
                    }
                })
            },
        )
    }
}

fn ready(roots: &Roots) -> Result<Observer<KernelFiles>, SourceUnavailable> {
    let unavailable = |reason: String, remedy: &str| {
        let (what, remedy) = ("idle pages cannot be tracked", remedy.to_owned());
        SourceUnavailable { what, reason, remedy }
    };
    if !roots.exists(BITMAP) {
        return Err(unavailable(
            format!("the kernel lacks CONFIG_IDLE_PAGE_TRACKING ({BITMAP} is missing)"),
            "use a kernel that has it, or another source",
        ));
    }
    let files = KernelFiles::open(roots).map_err(|e| unavailable(e.to_string(), "run as root"))?;
    let mut observer = Observer::new(files);
    selftest::run(&mut observer).map_err(|why| {
        unavailable(format!("the self-test failed: {why}"), "use another source, and please report this")
    })?;
    (observer.pages_read, observer.pages_marked) = (0, 0);
    Ok(observer)
}

impl AccessSource for IdleSource {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        self.targets.poll()
    }

    fn may_gain_targets(&self) -> bool {
        self.targets.tracker.may_gain_targets()
    }

    fn refused(&self) -> Refused {
        self.targets.tracker.refused()
    }

    fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        self.targets.footprint(target, now_ns)
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        self.targets.mappings(target, &mut self.observer, |_, p| Kept::open(p, target), out, |_, _| {})
    }

    fn arm(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.with_pagemap(target, |observer, pagemap, space| observer.windows(pagemap, space, windows, true))
    }

    fn look(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.with_pagemap(target, |observer, pagemap, space| observer.windows(pagemap, space, windows, false))
    }

    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        mut clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        self.with_pagemap(target, |observer, pagemap, space| observer.scan(pagemap, space, ranges, &mut clear, sink))
    }

    fn cost(&self) -> Cost {
        self.targets.cost(self.observer.pages_read, self.observer.pages_marked, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn a_kernel_without_the_option_is_named() {
        let e = IdleSource::probe(&tree(&[("proc/kpageflags", "")]).roots).unwrap_err();
        assert!(e.reason.contains("CONFIG_IDLE_PAGE_TRACKING") && !e.remedy.is_empty());
    }

    #[test]
    fn files_that_never_take_a_mark_fail_the_self_test() {
        // Plain files: every frame reads as missing, so nothing can be observed.
        let t = tree(&[("proc/kpageflags", ""), ("sys/kernel/mm/page_idle/bitmap", "")]);
        let e = IdleSource::probe(&t.roots).unwrap_err();
        assert!(e.reason.contains("self-test"), "{e}");
    }
}
