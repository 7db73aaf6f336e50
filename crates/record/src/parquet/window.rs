//! What a machine has seen of a control group in a window of time.

use isotherm_core::history::frame::{PageAges, bytes};
use isotherm_core::history::reaccessed::Reaccessed;
use isotherm_core::history::times::{AGES_NS, IDLE_NS};

/// Memory for each of [`IDLE_NS`], bytes; `None` where it was not watched for so long.
pub type ByIdle = [Option<u64>; IDLE_NS.len()];

/// Whose windows they are: what is the same in all rows of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// As the machine calls itself.
    pub host: String,
    /// As the operator calls the machine's cluster.
    pub cluster: Option<String>,
    /// Of the kernel: another one after each boot.
    pub boot_id: String,
    /// How accesses were seen.
    pub source: String,
    /// Its release.
    pub kernel: String,
    /// Of the program that wrote it.
    pub isotherm_version: String,
}

/// A row. Sizes are bytes at the end of the window; what is not known is `None`, never zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupWindow {
    /// Begin, microseconds since 1970 (UTC).
    pub window_start_us: i64,
    /// Its length, s.
    pub window_s: u32,
    /// Path of the group.
    pub cgroup: String,
    /// Of its folder, which tells it from another of the same path.
    pub inode: Option<u64>,
    /// In Kubernetes.
    pub namespace: Option<String>,
    /// In Kubernetes.
    pub pod: Option<String>,
    /// Its name, as its runtime or Kubernetes has it.
    pub container: Option<String>,
    /// Mapped and present.
    pub resident_bytes: Option<u64>,
    /// In swap.
    pub swapped_bytes: Option<u64>,
    /// Neither cold nor used.
    pub unobservable_bytes: Option<u64>,
    /// The nearest limit that it is under.
    pub limit_bytes: Option<u64>,
    /// Accessed within the last 120 s.
    pub accessed_bytes: Option<u64>,
    /// Not accessed for at least each of [`IDLE_NS`].
    pub cold_bytes: ByIdle,
    /// Accessed again in this window after having been idle for at least each of [`IDLE_NS`].
    pub promoted_bytes: ByIdle,
    /// For how long the group has been watched, s.
    pub watched_s: Option<u64>,
    /// Taken from it by Isotherm in this window.
    pub reclaimed_bytes: Option<u64>,
    /// Of this, what came back within 10 s.
    pub refault_10s_bytes: Option<u64>,
    /// The same within 60 s.
    pub refault_60s_bytes: Option<u64>,
    /// Time for which some task of the group waited for memory in this window, microseconds.
    pub stall_us: Option<u64>,
    /// What watching the whole machine took in this window, microseconds of CPU time.
    pub monitor_cpu_us: Option<u64>,
    /// What it cost those watched, microseconds.
    pub target_cost_us: Option<u64>,
}

/// The window of [`GroupWindow::accessed_bytes`], ns.
pub const ACCESSED_NS: u64 = 120_000_000_000;

impl GroupWindow {
    /// Takes over sizes and ages.
    pub fn set_ages(&mut self, ages: &PageAges) {
        self.resident_bytes = Some(bytes(ages.resident));
        self.unobservable_bytes = Some(bytes(ages.unobservable));
        self.accessed_bytes = ages.known_within(ACCESSED_NS).map(|accessed| bytes(accessed.pages));
        self.cold_bytes = cold(ages);
        // Times beyond are not known, so it was watched for the longest that is.
        self.watched_s = Some(ages.idle.len().checked_sub(1).map_or(0, |i| AGES_NS[i] / 1_000_000_000));
    }

    /// Takes over what was accessed again in the window. Idle times beyond those that the group was watched for are not
    /// known.
    pub fn set_promoted(&mut self, reaccessed: &Reaccessed) {
        let watched_ns = self.watched_s.unwrap_or(0).saturating_mul(1_000_000_000);
        let pages = reaccessed.pages();
        self.promoted_bytes = std::array::from_fn(|i| (IDLE_NS[i] <= watched_ns).then(|| bytes(pages[i])));
    }
}

/// Idle for at least 0 s is all that can be observed.
fn cold(ages: &PageAges) -> ByIdle {
    IDLE_NS.map(|idle_ns| match idle_ns {
        0 => Some(bytes(ages.resident.saturating_sub(ages.unobservable))),
        _ => ages.known_for(idle_ns).map(|idle| bytes(idle.pages)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::history::frame::IdlePages;

    #[test]
    fn what_was_not_watched_for_so_long_is_not_known() {
        let idle = [80, 70, 60].map(|pages| IdlePages { pages, least: pages, most: pages, unresolved: 0 });
        let ages = PageAges { resident: 100, unobservable: 5, idle: idle.to_vec(), ..PageAges::default() };
        let mut window = GroupWindow::default();
        window.set_ages(&ages);
        window.set_promoted(&Reaccessed::default());
        assert_eq!(window.watched_s, Some(5));
        assert_eq!(window.cold_bytes[..5], [Some(bytes(95)), Some(bytes(80)), Some(bytes(70)), Some(bytes(60)), None]);
        assert_eq!(window.promoted_bytes[..5], [Some(0), Some(0), Some(0), Some(0), None]);
        assert_eq!(window.accessed_bytes, None, "not for 120 s");
        assert_eq!((window.resident_bytes, window.unobservable_bytes), (Some(bytes(100)), Some(bytes(5))));
    }

    #[test]
    fn an_age_of_which_much_is_still_open_is_not_known() {
        let idle = |unresolved| IdlePages { pages: 40, least: 40, most: 40 + unresolved, unresolved };
        let ages = PageAges { resident: 100, idle: vec![idle(5), idle(6)], ..PageAges::default() };
        let mut window = GroupWindow::default();
        window.set_ages(&ages);
        assert_eq!((window.cold_bytes[1], window.cold_bytes[2], window.watched_s), (Some(bytes(40)), None, Some(2)));
    }
}
