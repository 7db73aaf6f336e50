//! Time goes on: touches of pages that are not there, work on memory, the kernel's own work.

use super::{SimMemory, base_of};
use crate::machine::device::FAULT_NS;
use crate::machine::hardware::Thp;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::pages::mask_of;
use std::cmp::Reverse;

/// How often khugepaged comes by (its `scan_sleep_millisecs`), ns.
pub(super) const KHUGEPAGED_EVERY_NS: f64 = 10e9;
/// What it looks at each time (`pages_to_scan`): 4096 pages.
const KHUGEPAGED_SPANS: usize = 8;
/// It leaves spans alone of which more pages are out (`max_ptes_swap`).
const KHUGEPAGED_MOST_OUT: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Touch,
    StageEnd,
    Work,
    Khugepaged,
    Background,
}

impl SimMemory {
    /// Lets time pass until `wall_ns`.
    pub fn advance(&mut self, wall_ns: u64) {
        let to = wall_ns as f64;
        loop {
            let (what, when) = self.next_event();
            if when > to {
                break;
            }
            self.average(when);
            match what {
                Next::Touch => self.touch(when),
                Next::StageEnd => {
                    self.progress.work_until(self.stage_end);
                    self.renew_shares();
                }
                Next::Work => {
                    self.progress.run_until(when);
                    self.finish_piece(when);
                    self.relieve(when);
                }
                Next::Background => {
                    self.progress.run_until(when);
                    self.background(when);
                }
                Next::Khugepaged => {
                    self.progress.run_until(when);
                    self.next_khugepaged = when + KHUGEPAGED_EVERY_NS;
                    self.khugepaged();
                    self.relieve(when);
                }
            }
        }
        self.progress.run_until(to);
        self.average(to);
    }

    fn next_event(&self) -> (Next, f64) {
        let touch = self.due.peek().map_or(f64::INFINITY, |Reverse((work, _))| self.progress.wall_of(*work));
        let matters = !self.huge.is_empty() || self.slow_bytes > 0;
        let stage = if matters { self.progress.wall_of(self.stage_end) } else { f64::INFINITY };
        let work = self.worker.next_done().unwrap_or(f64::INFINITY);
        let khugepaged = if self.hardware.thp == Thp::Never { f64::INFINITY } else { self.next_khugepaged };
        let background = self.reclaim.next().unwrap_or(f64::INFINITY);
        let all = [
            (Next::StageEnd, stage),
            (Next::Touch, touch),
            (Next::Work, work),
            (Next::Khugepaged, khugepaged),
            (Next::Background, background),
        ];
        all.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((Next::Touch, f64::INFINITY))
    }

    /// The program touches a page that is not there, or was not when this was foreseen.
    fn touch(&mut self, when: f64) {
        let Some(Reverse((work, addr))) = self.due.pop() else { return };
        let base = base_of(addr);
        let mask = mask_of(base, AddrRange::new(addr, addr + PAGE_SIZE));
        let in_set = |set: [u64; 8]| (0..8).any(|i| set[i] & mask[i] != 0);
        if in_set(self.out.mask(base)) {
            self.progress.work_until(work);
            self.come_back(base, &mask);
            self.counters.major_faults += 1;
            self.progress.wait(self.hardware.swap.map_or(0, |d| d.fault_ns()));
        } else if in_set(self.holes.mask(base)) {
            self.progress.work_until(work);
            self.counters.first_touches += 1;
            if self.may_be_huge(base) && self.never_populated(base) {
                self.make_huge(base);
                self.progress.lose(self.hardware.collapse_ns as f64 / 2.0);
            } else {
                self.populate(base, &mask);
                self.progress.lose(FAULT_NS as f64);
            }
        } else {
            return;
        }
        let waits = self.relieve(when);
        if waits > 0 {
            self.progress.wait(waits);
        }
    }

    /// Whether the kernel makes huge pages there by itself.
    fn may_be_huge(&self, base: u64) -> bool {
        self.holds_block(base)
            && match self.hardware.thp {
                Thp::Never => false,
                Thp::Madvise => self.advised.contains(&base),
                Thp::Always => !self.forbidden.contains(&base),
            }
    }

    /// Goes through the next spans and makes huge pages of those that may be and hold anything.
    fn khugepaged(&mut self) {
        let spans = self.arena.start.div_ceil(TABLE_SPAN)..self.arena.end / TABLE_SPAN;
        let from = self.khugepaged_at.clamp(spans.start, spans.end);
        let order = (from..spans.end).chain(spans.start..from).map(|i| i * TABLE_SPAN);
        let chosen: Vec<u64> = order
            .filter(|base| self.may_be_huge(*base) && !self.is_huge(*base))
            .filter(|base| self.pages_out(*base) <= KHUGEPAGED_MOST_OUT && !self.never_populated(*base))
            .take(KHUGEPAGED_SPANS)
            .collect();
        for base in chosen {
            self.make_huge(base);
            self.counters.worker_ns += self.hardware.collapse_ns;
            self.khugepaged_at = base / TABLE_SPAN + 1;
        }
    }
}
