//! The machine that we run in, as what is decided for it reaches it.

use super::GuestError;
use super::link::Link;
use super::session::GuestSession;
use isotherm_core::hinter::{Block, FreeMemory, Guest};
use isotherm_linux::clock::{monotonic_ns, process_cpu_ns};
use isotherm_linux::guestmem::{FlagSampler, KernelIsolator, compact, free_memory, idle_ns};
use isotherm_linux::roots::Roots;
use std::fmt;
use std::io;

/// The kernel's files, and the host at the other end of a connection.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) roots: Roots,
    pub(super) flags: FlagSampler,
    pub(super) isolator: KernelIsolator,
    pub(super) link: Link,
    pub(super) session: GuestSession,
    /// Ranges that the host takes in a report.
    pub(super) most_ranges: usize,
    /// What people were shown last, so that nothing is shown twice in a row.
    pub(super) shown: String,
}

impl Guest for Machine {
    type Error = GuestError;
    type Isolator = KernelIsolator;

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn free_memory(&self) -> Result<FreeMemory, GuestError> {
        free_memory(&self.roots).map_err(GuestError::io("read how much memory is free"))
    }

    fn page_is_free(&self, addr: u64) -> Result<bool, GuestError> {
        self.flags.is_free(addr).map_err(GuestError::io("read /proc/kpageflags"))
    }

    fn idle_ns(&self) -> Option<u64> {
        idle_ns(&self.roots)
    }

    fn cpu_ns(&self) -> u64 {
        process_cpu_ns()
    }

    fn compact(&mut self) -> io::Result<()> {
        compact(&self.roots)
    }

    fn isolator(&mut self) -> &mut KernelIsolator {
        &mut self.isolator
    }

    fn report(&mut self, batch: u64, blocks: &[Block], unit: u64) {
        self.session.report(batch, blocks, unit, self.most_ranges);
        // At once: the guest lacks that memory until the answer comes.
        let _ = self.link.write(self.session.out());
    }

    fn trouble(&mut self, what: fmt::Arguments<'_>) {
        let what = what.to_string();
        if self.shown != what {
            tracing::info!("{what}");
            self.shown = what;
        }
    }
}
