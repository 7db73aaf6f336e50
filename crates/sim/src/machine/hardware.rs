//! What a simulated machine has: memory, swap, a slower tier, and the kernel's setting for huge pages.

use super::device::{COLLAPSE_NS, HUGE_GAIN, SlowTier, SwapDevice};

/// The kernel's own setting for transparent huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thp {
    /// No huge pages, unless they are made on request (`collapse`).
    #[default]
    Never,
    /// Where it was advised (`hugepage`).
    Madvise,
    /// Wherever it was not forbidden (`nohugepage`).
    Always,
}

/// A simulated machine, seen from one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Hardware {
    /// Main memory, bytes.
    pub memory: u64,
    /// Where pages are swapped out to.
    pub swap: Option<SwapDevice>,
    /// What fits there, bytes of pages.
    pub swap_size: u64,
    /// Memory node 1, slower than node 0, with its size.
    pub slow: Option<(SlowTier, u64)>,
    /// Huge pages without anybody's request.
    pub thp: Thp,
    /// Part of a touch's time that a huge page saves.
    pub huge_gain: f64,
    /// What making a huge page takes, ns.
    pub collapse_ns: u64,
    /// Whether all of the process's memory is there at the start. Otherwise pages come as they are first touched.
    pub prefault: bool,
}

impl Hardware {
    /// A machine with plenty of room for a process of `size` bytes, and zram.
    pub const fn roomy(size: u64) -> Self {
        Self {
            memory: size.saturating_mul(2),
            swap: Some(SwapDevice::ZRAM),
            swap_size: size.saturating_mul(2).saturating_add(1 << 30),
            slow: None,
            thp: Thp::Never,
            huge_gain: HUGE_GAIN,
            collapse_ns: COLLAPSE_NS,
            prefault: true,
        }
    }
}
