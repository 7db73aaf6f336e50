//! What the guards of stopped processes and of changed settings need.

use super::LOOKS_INTO_PROCESSES;
use isotherm_linux::confine::{Calls, CapabilitySet, Files, Needs};
use isotherm_linux::guard::Purpose;
use std::path::PathBuf;

/// One stops processes by ptrace, the other writes back what `lru run --min-ttl` and `--source damon` have
/// changed.
pub fn needs(purpose: Purpose) -> Needs {
    match purpose {
        Purpose::Processes => Needs::new(Files::Any(LOOKS_INTO_PROCESSES))
            .capabilities(CapabilitySet::SYS_PTRACE)
            .calls([Calls::Processes, Calls::Pause]),
        Purpose::Settings => {
            let write = ["/sys/kernel/mm/lru_gen", "/sys/kernel/mm/damon/admin"].map(PathBuf::from).into();
            Needs::new(Files::Only { read: Vec::new(), write, own: Vec::new() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_of_settings_may_write_those_and_nothing_else() {
        let needs = needs(Purpose::Settings);
        assert!(needs.wanted_capabilities().is_empty());
        let Files::Only { read, write, own } = needs.files() else { panic!("all files") };
        assert!(read.is_empty() && own.is_empty());
        let may = |file: &str| write.iter().any(|folder| std::path::Path::new(file).starts_with(folder));
        for file in ["/sys/kernel/mm/lru_gen/min_ttl_ms", "/sys/kernel/mm/damon/admin/kdamonds/0/state"] {
            assert!(may(file), "{file}");
        }
        assert!(!may("/sys/kernel/mm/transparent_hugepage/enabled") && !may("/proc/sys/vm/swappiness"));
    }
}
