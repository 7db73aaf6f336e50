//! What passes may take of a guest's processors while the guest has none to spare.

use super::block::BLOCK_BYTES;
use super::config::Config;
use super::way::Way;

/// One part in so many of one processor's time.
const SHARE: u64 = 100;
/// What may be saved up: that of five minutes, ns.
const MOST_NS: i64 = 300_000_000_000 / SHARE as i64;
/// What a block takes, as long as that is not known, ns.
const BLOCK_NS: u64 = 1_000_000;

/// CPU time that is left to passes, and what they take of it.
///
/// Memory blocks go offline one by one, as they can be paid. Where the kernel chooses the huge pages, half a pass is worth nothing, since
/// the next one gets the same pages: it begins if it can be paid as a whole, or all has been saved that may be, and then runs to its
/// end. What it took too much is made up for afterwards.
#[derive(Debug)]
pub(super) struct Budget {
    left_ns: i64,
    now_ns: u64,
    /// What a block takes in each way, ns.
    block_ns: [u64; 2],
}

impl Budget {
    /// With nothing saved.
    pub(super) const fn new(now_ns: u64) -> Self {
        Self { left_ns: 0, now_ns, block_ns: [BLOCK_NS; 2] }
    }

    /// With all saved that may be.
    #[cfg(test)]
    pub(super) const fn full(now_ns: u64) -> Self {
        Self { left_ns: MOST_NS, ..Self::new(now_ns) }
    }

    /// It is `now_ns`.
    pub(super) fn passed(&mut self, now_ns: u64) {
        let since = now_ns.saturating_sub(std::mem::replace(&mut self.now_ns, now_ns));
        self.left_ns = self.left_ns.saturating_add((since / SHARE) as i64).min(MOST_NS);
    }

    /// An attempt to isolate `bytes` took `cpu_ns` of CPU time. `calm`: the guest has a processor to spare, so that it costs nobody anything.
    pub(super) fn isolated(&mut self, way: Way, bytes: u64, cpu_ns: u64, calm: bool) {
        let known = &mut self.block_ns[way as usize];
        *known = (*known + cpu_ns / (bytes / BLOCK_BYTES).max(1)) / 2;
        self.released(cpu_ns, calm);
    }

    /// To return memory took `cpu_ns` of CPU time.
    pub(super) fn released(&mut self, cpu_ns: u64, calm: bool) {
        self.left_ns = self.left_ns.saturating_sub(if calm { 0 } else { cpu_ns as i64 });
    }

    /// Whether there is enough for the next step, in which up to `fresh` blocks are wanted.
    pub(super) fn is_enough(&self, config: &Config, fresh: u64) -> bool {
        let blocks = match config.way {
            Way::Offline => config.unit,
            Way::Touch => fresh,
        };
        self.left_ns >= self.block_ns[config.way as usize].saturating_mul(blocks).min(MOST_NS as u64) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    #[test]
    fn a_busy_guest_loses_a_hundredth_of_a_processor() {
        let (mut budget, config) = (Budget::new(0), Config::touch(0));
        let mut passes = 0;
        // Passes over a hundred blocks of 50 ms, which is more than can be saved.
        for tenths in 0..100_000 {
            budget.passed(tenths * SECOND / 10);
            if budget.is_enough(&config, 100) {
                budget.isolated(Way::Touch, 100 * BLOCK_BYTES, 5 * SECOND - MS, false);
                budget.released(MS, false);
                passes += 1;
            }
        }
        assert!((19..=21).contains(&passes), "{passes} passes of 5 s in 10,000 s");
    }

    #[test]
    fn a_pass_is_waited_for_as_long_as_it_must_be_saved_for() {
        let (mut budget, config) = (Budget::new(0), Config::touch(0));
        assert!(!budget.is_enough(&config, 1), "nothing is saved");
        budget.passed(SECOND);
        assert!(
            budget.is_enough(&config, 10) && !budget.is_enough(&config, 11),
            "a millisecond each, as nothing is known"
        );
        budget.isolated(Way::Touch, 10 * BLOCK_BYTES, 30 * MS, true);
        assert!(budget.is_enough(&config, 5) && !budget.is_enough(&config, 6), "2 ms each by now");
        let offline = Config::offline(8 * BLOCK_BYTES, 0);
        assert!(budget.is_enough(&offline, 1000), "memory blocks go one by one");
        budget.isolated(Way::Offline, 8 * BLOCK_BYTES, 8 * MS, false);
        assert!(!budget.is_enough(&offline, 8));
        budget.passed(2 * SECOND);
        assert!(budget.is_enough(&offline, 8));
    }
}
