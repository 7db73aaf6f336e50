//! CLOCK: a ring and a bit for each page. The hand passes over pages that were used since it last came, clearing their
//! bit; a newcomer takes the place of the first that was not, just behind the hand, with its bit clear. That is FIFO
//! with reinsertion. 1 byte a page and 4 a page of the cache.

use super::{Policy, Work};

const ABSENT: u8 = 0;
const UNUSED: u8 = 1;
const USED: u8 = 2;

#[derive(Debug)]
pub struct Clock {
    state: Vec<u8>,
    ring: Vec<u32>,
    room: usize,
    hand: usize,
    evictions: u64,
    passed: u64,
}

impl Clock {
    /// A cache of `size` of `pages` pages.
    pub fn new(pages: u32, size: u32) -> Self {
        Self {
            state: vec![ABSENT; pages as usize],
            ring: Vec::with_capacity(size.min(pages) as usize),
            room: size as usize,
            hand: 0,
            evictions: 0,
            passed: 0,
        }
    }
}

impl Policy for Clock {
    #[inline]
    fn access(&mut self, page: u32) -> bool {
        let state = &mut self.state[page as usize];
        if *state != ABSENT {
            *state = USED;
            return true;
        }
        *state = UNUSED;
        if self.ring.len() < self.room {
            self.ring.push(page);
            return false;
        }
        loop {
            let place = &mut self.ring[self.hand];
            self.hand += 1;
            if self.hand == self.room {
                self.hand = 0;
            }
            let state = &mut self.state[*place as usize];
            *state -= 1;
            if *state == ABSENT {
                *place = page;
                self.evictions += 1;
                return false;
            }
            self.passed += 1;
        }
    }

    fn resident(&self) -> u64 {
        self.ring.len() as u64
    }

    fn work(&self) -> Work {
        Work { pages_scanned: Some(self.passed + self.evictions), ..Work::default() }
    }
}
