//! Generations as bytes, to be kept from one command to the next.

use super::address_space::AddressSpace;
use super::creation_times::CreationTimes;
use crate::addr::TABLE_SPAN;
use crate::history::epoch::ABSENT;
use crate::history::stored;
use crate::mask::{NO_PAGES, PageMask, and_not};
use crate::pages::PageSet;

const MAGIC: &[u8; 8] = b"ISOLRU3\n";

/// An address space and its generations as bytes.
pub fn write(created: &CreationTimes, space: &AddressSpace) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let mut word = |n: u64| out.extend_from_slice(&n.to_le_bytes());
    word(created.max_seq());
    word(created.len() as u64);
    created.times().for_each(&mut word);
    stored::write(&space.history, space.history.now_ns(), &mut word);
    for (base, _) in space.history.tables() {
        let out = space.out.mask(base);
        if out != NO_PAGES {
            word(base);
            out.into_iter().for_each(&mut word);
        }
    }
    out
}

/// What [`write()`] wrote; `None` if it is something else.
pub fn read(bytes: &[u8]) -> Option<(CreationTimes, AddressSpace)> {
    let (words, rest) = bytes.strip_prefix(MAGIC)?.as_chunks::<8>();
    let mut words = words.iter().map(|&word| u64::from_le_bytes(word));
    if !rest.is_empty() {
        return None;
    }
    let max_seq = words.next()?;
    let count = words.next()?;
    let times = (0..count).map_while(|_| words.next()).collect::<Vec<u64>>();
    let created = (times.len() as u64 == count).then(|| CreationTimes::restore(max_seq, times)).flatten()?;
    let history = stored::read(&mut words)?;
    let mut out = PageSet::default();
    while let Some(base) = words.next() {
        let table = history.table(base).filter(|_| base.is_multiple_of(TABLE_SPAN))?;
        let mut gone: PageMask = NO_PAGES;
        for word in &mut gone {
            *word = words.next()?;
        }
        let absent = std::array::from_fn(|code| code == usize::from(ABSENT));
        out.insert_mask(base, &and_not(&gone, &table.pages(&absent)));
    }
    let space = AddressSpace::restore(history, out, &created);
    Some((created, space))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::TableBits;
    use proptest::prelude::*;

    fn space() -> (CreationTimes, AddressSpace) {
        let (mut created, mut space) = (CreationTimes::new(5, 100), AddressSpace::default());
        for walk in 0..4u64 {
            created.create(200 + walk);
            space.begin_walk(&created, 0);
            for base in [0, 7 << 21] {
                let accessed = [walk; 8];
                space.walk(
                    &TableBits {
                        base,
                        leaf_shift: 12,
                        present: [u64::MAX; 8],
                        accessed,
                        cleared: accessed,
                        blind: [0; 8],
                    },
                    None,
                );
            }
            space.end_walk(&created, None);
        }
        (created, space)
    }

    #[test]
    fn what_was_kept_is_there_again() {
        let (created, space) = space();
        let bytes = write(&created, &space);
        let (again, other) = read(&bytes).unwrap();
        assert_eq!(again.times().collect::<Vec<_>>(), created.times().collect::<Vec<_>>());
        assert_eq!(write(&again, &other), bytes);
        let sizes = |s: &AddressSpace| {
            let mut out = [[0; 2]; 6];
            s.sizes(&mut out);
            out
        };
        assert_eq!(sizes(&other), sizes(&space));
    }

    proptest! {
        #[test]
        fn what_is_broken_is_refused_or_harmless(cut in 0usize..9000, flip in 0usize..9000, value in any::<u8>()) {
            let (created, space) = space();
            let mut bytes = write(&created, &space);
            let at = flip % bytes.len();
            bytes[at] ^= value;
            let len = bytes.len();
            let _ = read(&bytes[..cut.min(len)]);
            if let Some((mut created, mut space)) = read(&bytes) {
                let mut out = [[0; 2]; 4];
                space.sizes(&mut out);
                created.age_idle_for(1, 1);
                for now in 1000..1003 {
                    created.create(now);
                    space.begin_walk(&created, 0);
                    space.walk(&TableBits { present: [u64::MAX; 8], ..TableBits::empty(0) }, None);
                    space.end_walk(&created, None);
                }
                space.known();
            }
        }
    }
}
