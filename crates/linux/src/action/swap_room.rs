//! How much may be paged out before swap is nearly full: other programs need what is left when memory runs short.

use crate::facts::{Environment, SwapArea};
use crate::roots::Roots;
use isotherm_core::addr::TABLE_SPAN;
use isotherm_core::units::format_size;

/// Swap counts as nearly full below this ...
const SPARE: u64 = 64 << 20;
/// ... or below this share (one in so many).
const SPARE_PART: u64 = 20;

/// Why nothing may be paged out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoSwapRoom {
    #[error("there is no swap; add some, for example zram")]
    NoSwap,
    #[error(
        "swap is nearly full ({} of {} free): pageout stops until there is more; add swap or end a program",
        format_size(*free), format_size(*size)
    )]
    NearlyFull {
        /// Bytes.
        size: u64,
        /// Bytes.
        free: u64,
    },
}

/// Swap of the machine, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SwapRoom {
    size: u64,
    free: u64,
}

impl SwapRoom {
    /// As the system below `roots` tells it.
    pub fn read(roots: &Roots) -> Self {
        let areas = Environment::read_swap(roots);
        let free = |area: &SwapArea| area.size.saturating_sub(area.used);
        Self { size: areas.iter().map(|area| area.size).sum(), free: areas.iter().map(free).sum() }
    }

    /// This machine's now, by one system call; `None` if that fails.
    pub fn now() -> Option<Self> {
        // SAFETY: all bytes zero are a valid `sysinfo`, which the call fills.
        let info = unsafe {
            let mut info: libc::sysinfo = std::mem::zeroed();
            (libc::sysinfo(&mut info) == 0).then_some(info)
        }?;
        let bytes = |units: libc::c_ulong| units.saturating_mul(info.mem_unit.into());
        Some(Self { size: bytes(info.totalswap), free: bytes(info.freeswap) })
    }

    /// Whether there is any swap.
    pub const fn is_there(&self) -> bool {
        self.size > 0
    }

    /// What may still go.
    fn left(&self) -> u64 {
        self.free.saturating_sub(SPARE.max(self.size / SPARE_PART))
    }

    /// What may still go: at least a huge page.
    pub fn for_a_huge_page(&self) -> Result<u64, NoSwapRoom> {
        let Self { size, free } = *self;
        match self.left() {
            _ if !self.is_there() => Err(NoSwapRoom::NoSwap),
            left if left < TABLE_SPAN => Err(NoSwapRoom::NearlyFull { size, free }),
            left => Ok(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_ask_agree() {
        let (now, read) = (SwapRoom::now().unwrap(), SwapRoom::read(&Roots::system()));
        assert_eq!(now.size, read.size);
    }

    #[test]
    fn a_reserve_is_left() {
        let left = |size: u64, free: u64| SwapRoom { size: size << 20, free: free << 20 }.left() >> 20;
        assert_eq!((left(100, 100), left(100, 64), left(100, 20)), (36, 0, 0));
        assert_eq!(left(100 << 10, 6 << 10), 1 << 10, "5 % of a large one");
        let room = |size: u64, free: u64| SwapRoom { size: size << 20, free: free << 20 }.for_a_huge_page();
        assert_eq!((room(100, 66), room(0, 0)), (Ok(2 << 20), Err(NoSwapRoom::NoSwap)));
        let why = room(100, 65).unwrap_err().to_string();
        assert!(why.starts_with("swap is nearly full (65.0 MiB of 100 MiB free): "), "{why}");
    }
}
