//! One use of the kernel's DAMON: set up, switched on, and put back as it was.

use super::error::DamonError;
use super::files::{ControlFiles, absolute, exists, lock};
use super::tracepoint::Aggregated;
use crate::facts::{KDAMONDS, KernelDamon};
use crate::folder_lock::FolderLock;
use isotherm_core::addr::AddrRange;
use isotherm_core::attrs::MonitorAttrs;
use std::io;
use std::time::Duration;

const CONTEXT: &str = "0/contexts/0";

/// What kind of memory is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operations {
    Processes,
    Physical,
}

impl Operations {
    /// The kernel's name of the operation set.
    const fn operations(self) -> &'static str {
        match self {
            Self::Processes => "vaddr",
            Self::Physical => "paddr",
        }
    }

    /// The error that this kernel offers `available` only.
    fn missing(self, available: &str) -> DamonError {
        let (what, option) = match self {
            Self::Processes => ("processes (vaddr)", "CONFIG_DAMON_VADDR"),
            Self::Physical => ("physical memory (paddr)", "CONFIG_DAMON_PADDR"),
        };
        let available = available.split_whitespace().collect::<Vec<_>>().join(", ");
        DamonError::NoOperations { what, available, option }
    }
}

/// What the kernel is to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SessionTargets {
    /// Processes, by pid; at least one.
    Processes(Vec<u32>),
    /// Physical memory: sorted, disjoint ranges.
    Physical(Vec<AddrRange>),
}

impl SessionTargets {
    const fn kind(&self) -> Operations {
        match self {
            Self::Processes(_) => Operations::Processes,
            Self::Physical(_) => Operations::Physical,
        }
    }

    /// Number of targets, and of schemes: each target has one of its own, because a tried region does not tell its
    /// target.
    pub(super) fn targets(&self) -> usize {
        match self {
            Self::Processes(pids) => pids.len(),
            Self::Physical(_) => 1,
        }
    }
}

/// What came of asking for the regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// They can be read.
    Ready,
    /// The kernel thread has ended, as it does when the last of its targets has.
    Stopped,
}

/// DAMON while it works for us. Dropping this switches it off and removes what was set up, on errors and panics, too.
#[derive(Debug)]
pub(super) struct DamonSession<F: ControlFiles> {
    files: F,
    attrs: MonitorAttrs,
    /// Whether something is set up that has to be put back.
    dirty: bool,
    /// The tracepoint, where there is one.
    event: Option<Aggregated>,
    _lock: FolderLock,
}

impl<F: ControlFiles> DamonSession<F> {
    /// Makes sure that nobody uses DAMON and that it can watch this kind; sets nothing up yet.
    pub(super) fn claim(files: F, attrs: MonitorAttrs, kind: Operations) -> Result<Self, DamonError> {
        let lock = lock(files.roots())?;
        let state = KernelDamon::read(files.roots());
        if !state.users.is_empty() {
            return Err(DamonError::InUse { users: state.describe_users() });
        }
        if !state.writable {
            let path = absolute(files.roots(), "nr_kdamonds");
            let source = io::ErrorKind::PermissionDenied.into();
            return Err(DamonError::Io { action: "write to".into(), path, source });
        }
        // Where the kernel does not tell yet, setting it up will.
        if !state.operations.is_empty() && !state.operations.iter().any(|o| o == kind.operations()) {
            return Err(kind.missing(&state.operations.join(" ")));
        }
        // Now: it may take a mount, which is forbidden to who has confined itself.
        let event = Aggregated::find(files.roots());
        Ok(Self { files, attrs, dirty: false, event: event.ok(), _lock: lock })
    }

    /// Sets DAMON up for `watched` and switches it on, ending what it did for us before.
    pub(super) fn start(&mut self, watched: &SessionTargets) -> Result<(), DamonError> {
        self.stop()?;
        // Nobody uses it, or it would not be ours. The guard knows before anything is changed.
        self.guarded("nr_kdamonds", "0")?;
        self.guarded("0/state", "off")?;
        self.dirty = true;
        self.write("nr_kdamonds", "1")?;
        self.write("0/contexts/nr_contexts", "1")?;
        self.choose_operations(watched)?;
        self.write_attrs()?;
        self.write_targets(watched)?;
        self.write_schemes(watched.targets())?;
        self.write("0/state", "on")
    }

    /// Switches DAMON off and removes what was set up.
    pub(super) fn stop(&mut self) -> Result<(), DamonError> {
        if !self.dirty {
            return Ok(());
        }
        if self.is_on() {
            // It may end by itself in between, which makes this fail.
            let _ = self.write("0/state", "off");
        }
        self.write("nr_kdamonds", "0")?;
        self.dirty = false;
        self.files.leaves("0/state");
        self.files.leaves("nr_kdamonds");
        Ok(())
    }

    /// The tracepoint that tells regions, where there is one.
    pub(super) const fn event(&self) -> Option<Aggregated> {
        self.event
    }

    /// Whether its kernel thread runs.
    pub(super) fn is_on(&self) -> bool {
        self.read("0/state").is_some_and(|s| s == "on")
    }

    pub(super) fn kdamond(&self) -> Option<u32> {
        self.read("0/pid")?.parse().ok()
    }

    /// The folder with the regions of target `index`.
    pub(super) fn regions_folder(&self, index: usize) -> std::path::PathBuf {
        absolute(self.files.roots(), &format!("{CONTEXT}/schemes/{index}/tried_regions"))
    }

