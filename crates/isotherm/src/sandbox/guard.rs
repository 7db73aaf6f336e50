//! What the guards of stopped processes and of changed settings need.

use super::LOOKS_INTO_PROCESSES;
use isotherm_linux::confine::{Calls, CapabilitySet, Files, Needs};
use isotherm_linux::guard::Purpose;

/// One stops processes by ptrace, the other writes back what `lru run --min-ttl` has changed.
pub fn needs(purpose: Purpose) -> Needs {
    match purpose {
        Purpose::Processes => Needs::new(Files::Any(LOOKS_INTO_PROCESSES))
            .capabilities(CapabilitySet::SYS_PTRACE)
            .calls([Calls::Processes, Calls::Pause]),
        Purpose::Settings => {
            let write = vec!["/sys/kernel/mm/lru_gen".into()];
            Needs::new(Files::Only { read: Vec::new(), write, own: Vec::new() })
        }
    }
}
