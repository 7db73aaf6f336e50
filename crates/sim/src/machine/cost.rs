//! What watching costs: the figures that reading and clearing page tables took on real machines.

/// Costs in ns. The default holds medians measured on Linux 6.18 in a virtual machine with 4 KiB pages: reading entries
/// by an eBPF iterator, clearing by `process_madvise(MADV_COLD)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CostModel {
    /// What the first call after a sleep takes on top: waking up, and cold caches.
    pub wake_up: f64,
    /// A read of any number of windows, however few: entering the kernel and finding the target.
    pub read_call: f64,
    /// A clear of any number of windows.
    pub clear_call: f64,
    pub read_window: f64,
    /// Each page of a window beyond the first, and each page of a scan: copying entries and picking the bits out of
    /// them.
    pub read_page: f64,
    /// Clearing a window of so many pages that were all accessed; in between lies a straight line.
    pub clear_young: [(u64, f64); 4],
    /// Clearing a window of so many pages of which none was accessed.
    pub clear_old: [(u64, f64); 4],
    /// What the target loses for each bit cleared: the hardware must set it again.
    pub target_page: f64,
}

impl Default for CostModel {
    fn default() -> Self {
        Self::MEASURED
    }
}

impl CostModel {
    /// What the page-table source takes, call after call without a sleep.
    pub const MEASURED: Self = Self {
        wake_up: 0.0,
        read_call: 4_100.0,
        clear_call: 1_000.0,
        read_window: 100.0,
        read_page: 180_000.0 / 262_144.0,
        clear_young: [(1, 530.0), (16, 1_450.0), (64, 4_200.0), (512, 28_000.0)],
        clear_old: [(1, 320.0), (16, 870.0), (64, 2_600.0), (512, 19_000.0)],
        target_page: 300.0,
    };

    /// A machine on which watching costs nothing, for tests of exact times.
    pub fn free() -> Self {
        Self {
            wake_up: 0.0,
            read_call: 0.0,
            clear_call: 0.0,
            read_window: 0.0,
            read_page: 0.0,
            clear_young: [(1, 0.0); 4],
            clear_old: [(1, 0.0); 4],
            target_page: 0.0,
        }
    }

    /// Reading a window of `pages`, ns.
    pub fn read(&self, pages: u64) -> f64 {
        self.read_window + self.read_page * pages.saturating_sub(1) as f64
    }

    /// Clearing a window of `pages` of which `young` were accessed, ns; nothing if none was, because such windows are
    /// left alone.
    pub fn clear(&self, pages: u64, young: u64) -> f64 {
        if young == 0 || pages == 0 {
            return 0.0;
        }
        let (old, all_young) = (interpolate(&self.clear_old, pages), interpolate(&self.clear_young, pages));
        old + (all_young - old) * young as f64 / pages as f64
    }
}

fn interpolate(points: &[(u64, f64); 4], pages: u64) -> f64 {
    let (first, last) = (points[0], points[3]);
    if pages <= first.0 {
        return first.1;
    }
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if pages <= x1 {
            return y0 + (y1 - y0) * (pages - x0) as f64 / (x1 - x0).max(1) as f64;
        }
    }
    last.1 * pages as f64 / last.0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_points_are_met_and_lines_lie_between() {
        let c = CostModel::default();
        assert_eq!(c.clear(1, 1), 530.0);
        assert_eq!(c.clear(16, 16), 1_450.0);
        assert_eq!(c.clear(512, 512), 28_000.0);
        assert_eq!(c.clear(40, 40), (1_450.0 + 4_200.0) / 2.0);
        assert_eq!(c.clear(1024, 1024), 56_000.0);
        assert_eq!(c.clear(512, 0), 0.0);
        assert!(c.clear(512, 1) > 19_000.0 && c.clear(512, 1) < 19_100.0);
    }

    #[test]
    fn reading_a_gibibyte_takes_what_was_measured() {
        let c = CostModel::default();
        let gib = c.read_page * 262_144.0;
        assert!((gib - 180_000.0).abs() < 1.0);
    }
}
