//! What actions do to a piece of memory within 2 MiB, and how long they take.

use super::{SimMemory, base_of, bytes_of};
use crate::machine::hardware::Thp;
use isotherm_core::actuator::{Destination, Request};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use isotherm_core::mask::PageMask;
use isotherm_core::pages::mask_of;
use isotherm_core::scheme::action::Action;
use isotherm_core::units::format_size;

/// What a call costs besides the pages, ns.
const CALL_NS: u64 = 1_000;
/// Advice that only moves a page between lists, ns a page.
const ADVICE_NS: u64 = 50;
/// Swap counts as nearly full below this, or below one part in [`SPARE_PART`]; as on a real machine.
const SPARE: u64 = 64 << 20;
const SPARE_PART: u64 = 20;

/// Why a piece of memory was left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("not possible")]
    Impossible,
    #[error("there is no swap")]
    NoSwap,
    #[error("swap is full")]
    SwapFull,
    #[error("part of a huge page, which would have to be split")]
    Split,
    #[error("no whole block of 2 MiB")]
    NoBlock,
    #[error("nothing is there")]
    Empty,
    #[error("there is only one memory node")]
    OneNode,
    #[error("there is no node {0}; the simulated machine has 0 (fast) and 1 (slow)")]
    NoNode(u32),
    #[error("all destinations have weight 0")]
    NoWeight,
    #[error("node 1 is full")]
    NodeFull,
}

type Applied = Result<u64, Refusal>;

impl SimMemory {
    /// Why `action` cannot be done at all just now.
    pub(crate) fn obstacle(&self, action: Action) -> Option<String> {
        match action {
            Action::PageOut => {
                let size = self.hardware.swap_size;
                if self.hardware.swap.is_none() || size == 0 {
                    return Some("the simulated machine has no swap; leave --swap none out".into());
                }
                let free = size.saturating_sub(self.out_bytes);
                (free < SPARE || free < size / SPARE_PART).then(|| {
                    format!(
                        "swap is nearly full ({} of {} free); give more --swap-size",
                        format_size(free),
                        format_size(size)
                    )
                })
            }
            Action::MigrateHot | Action::MigrateCold if self.hardware.slow.is_none() => {
                Some("the simulated machine has one memory node; give it a second one with --slow-node".into())
            }
            Action::HugePage if self.hardware.thp == Thp::Never => {
                Some("transparent huge pages are switched off; give --thp madvise, or use the action collapse".into())
            }
            Action::LruPrio => Some("the kernel has no way to move another process's pages up in its LRU lists".into()),
            _ => None,
        }
    }

    /// How long `action` takes on `range`, ns.
    pub(super) fn cost_ns(&self, action: Action, range: AddrRange) -> u64 {
        let base = base_of(range.start);
        let present = bytes_of(&self.present(base, range)) / PAGE_SIZE;
        let pages_out = bytes_of(&self.out_within(base, range)) / PAGE_SIZE;
        let swap = self.hardware.swap;
        let read = pages_out * swap.map_or(0, |d| d.read_ns);
        CALL_NS
            + match action {
                Action::Stat | Action::HugePage | Action::NoHugePage | Action::Unlock => 0,
                Action::PageOut => present * swap.map_or(0, |d| d.page_out_ns()),
                Action::WillNeed | Action::Lock => read,
                Action::Cold | Action::LruDeprio | Action::LruPrio => present * ADVICE_NS,
                Action::Collapse => self.hardware.collapse_ns + read,
                Action::MigrateHot | Action::MigrateCold => {
                    present * self.hardware.slow.map_or(0, |(tier, _)| tier.move_ns)
                }
            }
    }

