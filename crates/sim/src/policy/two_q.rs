//! 2Q, full version (Johnson and Shasha, VLDB'94): newcomers pass through a FIFO, `a1in`, that may grow to a quarter of
//! the cache before it gives pages up; the names of what left it are kept in `a1out`, as many as half the cache; what
//! is asked for while its name is there goes to `am`, an LRU. Hits in `a1in` change nothing. 9 bytes a page.

use super::links::{Links, List};
use super::{Policy, Work, share};

const A1IN: List = List(0);
const A1OUT: List = List(1);
const AM: List = List(2);

const ABSENT: u8 = 0;
const IN_A1IN: u8 = 1;
const IN_A1OUT: u8 = 2;
const IN_AM: u8 = 3;

#[derive(Debug)]
pub(crate) struct TwoQ {
    state: Vec<u8>,
    links: Links,
    room: u32,
    most_in: u32,
    most_out: u32,
    a1in: u32,
    a1out: u32,
    am: u32,
    moves: u64,
}

impl TwoQ {
    /// A cache of `size` of `pages` pages.
    pub fn new(pages: u32, size: u32) -> Self {
        Self {
            state: vec![ABSENT; pages as usize],
            links: Links::new(pages, 3),
            room: size,
            most_in: share(size, 1, 4),
            most_out: share(size, 1, 2),
            a1in: 0,
            a1out: 0,
            am: 0,
            moves: 0,
        }
    }

    fn make_room(&mut self) {
        if self.a1in + self.am < self.room {
            return;
        }
        if self.a1in <= self.most_in
            && let Some(page) = self.links.pop_back(AM)
        {
            self.state[page as usize] = ABSENT;
            self.am -= 1;
        } else if let Some(page) = self.links.back(A1IN) {
            self.links.move_front(A1OUT, page);
            self.state[page as usize] = IN_A1OUT;
            self.a1in -= 1;
            self.a1out += 1;
            if self.a1out > self.most_out
                && let Some(page) = self.links.pop_back(A1OUT)
            {
                self.state[page as usize] = ABSENT;
                self.a1out -= 1;
            }
        }
    }
}

impl Policy for TwoQ {
    #[inline]
    fn access(&mut self, page: u32) -> bool {
        match self.state[page as usize] {
            IN_AM => {
                self.links.move_front(AM, page);
                self.moves += 1;
                true
            }
            IN_A1IN => true,
            IN_A1OUT => {
                // Its name is taken out first: making room may push names out.
                self.links.remove(page);
                self.a1out -= 1;
                self.make_room();
                self.links.push_front(AM, page);
                self.state[page as usize] = IN_AM;
                self.am += 1;
                false
            }
            _ => {
                self.make_room();
                self.links.push_front(A1IN, page);
                self.state[page as usize] = IN_A1IN;
                self.a1in += 1;
                false
            }
        }
    }

    fn resident(&self) -> u64 {
        (self.a1in + self.am).into()
    }

    fn work(&self) -> Work {
        Work { list_moves: Some(self.moves), ..Work::default() }
    }
}
