//! Who uses the kernel's DAMON at present. Reads only.

use crate::roots::Roots;
use std::fmt;

/// The folder of DAMON's control files.
pub(crate) const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Somebody who uses the kernel's DAMON, or has set it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamonUser {
    /// `kdamonds/N`, a kernel module, or a kernel thread.
    pub owner: String,
    /// The kernel thread that does the work, where one runs.
    pub pid: Option<u32>,
    /// What it is set up for, for example `on, paddr, pageout`.
    pub what: String,
}

impl fmt::Display for DamonUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.owner)?;
        if let Some(pid) = self.pid {
            write!(f, ", pid {pid}")?;
        }
        if !self.what.is_empty() {
            write!(f, " ({})", self.what)?;
        }
        Ok(())
    }
}

/// State of the kernel's DAMON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelDamon {
    /// Whether its control files are there.
    pub present: bool,
    /// Whether we may set it up.
    pub writable: bool,
    /// Everybody who uses it or has it set up. Empty: free to use.
    pub users: Vec<DamonUser>,
    /// Operation sets that are built in: `vaddr` and `fvaddr` (processes), `paddr` (physical memory). Empty where the
    /// kernel does not tell.
    pub operations: Vec<String>,
}

impl KernelDamon {
    /// Reads the control files, the modules' switches and the names of kernel threads.
    pub fn read(roots: &Roots) -> Self {
        let switch = format!("{KDAMONDS}/nr_kdamonds");
        let mut state = Self { present: roots.exists(KDAMONDS), writable: roots.may_write(&switch), ..Self::default() };
        let count: usize = number(roots, &switch).unwrap_or(0);
        for i in 0..count {
            let dir = format!("{KDAMONDS}/{i}");
            let context = format!("{dir}/contexts/0");
            if let Some(ops) = roots.line(format!("{context}/avail_operations")) {
                state.operations = ops.split_whitespace().map(str::to_owned).collect();
            }
            let action = roots.line(format!("{context}/schemes/0/action"));
            let what = [roots.line(format!("{dir}/state")), roots.line(format!("{context}/operations")), action];
            state.users.push(DamonUser {
                owner: format!("kdamonds/{i}"),
                pid: number(roots, &format!("{dir}/pid")),
                what: what.into_iter().flatten().collect::<Vec<_>>().join(", "),
            });
        }
        if state.present && state.operations.is_empty() {
            // Only a context that is set up lists them; setting one up to ask would disturb others.
            let symbols = roots.read("/proc/kallsyms").unwrap_or_default();
            state.operations = operations_from_symbols(&symbols);
        }
        for module in ["damon_reclaim", "damon_lru_sort", "damon_stat"] {
            let parameters = format!("/sys/module/{module}/parameters");
            if roots.line(format!("{parameters}/enabled")).is_some_and(|v| matches!(v.as_str(), "Y" | "y" | "1")) {
                state.users.push(DamonUser {
                    owner: format!("the kernel module {module}"),
                    pid: number(roots, &format!("{parameters}/kdamond_pid")),
                    what: "enabled".into(),
                });
            }
        }
        for pid in roots.names("/proc").iter().filter_map(|n| n.parse::<u32>().ok()) {
            if state.users.iter().any(|u| u.pid == Some(pid)) {
                continue;
            }
            // Only kernel threads have no memory map text; a program may call itself kdamond, too.
            let is_thread = roots.line(format!("/proc/{pid}/comm")).is_some_and(|c| c.starts_with("kdamond."))
                && roots.line(format!("/proc/{pid}/cmdline")).is_none_or(|c| c.is_empty());
            if is_thread {
                let owner = "a kernel thread of DAMON".to_owned();
                state.users.push(DamonUser { owner, pid: Some(pid), what: "running".into() });
            }
        }
        state
    }

