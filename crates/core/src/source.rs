//! The border to whatever can tell which pages were accessed.

use crate::addr::AddrRange;
use crate::bits::{TableBits, Window};
use crate::history::pages::PageHistory;
use crate::mapping::Mapping;
use crate::mask::{NO_PAGES, PageMask};
use crate::target::{Footprint, Start, TargetId, TargetInfo};

/// Which of the accessed bits that it finds set a scan clears. Bits of neighbours in the same leaf or folio may be
/// cleared, too; [`TableBits::cleared`] tells.
pub enum Clear<'a> {
    /// None: a scan that changes nothing.
    Nothing,
    /// All.
    All,
    /// Those that this chooses for each table, given what was found there (`cleared` is not known yet then).
    Chosen(&'a mut dyn FnMut(&TableBits) -> PageMask),
}

impl std::fmt::Debug for Clear<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::All => "All",
            Self::Chosen(_) => "Chosen",
        })
    }
}

impl Clear<'_> {
    /// Whether it may clear anything.
    pub const fn any(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// The pages whose bits are to be cleared, among those found accessed.
    pub fn choose(&mut self, bits: &TableBits) -> PageMask {
        match self {
            Self::Nothing => NO_PAGES,
            Self::All => bits.accessed,
            Self::Chosen(choose) => crate::mask::and(&choose(bits), &bits.accessed),
        }
    }
}

/// Whether a page frame belongs to a sample of one in `one_in` frames (all of them for 0 and 1), by a hash of its
/// number: a smaller sample is part of every larger one.
pub const fn in_sample(frame: u64, one_in: u32) -> bool {
    // The golden ratio spreads neighbouring and evenly spaced numbers evenly.
    let hash = frame.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    hash * (one_in as u64) < 1 << 32
}

/// What observing has cost since the source was made. All figures only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of the monitor itself, in ns (measured on a real system, modelled in a simulation).
    pub monitor_ns: u64,
    /// Of this, what clearing bits took in scans; `None`: not measured apart.
    pub clear_ns: Option<u64>,
    /// Time the target loses, in ns: the hardware must set cleared bits again (estimated), clearing interrupts the
    /// processors that run it, or takes its processor for a while (measured; the CPU time itself is in `monitor_ns`).
    pub target_ns: u64,
    /// Page observations (bits read).
    pub pages_read: u64,
    /// Accessed bits cleared.
    pub pages_cleared: u64,
}

impl Cost {
    /// All of it, ns.
    pub const fn spent_ns(&self) -> u64 {
        self.monitor_ns + self.target_ns
    }

    /// CPU time of the monitor for all but clearing bits, ns; `None`: not measured apart.
    pub fn reading_ns(&self) -> Option<u64> {
        Some(self.monitor_ns - self.clear_ns?.min(self.monitor_ns))
    }
}

/// Why a source cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The target has exited.
    #[error("target {target} (pid {pid}) has exited")]
    Gone {
        /// Which target.
        target: TargetId,
        /// Its process.
        pid: u32,
    },
    /// The target's address space was replaced (exec): everything known about it is void.
    #[error("target {target} (pid {pid}) executed another program")]
    Replaced {
        /// Which target.
        target: TargetId,
        /// Its process.
        pid: u32,
    },
    /// Anything else, with pid, range and remedy in the text.
    #[error("{0}")]
    Failed(String),
}

/// Processes that belong to the targets and cannot be watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many there are at present.
    pub processes: u64,
    /// Of these, how many this user may not look into.
    pub not_permitted: u64,
}

/// Something that can tell which pages of its targets were accessed.
///
/// The loop is: [`arm`](Self::arm) some windows, let time pass, [`look`](Self::look) at them. A page that was not
/// accessed stays armed, so it can be looked at again for the price of a read.
pub trait AccessSource {
    /// Short name: `pagetable`, `idle`, `sim`.
    fn name(&self) -> &'static str;

