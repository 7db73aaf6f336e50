//! A page history as words, to be kept from one run of the monitor to the next.
//!
//! What was known stays true as long as nobody clears accessed bits meanwhile: a bit that is clear at the first walk of
//! the next run was clear at the last one of this run, and its page idle ever since; a page whose bit is set was accessed
//! at some time between both. Pages that are mapped anew meanwhile come with their bits set, by the access that
//! brought them.

use super::epoch::{Epoch, Epochs, Kept};
use super::pages::PageHistory;
use super::table::{PAGES, Table};
use crate::addr::TABLE_SPAN;
use std::collections::BTreeMap;

/// An epoch of which nobody knows when it began.
const NO_BEGIN: u64 = u64::MAX;
/// What of a table stands in the low bits of its address.
const HUGE: u64 = 1;
const ALIKE: u64 = 2;

/// Hands the words of `history`, as of `now_ns`, to `word`.
pub fn write(history: &PageHistory, now_ns: u64, mut word: impl FnMut(u64)) {
    let kept = history.epochs().kept(now_ns);
    word(history.walks());
    word(kept.looked_ns);
    word(kept.now_ns);
    word(u64::from(history.one_in()) << 32 | u64::from(history.begun_in()));
    word(kept.list.len() as u64);
    for epoch in kept.list {
        word(epoch.after_ns.unwrap_or(NO_BEGIN));
        word(epoch.by_ns);
    }
    word(history.tables().count() as u64);
    for (base, table) in history.tables() {
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        word(base | flag(table.huge, HUGE) | flag(table.alike().is_some(), ALIKE));
        word(u64::from(table.known_from_ds));
        let eight = |first: usize| u64::from_le_bytes(std::array::from_fn(|i| table.code(first + i)));
        (0..if table.alike().is_some() { 8 } else { PAGES }).step_by(8).map(eight).for_each(&mut word);
    }
}