    /// Does it; bytes that it succeeded for.
    pub(super) fn act(&mut self, request: &Request, range: AddrRange) -> Applied {
        let base = base_of(range.start);
        let present = self.present(base, range);
        match request.action {
            Action::Stat => Ok(range.len()),
            Action::Cold | Action::LruDeprio => {
                self.mark_cold(base, &present);
                Ok(bytes_of(&present))
            }
            Action::LruPrio => Err(Refusal::Impossible),
            Action::PageOut => self.page_out(base, present),
            Action::WillNeed => {
                let out = self.out_within(base, range);
                Ok(self.come_back(base, &out))
            }
            Action::HugePage => {
                self.forbidden.remove(&base);
                self.advised.insert(base);
                Ok(range.len())
            }
            Action::NoHugePage => {
                self.advised.remove(&base);
                self.forbidden.insert(base);
                Ok(range.len())
            }
            Action::Collapse => self.collapse(base, range),
            Action::Lock => {
                // mlock brings everything in.
                let asked = mask_of(base, range);
                self.come_back(base, &asked);
                self.populate(base, &asked);
                self.locked.insert_mask(base, &asked);
                Ok(range.len())
            }
            Action::Unlock => {
                self.locked.remove_mask(base, &mask_of(base, range));
                Ok(range.len())
            }
            Action::MigrateHot | Action::MigrateCold => self.migrate(base, present, &request.destinations),
        }
    }

    /// Pages of `range` that are out.
    fn out_within(&self, base: u64, range: AddrRange) -> PageMask {
        let (out, asked) = (self.out.mask(base), mask_of(base, range));
        std::array::from_fn(|i| out[i] & asked[i])
    }

    /// Huge pages go whole or stay.
    fn splits(&self, base: u64, mask: &PageMask) -> bool {
        self.is_huge(base) && *mask != [u64::MAX; 8]
    }

    fn page_out(&mut self, base: u64, present: PageMask) -> Applied {
        if self.hardware.swap.is_none() {
            return Err(Refusal::NoSwap);
        }
        if self.splits(base, &present) {
            return Err(Refusal::Split);
        }
        let locked = self.locked.mask(base);
        let going: PageMask = std::array::from_fn(|i| present[i] & !locked[i]);
        let bytes = bytes_of(&going);
        if bytes > self.hardware.swap_size.saturating_sub(self.out_bytes) {
            return Err(Refusal::SwapFull);
        }
        if bytes > 0 {
            self.leave(base, &going);
        }
        Ok(bytes)
    }

    fn collapse(&mut self, base: u64, range: AddrRange) -> Applied {
        if range.len() < TABLE_SPAN || !self.holds_block(base) {
            return Err(Refusal::NoBlock);
        }
        if self.never_populated(base) {
            return Err(Refusal::Empty);
        }
        self.make_huge(base);
        Ok(TABLE_SPAN)
    }

    fn migrate(&mut self, base: u64, present: PageMask, to: &[Destination]) -> Applied {
        let Some((_, size)) = self.hardware.slow else { return Err(Refusal::OneNode) };
        if let Some(stranger) = to.iter().find(|d| d.node > 1) {
            return Err(Refusal::NoNode(stranger.node));
        }
        if self.splits(base, &present) {
            return Err(Refusal::Split);
        }
        let total: u64 = to.iter().map(|d| u64::from(d.weight)).sum();
        if total == 0 {
            return Err(Refusal::NoWeight);
        }
        // Shares are dealt out by page number, as the kernel's weighted interleaving does.
        let node_of = |page: u64| {
            let mut ticket = page % total;
            to.iter().find(|d| {
                let weight = u64::from(d.weight);
                let mine = ticket < weight;
                ticket = ticket.saturating_sub(weight);
                mine
            })
        };
        let mut masks: [PageMask; 2] = [[0; 8]; 2];
        let whole = self.is_huge(base);
        for bit in (0..512u64).filter(|bit| present[(bit / 64) as usize] >> (bit % 64) & 1 == 1) {
            let ticket = if whole { base / TABLE_SPAN } else { base / PAGE_SIZE + bit };
            if let Some(d) = node_of(ticket) {
                masks[d.node as usize][(bit / 64) as usize] |= 1 << (bit % 64);
            }
        }
        let back = self.leave_slow_node(base, &masks[0]);
        if bytes_of(&masks[1]) > size.saturating_sub(self.slow_bytes) {
            return if back > 0 { Ok(back) } else { Err(Refusal::NodeFull) };
        }
        Ok(back + self.join_slow_node(base, &masks[1]))
    }
}
