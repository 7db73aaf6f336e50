//! Which page frames a process maps. The copied entries hold their numbers, so nothing but them is read.

use super::pte;
use super::space::{Observer, ProcessSpace, SpaceError, span_base};
use super::walker::Mapped;
use crate::proc::Process;
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::source::in_sample;

impl Observer {
    /// See [`isotherm_core::source::AccessSource::frames`].
    pub fn frame_numbers(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
        one_in: u32,
        sink: &mut dyn FnMut(u64, u64),
    ) -> Result<(), SpaceError> {
        self.each_piece(space, process, ranges, |this, _, ranges| {
            let phys_mask = this.walker().layout().phys_mask;
            let asked = |addr| ranges.get(ranges.partition_point(|r| r.end <= addr)).is_some_and(|r| r.start <= addr);
            let mut hand_out = |addr: u64, frame: u64| {
                if in_sample(frame, one_in) && asked(addr) {
                    sink(addr, frame);
                }
            };
            for r in this.walker().records() {
                match r.mapped {
                    Mapped::Table => {
                        for (addr, &entry) in (span_base(r.addr)..).step_by(PAGE_SIZE as usize).zip(r.table) {
                            if pte::is_present(entry) {
                                hand_out(addr, pte::frame(entry, phys_mask));
                            }
                        }
                    }
                    Mapped::Leaf { shift, entry } => {
                        let (base, first) =
                            (r.addr >> shift << shift, pte::frame(pte::leaf_as_first_page(entry), phys_mask));
                        (0..1 << shift >> 12).for_each(|i| hand_out(base + i * PAGE_SIZE, first + i));
                    }
                    Mapped::Nothing { .. } | Mapped::Unreadable => {}
                }
            }
            Ok(())
        })
    }
}
