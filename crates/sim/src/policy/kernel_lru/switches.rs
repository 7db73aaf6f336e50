//! What of the multi-generational LRU is switched on.

/// The second and third switch of `/sys/kernel/mm/lru_gen/enabled`; the first is the LRU itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// 0x2: clearing accessed bits in page-table entries by walks.
    pub leaf_walk: bool,
    /// 0x4: clearing accessed bits of page tables themselves.
    pub non_leaf: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self { leaf_walk: true, non_leaf: true }
    }
}
