//! SIEVE (Zhang et al., NSDI'24): newcomers go to the front, a hand walks from the back to the front, clears the bit of
//! pages that were used and evicts the first that was not; unlike CLOCK's, what it spares keeps its place, and the hand
//! stays where it evicted. 9 bytes a page.

use super::links::{Links, List};
use super::{Policy, Work};

const LIST: List = List(0);
const ABSENT: u8 = 0;
const UNUSED: u8 = 1;
const USED: u8 = 2;

#[derive(Debug)]
pub(crate) struct Sieve {
    state: Vec<u8>,
    links: Links,
    room: u32,
    resident: u32,
    /// Where to look next; `None`: at the back.
    hand: Option<u32>,
    scanned: u64,
}

impl Sieve {
    /// A cache of `size` of `pages` pages.
    pub fn new(pages: u32, size: u32) -> Self {
        Self {
            state: vec![ABSENT; pages as usize],
            links: Links::new(pages, 1),
            room: size,
            resident: 0,
            hand: None,
            scanned: 0,
        }
    }

    fn evict(&mut self) {
        let mut hand = self.hand;
        while let Some(page) = hand.or_else(|| self.links.back(LIST)) {
            self.scanned += 1;
            hand = self.links.before(page);
            let state = &mut self.state[page as usize];
            *state -= 1;
            if *state == ABSENT {
                self.links.remove(page);
                break;
            }
        }
        self.hand = hand;
    }
}

impl Policy for Sieve {
    #[inline]
    fn access(&mut self, page: u32) -> bool {
        let state = &mut self.state[page as usize];
        if *state != ABSENT {
            *state = USED;
            return true;
        }
        *state = UNUSED;
        if self.resident == self.room {
            self.evict();
        } else {
            self.resident += 1;
        }
        self.links.push_front(LIST, page);
        false
    }

    fn resident(&self) -> u64 {
        self.resident.into()
    }

    fn work(&self) -> Work {
        Work { pages_scanned: Some(self.scanned), ..Work::default() }
    }
}
