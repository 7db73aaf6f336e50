//! The files of the kernel's multi-generational LRU.

/// Generations, and commands to create and evict them.
pub const FILE: &str = "/sys/kernel/debug/lru_gen";
pub(crate) const ENABLED: &str = "/sys/kernel/mm/lru_gen/enabled";
/// The time for which a working set is kept, of the whole machine.
pub(crate) const MIN_TTL: &str = "/sys/kernel/mm/lru_gen/min_ttl_ms";
