//! CPU time of the kernel thread that monitors.

use crate::proc::ProcessDir;
use crate::proc::schedstat::Schedstat;
use crate::proc::stat::Stat;
use crate::roots::Roots;

/// Adds up CPU time over the kernel threads that worked for us, one after the other.
#[derive(Debug)]
pub(super) struct KdamondTime {
    roots: Roots,
    current: Option<ProcessDir>,
    /// Time of the threads before.
    ended_ns: u64,
    last_ns: u64,
}

impl KdamondTime {
    pub(super) fn new(roots: Roots) -> Self {
        Self { roots, current: None, ended_ns: 0, last_ns: 0 }
    }

    /// A new thread works for us from now on.
    pub(super) fn follow(&mut self, pid: Option<u32>) {
        self.ended_ns += std::mem::take(&mut self.last_ns);
        self.current = pid.map(|pid| ProcessDir::of(&self.roots, pid));
    }

    /// CPU time so far, ns. A thread that has ended counts as when it was last read.
    pub(super) fn total_ns(&mut self) -> u64 {
        if let Some(ns) = self.current.as_ref().and_then(cpu_ns) {
            self.last_ns = ns;
        }
        self.ended_ns + self.last_ns
    }
}

/// CPU time of a thread, ns.
fn cpu_ns(dir: &ProcessDir) -> Option<u64> {
    if let Ok(times) = Schedstat::read(dir) {
        return Some(times.run_ns);
    }
    // In steps of 10 ms.
    let Stat { user_ns, system_ns, .. } = Stat::read(dir).ok()?;
    Some(user_ns.saturating_add(system_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn threads_add_up_and_ended_ones_stay() {
        let t = tree(&[
            ("proc/7/schedstat", "5000 1 2\n"),
            ("proc/8/stat", "8 (kdamond.0) I 2 0 0 0 -1 2129984 0 0 0 0 1 2 0 0 20 0 1 0 129 0 0 0 0 0 0\n"),
        ]);
        let mut time = KdamondTime::new(t.roots.clone());
        assert_eq!(time.total_ns(), 0);
        time.follow(Some(7));
        assert_eq!(time.total_ns(), 5000);
        std::fs::remove_dir_all(t.roots.path("/proc/7")).unwrap();
        assert_eq!(time.total_ns(), 5000);
        time.follow(Some(8));
        assert_eq!(time.total_ns(), 30_005_000);
    }
}
