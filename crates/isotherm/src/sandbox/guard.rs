//! What the guard of stopped processes and changed settings needs.

use isotherm_linux::confine::{Calls, CapabilitySet, Files, Needs};

/// It looks whether processes are still the same and lets them go on, and writes back what `lru run --min-ttl` has
/// changed.
pub fn needs() -> Needs {
    let write = vec!["/sys/kernel/mm/lru_gen".into()];
    Needs::new(Files::Only { read: vec!["/proc".into()], write, own: Vec::new() })
        .capabilities(CapabilitySet::KILL)
        .calls([Calls::Processes])
}
