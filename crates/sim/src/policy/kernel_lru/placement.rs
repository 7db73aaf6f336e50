//! Where a page begins.

use super::Variant;
use super::flags::Flags;
use super::lruvec::{Lruvec, MAX_GENS, MIN_GENS, index};
use super::pages::Pages;

impl Lruvec {
    /// The generation that a page with these flags begins in.
    pub(super) fn placement(&self, flags: Flags, reclaiming: bool) -> u64 {
        let oldest = self.min_seq[flags.kind()];
        let pending = flags.has(Flags::RECLAIM) && (flags.has(Flags::DIRTY) || flags.has(Flags::WRITEBACK));
        let unswapped = !flags.has(Flags::FILE) && !flags.has(Flags::SWAPCACHE);
        match self.variant {
            Variant::V6_12 if flags.has(Flags::ACTIVE) => self.max_seq,
            Variant::V6_12 if unswapped || pending => self.max_seq - 1,
            Variant::V6_12 if reclaiming || oldest + MIN_GENS >= self.max_seq => oldest,
            Variant::V6_12 => oldest + 1,
            Variant::V6_14 => {
                let workingset = flags.has(Flags::WORKINGSET);
                let distance = match flags.has(Flags::ACTIVE) {
                    true if workingset => 1,
                    true => 2,
                    false if reclaiming => MAX_GENS,
                    false if unswapped || pending => 2,
                    false => MAX_GENS - u64::from(workingset),
                };
                (self.max_seq + 1 - distance).max(oldest)
            }
        }
    }

    /// Puts a page on the list it belongs on: at its head, or at its tail if it is to go at once.
    pub(super) fn add(&mut self, pages: &mut Pages, page: u32, reclaiming: bool) {
        let flags = pages.flags_mut(page);
        let generation = index(self.placement(*flags, reclaiming));
        if flags.has(Flags::ACTIVE) && self.variant == Variant::V6_12 {
            flags.set_counter(0);
            flags.clear(Flags::REFERENCED);
        }
        flags.clear(Flags::ACTIVE);
        self.relabel(flags, Some(generation));
        let list = self.list(generation, flags.kind());
        if reclaiming {
            pages.push_tail(list, page);
        } else {
            pages.push_head(list, page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(variant: Variant, set: u32, min_seq: u64, reclaiming: bool) -> u64 {
        let mut lruvec = Lruvec::new(0, 0, variant, 64);
        lruvec.max_seq = 10;
        lruvec.min_seq = [min_seq; 2];
        let mut flags = Flags::default();
        flags.set(set);
        lruvec.placement(flags, reclaiming)
    }

    #[test]
    fn up_to_6_12() {
        let at = |set, min_seq, reclaiming| placed(Variant::V6_12, set, min_seq, reclaiming);
        assert_eq!(at(Flags::FILE | Flags::ACTIVE, 7, false), 10);
        assert_eq!(at(0, 7, false), 9, "anonymous, never swapped");
        assert_eq!(at(Flags::SWAPCACHE, 7, false), 8);
        assert_eq!(at(Flags::FILE | Flags::RECLAIM | Flags::DIRTY, 7, false), 9);
        assert_eq!(at(Flags::FILE | Flags::DIRTY, 7, false), 8);
        assert_eq!(at(Flags::FILE, 7, false), 8);
        assert_eq!(at(Flags::FILE, 8, false), 8, "three generations");
        assert_eq!(at(Flags::FILE, 7, true), 7);
    }

    #[test]
    fn from_6_14_on() {
        let at = |set, min_seq, reclaiming| placed(Variant::V6_14, set, min_seq, reclaiming);
        assert_eq!(at(Flags::FILE | Flags::ACTIVE | Flags::WORKINGSET, 7, false), 10);
        assert_eq!(at(Flags::FILE | Flags::ACTIVE, 7, false), 9);
        assert_eq!(at(0, 7, false), 9);
        assert_eq!(at(Flags::FILE | Flags::WORKINGSET, 7, false), 8);
        assert_eq!(at(Flags::FILE, 7, false), 7);
        assert_eq!(at(Flags::FILE, 9, false), 9, "never older than the oldest");
        assert_eq!(at(Flags::FILE | Flags::WORKINGSET, 7, true), 7);
        assert_eq!(at(Flags::FILE | Flags::RECLAIM | Flags::WRITEBACK, 7, false), 9);
    }
}
