//! Proof, page by page, that nobody used a page for a while: what an action that hurts hot pages asks for.
//!
//! A region that counts as cold may hold a few hot pages: the monitor looks at some of its pages only. So before a page is
//! paged out its own accessed bit is cleared, time passes, and it is looked at again. The monitor clears bits, too; what it
//! sees while doing so is noted here, so that an access is never lost to it.

use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, normalize};
use crate::event::{Footprint, TargetInfo};
use crate::mapping::Mapping;
use crate::pages::{TableMask, mask_of, push_runs};
use crate::source::{AccessSource, Cost, SourceError, TableBits, TargetId, Window};
use std::collections::{BTreeMap, HashMap};

/// A page that has not been asked about for this many times the waiting time is forgotten.
const FORGET_AFTER: u64 = 8;
/// But not before this, ns: where the CPU budget is small and the target large, looks are far apart.
const FORGET_LEAST_NS: u64 = 60_000_000_000;

/// How one look went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// Bytes present.
    pub present: u64,
    /// Bytes of them that were accessed since they were armed.
    pub young: u64,
    /// Bytes that cannot be observed.
    pub blind: u64,
    /// Bytes armed but not for long enough.
    pub waiting: u64,
    /// Bytes found unused for long enough.
    pub cold: u64,
}

/// The armed pages of one 2 MiB span.
#[derive(Debug, Clone, Default)]
struct Armed {
    pages: TableMask,
    /// Armed pages seen accessed since.
    touched: TableMask,
    /// When each word's pages were armed, ns.
    since_ns: [u64; 8],
    asked_ns: u64,
}

/// An access source that remembers which pages were used since they were armed for a scheme.
#[derive(Debug)]
pub struct Watched<S> {
    source: S,
    targets: HashMap<TargetId, BTreeMap<u64, Armed>>,
    pruned_ns: u64,
}

impl<S: AccessSource> Watched<S> {
    /// Watches what passes through `source`.
    pub fn new(source: S) -> Self {
        Self { source, targets: HashMap::new(), pruned_ns: 0 }
    }

    fn note_tables(armed: Option<&mut BTreeMap<u64, Armed>>, bits: &TableBits) {
        let Some(table) = armed.and_then(|a| a.get_mut(&bits.base)) else { return };
        for i in 0..8 {
            table.touched[i] |= bits.accessed[i] & table.pages[i];
        }
    }

    /// Looks at the armed pages that `windows` are about to clear, page by page: windows tell how many pages were accessed,
    /// not which.
    fn look_first(&mut self, target: TargetId, windows: &[Window]) -> Result<(), SourceError> {
        let Some(armed) = self.targets.get_mut(&target).filter(|a| !a.is_empty()) else { return Ok(()) };
        let mut ranges: Vec<AddrRange> =
            windows.iter().filter(|w| armed.contains_key(&table_of(w))).map(Window::range).collect();
        if ranges.is_empty() {
            return Ok(());
        }
        normalize(&mut ranges);
        self.source.scan(target, &ranges, false, &mut |bits| Self::note_tables(Some(armed), bits))
    }

    /// Notes what windows saw that [`look_first`](Self::look_first) did not: an access in between. All pages of such a window
    /// count.
    fn note_windows(&mut self, target: TargetId, windows: &[Window]) {
        let Some(armed) = self.targets.get_mut(&target).filter(|a| !a.is_empty()) else { return };
        for w in windows.iter().filter(|w| w.seen.accessed > 0) {
            let base = table_of(w);
            let Some(table) = armed.get_mut(&base) else { continue };
            let mask = mask_of(base, w.range());
            let all_armed = (0..8).all(|i| table.pages[i] & mask[i] == mask[i]);
            let noted: u32 = (0..8).map(|i| (table.touched[i] & mask[i]).count_ones()).sum();
            if !all_armed || noted < u32::from(w.seen.accessed) {
                (0..8).for_each(|i| table.touched[i] |= mask[i] & table.pages[i]);
            }
        }
    }

    fn prune(&mut self, now_ns: u64, wait_ns: u64) {
        let keep_ns = wait_ns.saturating_mul(FORGET_AFTER).max(FORGET_LEAST_NS);
        if now_ns < self.pruned_ns.saturating_add(keep_ns) {
            return;
        }
        self.pruned_ns = now_ns;
        for armed in self.targets.values_mut() {
            armed.retain(|_, t| t.asked_ns + keep_ns >= now_ns);
        }
    }
}

