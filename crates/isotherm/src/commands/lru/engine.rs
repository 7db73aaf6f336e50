//! Who keeps the generations: the kernel, or we.

use crate::args::target::TargetArgs;
use crate::exit::{Unsupported, Usage};
use clap::ValueEnum;
use isotherm_core::keeper::kernel::KernelMemory;
use isotherm_linux::cgroup::memory::Memcgs;
use isotherm_linux::lru::kernel::KernelLru;
use isotherm_linux::roots::Roots;

/// Who keeps the generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// The kernel for control groups where it can, else Isotherm
    Auto,
    /// The kernel's multi-generational LRU, through its control files
    Kernel,
    /// Isotherm, by walking page tables
    User,
}

/// Groups of the kernel's engine.
#[derive(Debug)]
pub struct KernelTarget {
    /// The control files.
    pub lru: KernelLru,
    /// Paths of the control groups.
    pub paths: Vec<String>,
}

impl KernelTarget {
    /// The memories of the groups and of those below them, each once.
    pub fn memories(&self) -> anyhow::Result<Vec<KernelMemory>> {
        let mut out: Vec<KernelMemory> = Vec::new();
        for path in &self.paths {
            for memcg in self.lru.of_group(path).map_err(anyhow::Error::msg)? {
                if out.iter().all(|memory| memory.id != memcg.id) {
                    out.extend(memcg.into_memories().filter(|memory| !memory.generations.is_empty()));
                }
            }
        }
        Ok(out)
    }
}

impl EngineName {
    /// The kernel's engine, if it is to be used for this target.
    pub fn kernel(self, target: &TargetArgs) -> anyhow::Result<Option<KernelTarget>> {
        let roots = Roots::system();
        match self {
            Self::User => return Ok(None),
            Self::Auto if target.cgroups.is_empty() => return Ok(None),
            _ => {}
        }
        let lru = match KernelLru::open(&roots) {
            Ok(lru) => lru,
            Err(_) if self == Self::Auto => return Ok(None),
            Err(why) => return Err(Unsupported(why.to_string()).into()),
        };
        if !target.command.is_empty() {
            return Err(Usage("--engine kernel manages control groups: give --cgroup PATH or --pid N".into()).into());
        }
        let groups = Memcgs::new(&roots);
        let mut paths = Vec::new();
        for path in &target.cgroups {
            let group = groups.open(&path.to_string_lossy()).map_err(anyhow::Error::msg)?;
            paths.push(group.path());
        }
        for &pid in &target.pids {
            let path = groups.path_of(pid);
            let path = path.ok_or_else(|| anyhow::anyhow!("pid {pid} has exited, or is in no control group"))??;
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        if paths.is_empty() {
            return Err(Usage("--engine kernel manages control groups: give --cgroup PATH or --pid N".into()).into());
        }
        Ok(Some(KernelTarget { lru, paths }))
    }
}
