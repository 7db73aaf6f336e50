//! ARC (Megiddo and Modha, FAST'03), as figure 4 of the paper has it: `t1` holds pages seen once, `t2` pages seen
//! again, `b1` and `b2` the names of what left them; hits among the names move the target size of `t1`. 9 bytes a page.

use super::links::{Links, List};
use super::{Policy, Work};

const ABSENT: u8 = 4;
const T1: u8 = 0;
const T2: u8 = 1;
const B1: u8 = 2;
const B2: u8 = 3;

#[derive(Debug)]
pub struct Arc {
    state: Vec<u8>,
    links: Links,
    room: u32,
    /// Lengths of the four lists.
    len: [u32; 4],
    /// The target size of `t1`.
    target: f64,
    moves: u64,
}

impl Arc {
    /// A cache of `size` of `pages` pages.
    pub fn new(pages: u32, size: u32) -> Self {
        Self {
            state: vec![ABSENT; pages as usize],
            links: Links::new(pages, 4),
            room: size,
            len: [0; 4],
            target: 0.0,
            moves: 0,
        }
    }

    fn put(&mut self, page: u32, list: u8) {
        let old = std::mem::replace(&mut self.state[page as usize], list);
        if old == ABSENT {
            self.links.push_front(List(list.into()), page);
        } else {
            self.len[old as usize] -= 1;
            self.links.move_front(List(list.into()), page);
        }
        self.len[list as usize] += 1;
    }

    fn forget_last(&mut self, list: u8) {
        if let Some(page) = self.links.pop_back(List(list.into())) {
            self.state[page as usize] = ABSENT;
            self.len[list as usize] -= 1;
        }
    }

    fn replace(&mut self, in_b2: bool) {
        let t1 = f64::from(self.len[T1 as usize]);
        let from_t1 = t1 > 0.0 && (t1 > self.target || (in_b2 && t1 == self.target));
        let (from, to) = if from_t1 || self.len[T2 as usize] == 0 { (T1, B1) } else { (T2, B2) };
        if let Some(page) = self.links.back(List(from.into())) {
            self.put(page, to);
        }
    }

    #[cold]
    fn miss_without_name(&mut self) {
        let [t1, t2, b1, b2] = self.len;
        if t1 + b1 == self.room {
            if t1 < self.room {
                self.forget_last(B1);
                self.replace(false);
            } else {
                self.forget_last(T1);
            }
        } else {
            let all = u64::from(t1) + u64::from(t2) + u64::from(b1) + u64::from(b2);
            if all >= u64::from(self.room) {
                if all == 2 * u64::from(self.room) {
                    self.forget_last(B2);
                }
                self.replace(false);
            }
        }
    }
}

impl Policy for Arc {
    #[inline]
    fn access(&mut self, page: u32) -> bool {
        let (b1, b2) = (f64::from(self.len[B1 as usize]), f64::from(self.len[B2 as usize]));
        match self.state[page as usize] {
            T1 | T2 => {
                self.put(page, T2);
                self.moves += 1;
                true
            }
            B1 => {
                self.target = (self.target + (b2 / b1).max(1.0)).min(f64::from(self.room));
                self.replace(false);
                self.put(page, T2);
                false
            }
            B2 => {
                self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
                self.replace(true);
                self.put(page, T2);
                false
            }
            _ => {
                self.miss_without_name();
                self.put(page, T1);
                false
            }
        }
    }

    fn resident(&self) -> u64 {
        u64::from(self.len[T1 as usize]) + u64::from(self.len[T2 as usize])
    }

    fn work(&self) -> Work {
        Work { list_moves: Some(self.moves), ..Work::default() }
    }
}
