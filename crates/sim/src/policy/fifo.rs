//! First in, first out: a ring. 1 byte a page and 4 a page of the cache.

use super::{Policy, Work};

#[derive(Debug)]
pub(crate) struct Fifo {
    present: Vec<bool>,
    ring: Vec<u32>,
    room: usize,
    /// The oldest page, once the ring is full.
    hand: usize,
}

impl Fifo {
    /// A cache of `size` of `pages` pages.
    pub fn new(pages: u32, size: u32) -> Self {
        let ring = Vec::with_capacity(size.min(pages) as usize);
        Self { present: vec![false; pages as usize], ring, room: size as usize, hand: 0 }
    }
}

impl Policy for Fifo {
    #[inline]
    fn access(&mut self, page: u32) -> bool {
        if std::mem::replace(&mut self.present[page as usize], true) {
            return true;
        }
        if self.ring.len() < self.room {
            self.ring.push(page);
            return false;
        }
        let victim = std::mem::replace(&mut self.ring[self.hand], page);
        self.present[victim as usize] = false;
        self.hand += 1;
        if self.hand == self.room {
            self.hand = 0;
        }
        false
    }

    fn resident(&self) -> u64 {
        self.ring.len() as u64
    }

    fn work(&self) -> Work {
        Work::default()
    }
}
