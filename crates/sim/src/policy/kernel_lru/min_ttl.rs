//! Thrashing prevention: a working set that was used within so much time must not be evicted.
//!
//! The kernel's knob does not make eviction pass such a memory over. It is a switch from thrashing to killing: when the
//! oldest generation of every memory is younger than the time given, someone is killed instead.

use super::lruvec::Lruvec;
use super::{Variant, global::Protection};

/// What is found of a memory, or of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// There is memory old enough: go on.
    Reclaim,
    /// There is none: evicting more would be thrashing.
    Thrashing,
}

impl Lruvec {
    /// When the oldest generation that may be evicted was created.
    pub fn oldest_timestamp(&self, swappiness: u8) -> Option<u64> {
        match self.variant {
            Variant::V6_12 => self.timestamp(self.min_seq[1]),
            Variant::V6_14 => self.timestamp(self.oldest(swappiness)),
        }
    }

    /// Whether a memory may be reclaimed: it is not protected, large enough for this priority to find something, and
    /// its oldest generation is older than `min_ttl`.
    pub fn is_reclaimable(
        &self,
        protection: Protection,
        swappiness: u8,
        priority: u32,
        min_ttl: u64,
        now: u64,
    ) -> bool {
        let evictable = self.evictable(swappiness);
        let size: u64 = (0..2)
            .filter(|&kind| evictable[kind])
            .map(|kind| (self.min_seq[kind]..=self.max_seq).map(|seq| self.size(seq, kind)).sum::<u64>())
            .sum();
        protection != Protection::Min
            && size >> priority > 0
            && self.oldest_timestamp(swappiness).is_some_and(|created| now.saturating_sub(created) > min_ttl)
    }
}

/// Whether the memories together are thrashing. A `min_ttl` of 0 switches this off.
pub fn check(min_ttl: u64, reclaimable: impl IntoIterator<Item = bool>) -> Ttl {
    if min_ttl == 0 || reclaimable.into_iter().any(|one| one) { Ttl::Reclaim } else { Ttl::Thrashing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::kernel_lru::mglru::{MgConfig, MgLru};
    use crate::policy::kernel_lru::{Access, PageKind};

    #[test]
    fn protected_small_and_young_memory_is_not_reclaimable() {
        let mut lru = MgLru::new(MgConfig::new(1000));
        (0..500).for_each(|page| _ = lru.access(page, Access::mapped(PageKind::Anon, true)));
        let can = |protection, swappiness, priority, min_ttl, now| {
            lru.lruvec().is_reclaimable(protection, swappiness, priority, min_ttl, now)
        };
        assert!(can(Protection::None, 60, 6, 99, 100));
        assert!(can(Protection::Low, 60, 6, 99, 100));
        assert!(!can(Protection::Min, 60, 6, 99, 100));
        assert!(!can(Protection::None, 60, 9, 99, 100), "500 >> 9 is nothing");
        assert!(!can(Protection::None, 60, 6, 100, 100), "not older than that");
        assert!(!can(Protection::None, 0, 6, 99, 100), "none of it may go");
    }
}