    /// Targets that have come since the last call: at the first call those the source was made with, later what they
    /// forked or what joined their control group. Ends are reported by [`SourceError::Gone`].
    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError>;

    /// Whether more targets may come although none is left (a control group that is empty just now).
    fn may_gain_targets(&self) -> bool {
        false
    }

    /// Processes that belong to the targets and cannot be watched; none where nothing is refused.
    fn refused(&self) -> Refused {
        Refused::default()
    }

    /// How a target's process began; `None` where that is not known, or the target is none.
    fn start(&mut self, target: TargetId) -> Option<Start> {
        let _ = target;
        None
    }

    /// CPU time that all threads of a target have spent so far, ns; `None` where that is not known. It must grow by what
    /// they spend, no later than when the thread stops, or some milliseconds after it began. Asking for it costs next to
    /// nothing.
    fn cpu_ns(&mut self, target: TargetId) -> Option<u64> {
        let _ = target;
        None
    }

    /// Resident memory of a target at `now_ns`; `None` where nobody counts it.
    fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        let _ = (target, now_ns);
        None
    }

    /// Replaces `out` by the target's mappings now: sorted, disjoint.
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError>;

    /// Replaces `out` by the parts of `ranges` (sorted, disjoint) below which page tables exist at all: coarse (2 MiB
    /// or more), sorted, disjoint, and cheap, since whole subtrees that were never populated are passed over. A source
    /// that cannot tell returns `ranges`.
    fn populated(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<AddrRange>,
    ) -> Result<(), SourceError> {
        let _ = target;
        out.clear();
        out.extend_from_slice(ranges);
        Ok(())
    }

    /// Reads each window (`seen` tells the state found *before* clearing), then clears the accessed bits that are set,
    /// so that from now on a set bit means an access. Bits of neighbours in the same leaf or folio may be cleared too.
    fn arm(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError>;

    /// Reads each window and changes nothing.
    fn look(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError>;

    /// Reads every populated table below `ranges` (sorted, disjoint, page aligned) and hands it to `sink` in address
    /// order, bits outside the ranges masked off, after clearing what `clear` says of it.
    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        clear: Clear<'_>,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError>;

    /// Hands the present base pages of `ranges` (sorted, disjoint, page aligned) whose frame is [`in_sample`], each
    /// with the number of its frame, to `sink` in address order. The sample is of frames, not of addresses, so memory
    /// that several targets share is sampled in all of them or in none. Below a huge leaf each base page counts.
    /// `false` where the source cannot tell frames.
    fn frames(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        one_in: u32,
        sink: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, SourceError> {
        let _ = (target, ranges, one_in, sink);
        Ok(false)
    }

    /// What this has cost so far.
    fn cost(&self) -> Cost;

    /// What is known of when each of the target's pages was last accessed; `None` where nobody keeps that.
    fn page_history(&self, target: TargetId) -> Option<&PageHistory> {
        let _ = target;
        None
    }

    /// Goes on with what an earlier run knew of a target that was not walked yet; nothing where nobody keeps that.
    fn continue_history(&mut self, target: TargetId, history: PageHistory) {
        let _ = (target, history);
    }

    /// Tells whoever keeps the page history that ages from `age_ns` on are asked about: walks must not lie further
    /// apart.
    fn ask_age(&mut self, age_ns: u64) {
        let _ = age_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_frames_are_fair_and_nested() {
        for stride in [1, 2, 7, 512] {
            let in_all = |n: u32| (0..100_000u64).filter(|i| in_sample(i * stride, n)).count();
            assert_eq!((in_all(0), in_all(1)), (100_000, 100_000));
            for n in [2, 16, 100] {
                let share = in_all(n) as f64 * f64::from(n) / 1e5;
                assert!((0.95..1.05).contains(&share), "one in {n}, every {stride}: {share}");
            }
        }
        assert!((0..10_000).filter(|&f| in_sample(f, 64)).all(|f| in_sample(f, 32) && in_sample(f, 48)));
    }
}
