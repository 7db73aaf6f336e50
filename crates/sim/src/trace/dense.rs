//! Dense numbers for names that lie close together, such as pages of a file or of memory: a table that they index.

/// No number: a name has none, or was not found.
pub(super) const NO_NUMBER: u32 = u32::MAX;

/// Names of a block, whose numbers lie together.
const BLOCK: usize = 1 << 10;
/// Bytes that directory and blocks may take for each name, and in any case.
const MOST_EACH: usize = 24;
const MOST_AT_FIRST: usize = 4 << 20;

const NO_BLOCK: u32 = u32::MAX;

/// Numbers by name, in blocks of neighbours: 4 bytes a name where they are dense.
#[derive(Debug, Default)]
pub(super) struct Dense {
    /// Where the block of each `BLOCK` names is.
    directory: Vec<u32>,
    blocks: Vec<u32>,
}

impl Dense {
    /// The number of a name, or [`NO_NUMBER`].
    #[inline]
    pub(super) fn find(&self, name: u64) -> u32 {
        let block = usize::try_from(name / BLOCK as u64).ok().and_then(|at| self.directory.get(at));
        let Some(&block) = block else { return NO_NUMBER };
        let at = block as usize * BLOCK + name as usize % BLOCK;
        self.blocks.get(at).copied().unwrap_or(NO_NUMBER)
    }

    /// Gives a name that has none the number `number`, which is how many have one. False: it does not fit here, or names lie too far
    /// apart for such a table.
    pub(super) fn put(&mut self, name: u64, number: u32) -> bool {
        let at = (name / BLOCK as u64) as usize;
        if self.directory.get(at).is_none_or(|&block| block == NO_BLOCK) {
            let directory = self.directory.len().max(at + 1);
            let bytes = (directory + self.blocks.len() + BLOCK) * size_of::<u32>();
            if bytes > MOST_AT_FIRST.max(number as usize * MOST_EACH) {
                return false;
            }
            self.directory.resize(directory, NO_BLOCK);
            self.directory[at] = (self.blocks.len() / BLOCK) as u32;
            self.blocks.resize(self.blocks.len() + BLOCK, NO_NUMBER);
        }
        self.blocks[self.directory[at] as usize * BLOCK + name as usize % BLOCK] = number;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_lies_close_together() {
        let mut dense = Dense::default();
        for (number, name) in (5_000_000..5_100_000).rev().enumerate() {
            assert_eq!(dense.find(name), NO_NUMBER);
            assert!(dense.put(name, number as u32));
        }
        assert_eq!((dense.find(5_000_000), dense.find(5_099_999)), (99_999, 0));
        assert_eq!([0, 4_999_999, 5_100_000, u64::MAX].map(|name| dense.find(name)), [NO_NUMBER; 4]);
        assert!(dense.blocks.len() <= 100_000 + 2 * BLOCK);
    }

    #[test]
    fn takes_no_more_memory_than_a_hash_table_where_names_are_scattered() {
        let mut dense = Dense::default();
        assert!(!dense.put(1 << 32, 0) && !dense.put(u64::MAX, 0));
        assert!(dense.directory.is_empty(), "a refused name leaves nothing behind");
        let taken = (0..).take_while(|&number| dense.put(u64::from(number) << 12, number)).count();
        assert!(taken < 2000, "{taken} blocks for as many names");
    }
}
