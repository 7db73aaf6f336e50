//! What a process's own faults cost it: the first to tell that huge pages have become expensive.
//!
//! A [probe](super::probe) holds for a second, in which a process may touch hundreds of blocks. If these are expensive, so is
//! the system time that it spends meanwhile.

use crate::proc::stat::Stat;

/// What a fault in a base page takes at most, ns: 1300 were measured in a virtual machine, and bare metal takes less.
const FAULT_NS: i64 = 2_000;
/// The kernel tells system time in steps of this, ns: so far it may be behind.
const STEP_NS: i64 = 10_000_000;
/// Doubt begins at so much system time that faults in base pages do not explain, ns: that of seven blocks of 2 MiB that a
/// host has to fill, or of some 340 that it need not.
const UNEXPLAINED_NS: i64 = 30_000_000;

/// System time that faults in base pages do not explain.
#[derive(Debug, Default)]
pub(super) struct SystemTime {
    /// System time, ns, and minor faults at the last look.
    seen: Option<(u64, u64)>,
    unexplained_ns: i64,
}

impl SystemTime {
    /// What was spent so far does not count.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Adds what was spent since the last look. True: there is doubt, and the sum begins anew. Other system calls count,
    /// too, so that this asks for a probe and is no answer.
    pub fn raises_doubt(&mut self, stat: &Stat) -> bool {
        let now = (stat.system_ns, stat.minor_faults);
        let Some((system_ns, faults)) = self.seen.replace(now) else { return false };
        let since = |now: u64, then: u64| i64::try_from(now.saturating_sub(then)).unwrap_or(i64::MAX);
        let spent_ns = since(now.0, system_ns);
        let explained_ns = since(now.1, faults).saturating_mul(FAULT_NS);
        // What faults cost less than taken here is not saved up.
        let sum_ns = self.unexplained_ns.saturating_add(spent_ns).saturating_sub(explained_ns);
        self.unexplained_ns = sum_ns.max(-STEP_NS);
        let doubtful = self.unexplained_ns >= UNEXPLAINED_NS;
        if doubtful {
            self.unexplained_ns = 0;
        }
        doubtful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks after each of these (system time in ms, faults): which raise doubt.
    fn doubts(looks: impl IntoIterator<Item = (u64, u64)>) -> Vec<usize> {
        let mut time = SystemTime::default();
        let raises = |(ms, faults): (u64, u64)| {
            let line = format!("7 (a) S 1 1 1 0 -1 0 {faults} 0 0 0 1 {} 0 0 20 0 5 0 9 1 8 1 94 95 96 0", ms / 10);
            time.raises_doubt(&Stat::parse(line.as_bytes()).unwrap())
        };
        looks.into_iter().map(raises).enumerate().filter_map(|(i, doubt)| doubt.then_some(i)).collect()
    }

    #[test]
    fn blocks_that_the_host_has_to_fill_raise_doubt_within_sixteen() {
        // 4.3 ms each, one a look, however slowly.
        let found = doubts((0..40).map(|i| (i * 43 / 10, i)));
        assert!(found[0] < 16 && found.len() >= 4, "{found:?}");
    }

    #[test]
    fn base_pages_never_do_and_blocks_with_memory_seldom() {
        // 512 faults in 0.65 ms.
        assert!(doubts((0..5000).map(|i| (i * 65 / 100, i * 512))).is_empty());
        // A block in 0.09 ms.
        assert_eq!(doubts((0..3000).map(|i| (i * 9 / 100, i))).len(), 6);
    }

    #[test]
    fn what_base_pages_came_cheaper_does_not_hide_blocks_that_follow() {
        let base = (0..1000).map(|i| (i / 5, i * 512));
        let found = doubts(base.chain((1..40).map(|i| (200 + i * 43 / 10, 512_000 + i))));
        assert!(found.first().is_some_and(|&first| first < 1016), "{found:?}");
    }

    #[test]
    fn another_program_begins_anew() {
        assert_eq!(doubts([(10_000, 500), (0, 0), (20, 0), (30, 0)]), [3]);
        let mut time = SystemTime { seen: Some((5 * MS, 1)), unexplained_ns: 20_000_000 };
        time.forget();
        assert_eq!((time.seen, time.unexplained_ns), (None, 0));
    }
}
