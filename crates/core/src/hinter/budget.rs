//! What passes may take of a guest's processors while the guest has none to spare.

use super::block::BLOCK_BYTES;
use super::config::Config;
use super::way::Way;

/// What may be saved up: that of five minutes, ns.
const SAVED_NS: f64 = 300e9;
/// What a block takes, as long as that is not known, ns.
const BLOCK_NS: u64 = 1_000_000;

/// CPU time that is left to passes, and what they take of it.
///
/// Memory blocks go offline one by one, as long as enough is left for the next. Where the kernel chooses the huge pages, half a pass is
/// worth nothing, since the next one gets the same pages: it begins if enough is left for all of it, or all that may be has been saved,
/// and then runs to its end. What it took too much is made up for afterwards.
#[derive(Debug)]
pub(super) struct Budget {
    /// The share of one processor's time; `None`: no limit.
    share: Option<f64>,
    left_ns: f64,
    now_ns: u64,
    /// What a block takes in each way, ns.
    block_ns: [u64; 2],
}

impl Budget {
    /// With nothing saved.
    pub(super) const fn new(share: Option<f64>, now_ns: u64) -> Self {
        Self { share, left_ns: 0.0, now_ns, block_ns: [BLOCK_NS; 2] }
    }

    /// It is `now_ns`.
    pub(super) fn passed(&mut self, now_ns: u64) {
        let since = now_ns.saturating_sub(std::mem::replace(&mut self.now_ns, now_ns));
        let share = self.share.unwrap_or(0.0);
        self.left_ns = (self.left_ns + since as f64 * share).min(SAVED_NS * share);
    }

    /// An attempt to isolate `bytes` took `cpu_ns` of CPU time. `calm`: the guest has a processor to spare, so that it does not count.
    pub(super) fn isolated(&mut self, way: Way, bytes: u64, cpu_ns: u64, calm: bool) {
        let known = &mut self.block_ns[way as usize];
        *known = (*known + cpu_ns / (bytes / BLOCK_BYTES).max(1)) / 2;
        self.released(cpu_ns, calm);
    }

    /// To return memory took `cpu_ns` of CPU time.
    pub(super) fn released(&mut self, cpu_ns: u64, calm: bool) {
        self.left_ns -= if calm { 0.0 } else { cpu_ns as f64 };
    }

    /// Whether there is enough for the next step, in which up to `fresh` blocks are wanted.
    pub(super) fn is_enough(&self, config: &Config, fresh: u64) -> bool {
        let blocks = match config.way {
            Way::Offline => config.unit,
            Way::Touch => fresh,
        };
        let step_ns = self.block_ns[config.way as usize].saturating_mul(blocks) as f64;
        self.share.is_none_or(|share| self.left_ns >= step_ns.min(SAVED_NS * share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    #[test]
    fn a_busy_guest_loses_a_hundredth_of_a_processor() {
        let (mut budget, config) = (Budget::new(Some(0.01), 0), Config::touch(0));
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
        let (mut budget, config) = (Budget::new(Some(0.01), 0), Config::touch(0));
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

    #[test]
    fn without_a_limit_nothing_is_waited_for() {
        let mut budget = Budget::new(None, 0);
        budget.isolated(Way::Touch, BLOCK_BYTES, 1000 * SECOND, false);
        assert!(budget.is_enough(&Config::touch(0), u64::MAX));
    }
}