impl<S: AccessSource> AccessSource for Watched<S> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn poll_targets(&mut self) -> Result<Vec<TargetInfo>, SourceError> {
        self.source.poll_targets()
    }

    fn may_gain_targets(&self) -> bool {
        self.source.may_gain_targets()
    }

    fn footprint(&mut self, target: TargetId, now_ns: u64) -> Option<Footprint> {
        self.source.footprint(target, now_ns)
    }

    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<(), SourceError> {
        let result = self.source.mappings(target, out);
        if matches!(result, Err(SourceError::Gone { .. } | SourceError::Replaced { .. })) {
            self.targets.remove(&target);
        }
        result
    }

    fn populated(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        out: &mut Vec<AddrRange>,
    ) -> Result<(), SourceError> {
        self.source.populated(target, ranges, out)
    }

    fn arm(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        self.look_first(target, windows)?;
        self.source.arm(target, windows)?;
        self.note_windows(target, windows);
        Ok(())
    }

    fn look(&mut self, target: TargetId, windows: &mut [Window]) -> Result<(), SourceError> {
        // Changes no bit, so what it sees is still there when a scheme looks.
        self.source.look(target, windows)
    }

    fn scan(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        clear: bool,
        sink: &mut dyn FnMut(&TableBits),
    ) -> Result<(), SourceError> {
        let mut armed = self.targets.get_mut(&target).filter(|a| clear && !a.is_empty());
        self.source.scan(target, ranges, clear, &mut |bits| {
            Self::note_tables(armed.as_deref_mut(), bits);
            sink(bits);
        })
    }

    fn cost(&self) -> Cost {
        self.source.cost()
    }

    fn confirm_cold(
        &mut self,
        target: TargetId,
        ranges: &[AddrRange],
        wait_ns: u64,
        now_ns: u64,
        out: &mut Vec<AddrRange>,
    ) -> Result<Confirmed, SourceError> {
        let mut sum = Confirmed::default();
        let mut to_arm = Vec::new();
        let armed = self.targets.entry(target).or_default();
        let mut range = 0;
        self.source.scan(target, ranges, false, &mut |bits| {
            while range < ranges.len() && ranges[range].end <= bits.base {
                range += 1;
            }
            let asked = asked_for(bits, &ranges[range..]);
            let table = armed.entry(bits.base).or_default();
            table.asked_ns = now_ns;
            let (mut cold, mut arm) = ([0; 8], [0; 8]);
            for i in 0..8 {
                table.touched[i] |= bits.accessed[i] & table.pages[i];
                // What is no longer there has lost its history.
                table.pages[i] &= bits.present[i] | !asked[i];
                let present = bits.present[i] & asked[i];
                let known = present & !bits.blind[i];
                let old_enough = now_ns >= table.since_ns[i] + wait_ns;
                let untouched = known & table.pages[i] & !table.touched[i];
                let young = known & table.touched[i];
                let fresh = known & !table.pages[i];
                let mut arming = fresh;
                if old_enough {
                    cold[i] = untouched;
                    arming |= young;
                }
                // New pages in a word that waits already would make the others wait anew: they come later.
                if !old_enough && untouched != 0 {
                    arming = 0;
                }
                arm[i] = arming;
                let bytes = |mask: u64| u64::from(mask.count_ones()) * PAGE_SIZE;
                sum.present += bytes(present);
                sum.blind += bytes(present & bits.blind[i]);
                sum.young += bytes(young);
                sum.cold += bytes(cold[i]);
                sum.waiting += bytes(known & !cold[i] & !young);
            }
            if bits.leaf_shift > 12 {
                // One bit for all of it: in or out as a whole, so that no huge page is split.
                let span = AddrRange::new(bits.base, bits.base + (1 << bits.leaf_shift));
                let whole = asked == [u64::MAX; 8] && ranges[range..].first().is_some_and(|r| r.end >= span.end);
                if whole && cold == [u64::MAX; 8] {
                    crate::pages::push_range(out, span);
                }
                if whole && arm != [0; 8] {
                    crate::pages::push_range(&mut to_arm, span);
                }
            } else {
                push_runs(bits.base, &cold, out);
                push_runs(bits.base, &arm, &mut to_arm);
            }
            for i in (0..8).filter(|&i| arm[i] != 0) {
                table.pages[i] |= arm[i];
                table.touched[i] &= !arm[i];
                table.since_ns[i] = now_ns;
            }
        })?;
        if !to_arm.is_empty() {
            self.source.scan(target, &to_arm, true, &mut |_| {})?;
        }
        self.prune(now_ns, wait_ns);
        Ok(sum)
    }
}

fn table_of(w: &Window) -> u64 {
    w.start / TABLE_SPAN * TABLE_SPAN
}

/// The pages of a table that `ranges` (sorted, from the first that reaches it) ask for.
fn asked_for(bits: &TableBits, ranges: &[AddrRange]) -> TableMask {
    let mut asked = [0; 8];
    let end = bits.base + TABLE_SPAN;
    for r in ranges.iter().take_while(|r| r.start < end) {
        let mask = mask_of(bits.base, *r);
        (0..8).for_each(|i| asked[i] |= mask[i]);
    }
    asked
}