/// What [`write()`] wrote; `None` if it is something else.
pub fn read(words: &mut impl Iterator<Item = u64>) -> Option<PageHistory> {
    let [walks, looked_ns, now_ns, parts] = [words.next()?, words.next()?, words.next()?, words.next()?];
    let mut list = Vec::new();
    for _ in 0..words.next()? {
        let after_ns = Some(words.next()?).filter(|&after| after != NO_BEGIN);
        list.push(Epoch { after_ns, by_ns: words.next()? });
    }
    let epochs = Epochs::restore(Kept { list, looked_ns, now_ns })?;
    let mut tables = BTreeMap::new();
    for _ in 0..words.next()? {
        let head = words.next()?;
        let (base, flags) = (head / TABLE_SPAN * TABLE_SPAN, head % TABLE_SPAN);
        base.checked_add(TABLE_SPAN).filter(|_| flags <= HUGE | ALIKE)?;
        let known_from_ds = u32::try_from(words.next()?).ok()?;
        let mut codes = [0; PAGES];
        let written = if flags & ALIKE != 0 { 8 } else { PAGES };
        for eight in codes[..written].as_chunks_mut::<8>().0 {
            *eight = words.next()?.to_le_bytes();
        }
        if flags & ALIKE != 0 {
            codes = [codes[0]; PAGES];
        }
        let mut table = Table::of_codes(&codes, flags & HUGE != 0);
        table.known_from_ds = known_from_ds;
        tables.insert(base, table);
    }
    let (one_in, begun_in) = ((parts >> 32) as u32, parts as u32);
    let mut history = PageHistory::restore(epochs, walks, tables);
    (one_in.is_power_of_two() && begun_in.is_power_of_two()).then(|| {
        history.set_one_in(one_in);
        history.set_begun_in(begun_in);
        history
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::AddrRange;
    use crate::bits::TableBits;
    use crate::history::known::Known;
    use crate::mask::{self, NO_PAGES, PageMask};
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    /// Two tables, whose bits the processor sets and walks clear.
    struct World {
        history: PageHistory,
        bits: [PageMask; 2],
        /// When each page was last accessed.
        accessed_ns: [[Option<u64>; PAGES]; 2],
        now_ns: u64,
    }

    impl World {
        fn new() -> Self {
            let history = PageHistory::new(1000 * S);
            Self { history, bits: [NO_PAGES; 2], accessed_ns: [[None; PAGES]; 2], now_ns: 1000 * S }
        }

        fn access(&mut self, table: usize, page: usize) {
            self.now_ns += 1_000_000;
            mask::put(&mut self.bits[table], page);
            self.accessed_ns[table][page] = Some(self.now_ns);
        }

        fn begin_walk(&mut self) {
            self.now_ns += 1_000_000;
            let range = AddrRange::new(0, 2 * TABLE_SPAN);
            self.history.begin_walk(&[range], self.now_ns);
        }

        /// Looks at a table; of what it wants to clear, only `allowed`.
        fn walk(&mut self, i: usize, allowed: u64) {
            let base = i as u64 * TABLE_SPAN;
            let mut bits = TableBits { present: [u64::MAX; 8], accessed: self.bits[i], ..TableBits::empty(base) };
            bits.cleared = self.history.wanted(&bits).all().map(|word| word & allowed);
            self.bits[i] = mask::and_not(&self.bits[i], &bits.cleared);
            self.history.take(&bits);
            self.now_ns += 1_000_000;
        }

        fn end_walk(&mut self) {
            self.now_ns += 1_000_000;
            self.history.end_walk(self.now_ns);
        }

        fn restart(&mut self) {
            self.now_ns += 1_000_000;
            let mut words = Vec::new();
            write(&self.history, self.now_ns, |word| words.push(word));
            let mut words = words.into_iter();
            self.history = read(&mut words).unwrap();
            assert_eq!(words.next(), None);
        }

        /// Each page's last access lies where the history says.
        fn check(&self) {
            for (base, table) in self.history.tables() {
                for page in 0..PAGES {
                    let accessed = self.accessed_ns[(base / TABLE_SPAN) as usize][page];
                    match Known::of(table.code(page), self.history.epochs(), None) {
                        Some(Known::Open { after_ns: None, by: Some(by) }) => {
                            assert!(accessed.is_none_or(|a| a <= by.ns), "{accessed:?} is after {by:?}");
                        }
                        Some(Known::In { after_ns, by }) => {
                            let is_in = accessed.is_some_and(|a| after_ns < a && a <= by.ns);
                            assert!(is_in, "{accessed:?} is not from {after_ns} to {by:?}");
                        }
                        Some(Known::Standing(after)) => {
                            assert!(accessed.is_some_and(|a| a >= after), "{accessed:?} is before {after}");
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Act {
        Access(usize, usize),
        Walk(u64),
        /// A restart after so many tables of a walk.
        Restart(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            6 => (0..2usize, 0..24usize).prop_map(|(table, page)| Act::Access(table, page)),
            3 => prop_oneof![Just(u64::MAX), any::<u64>()].prop_map(Act::Walk),
            1 => (0..3usize).prop_map(Act::Restart),
        ]
    }

    proptest! {
        #[test]
        fn what_is_known_holds_over_restarts(acts in prop::collection::vec(act(), 1..300)) {
            let mut world = World::new();
            world.begin_walk();
            (0..2).for_each(|i| world.walk(i, u64::MAX));
            world.end_walk();
            for act in acts {
                match act {
                    Act::Access(table, page) => world.access(table, page),
                    Act::Walk(allowed) => {
                        world.begin_walk();
                        (0..2).for_each(|i| world.walk(i, allowed));
                        world.end_walk();
                        world.check();
                    }
                    Act::Restart(looked_at) => {
                        if looked_at < 2 {
                            world.begin_walk();
                            (0..looked_at).for_each(|i| world.walk(i, u64::MAX));
                        }
                        world.restart();
                    }
                }
            }
        }

        #[test]
        fn what_is_broken_is_refused_or_harmless(cut in 0usize..200, at in 0usize..200, value in any::<u64>()) {
            let mut world = World::new();
            for page in 0..3 {
                world.begin_walk();
                world.access(0, page);
                (0..2).for_each(|i| world.walk(i, u64::MAX));
                world.end_walk();
            }
            let mut words = Vec::new();
            write(&world.history, world.now_ns, |word| words.push(word));
            let at = at % words.len();
            words[at] ^= value;
            let _ = read(&mut words.iter().copied().take(cut));
            if let Some(history) = read(&mut words.into_iter()) {
                history.total();
                world.history = history;
                for _ in 0..30 {
                    world.begin_walk();
                    (0..2).for_each(|i| world.walk(i, u64::MAX));
                    world.end_walk();
                }
            }
        }
    }
}
