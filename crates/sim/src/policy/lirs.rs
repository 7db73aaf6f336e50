//! LIRS (Jiang and Zhang, SIGMETRICS'02). Most of the cache holds pages used twice within a short span (LIR), one
//! hundredth holds the others (resident HIR) in a queue; a stack orders pages by their last use and reaches down to the
//! coldest LIR page. A page asked for while it is in the stack becomes LIR, and the LIR page at the bottom has to step
//! down. Names of pages that are gone stay in the stack, at most as many as fit in the cache (the paper sets no limit,
//! but without one skewed loads miss 2 to 3 % more); the one that has been gone for longest is forgotten first. 17
//! bytes a page.

use super::links::{Links, List};
use super::{Policy, Work, share};

const STACK: List = List(0);
/// Resident HIR pages, the next to go at the back.
const QUEUE: List = List(0);
/// Pages of the stack that are gone, the longest gone at the back.
const GONE: List = List(1);

const ABSENT: u8 = 0;
const LIR: u8 = 1;
const HIR: u8 = 2;
const NAME: u8 = 3;

#[derive(Debug)]
pub(crate) struct Lirs {
    state: Vec<u8>,
    stack: Links,
    /// [`QUEUE`] and [`GONE`].
    queues: Links,
    room: u32,
    most_lir: u32,
    lir: u32,
    hir: u32,
    gone: u32,
    moves: u64,
}

impl Lirs {
    /// A cache of `size` of `pages` pages.
    pub fn new(pages: u32, size: u32) -> Self {
        Self {
            state: vec![ABSENT; pages as usize],
            stack: Links::new(pages, 1),
            queues: Links::new(pages, 2),
            room: size,
            most_lir: size - share(size, 1, 100),
            lir: 0,
            hir: 0,
            gone: 0,
            moves: 0,
        }
    }

    /// Takes pages off the bottom of the stack until a LIR page is there.
    fn prune(&mut self) {
        while let Some(page) = self.stack.back(STACK) {
            match self.state[page as usize] {
                LIR => return,
                NAME => {
                    self.state[page as usize] = ABSENT;
                    self.queues.remove(page);
                    self.gone -= 1;
                }
                _ => {}
            }
            self.stack.remove(page);
        }
    }

    /// Makes a page LIR that is in no queue, puts it on top of the stack, and demotes another for it.
    fn promote(&mut self, page: u32) {
        self.state[page as usize] = LIR;
        self.lir += 1;
        self.put_on_top(page);
        if self.lir > self.most_lir {
            self.prune();
            if let Some(bottom) = self.stack.pop_back(STACK) {
                self.state[bottom as usize] = HIR;
                self.queues.push_front(QUEUE, bottom);
                self.lir -= 1;
                self.hir += 1;
                self.moves += 1;
            }
            self.prune();
        }
    }

    fn put_on_top(&mut self, page: u32) {
        if self.stack.contains(page) {
            self.stack.move_front(STACK, page);
        } else {
            self.stack.push_front(STACK, page);
        }
    }

    fn evict(&mut self) {
        let Some(page) = self.queues.pop_back(QUEUE) else { return };
        self.hir -= 1;
        if !self.stack.contains(page) {
            self.state[page as usize] = ABSENT;
            return;
        }
        self.state[page as usize] = NAME;
        self.queues.push_front(GONE, page);
        self.gone += 1;
    }

    /// Forgets the name of what has been gone for longest, if there are too many.
    fn forget(&mut self) {
        if self.gone > self.room
            && let Some(page) = self.queues.pop_back(GONE)
        {
            self.stack.remove(page);
            self.state[page as usize] = ABSENT;
            self.gone -= 1;
        }
    }

    fn hit_hir(&mut self, page: u32) {
        self.moves += 1;
        if self.stack.contains(page) {
            self.queues.remove(page);
            self.hir -= 1;
            self.promote(page);
        } else {
            self.stack.push_front(STACK, page);
            self.queues.move_front(QUEUE, page);
            // A cache of one page has no LIR page to hold the stack.
            if self.most_lir == 0 {
                self.prune();
            }
        }
    }

    fn miss(&mut self, page: u32) {
        if self.lir + self.hir == self.room {
            self.evict();
        }
        // Evicting may not have changed what is known of this page: it is not in the queue.
        let known = self.state[page as usize] == NAME;
        if known {
            self.queues.remove(page);
            self.gone -= 1;
        }
        if known || self.lir < self.most_lir {
            self.promote(page);
        } else {
            self.state[page as usize] = HIR;
            self.queues.push_front(QUEUE, page);
            self.hir += 1;
            self.stack.push_front(STACK, page);
            if self.most_lir == 0 {
                self.prune();
            }
        }
        self.forget();
    }
}

impl Policy for Lirs {
    #[inline]
    fn access(&mut self, page: u32) -> bool {
        match self.state[page as usize] {
            LIR => {
                let was_bottom = self.stack.back(STACK) == Some(page);
                self.stack.move_front(STACK, page);
                self.moves += 1;
                if was_bottom {
                    self.prune();
                }
                true
            }
            HIR => {
                self.hit_hir(page);
                true
            }
            _ => {
                self.miss(page);
                false
            }
        }
    }

    fn resident(&self) -> u64 {
        u64::from(self.lir) + u64::from(self.hir)
    }

    fn work(&self) -> Work {
        Work { list_moves: Some(self.moves), ..Work::default() }
    }
}
