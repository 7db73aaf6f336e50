//! Reads the figures that schemes are tuned by: pressure, free memory, control groups, targets, events.
//!
//! One file per place that figures come from; what it parses serves the doctor too. Whatever a kernel lacks is a
//! [`MeterError`] with the reason and what helps; nothing that cannot be read is ever taken for zero.

mod cgroup;
mod fault_cost;
mod files;
mod targets;

use crate::cgroup::{CgroupSetup, memory as cgroup_memory};
use crate::facts::pressure::{self, Share};
use crate::facts::{meminfo, vmstat};
use crate::proc::ProcessDir;
use crate::roots::Roots;
use files::Files;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::meter::{LiveTarget, Meter, MeterError, Metric};
use std::io;
use std::path::{Path, PathBuf};

/// Reads metrics from the running system, or from a captured tree. Files of the system stay open from one reading to
/// the next; those of targets do not, as there may be thousands.
#[derive(Debug)]
pub struct LinuxMeter {
    files: Files,
    roots: Roots,
    cgroups: CgroupSetup,
    buf: Vec<u8>,
    /// What bringing a page back costs, ns; measured when it is first asked for.
    fault_ns: Option<u64>,
}

impl LinuxMeter {
    /// A meter of the system below `roots`. Where control groups are mounted is looked up now, the rest when it is
    /// read.
    pub fn new(roots: Roots) -> Self {
        let cgroups = CgroupSetup::read(&roots);
        Self { files: Files::new(roots.clone()), roots, cgroups, buf: Vec::new(), fault_ns: None }
    }

    /// What is left of the limit of a control group, or of one above it where that is less. `None`: no limit is set.
    pub(crate) fn cgroup_left(&mut self, path: &str) -> Result<Option<u64>, MeterError> {
        let group = cgroup::Group::find(&self.cgroups, &self.files, path);
        let left = group.and_then(|g| g.left(&mut self.files));
        left.map_err(|(reason, remedy)| error(&Metric::CgroupMemFree(path.into()), reason, remedy))
    }

    fn pressure(&mut self, metric: &Metric, group: Option<&str>, share: Share) -> Result<u64, MeterError> {
        let (path, switch) = match group {
            None => (PathBuf::from(pressure::FILE), None),
            Some(group) => {
                let path = cgroup::pressure_file(&self.cgroups, &self.files, group)
                    .map_err(|(reason, remedy)| error(metric, reason, remedy))?;
                let switch = path.with_file_name("cgroup.pressure");
                (path, Some(format!("write 1 to {} if that is there", switch.display())))
            }
        };
        let text = self.files.read(&path).map_err(|e| {
            let remedy = pressure::remedy(&e);
            let remedy = switch.map_or_else(|| remedy.to_owned(), |switch| format!("{switch}; else {remedy}"));
            error(metric, pressure::why(&path, &e), remedy)
        })?;
        pressure::total(text, share).ok_or_else(|| {
            let reason = format!("{} has no '{}' line that can be understood", path.display(), share.name());
            error(metric, reason, "use kernel 5.2 or newer, or the other of 'some' and 'full'")
        })
    }

    /// A figure from a file of the whole system or of a node; `None` from `parse` means that the kernel does not tell
    /// it.
    fn figure(
        &mut self,
        metric: &Metric,
        path: &Path,
        parse: impl FnOnce(&str) -> Option<u64>,
        what: &str,
        remedy: &str,
    ) -> Result<u64, MeterError> {
        let text = self.files.read(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => error(metric, format!("{} is missing", path.display()), remedy),
            _ => error(metric, format!("{}: {e}", path.display()), remedy),
        })?;
        parse(text).ok_or_else(|| error(metric, format!("{} has no {what}", path.display()), remedy))
    }

    fn meminfo(
        &mut self,
        metric: &Metric,
        parse: impl FnOnce(&str) -> Option<u64>,
        what: &str,
    ) -> Result<u64, MeterError> {
        self.figure(metric, Path::new(meminfo::FILE), parse, what, "mount /proc")
    }

    fn node(&mut self, metric: &Metric, node: u32, parse: fn(&str) -> Option<u64>) -> Result<u64, MeterError> {
        let remedy = "name a node that has memory (/sys/devices/system/node/has_memory lists them); the kernel needs \
                      CONFIG_NUMA=y";
        self.figure(metric, &meminfo::node_file(node), parse, "MemTotal and MemFree", remedy)
    }

    fn events(&mut self, metric: &Metric, counter: vmstat::PageCounter) -> Result<u64, MeterError> {
        let remedy = format!("use a kernel with {}", counter.options);
        let parse = |text: &str| vmstat::pages(text, counter);
        let pages = self.figure(metric, Path::new(vmstat::FILE), parse, counter.fields[0], &remedy)?;
        Ok(pages.saturating_mul(PAGE_SIZE))
    }
}

