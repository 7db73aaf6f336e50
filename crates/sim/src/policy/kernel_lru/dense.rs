//! Simulated page tables: one address space in which page n has address n.

use super::tables::{Bits, ENTRIES, EntryAt, PageTables, Shape};

#[derive(Debug, Clone, Copy, Default)]
struct Table {
    mapped: Bits,
    young: Bits,
    /// The table's own accessed bit.
    accessed: bool,
}

/// The tables. Two bits a page.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dense {
    tables: Vec<Table>,
    ran: bool,
}

const fn split(page: u32) -> (usize, usize, u64) {
    let entry = page % ENTRIES;
    ((page / ENTRIES) as usize, (entry / 64) as usize, 1 << (entry % 64))
}

fn mask(word: usize, from: u32, to: u32) -> u64 {
    let low = word as u32 * 64;
    let below = |n: u32| if n >= 64 { !0 } else { (1_u64 << n) - 1 };
    below(to.saturating_sub(low)) & !below(from.saturating_sub(low))
}

impl Dense {
    /// What the hardware does at an access: sets the bits on the way. Maps the page if it was not.
    pub fn touch(&mut self, page: u32) {
        let (at, word, bit) = split(page);
        if at >= self.tables.len() {
            self.tables.resize(at + 1, Table::default());
        }
        let table = &mut self.tables[at];
        if table.young[word] & bit == 0 || !table.accessed {
            table.mapped[word] |= bit;
            table.young[word] |= bit;
            table.accessed = true;
        }
        self.ran = true;
    }

    /// The same for a page that is mapped. False for one that is not, which stays as it is.
    #[inline]
    pub(crate) fn touch_mapped(&mut self, page: u32) -> bool {
        let (at, word, bit) = split(page);
        let Some(table) = self.tables.get_mut(at).filter(|table| table.mapped[word] & bit != 0) else { return false };
        if table.young[word] & bit == 0 || !table.accessed {
            table.young[word] |= bit;
            table.accessed = true;
        }
        self.ran = true;
        true
    }

    /// Whether the page is mapped.
    pub(crate) fn is_mapped(&self, page: u32) -> bool {
        let (at, word, bit) = split(page);
        self.tables.get(at).is_some_and(|table| table.mapped[word] & bit != 0)
    }
}

impl PageTables for Dense {
    fn spaces(&self) -> u32 {
        1
    }

    fn take_ran(&mut self, _space: u32) -> bool {
        std::mem::take(&mut self.ran)
    }

    fn next_table(&self, _space: u32, from: u32) -> Option<u32> {
        let rest = self.tables.get(from as usize..)?;
        let ahead = rest.iter().position(|table| table.mapped.iter().any(|&word| word != 0))?;
        Some(from + ahead as u32)
    }

    fn shape(&self, _table: u32) -> Shape {
        Shape::Table(ENTRIES)
    }

    fn table_young(&self, table: u32) -> bool {
        self.tables[table as usize].accessed
    }

    fn clear_table_young(&mut self, table: u32) {
        self.tables[table as usize].accessed = false;
    }

    fn take_young(&mut self, table: u32, from: u32, to: u32) -> Bits {
        let mut taken = Bits::default();
        let words = &mut self.tables[table as usize].young;
        for at in (from / 64) as usize..to.div_ceil(64) as usize {
            let wanted = mask(at, from, to);
            taken[at] = words[at] & wanted;
            words[at] &= !wanted;
        }
        taken
    }

    fn put_back(&mut self, place: EntryAt) {
        let table = &mut self.tables[place.table as usize];
        table.young[(place.entry / 64) as usize] |= 1 << (place.entry % 64);
    }

    fn page(&self, place: EntryAt) -> Option<u32> {
        let page = place.table * ENTRIES + place.entry;
        self.is_mapped(page).then_some(page)
    }

    fn place(&self, page: u32, nth: u32) -> Option<EntryAt> {
        (nth == 0 && self.is_mapped(page)).then_some(EntryAt { table: page / ENTRIES, entry: page % ENTRIES })
    }

    fn unmap(&mut self, page: u32) {
        let (at, word, bit) = split(page);
        if let Some(table) = self.tables.get_mut(at) {
            table.mapped[word] &= !bit;
            table.young[word] &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::ones;
    use super::*;

    #[test]
    fn bits_are_taken_once_and_within_bounds() {
        let mut tables = Dense::default();
        for page in [0, 63, 64, 200, 511, 512] {
            tables.touch(page);
        }
        assert!(tables.take_ran(0));
        assert!(!tables.take_ran(0));
        assert_eq!(ones(&tables.take_young(0, 63, 200)).collect::<Vec<_>>(), [63, 64]);
        assert_eq!(ones(&tables.take_young(0, 0, 512)).collect::<Vec<_>>(), [0, 200, 511]);
        assert_eq!(ones(&tables.take_young(0, 0, 512)).count(), 0);
        assert_eq!(ones(&tables.take_young(1, 0, 512)).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn empty_tables_are_passed_over() {
        let mut tables = Dense::default();
        tables.touch(5000);
        assert_eq!(tables.next_table(0, 0), Some(9));
        assert_eq!(tables.next_table(0, 10), None);
        assert!(tables.touch_mapped(5000) && !tables.touch_mapped(5001) && !tables.touch_mapped(50_000));
        tables.unmap(5000);
        assert!(!tables.touch_mapped(5000));
        assert_eq!(tables.next_table(0, 0), None);
        assert_eq!(tables.place(5000, 0), None);
    }
}
