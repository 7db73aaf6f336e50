//! All pages, 12 bytes each: two links and a word of flags; and the lists through them.
//!
//! The lists are rings through heads that lie in the same array before the pages, so that a page is taken out without
//! knowing which list it is on: its label may say another generation than the list it still lies on.
//! The links of a page that is not in memory hold its shadow.

use super::flags::Flags;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    prev: u32,
    next: u32,
    flags: Flags,
}

pub type List = u32;

/// The pages and their lists.
#[derive(Debug, Clone)]
pub struct Pages {
    slots: Vec<Slot>,
    heads: u32,
}

impl Pages {
    /// Room for `pages` pages and as many lists as named, all empty.
    pub fn new(lists: u32, pages: u32) -> Self {
        let mut slots = vec![Slot::default(); lists as usize + pages as usize];
        for (at, slot) in (0..lists).zip(&mut slots) {
            (slot.prev, slot.next) = (at, at);
        }
        Self { slots, heads: lists }
    }

    /// Makes sure that `page` exists. False if there can be no such page.
    pub fn ensure(&mut self, page: u32) -> bool {
        let Some(at) = page.checked_add(self.heads) else { return false };
        if at as usize >= self.slots.len() {
            self.slots.resize(at as usize + 1, Slot::default());
        }
        true
    }

    /// How many pages there are.
    pub fn len(&self) -> u32 {
        (self.slots.len() - self.heads as usize) as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    const fn at(&self, page: u32) -> usize {
        (page + self.heads) as usize
    }

    pub fn flags(&self, page: u32) -> Flags {
        self.slots[self.at(page)].flags
    }

    /// The page's flags, to be changed.
    pub(crate) fn flags_mut(&mut self, page: u32) -> &mut Flags {
        let at = self.at(page);
        &mut self.slots[at].flags
    }

    fn insert(&mut self, at: u32, prev: u32, next: u32) {
        let slot = &mut self.slots[at as usize];
        (slot.prev, slot.next) = (prev, next);
        self.slots[prev as usize].next = at;
        self.slots[next as usize].prev = at;
    }

    /// Puts a page that is on no list before all others of `list`.
    pub(crate) fn push_head(&mut self, list: List, page: u32) {
        let next = self.slots[list as usize].next;
        self.insert(page + self.heads, list, next);
    }

    /// Puts a page that is on no list behind all others of `list`.
    pub(crate) fn push_tail(&mut self, list: List, page: u32) {
        let prev = self.slots[list as usize].prev;
        self.insert(page + self.heads, prev, list);
    }

    /// Takes a page off the list it is on.
    pub fn remove(&mut self, page: u32) {
        let Slot { prev, next, .. } = self.slots[self.at(page)];
        self.slots[prev as usize].next = next;
        self.slots[next as usize].prev = prev;
    }

    /// The page at the tail.
    pub fn tail(&self, list: List) -> Option<u32> {
        let prev = self.slots[list as usize].prev;
        (prev != list).then(|| prev - self.heads)
    }

    /// Whether nothing is on `list`.
    pub(crate) fn is_list_empty(&self, list: List) -> bool {
        self.slots[list as usize].prev == list
    }

    /// The pages of a list, tail first.
    pub fn iter(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.slots[list as usize].prev;
        std::iter::from_fn(move || {
            let page = at.checked_sub(self.heads)?;
            at = self.slots[at as usize].prev;
            Some(page)
        })
    }

    /// Keeps a shadow where the links of a page were that is no longer in memory.
    pub(crate) fn set_shadow(&mut self, page: u32, shadow: u64) {
        let at = self.at(page);
        (self.slots[at].prev, self.slots[at].next) = ((shadow >> 32) as u32, shadow as u32);
    }

    /// The shadow of a page that is not in memory.
    pub fn shadow(&self, page: u32) -> u64 {
        let slot = &self.slots[self.at(page)];
        u64::from(slot.prev) << 32 | u64::from(slot.next)
    }
}

/// Bytes a page costs, without its bits in the simulated page tables.
pub(crate) const PAGE_COST: usize = size_of::<Slot>();
const _: () = assert!(PAGE_COST <= 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order() {
        let mut pages = Pages::new(2, 4);
        pages.push_head(0, 1);
        pages.push_head(0, 2);
        pages.push_tail(0, 3);
        assert_eq!(pages.iter(0).collect::<Vec<_>>(), [3, 1, 2]);
        pages.remove(1);
        pages.push_head(1, 1);
        assert_eq!(pages.tail(1), Some(1));
        assert_eq!(pages.iter(0).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn a_shadow_takes_the_place_of_the_links() {
        let mut pages = Pages::new(1, 1);
        pages.set_shadow(0, 0x1234_5678_9abc_def0);
        assert_eq!(pages.shadow(0), 0x1234_5678_9abc_def0);
    }

    #[test]
    fn there_is_no_last_page() {
        assert!(!Pages::new(8, 0).ensure(u32::MAX));
    }
}
