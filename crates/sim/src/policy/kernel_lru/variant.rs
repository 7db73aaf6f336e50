//! Which kernels' behaviour is followed.

/// The multi-generational LRU was reworked once; both forms are here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Variant {
    /// Up to Linux 6.12.
    V6_12,
    /// From Linux 6.14 on.
    #[default]
    V6_14,
}
