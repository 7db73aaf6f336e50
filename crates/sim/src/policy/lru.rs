//! Least recently used: a list, to whose front every hit moves the page. 8 bytes a page.

use super::links::{Links, List};
use super::{Policy, Work};

const LIST: List = List(0);

#[derive(Debug)]
pub struct Lru {
    links: Links,
    room: u32,
    resident: u32,
    moves: u64,
}

impl Lru {
    /// A cache of `size` of `pages` pages.
    pub fn new(pages: u32, size: u32) -> Self {
        Self { links: Links::new(pages, 1), room: size, resident: 0, moves: 0 }
    }
}

impl Policy for Lru {
    #[inline]
    fn access(&mut self, page: u32) -> bool {
        if self.links.contains(page) {
            self.links.move_front(LIST, page);
            self.moves += 1;
            return true;
        }
        if self.resident == self.room {
            self.links.pop_back(LIST);
        } else {
            self.resident += 1;
        }
        self.links.push_front(LIST, page);
        false
    }

    #[inline]
    fn warm(&self, pages: &[u32]) -> u32 {
        pages.iter().fold(0, |sum, &page| sum ^ self.links.warm(page))
    }

    fn resident(&self) -> u64 {
        self.resident.into()
    }

    fn work(&self) -> Work {
        Work { list_moves: Some(self.moves), ..Work::default() }
    }
}
