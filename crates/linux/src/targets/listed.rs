//! Targets that are listed anew at each poll: who belongs to control groups, has a name, or is there at all.

use super::error::TargetError;
use crate::cgroup::Cgroup;
use crate::proc::ProcessDir;
use crate::proc::forks::Forks;
use crate::proc::stat::Stat;
use crate::roots::Roots;
use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

/// Bytes of a command name that the kernel keeps.
const COMM_MOST: usize = 15;
/// Bytes of a command line in which the program's name is looked for.
const ARGUMENT_MOST: u64 = 4096;

/// Which processes are listed.
#[derive(Debug)]
pub(super) enum Listed {
    Cgroups(Vec<Cgroup>),
    Names { names: Vec<String>, known: HashMap<u32, Known> },
    All(Forks),
}

/// A process whose name was looked at.
#[derive(Debug)]
pub(super) struct Known {
    comm: String,
    start_ticks: u64,
    has_name: bool,
}

impl Listed {
    pub fn cgroups(paths: &[PathBuf]) -> Result<Self, TargetError> {
        if paths.is_empty() {
            return Err(TargetError::Nothing);
        }
        Ok(Self::Cgroups(paths.iter().map(|path| Cgroup::find(path)).collect::<Result<_, _>>()?))
    }

    pub fn all() -> Self {
        Self::All(Forks::default())
    }

    /// Each name must be that of a process at present.
    pub fn names(names: Vec<String>) -> Result<Self, TargetError> {
        if names.is_empty() {
            return Err(TargetError::Nothing);
        }
        for name in &names {
            let mut one = Self::Names { names: vec![name.clone()], known: HashMap::new() };
            if one.pids(&Roots::system())?.iter().all(|&pid| pid == std::process::id()) {
                return Err(TargetError::NoSuchName { name: name.clone() });
            }
        }
        Ok(Self::Names { names, known: HashMap::new() })
    }

    /// Whether all that belong to it now did so before: nobody has forked. To list thousands each time is expensive.
    pub fn is_as_before(&mut self, roots: &Roots) -> bool {
        if let Self::All(forks) = self { forks.are_over(roots) } else { false }
    }

    /// Some that were listed are to be looked at again.
    pub fn look_again(&mut self) {
        if let Self::All(forks) = self {
            *forks = Forks::default();
        }
    }

