//! W-TinyLFU (Einziger et al., ACM TOS 2017): newcomers go to a window, an LRU of one hundredth of the cache; what
//! leaves it must have been asked for more often than the page that the main part would give up, or it goes itself. The
//! main part is an LRU in two segments: what is used again moves from probation to the protected one, which gets four
//! fifths.
//!
//! Popularity is counted to 15 for each page and halved after every 10 requests per page of the cache. The counts are
//! exact, where the paper and its implementations keep a sketch: pages are numbered, so there is a place for each. 13
//! bytes a page.

use super::links::{Links, List};
use super::{Policy, Work, share};

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;
const ABSENT: u8 = 3;

const COUNT_BITS: u32 = 4;
const MOST: u32 = (1 << COUNT_BITS) - 1;

#[derive(Debug)]
pub(crate) struct WTinyLfu {
    state: Vec<u8>,
    links: Links,
    /// Count, and above it the number of halvings that it has gone through; the missing ones are made up for when it is
    /// read.
    counts: Vec<u32>,
    halvings: u32,
    until_halving: u64,
    period: u64,
    len: [u32; 3],
    most_window: u32,
    most_main: u32,
    most_protected: u32,
    scanned: u64,
    moves: u64,
}

impl WTinyLfu {
    /// A cache of `size` of `pages` pages.
    pub fn new(pages: u32, size: u32) -> Self {
        let most_window = share(size, 1, 100);
        let period = 10 * u64::from(size);
        Self {
            state: vec![ABSENT; pages as usize],
            links: Links::new(pages, 3),
            counts: vec![0; pages as usize],
            halvings: 0,
            until_halving: period,
            period,
            len: [0; 3],
            most_window,
            most_main: size - most_window,
            most_protected: (u64::from(size - most_window) * 4 / 5) as u32,
            scanned: 0,
            moves: 0,
        }
    }

    fn popularity(&self, page: u32) -> u32 {
        let stored = self.counts[page as usize];
        let missing = self.halvings.wrapping_sub(stored >> COUNT_BITS) & (u32::MAX >> COUNT_BITS);
        (stored & MOST) >> missing.min(COUNT_BITS)
    }

    fn count(&mut self, page: u32) {
        let count = (self.popularity(page) + 1).min(MOST);
        self.counts[page as usize] = (self.halvings << COUNT_BITS) | count;
        self.until_halving -= 1;
        if self.until_halving == 0 {
            self.until_halving = self.period;
            self.halvings = self.halvings.wrapping_add(1);
        }
    }

    fn put(&mut self, page: u32, part: u8) {
        let old = std::mem::replace(&mut self.state[page as usize], part);
        if old == ABSENT {
            self.links.push_front(List(part.into()), page);
        } else {
            self.len[old as usize] -= 1;
            self.links.move_front(List(part.into()), page);
            self.moves += 1;
        }
        self.len[part as usize] += 1;
    }

    fn evict(&mut self, page: u32) {
        let part = std::mem::replace(&mut self.state[page as usize], ABSENT);
        self.links.remove(page);
        self.len[part as usize] -= 1;
    }

    /// Finds a place for the page that leaves the window.
    #[cold]
    fn shrink_window(&mut self) {
        let Some(candidate) = self.links.back(List(WINDOW.into())) else { return };
        if self.len[PROBATION as usize] + self.len[PROTECTED as usize] < self.most_main {
            return self.put(candidate, PROBATION);
        }
        let last = |part: u8| self.links.back(List(part.into()));
        let Some(victim) = last(PROBATION).or_else(|| last(PROTECTED)) else { return self.evict(candidate) };
        self.scanned += 2;
        if self.popularity(candidate) > self.popularity(victim) {
            self.evict(victim);
            self.put(candidate, PROBATION);
        } else {
            self.evict(candidate);
        }
    }
}

impl Policy for WTinyLfu {
    #[inline]
    fn access(&mut self, page: u32) -> bool {
        self.count(page);
        match self.state[page as usize] {
            ABSENT => {
                self.put(page, WINDOW);
                if self.len[WINDOW as usize] > self.most_window {
                    self.shrink_window();
                }
                return false;
            }
            WINDOW => self.put(page, WINDOW),
            _ => {
                self.put(page, PROTECTED);
                if self.len[PROTECTED as usize] > self.most_protected
                    && let Some(last) = self.links.back(List(PROTECTED.into()))
                {
                    self.put(last, PROBATION);
                }
            }
        }
        true
    }

    fn resident(&self) -> u64 {
        self.len.iter().map(|&n| u64::from(n)).sum()
    }

    fn work(&self) -> Work {
        Work { pages_scanned: Some(self.scanned), list_moves: Some(self.moves), ..Work::default() }
    }
}
