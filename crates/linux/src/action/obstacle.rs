//! What forbids an action before it is tried: asked often, so answers are kept for a second.

use super::inject::ineligible;
use super::swap_room::SwapRoom;
use crate::facts::{Environment, HugePages};
use crate::proc::status::Status;
use crate::roots::Roots;
use isotherm_core::actuator::Destination;
use isotherm_core::scheme::action::Action;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an answer holds.
const KEEP: Duration = Duration::from_secs(1);

/// Why pages cannot be moved up.
pub(crate) const LRU_PRIO: &str = "the kernel has no way to move another process's pages up in its LRU lists (only its own \
    DAMON on physical memory does, which isotherm does not take over)";

/// Answers, and where they are read.
#[derive(Debug)]
pub(super) struct Obstacles {
    roots: Roots,
    keep: Duration,
    known: HashMap<(Action, u32), (Instant, Option<String>)>,
}

impl Obstacles {
    pub fn new(roots: Roots) -> Self {
        Self { roots, keep: KEEP, known: HashMap::new() }
    }

    /// Why `action` must not be done to process `pid`.
    pub fn find(&mut self, action: Action, pid: u32) -> Option<String> {
        let now = Instant::now();
        if let Some((when, answer)) = self.known.get(&(action, pid))
            && now.duration_since(*when) < self.keep
        {
            return answer.clone();
        }
        if self.known.len() > 1024 {
            self.known.clear();
        }
        let answer = self.look(action, pid);
        self.known.insert((action, pid), (now, answer.clone()));
        answer
    }

    fn look(&self, action: Action, pid: u32) -> Option<String> {
        if action == Action::Stat {
            return None;
        }
        self.critical(pid).or_else(|| impossible_now(&self.roots, action, &[])).or_else(|| match action {
            Action::HugePage | Action::NoHugePage | Action::Lock | Action::Unlock => ineligible(&self.roots, pid),
            _ => None,
        })
    }

    /// Processes that must be left alone whatever is asked.
    fn critical(&self, pid: u32) -> Option<String> {
        if pid == 1 {
            return Some("pid 1 is the system's first process and is left alone; choose another target".into());
        }
        if pid == std::process::id() {
            return Some(format!("pid {pid} is isotherm itself and is left alone; choose another target"));
        }
        let Ok(text) = self.roots.read(format!("/proc/{pid}/status")) else {
            return Some(format!("pid {pid} has exited, or /proc/{pid}/status may not be read"));
        };
        let status = Status::parse(text.as_bytes());
        // Kernel threads and zombies have no memory.
        if status.vm_size.is_none() {
            return Some(format!("pid {pid} is a kernel thread or a zombie: it has no memory of its own"));
        }
        None
    }
}

/// Why this machine is not to have huge pages, as it is set up now; with a remedy.
pub fn huge_pages_off(roots: &Roots) -> Option<String> {
    match HugePages::read(roots) {
        Some(HugePages::Always | HugePages::OnRequest) => None,
        Some(HugePages::Never) => {
            Some(format!("transparent huge pages are switched off; write `madvise` to {}", HugePages::FILE))
        }
        None => Some("the kernel has no transparent huge pages; use one with CONFIG_TRANSPARENT_HUGEPAGE=y".into()),
    }
}

/// Why this machine cannot carry out `action`, whatever the target is and as long as it runs; with a remedy. Lack of
/// swap is no such reason: it may be added at any time.
pub fn unsupported(roots: &Roots, action: Action, destinations: &[Destination]) -> Option<String> {
    match action {
        Action::LruPrio => Some(format!("{LRU_PRIO}; use lru_deprio on the rest, or lock")),
        Action::MigrateHot | Action::MigrateCold => nowhere_to_go(roots, destinations),
        _ => None,
    }
}

/// Why nothing would come of `action` now, whatever the target is: also for what may change while this runs; with a remedy.
pub fn impossible_now(roots: &Roots, action: Action, destinations: &[Destination]) -> Option<String> {
    match action {
        Action::PageOut => SwapRoom::read(roots).for_a_huge_page().err().map(|why| why.to_string()),
        Action::HugePage => huge_pages_off(roots).map(|why| format!("{why}, or use the action collapse")),
        _ => unsupported(roots, action, destinations),
    }
}