impl Meter for LinuxMeter {
    fn read(&mut self, metric: &Metric, targets: &[LiveTarget]) -> Result<u64, MeterError> {
        let trouble = |(reason, remedy)| error(metric, reason, remedy);
        match metric {
            Metric::SomeMemPsi(group) => self.pressure(metric, group.as_deref(), Share::Some),
            Metric::FullMemPsi(group) => self.pressure(metric, group.as_deref(), Share::Full),
            Metric::FreeMemRate => self.meminfo(metric, meminfo::free_rate, "MemTotal and MemFree"),
            Metric::NodeMemUsed(node) => self.node(metric, *node, meminfo::used_rate),
            Metric::NodeMemFree(node) => self.node(metric, *node, meminfo::free_rate),
            Metric::CgroupMemUsed(path) => cgroup::Group::find(&self.cgroups, &self.files, path)
                .and_then(|g| g.used(&mut self.files))
                .map_err(trouble),
            Metric::CgroupMemFree(path) => self.cgroup_left(path)?.ok_or_else(|| {
                let reason = "neither the group nor one above it has a limit".to_owned();
                let remedy = format!(
                    "write one to its {} (v1: {})",
                    cgroup_memory::LIMIT.file(true),
                    cgroup_memory::LIMIT.file(false)
                );
                error(metric, reason, remedy)
            }),
            Metric::TargetRss => targets::total_rss(&self.roots, targets, &mut self.buf).map_err(trouble),
            Metric::TargetMajorFaults => {
                targets::total_major_faults(&self.roots, targets, &mut self.buf).map_err(trouble)
            }
            Metric::TargetStall => {
                let faults = targets::total_major_faults(&self.roots, targets, &mut self.buf).map_err(trouble)?;
                let each_ns = match self.fault_ns {
                    Some(ns) => ns,
                    None => {
                        let swaps = self.files.read(Path::new("/proc/swaps")).unwrap_or_default();
                        let measured = fault_cost::measure(swaps.lines().count() > 1).map_err(trouble)?;
                        *self.fault_ns.insert(measured)
                    }
                };
                Ok((u128::from(faults) * u128::from(each_ns) / 1000).min(u128::from(u64::MAX)) as u64)
            }
            Metric::ActiveMem => self.meminfo(metric, |t| meminfo::lru_rate(t, "Active"), "Active and Inactive"),
            Metric::InactiveMem => self.meminfo(metric, |t| meminfo::lru_rate(t, "Inactive"), "Active and Inactive"),
            Metric::SwapIn => self.events(metric, vmstat::SWAP_IN),
            Metric::Refault => self.events(metric, vmstat::REFAULT),
        }
    }

    /// Its path in the hierarchy that controls memory; in v2 where none does.
    fn cgroup_of(&mut self, target: LiveTarget) -> Option<String> {
        let pid = target.pid?;
        ProcessDir::of(&self.roots, pid).read("cgroup", &mut self.buf).ok()?;
        self.cgroups.name_in(&String::from_utf8_lossy(&self.buf), pid)?.ok()
    }
}

fn error(metric: &Metric, reason: impl Into<String>, remedy: impl Into<String>) -> MeterError {
    MeterError { metric: metric.to_string(), reason: reason.into(), remedy: remedy.into() }
}

#[cfg(test)]
mod tests;
