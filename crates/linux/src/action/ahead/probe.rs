//! Whether huge pages come cheaper than base pages at present.
//!
//! They do wherever memory is really there: one fault that clears 2 MiB takes about a seventh of the time of 512
//! faults. In a virtual machine whose host takes free memory back (free page reporting), though, a free block of 2 MiB
//! has none: touching it costs the host 512 faults of its own, while base pages come from smaller blocks, which are
//! never reported. A huge page took 4.3 ms there, base pages 0.65 ms for as much, and a huge page that had been freed
//! within the last second 0.09 ms.

use crate::clock::thread_cpu_ns;
use crate::mm::mapping::Mapping;
use isotherm_core::addr::{PAGE_SIZE, TABLE_SPAN};
use rustix::mm::Advice;
use std::io;

/// Blocks that are tried: of some the host may have taken the memory, and of others not.
const BLOCKS: u64 = 4;
/// How long a good answer is taken for true, ns.
const GOOD_NS: u64 = 1_000_000_000;
/// How long a bad one, ns, and the more the more often it came. The blocks that were tried have memory now, and are the
/// first to be handed out again: the host must have taken it back by the next try, which it does within two or three
/// seconds.
const BAD_NS: std::ops::RangeInclusive<u64> = 5_000_000_000..=60_000_000_000;

/// A good answer that was doubted and found true is not doubted again for so long, ns: longer each time.
const SURE_NS: std::ops::RangeInclusive<u64> = 20_000_000..=GOOD_NS;

/// The last answer.
#[derive(Debug)]
pub(super) struct Probe {
    is_expensive: bool,
    until_ns: u64,
    /// How long the next bad answer is taken for true.
    bad_ns: u64,
    /// Whether the answer is to be tried again because of a doubt.
    doubted: bool,
    /// Until when, ns of CLOCK_MONOTONIC, a good answer is not doubted, and for how long after the next doubt.
    sure_until_ns: u64,
    sure_ns: u64,
}

impl Probe {
    /// One that tries it when it is asked.
    pub const fn new() -> Self {
        Self {
            is_expensive: false,
            until_ns: 0,
            bad_ns: *BAD_NS.start(),
            doubted: false,
            sure_until_ns: 0,
            sure_ns: *SURE_NS.start(),
        }
    }

    /// One that always finds them cheap.
    pub const fn good() -> Self {
        Self { until_ns: u64::MAX, sure_until_ns: u64::MAX, ..Self::new() }
    }

    /// Whether 2 MiB cost more as a huge page than as base pages; tried on memory of our own where the last answer is
    /// too old. False where it cannot be tried.
    pub fn is_expensive(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.until_ns {
            let expensive = matches!((cost_ns(true), cost_ns(false)), (Ok(huge), Ok(base)) if huge > base);
            self.learn(expensive, now_ns);
        }
        self.is_expensive
    }

    /// A process spends as if they were expensive: a good answer is tried again, unless it has just been.
    pub const fn doubt(&mut self, now_ns: u64) {
        if !self.is_expensive && now_ns >= self.sure_until_ns {
            self.until_ns = now_ns;
            self.doubted = true;
        }
    }

    fn learn(&mut self, expensive: bool, now_ns: u64) {
        self.is_expensive = expensive;
        self.until_ns = now_ns + if expensive { self.bad_ns } else { GOOD_NS };
        let next = if expensive { self.bad_ns * 2 } else { self.bad_ns / 2 };
        self.bad_ns = next.clamp(*BAD_NS.start(), *BAD_NS.end());
        if std::mem::take(&mut self.doubted) {
            self.sure_until_ns = now_ns + self.sure_ns;
            self.sure_ns = if expensive { *SURE_NS.start() } else { (self.sure_ns * 2).min(*SURE_NS.end()) };
        }
    }
}

/// What touching some blocks of 2 MiB for the first time takes, ns of CPU time.
fn cost_ns(huge: bool) -> io::Result<u64> {
    let len = BLOCKS * TABLE_SPAN;
    let memory = Mapping::aligned(len as usize, TABLE_SPAN as usize)?;
    memory.advise(memory.range(), if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage })?;
    let begin = thread_cpu_ns();
    let step = if huge { TABLE_SPAN } else { PAGE_SIZE };
    (0..len).step_by(step as usize).for_each(|at| memory.write(at as usize, &[1]));
    Ok(thread_cpu_ns() - begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_hold_for_a_while_and_bad_ones_longer_each_time() {
        let mut probe = Probe::new();
        for seconds in [5, 10, 20, 40, 60, 60] {
            probe.learn(true, 7);
            assert_eq!(probe.until_ns, 7 + seconds * 1_000_000_000);
            assert!(probe.is_expensive(probe.until_ns - 1), "the last answer");
        }
        probe.learn(false, 0);
        assert!(!probe.is_expensive(GOOD_NS - 1));
        probe.learn(true, 0);
        assert_eq!(probe.until_ns, 30_000_000_000);
    }

    #[test]
    fn doubt_ends_a_good_answer_and_less_often_where_it_was_wrong() {
        let mut probe = Probe::new();
        probe.learn(false, 0);
        let mut now = 1;
        for sure_ms in [20, 40, 80, 160, 320, 640, 1000, 1000] {
            probe.doubt(now);
            assert_eq!(probe.until_ns, now);
            probe.learn(false, now);
            let sure_ns = sure_ms * 1_000_000;
            probe.doubt(now + sure_ns - 1);
            assert_eq!(probe.until_ns, now + GOOD_NS, "it has just been tried");
            now += sure_ns;
        }
        probe.doubt(now);
        probe.learn(true, now);
        probe.doubt(now + 2 * GOOD_NS);
        assert_eq!(probe.until_ns, now + BAD_NS.start(), "a bad answer is not doubted");
        assert_eq!(probe.sure_ns, *SURE_NS.start());
        let mut good = Probe::good();
        good.doubt(u64::MAX - 1);
        assert_eq!(good.until_ns, u64::MAX);
    }

    #[test]
    fn it_is_tried_where_the_answer_is_old() {
        assert!(cost_ns(true).unwrap() > 0 && cost_ns(false).unwrap() > 0);
        let mut probe = Probe::new();
        let expensive = probe.is_expensive(1);
        assert_eq!(probe.until_ns, 1 + if expensive { *BAD_NS.start() } else { GOOD_NS });
        assert!(!Probe::good().is_expensive(u64::MAX - 1));
    }
}
