//! S3-FIFO (Yang et al., SOSP'23): newcomers go to a small queue of a tenth of the cache; what is used twice there
//! moves on to the main queue, the rest leaves its name in a ghost queue of nine tenths of the cache's length; what is
//! asked for while its name is there goes straight to the main queue. The main queue reinserts what was used since, up
//! to three times. 9 bytes a page and 8 a page of the cache.

use super::links::{Links, List};
use super::{Policy, Work, share};
use std::collections::VecDeque;

const GHOSTS: List = List(0);

/// Where a page is; its uses (0 to 3) are kept above these two bits.
const ABSENT: u8 = 0;
const SMALL: u8 = 1;
const MAIN: u8 = 2;
const GHOST: u8 = 3;
const PLACE: u8 = 3;
const ONE_USE: u8 = 4;
const MOST_USES: u8 = 3 * ONE_USE;
/// Uses in the small queue from which a page moves on.
const PROMOTE: u8 = 2 * ONE_USE;

#[derive(Debug)]
pub(crate) struct S3Fifo {
    state: Vec<u8>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    links: Links,
    room: usize,
    most_main: usize,
    most_ghosts: u32,
    ghosts: u32,
    scanned: u64,
    moves: u64,
}

impl S3Fifo {
    /// A cache of `size` of `pages` pages.
    pub fn new(pages: u32, size: u32) -> Self {
        let queue = || VecDeque::with_capacity(size.min(pages) as usize + 1);
        Self {
            state: vec![ABSENT; pages as usize],
            small: queue(),
            main: queue(),
            links: Links::new(pages, 1),
            room: size as usize,
            most_main: (size - share(size, 1, 10)) as usize,
            most_ghosts: share(size, 9, 10),
            ghosts: 0,
            scanned: 0,
            moves: 0,
        }
    }

    #[cold]
    fn evict(&mut self) {
        while self.small.len() + self.main.len() >= self.room {
            if self.main.len() > self.most_main || self.small.is_empty() {
                self.evict_main();
            } else {
                self.evict_small();
            }
        }
    }

    /// Moves the oldest page of the small queue on, or gives it up.
    fn evict_small(&mut self) {
        let Some(page) = self.small.pop_front() else { return };
        self.scanned += 1;
        let state = &mut self.state[page as usize];
        if *state >= SMALL + PROMOTE {
            *state = MAIN;
            self.main.push_back(page);
            self.moves += 1;
            return;
        }
        *state = GHOST;
        self.links.push_front(GHOSTS, page);
        self.ghosts += 1;
        if self.ghosts > self.most_ghosts
            && let Some(oldest) = self.links.pop_back(GHOSTS)
        {
            self.state[oldest as usize] = ABSENT;
            self.ghosts -= 1;
        }
    }

    fn evict_main(&mut self) {
        while let Some(page) = self.main.pop_front() {
            self.scanned += 1;
            let state = &mut self.state[page as usize];
            if *state == MAIN {
                *state = ABSENT;
                return;
            }
            *state -= ONE_USE;
            self.main.push_back(page);
            self.moves += 1;
        }
    }
}

impl Policy for S3Fifo {
    #[inline]
    fn access(&mut self, page: u32) -> bool {
        let state = &mut self.state[page as usize];
        match *state & PLACE {
            SMALL | MAIN => {
                if *state < MOST_USES {
                    *state += ONE_USE;
                }
                true
            }
            place => {
                if place == GHOST {
                    self.links.remove(page);
                    self.ghosts -= 1;
                    *state = ABSENT;
                }
                if self.small.len() + self.main.len() >= self.room {
                    self.evict();
                }
                let (queue, state) = if place == GHOST { (&mut self.main, MAIN) } else { (&mut self.small, SMALL) };
                queue.push_back(page);
                self.state[page as usize] = state;
                false
            }
        }
    }

    fn resident(&self) -> u64 {
        (self.small.len() + self.main.len()) as u64
    }

    fn work(&self) -> Work {
        Work { pages_scanned: Some(self.scanned), list_moves: Some(self.moves), ..Work::default() }
    }
}