    /// Pids of all that belong to it at present, in order; kernel threads among them.
    pub fn pids(&mut self, roots: &Roots) -> Result<Vec<u32>, TargetError> {
        let everybody = || roots.pids().map_err(|source| TargetError::Io { path: "/proc".into(), source });
        let mut pids = match self {
            Self::Cgroups(groups) => {
                let mut pids = Vec::new();
                for group in groups {
                    pids.extend(group.pids()?);
                }
                pids
            }
            Self::Names { names, known } => {
                let mut pids = everybody()?;
                let mut still = HashMap::with_capacity(pids.len());
                pids.retain(|&pid| {
                    let Some(now) = look(roots, pid, names, known.remove(&pid)) else { return false };
                    let has_name = now.has_name;
                    still.insert(pid, now);
                    has_name
                });
                *known = still;
                pids
            }
            Self::All(_) => everybody()?,
        };
        // One group may be nested in another.
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Whether there can be more, later.
    pub fn may_gain(&self) -> bool {
        match self {
            Self::Cgroups(groups) => groups.iter().any(Cgroup::exists),
            Self::Names { .. } | Self::All(_) => true,
        }
    }
}

/// Whether a process has one of the names. What was found out before holds until it executes another program, which
/// gives it another command name; `None`: it is gone.
fn look(roots: &Roots, pid: u32, names: &[String], before: Option<Known>) -> Option<Known> {
    let dir = ProcessDir::of(roots, pid);
    let Stat { comm, start_ticks, .. } = Stat::read(&dir).ok()?;
    if let Some(before) = before.filter(|b| b.comm == comm && b.start_ticks == start_ticks) {
        return Some(before);
    }
    let has_name = names.iter().any(|name| cut(name.as_bytes()) == cut(comm.as_bytes()))
        || program(&dir).is_some_and(|program| names.iter().any(|name| name.as_bytes() == program));
    Some(Known { comm, start_ticks, has_name })
}

fn cut(name: &[u8]) -> &[u8] {
    &name[..name.len().min(COMM_MOST)]
}

/// The file name in the first argument: a program may give its threads other names.
fn program(dir: &ProcessDir) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    dir.open("cmdline").ok()?.take(ARGUMENT_MOST).read_to_end(&mut line).ok()?;
    let first = line.split(|&b| b == 0).next()?;
    let name = first.rsplit(|&b| b == b'/').next()?;
    (!name.is_empty()).then(|| name.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    fn stat(pid: u32, comm: &str, start: u64) -> String {
        let fields: Vec<String> = (4..=52).map(|n| if n == 22 { start.to_string() } else { "0".into() }).collect();
        format!("{pid} ({comm}) S {}\n", fields.join(" "))
    }

    fn named(names: &[&str]) -> Listed {
        Listed::Names { names: names.iter().map(|n| (*n).to_owned()).collect(), known: HashMap::new() }
    }

    #[test]
    fn names_are_those_of_the_command_or_of_the_program() {
        let t = tree(&[
            ("proc/1/stat", &stat(1, "systemd", 1)),
            ("proc/2/stat", &stat(2, "kthreadd", 2)),
            ("proc/7/stat", &stat(7, "MainThread", 3)),
            ("proc/7/cmdline", "/usr/bin/node\0server.js\0"),
            ("proc/9/stat", &stat(9, "a-very-long-pro", 4)),
            ("proc/9/cmdline", "a-very-long-program\0"),
            ("proc/11/stat", &stat(11, "nodeish", 5)),
            ("proc/11/cmdline", ""),
            ("proc/self/stat", ""),
        ]);
        let pids = |names: &[&str]| named(names).pids(&t.roots).unwrap();
        assert_eq!(pids(&["node"]), [7]);
        assert_eq!(pids(&["MainThread"]), [7]);
        assert_eq!(pids(&["a-very-long-program"]), [9]);
        assert_eq!(pids(&["systemd", "node", "a-very-long-pro"]), [1, 7, 9]);
        assert_eq!(pids(&["server.js"]), [0u32; 0]);
        assert_eq!(Listed::all().pids(&t.roots).unwrap(), [1, 2, 7, 9, 11]);
    }

    #[test]
    fn as_long_as_nobody_forks_nobody_is_looked_for() {
        let t = tree(&[("proc/loadavg", "")]);
        let mut all = Listed::all();
        let mut looks = |last_pid: u32| {
            std::fs::write(t.roots.path("/proc/loadavg"), format!("0.10 0.20 0.30 1/200 {last_pid}\n")).unwrap();
            std::array::from_fn(|_| !all.is_as_before(&t.roots))
        };
        for last_pid in [100, 101, 7] {
            assert_eq!(looks(last_pid), [true, true, false, false], "{last_pid}");
        }
        all.look_again();
        assert_eq!(std::array::from_fn(|_| !all.is_as_before(&t.roots)), [true, true, false]);
        assert_eq!((0..100).filter(|_| !all.is_as_before(&t.roots)).count(), 6, "a zombie may have gone");
        let other = tree(&[("proc/7/stat", "")]);
        assert!((0..4).all(|_| !all.is_as_before(&other.roots)), "the kernel does not tell");
        assert!((0..4).all(|_| !named(&["sh"]).is_as_before(&t.roots)), "an exec gives another name");
    }

    #[test]
    fn an_exec_and_a_reused_pid_are_looked_at_anew() {
        let t = tree(&[("proc/7/stat", &stat(7, "sh", 1)), ("proc/7/cmdline", "sh\0")]);
        let mut listed = named(&["redis"]);
        assert_eq!(listed.pids(&t.roots).unwrap(), [0u32; 0]);
        let write = |file: &str, text: &str| std::fs::write(t.roots.path(format!("/proc/7/{file}")), text).unwrap();
        write("stat", &stat(7, "redis", 1));
        assert_eq!(listed.pids(&t.roots).unwrap(), [7]);
        write("stat", &stat(7, "redis", 2));
        write("cmdline", "redis\0");
        assert_eq!(listed.pids(&t.roots).unwrap(), [7]);
        write("stat", &stat(7, "sh", 2));
        write("cmdline", "sh\0");
        assert_eq!(listed.pids(&t.roots).unwrap(), [0u32; 0]);
        std::fs::remove_dir_all(t.roots.path("/proc/7")).unwrap();
        assert_eq!(listed.pids(&t.roots).unwrap(), [0u32; 0]);
        let Listed::Names { known, .. } = &listed else { panic!() };
        assert!(known.is_empty(), "nothing is kept of those that have ended");
    }
}
