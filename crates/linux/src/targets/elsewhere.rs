//! Which of the watched processes another Isotherm watches, too.
//!
//! Each of the two clears the accessed bits that the other one looks for, so both take memory for colder than it is. The
//! kernel tells who holds a process's descriptor (`Pid:` in `/proc/PID/fdinfo`), which every Isotherm does of those that it
//! watches, so nobody need write down what he watches, and nothing is left after a kill -9.
//!
//! Limits: one of another user, pid namespace or program name is not found, nor one that begins later (it finds us).

use crate::proc::ProcessDir;
use crate::proc::stat::Stat;
use crate::roots::Roots;
use std::collections::HashSet;
use std::fmt;

/// The name that the kernel has for us.
const NAME: &str = "isotherm";
/// The command that holds descriptors of guests, but watches none.
const HOLDS_ONLY: &str = "hint";
/// Most characters of a command line that are said.
const MOST_SAID: usize = 60;

/// Another Isotherm, and those of our processes that it watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedElsewhere {
    /// Process id of the other one.
    pub pid: u32,
    /// Its command line, cut.
    pub command: String,
    /// Of the processes asked about, sorted.
    pub shared: Vec<u32>,
}

impl fmt::Display for WatchedElsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, command, shared } = self;
        match shared[..] {
            [one] => write!(f, "pid {one} is")?,
            _ => write!(f, "{} of these processes are", shared.len())?,
        }
        write!(
            f,
            " watched by pid {pid} ({command}), too: each clears the accessed bits that the other looks for, so both take memory for \
             colder than it is; end one of them"
        )
    }
}

/// Which others watch some of the processes `ours`, by their pids.
pub(super) fn watched_elsewhere(roots: &Roots, ours: impl Fn(u32) -> bool) -> Vec<WatchedElsewhere> {
    let own = std::process::id();
    let named = |pid: &u32| *pid != own && roots.line(format!("/proc/{pid}/comm")).is_some_and(|name| name == NAME);
    let mut others: Vec<(u32, u32)> = (roots.pids().unwrap_or_default().into_iter().filter(named))
        .filter_map(|pid| Some((pid, Stat::read(&ProcessDir::of(roots, pid)).ok()?.ppid)))
        .collect();
    others.sort_unstable();
    let pids: HashSet<u32> = others.iter().map(|(pid, _)| *pid).collect();
    // Guards and workers have what the process has that they were forked from.
    let main = others.into_iter().filter(|(_, parent)| *parent != own && !pids.contains(parent));
    main.filter_map(|(pid, _)| {
        // An argument may be any bytes.
        let mut command = Vec::new();
        ProcessDir::of(roots, pid).read("cmdline", &mut command).ok()?;
        let command = String::from_utf8_lossy(&command);
        let words: Vec<&str> = command.split_terminator('\0').collect();
        if words.iter().skip(1).find(|word| !word.starts_with('-')) == Some(&HOLDS_ONLY) {
            return None;
        }
        let mut shared = held(roots, pid);
        shared.retain(|pid| ours(*pid));
        let command = words.join(" ").chars().take(MOST_SAID).collect();
        (!shared.is_empty()).then_some(WatchedElsewhere { pid, command, shared })
    })
    .collect()
}

/// The processes of which `pid` has descriptors, sorted.
fn held(roots: &Roots, pid: u32) -> Vec<u32> {
    let folder = format!("/proc/{pid}/fdinfo");
    let of_process = |name: &String| {
        let info = roots.read(format!("{folder}/{name}")).ok()?;
        info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
    };
    let mut held: Vec<u32> = roots.names(&folder).iter().filter_map(of_process).collect();
    held.sort_unstable();
    held.dedup();
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::{Tree, tree};

    fn stat(pid: u32, comm: &str, ppid: u32) -> String {
        let zeros = "0 ".repeat(40);
        format!("{pid} ({comm}) S {ppid} {zeros}\n")
    }

    /// Processes by pid, name, parent, command line, and what their descriptors are of.
    fn machine(processes: &[(u32, &str, u32, &str, &[i32])]) -> Tree {
        let mut files = Vec::new();
        for (pid, comm, parent, command, held) in processes {
            files.push((format!("proc/{pid}/comm"), format!("{comm}\n")));
            files.push((format!("proc/{pid}/stat"), stat(*pid, comm, *parent)));
            files.push((format!("proc/{pid}/cmdline"), command.replace(' ', "\0") + "\0"));
            files.push((format!("proc/{pid}/fdinfo/0"), "pos:\t0\nflags:\t02\n".into()));
            for (i, of) in held.iter().enumerate() {
                files.push((format!("proc/{pid}/fdinfo/{}", i + 3), format!("pos:\t0\nPid:\t{of}\nNSpid:\t{of}\n")));
            }
        }
        tree(&files.iter().map(|(path, text)| (&path[..], &text[..])).collect::<Vec<_>>())
    }

    #[test]
    fn whoever_holds_the_same_processes_is_named() {
        let t = machine(&[
            (50, "isotherm", 1, "isotherm node", &[7, 8, 9, -1]),
            (51, "isotherm", 50, "isotherm node", &[7, 8, 9]),
            (60, "isotherm", 1, "isotherm record --pid 9", &[9]),
            (70, "isotherm", 1, "isotherm hint host", &[7]),
            (71, "isotherm", 1, "isotherm --quiet hint host", &[7]),
            (80, "systemd", 1, "/sbin/init", &[7, 9]),
            (90, "isotherm", std::process::id(), "isotherm record --pid 7", &[7]),
        ]);
        let found = watched_elsewhere(&t.roots, |pid| pid == 7 || pid == 8);
        let node = WatchedElsewhere { pid: 50, command: "isotherm node".into(), shared: vec![7, 8] };
        assert_eq!(found, std::slice::from_ref(&node));
        assert!(node.to_string().starts_with("2 of these processes are watched by pid 50 (isotherm node), too: "));
        let found = watched_elsewhere(&t.roots, |pid| pid == 9);
        assert_eq!(found.iter().map(|w| w.pid).collect::<Vec<_>>(), [50, 60]);
        assert!(found[1].to_string().starts_with("pid 9 is watched by pid 60 (isotherm record --pid 9), too: "));
        assert_eq!(watched_elsewhere(&t.roots, |pid| pid == 10), []);
    }
}