    /// Has the kernel write down its regions at the end of the current aggregation interval, and waits for that.
    /// (Kernels up to 6.13 look every 100 ms only whether it is done.)
    pub(super) fn ask_for_regions(&mut self) -> Result<Asked, DamonError> {
        match self.write("0/state", "update_schemes_tried_regions") {
            Ok(()) => Ok(Asked::Ready),
            Err(_) if !self.is_on() => Ok(Asked::Stopped),
            Err(e) => Err(e),
        }
    }

    /// Tells the guard what a file is to become again if we are killed.
    fn guarded(&mut self, path: &str, before: &str) -> Result<(), DamonError> {
        self.files.changes(path, before).map_err(|source| DamonError::Unguarded { source })
    }

    fn choose_operations(&mut self, watched: &SessionTargets) -> Result<(), DamonError> {
        let kind = watched.kind();
        // Kernel 5.18 does not list them: there, the write fails.
        let available = self.read(&format!("{CONTEXT}/avail_operations")).unwrap_or_else(|| kind.operations().into());
        if !available.split_whitespace().any(|o| o == kind.operations()) {
            return Err(kind.missing(&available));
        }
        self.write(&format!("{CONTEXT}/operations"), kind.operations()).map_err(|e| match e {
            DamonError::Io { source, .. } if source.kind() == io::ErrorKind::InvalidInput => kind.missing("others"),
            e => e,
        })
    }

    fn write_attrs(&mut self) -> Result<(), DamonError> {
        let MonitorAttrs { sample_us, aggr_us, update_us, min_regions, max_regions } = self.attrs;
        let dir = format!("{CONTEXT}/monitoring_attrs");
        self.write(&format!("{dir}/intervals/sample_us"), sample_us)?;
        self.write(&format!("{dir}/intervals/aggr_us"), aggr_us)?;
        self.write(&format!("{dir}/intervals/update_us"), update_us)?;
        self.write(&format!("{dir}/nr_regions/min"), min_regions)?;
        self.write(&format!("{dir}/nr_regions/max"), max_regions)
    }

    fn write_targets(&mut self, watched: &SessionTargets) -> Result<(), DamonError> {
        let dir = format!("{CONTEXT}/targets");
        self.write(&format!("{dir}/nr_targets"), watched.targets())?;
        match watched {
            SessionTargets::Processes(pids) => {
                for (i, pid) in pids.iter().enumerate() {
                    self.write(&format!("{dir}/{i}/pid_target"), pid)?;
                }
            }
            SessionTargets::Physical(ranges) => {
                self.write(&format!("{dir}/0/regions/nr_regions"), ranges.len())?;
                for (i, range) in ranges.iter().enumerate() {
                    self.write(&format!("{dir}/0/regions/{i}/start"), range.start)?;
                    self.write(&format!("{dir}/0/regions/{i}/end"), range.end)?;
                }
            }
        }
        Ok(())
    }

    /// A scheme per target that matches every region and does nothing: its tried regions are the snapshot.
    fn write_schemes(&mut self, targets: usize) -> Result<(), DamonError> {
        self.write(&format!("{CONTEXT}/schemes/nr_schemes"), targets)?;
        for i in 0..targets {
            let dir = format!("{CONTEXT}/schemes/{i}");
            self.write(&format!("{dir}/action"), "stat")?;
            let pattern = format!("{dir}/access_pattern");
            // The largest values are 0 at first, which matches nothing. Sizes are 64 bits wide, the others 32.
            for (what, max) in [("sz", u64::MAX), ("nr_accesses", u32::MAX.into()), ("age", u32::MAX.into())] {
                self.write(&format!("{pattern}/{what}/min"), 0)?;
                self.write(&format!("{pattern}/{what}/max"), max)?;
            }
            if targets > 1 {
                self.write_target_filter(&dir, i)?;
            }
        }
        Ok(())
    }

    /// Lets a scheme see one target only.
    fn write_target_filter(&mut self, scheme: &str, target: usize) -> Result<(), DamonError> {
        // 6.14 split the folder into core_filters and ops_filters; the old name stays for a while.
        let folder = ["core_filters", "filters"]
            .into_iter()
            .map(|name| format!("{scheme}/{name}"))
            .find(|path| exists(self.files.roots(), path))
            .ok_or(DamonError::OneProcessOnly)?;
        self.write(&format!("{folder}/nr_filters"), 1)?;
        self.write(&format!("{folder}/0/type"), "target").map_err(|_| DamonError::OneProcessOnly)?;
        self.write(&format!("{folder}/0/damon_target_idx"), target)?;
        // What does not match the target is filtered out.
        self.write(&format!("{folder}/0/matching"), "N")
    }

    fn write(&mut self, path: &str, value: impl ToString) -> Result<(), DamonError> {
        let value = value.to_string();
        while_busy(|| self.files.write(path, &value)).map_err(|source| DamonError::Io {
            action: format!("write '{value}' to"),
            path: absolute(self.files.roots(), path),
            source,
        })
    }

    fn read(&self, path: &str) -> Option<String> {
        let path = absolute(self.files.roots(), path);
        while_busy(|| std::fs::read_to_string(&path)).ok().map(|t| t.trim().to_owned())
    }
}

/// Repeats what fails because DAMON is busy, for up to a second: somebody else reads one of its files just now, or its
/// thread is about to end.
fn while_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..200 {
        match attempt() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
    attempt()
}

impl<F: ControlFiles> Drop for DamonSession<F> {
    fn drop(&mut self) {
        if let Err(e) = self.stop() {
            // Nobody is left to hand the error to, and it must not be lost: the kernel goes on watching.
            tracing::error!(
                "the kernel's DAMON could not be put back: {e}; \
                 run: echo off >{KDAMONDS}/0/state; echo 0 >{KDAMONDS}/nr_kdamonds"
            );
        }
    }
}