    /// Why we cannot use it, and what helps.
    pub fn obstacle(&self) -> Result<(), (String, &'static str)> {
        if !self.present {
            return Err((
                "the kernel has no DAMON control files".into(),
                "use a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_VADDR (or CONFIG_DAMON_PADDR), or another source",
            ));
        }
        if !self.users.is_empty() {
            let reason = format!("in use by {}; Isotherm leaves it alone", self.describe_users());
            return Err((reason, "stop its other user, or use another source"));
        }
        if !self.writable {
            return Err(("its control files may not be written".into(), "run as root"));
        }
        Ok(())
    }

    /// All users in one line.
    pub fn describe_users(&self) -> String {
        self.users.iter().map(DamonUser::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// The operation sets whose functions the kernel has.
fn operations_from_symbols(kallsyms: &str) -> Vec<String> {
    let has = |name: &str| kallsyms.lines().any(|l| l.split_ascii_whitespace().nth(2) == Some(name));
    let mut operations = Vec::new();
    if has("damon_va_check_accesses") {
        operations.extend(["vaddr".to_owned(), "fvaddr".to_owned()]);
    }
    if has("damon_pa_check_accesses") {
        operations.push("paddr".to_owned());
    }
    operations
}

/// A positive number in a file. DAMON writes -1 where there is no thread.
fn number<T: std::str::FromStr>(roots: &Roots, path: &str) -> Option<T> {
    roots.line(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn free_where_nothing_is_set_up() {
        let t = tree(&[("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n"), ("proc/1/comm", "init\n")]);
        let state = KernelDamon::read(&t.roots);
        assert!(state.present && state.users.is_empty());
        assert_eq!(state.obstacle(), Ok(()));
    }

    #[test]
    fn absent_where_there_are_no_files() {
        assert_eq!(KernelDamon::read(&tree(&[("proc/1/comm", "init\n")]).roots), KernelDamon::default());
    }

    #[test]
    fn names_a_running_context_once() {
        let k = "sys/kernel/mm/damon/admin/kdamonds";
        let t = tree(&[
            (&format!("{k}/nr_kdamonds"), "1\n"),
            (&format!("{k}/0/state"), "on\n"),
            (&format!("{k}/0/pid"), "77\n"),
            (&format!("{k}/0/contexts/0/operations"), "paddr\n"),
            (&format!("{k}/0/contexts/0/avail_operations"), "paddr\n"),
            (&format!("{k}/0/contexts/0/schemes/0/action"), "pageout\n"),
            ("proc/77/comm", "kdamond.0\n"),
            ("proc/77/cmdline", ""),
        ]);
        let state = KernelDamon::read(&t.roots);
        assert_eq!(state.users.len(), 1);
        assert_eq!((state.users[0].pid, state.users[0].what.as_str()), (Some(77), "on, paddr, pageout"));
        assert_eq!(state.operations, ["paddr"]);
        assert!(state.obstacle().is_err_and(|(reason, _)| reason.contains("pid 77")));
    }

    #[test]
    fn operations_show_in_the_symbols() {
        let t = tree(&[
            ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n"),
            (
                "proc/kallsyms",
                "0000000000000000 t damon_pa_check_accesses\n0000000000000000 t damon_va_check_accesses_x\n",
            ),
        ]);
        assert_eq!(KernelDamon::read(&t.roots).operations, ["paddr"]);
    }

    #[test]
    fn names_modules_and_lone_threads() {
        let t = tree(&[
            ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n"),
            ("sys/module/damon_reclaim/parameters/enabled", "Y\n"),
            ("sys/module/damon_reclaim/parameters/kdamond_pid", "50\n"),
            ("sys/module/damon_stat/parameters/enabled", "N\n"),
            ("proc/50/comm", "kdamond.0\n"),
            ("proc/51/comm", "kdamond.1\n"),
            ("proc/51/cmdline", ""),
            ("proc/52/comm", "kdamond.2\n"),
            ("proc/52/cmdline", "./kdamond.2\0"),
        ]);
        let users = KernelDamon::read(&t.roots).users;
        assert_eq!(users.iter().map(|u| u.pid).collect::<Vec<_>>(), [Some(50), Some(51)]);
        assert!(users[0].owner.contains("damon_reclaim"));
    }
}
