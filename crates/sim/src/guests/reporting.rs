//! Free page reporting as Linux does it (mm/page_reporting.c): every two seconds a part of each list of free blocks.

use super::buddy::{Buddy, HINT_ORDER, MAX_ORDER};
use super::host::Host;
use super::params::Params;
use isotherm_core::hinter::Bitmap;

/// Blocks in a report: PAGE_REPORTING_CAPACITY.
const CAPACITY: u32 = 32;
/// A pass reports this part of a list, rounded up to whole reports.
const PART: u32 = 16;

/// A guest's kernel that reports.
#[derive(Debug)]
pub(crate) struct Reporting {
    /// Blocks that were reported and not used since: PageReported.
    reported: Bitmap,
    every_ns: u64,
    next_ns: u64,
    report_ns: u64,
}

impl Reporting {
    /// That of a guest of so many pages.
    pub fn new(pages: u32, params: &Params, now_ns: u64) -> Self {
        Self {
            reported: Bitmap::new(u64::from(pages >> HINT_ORDER)),
            every_ns: params.reporting_ns,
            next_ns: now_ns + params.reporting_ns,
            // Taken off a list and put back, in the kernel itself: what remains is the device's notification.
            report_ns: params.answer_ns / 10,
        }
    }

    /// When the next pass is.
    pub const fn wanted_ns(&self) -> u64 {
        self.next_ns
    }

    /// Makes a pass if it is time; the CPU time that it took, ns.
    pub fn run(&mut self, buddy: &mut Buddy, host: &mut Host, guest: usize, now_ns: u64) -> u64 {
        if now_ns < self.next_ns {
            return 0;
        }
        self.next_ns = now_ns + self.every_ns;
        for block in buddy.take_used() {
            self.reported.put(u64::from(block), false);
        }
        let mut cost_ns = 0;
        for order in HINT_ORDER..=MAX_ORDER {
            let mut left = buddy.count(order).div_ceil(CAPACITY * PART) * CAPACITY;
            for page in buddy.list(order) {
                let blocks = page >> HINT_ORDER..(page >> HINT_ORDER) + (1 << (order - HINT_ORDER));
                if blocks.clone().all(|block| self.reported.get(u64::from(block))) {
                    continue;
                }
                if left == 0 {
                    break;
                }
                left -= 1;
                cost_ns += self.report_ns;
                for block in blocks {
                    host.drop_block(guest, block);
                    self.reported.put(u64::from(block), true);
                }
            }
        }
        cost_ns
    }
}
