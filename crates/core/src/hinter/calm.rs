//! Whether the guest leaves time for what is not urgent.

use super::guest::FreeMemory;
use super::sampler::NEWS_PAGES;

/// What was seen at a look.
#[derive(Debug, Clone, Copy)]
struct Look {
    free: FreeMemory,
    own_pages: u64,
    idle_ns: Option<u64>,
    at_ns: u64,
}

/// Since when the guest allocates little and has a CPU to spare.
#[derive(Debug, Default)]
pub(super) struct Calm {
    since_ns: Option<u64>,
    last: Option<Look>,
}

impl Calm {
    /// The guest was looked at. `own_pages`: pages that were isolated since the start, which the kernel may count as
    /// allocated; `idle_ns`: idle time of all CPUs since boot, and if it is not known they count as idle.
    pub(super) fn looked(&mut self, free: &FreeMemory, own_pages: u64, idle_ns: Option<u64>, now_ns: u64) {
        let last = self.last.replace(Look { free: *free, own_pages, idle_ns, at_ns: now_ns });
        let calm = last.is_some_and(|last| {
            let own = own_pages.saturating_sub(last.own_pages);
            let quiet = free.allocated_since(&last.free).is_some_and(|pages| pages.saturating_sub(own) < NEWS_PAGES);
            let idle = idle_ns.zip(last.idle_ns).map(|(now, then)| now.saturating_sub(then));
            // Half of one CPU's time at least: then there is one that can do the work.
            quiet && idle.is_none_or(|idle| idle >= now_ns.saturating_sub(last.at_ns) / 2)
        });
        if calm {
            self.since_ns.get_or_insert(now_ns);
        } else {
            self.since_ns = None;
        }
    }

    /// Somebody needed memory.
    pub(super) const fn pressure(&mut self) {
        self.since_ns = None;
    }

    /// Whether it was calm when it was looked at last.
    pub(super) const fn is_calm(&self) -> bool {
        self.since_ns.is_some()
    }

    /// For how long it has been calm, ns; 0 if it is not.
    pub(super) fn duration_ns(&self, now_ns: u64) -> u64 {
        self.since_ns.map_or(0, |since| now_ns.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn free(allocated: u64) -> FreeMemory {
        FreeMemory { total: 1 << 30, free: 1 << 29, free_huge: 1 << 28, allocated_pages: Some(allocated) }
    }

    #[test]
    fn a_guest_is_calm_while_it_allocates_little_and_a_cpu_is_idle() {
        let mut calm = Calm::default();
        calm.looked(&free(0), 0, Some(0), 0);
        assert!(!calm.is_calm(), "nothing is known yet");
        calm.looked(&free(NEWS_PAGES - 1), 0, Some(SECOND / 2), SECOND);
        assert!(calm.is_calm());
        calm.looked(&free(2 * NEWS_PAGES + 510), 512, Some(SECOND), 2 * SECOND);
        assert_eq!(calm.duration_ns(4 * SECOND), 3 * SECOND, "what was isolated does not count");
        calm.looked(&free(3 * NEWS_PAGES + 510), 512, Some(2 * SECOND), 3 * SECOND);
        assert_eq!((calm.is_calm(), calm.duration_ns(9 * SECOND)), (false, 0), "it allocates");
        calm.looked(&free(3 * NEWS_PAGES + 510), 512, Some(2 * SECOND + SECOND / 2 - 1), 4 * SECOND);
        assert!(!calm.is_calm(), "its CPUs are busy");
        calm.looked(&free(3 * NEWS_PAGES + 510), 512, None, 5 * SECOND);
        assert!(calm.is_calm(), "unknown");
        calm.pressure();
        assert!(!calm.is_calm());
    }
}