fn nowhere_to_go(roots: &Roots, destinations: &[Destination]) -> Option<String> {
    const REMEDY: &str = "use pageout to free memory";
    let nodes = Environment::read_memory_nodes(roots);
    if nodes.is_empty() {
        return Some(format!("the kernel has no memory nodes (CONFIG_NUMA is off); {REMEDY}"));
    }
    if nodes.len() < 2 {
        return Some(format!("there is only one memory node, so there is nowhere to move pages to; {REMEDY}"));
    }
    let missing = destinations.iter().find(|d| d.weight > 0 && !nodes.contains(&d.node))?;
    let known: Vec<String> = nodes.iter().map(u32::to_string).collect();
    Some(format!("node {} has no memory; nodes that have: {}", missing.node, known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    const ALIVE: (&str, &str) = ("proc/42/status", "Name:\tx\nVmSize:\t    100 kB\n");

    fn swaps(size_kib: u64, used_kib: u64) -> String {
        format!("Filename Type Size Used Priority\n/dev/zram0 partition {size_kib} {used_kib} 100\n")
    }

    fn answer(files: &[(&str, &str)], action: Action) -> Option<String> {
        Obstacles::new(tree(files).roots.clone()).look(action, 42)
    }

    #[test]
    fn pageout_wants_swap_with_room() {
        let with = |text: &str| answer(&[ALIVE, ("proc/swaps", text)], Action::PageOut);
        assert!(with("Filename Type Size Used Priority\n").unwrap().starts_with("there is no swap; add some"));
        assert!(with(&swaps(4 << 20, (4 << 20) - 1000)).unwrap().contains("swap is nearly full ("));
        // 4 % of a large one are not enough, 64 MiB of a small one are.
        assert!(with(&swaps(100 << 20, 96 << 20)).unwrap().contains("nearly full"));
        assert_eq!(with(&swaps(100 << 20, 90 << 20)), None);
        assert_eq!(with(&swaps(100 << 10, 30 << 10)), None);
        assert!(with(&swaps(100 << 10, 40 << 10)).is_some());
        assert_eq!(answer(&[ALIVE], Action::Cold), None);
    }

    #[test]
    fn critical_processes_are_left_alone() {
        let files = [("proc/2/status", "Name:\tkthreadd\n"), ("proc/1/status", "VmSize: 1 kB\n"), ALIVE];
        let t = tree(&files);
        let mut o = Obstacles::new(t.roots.clone());
        assert!(o.find(Action::Cold, 1).unwrap().contains("first process"));
        assert!(o.find(Action::Lock, 2).unwrap().contains("kernel thread"));
        assert!(o.find(Action::PageOut, std::process::id()).unwrap().contains("isotherm itself"));
        assert!(o.find(Action::WillNeed, 77).unwrap().contains("has exited"));
        assert_eq!(o.find(Action::WillNeed, 42), None);
        assert_eq!(o.find(Action::Stat, 1), None);
    }

    #[test]
    fn answers_are_kept_for_a_while_and_renewed_then() {
        let t = tree(&[ALIVE, ("proc/swaps", &swaps(4 << 20, 0))]);
        let mut o = Obstacles::new(t.roots.clone());
        assert_eq!(o.find(Action::PageOut, 42), None);
        std::fs::write(t.roots.path("/proc/swaps"), "Filename\n").unwrap();
        o.keep = Duration::MAX;
        assert_eq!(o.find(Action::PageOut, 42), None);
        o.keep = Duration::ZERO;
        assert!(o.find(Action::PageOut, 42).is_some());
    }

    #[test]
    fn what_the_machine_lacks_is_told_with_a_remedy() {
        let thp = |mode: &str| answer(&[ALIVE, ("sys/kernel/mm/transparent_hugepage/enabled", mode)], Action::HugePage);
        assert!(thp("always madvise [never]\n").unwrap().contains("collapse"));
        assert_eq!(thp("always [madvise] never\n"), None);
        assert!(answer(&[ALIVE], Action::HugePage).unwrap().contains("CONFIG_TRANSPARENT_HUGEPAGE"));
        let nodes = |list: &str| answer(&[ALIVE, ("sys/devices/system/node/has_memory", list)], Action::MigrateCold);
        assert!(nodes("0\n").unwrap().contains("only one memory node"));
        assert_eq!(nodes("0-1\n"), None);
        assert!(answer(&[ALIVE], Action::MigrateHot).unwrap().contains("CONFIG_NUMA"));
        let two = tree(&[("sys/devices/system/node/has_memory", "0-1\n")]);
        let to = |node, weight| unsupported(&two.roots, Action::MigrateHot, &[Destination { node, weight }]);
        assert_eq!(to(5, 1).unwrap(), "node 5 has no memory; nodes that have: 0, 1");
        assert_eq!((to(1, 1), to(5, 0)), (None, None));
        assert!(answer(&[ALIVE], Action::LruPrio).unwrap().contains("DAMON"));
    }
}
