//! Generations as bytes, to be kept from one command to the next.

use super::births::Births;
use super::page::Page;
use super::space::{Space, Table};

const MAGIC: &[u8; 8] = b"ISOLRU1\n";

/// An address space and its generations as bytes.
pub fn write(births: &Births, space: &Space) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let mut word = |n: u64| out.extend_from_slice(&n.to_le_bytes());
    word(births.max_seq());
    word(births.len() as u64);
    births.times().for_each(&mut word);
    for (&base, table) in &space.tables {
        word(base);
        word(u64::from(table.huge));
        table.present.iter().chain(&table.out).copied().for_each(&mut word);
        for four in table.pages.chunks(4) {
            // A page has 24 bits; two make a word.
            for two in four.chunks(2) {
                word(two.iter().rev().fold(0, |n, p| n << 24 | u64::from(p.age) << 16 | u64::from(p.level)));
            }
        }
    }
    out
}

/// What [`write()`] wrote; `None` if it is something else.
pub fn read(bytes: &[u8]) -> Option<(Births, Space)> {
    let mut words =
        bytes.strip_prefix(MAGIC)?.chunks_exact(8).map(|c| c.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)));
    if !bytes.len().is_multiple_of(8) {
        return None;
    }
    let max_seq = words.next()?;
    let count = usize::try_from(words.next()?).ok().filter(|&n| n <= 256)?;
    let times: Vec<u64> = words.by_ref().take(count).collect();
    let births = (times.len() == count).then(|| Births::restore(max_seq, times)).flatten()?;
    let mut space = Space::default();
    while let Some(base) = words.next() {
        if !base.is_multiple_of(crate::addr::TABLE_SPAN) {
            return None;
        }
        let mut table = Table::new();
        table.huge = words.next()? != 0;
        for i in 0..16 {
            let word = words.next()?;
            if i < 8 { table.present[i] = word } else { table.out[i - 8] = word & !table.present[i - 8] }
        }
        for two in table.pages.chunks_mut(2) {
            let word = words.next()?;
            for (i, page) in two.iter_mut().enumerate() {
                let bits = word >> (24 * i);
                *page = Page { age: (bits >> 16) as u8, level: bits as u16 };
            }
        }
        space.tables.insert(base, table);
    }
    Some((births, space))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lru::live::odds::Odds;
    use crate::source::TableBits;
    use proptest::prelude::*;

    fn space() -> (Births, Space) {
        let (mut births, mut space, mut odds) = (Births::new(5, 100), Space::default(), Odds::default());
        for walk in 0..4u64 {
            space.begin_walk(&[], true);
            for base in [0, 7 << 21] {
                let accessed = [walk; 8];
                space.walk(
                    &TableBits { base, leaf_shift: 12, present: [u64::MAX; 8], accessed, blind: [0; 8] },
                    &mut odds,
                );
            }
            space.end_walk(&[], &mut odds);
            births.create(200 + walk);
        }
        (births, space)
    }

    #[test]
    fn what_was_kept_is_there_again() {
        let (births, space) = space();
        let bytes = write(&births, &space);
        let (again, other) = read(&bytes).unwrap();
        assert_eq!(again.times().collect::<Vec<_>>(), births.times().collect::<Vec<_>>());
        assert_eq!(write(&again, &other), bytes);
        let sizes = |s: &Space| {
            let mut out = [[0; 2]; 6];
            s.sizes(&mut out);
            out
        };
        assert_eq!(sizes(&other), sizes(&space));
    }

    proptest! {
        #[test]
        fn what_is_broken_is_refused_or_harmless(cut in 0usize..9000, flip in 0usize..9000, value in any::<u8>()) {
            let (births, space) = space();
            let mut bytes = write(&births, &space);
            let at = flip % bytes.len();
            bytes[at] ^= value;
            let len = bytes.len();
            let _ = read(&bytes[..cut.min(len)]);
            if let Some((births, space)) = read(&bytes) {
                let mut out = [[0; 2]; 4];
                space.sizes(&mut out);
                births.age_idle_for(1, 1);
            }
        }
    }
}
