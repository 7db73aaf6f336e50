//! The optimum (Belady, 1966) without bypass: the page that is asked for again last of all goes. It needs the whole
//! trace.
//!
//! A page that is there is known by the position of its next request alone: the set of these positions, a bit per
//! request, is the whole state. The request at position `i` is a hit if `i` is in the set; what goes is its largest
//! element. 4 bytes a request for the positions, shared by all sizes, and 1/8 byte a request for the set.

/// Never asked for again.
const NEVER: u32 = u32::MAX;

/// For each request the position of the next one for the same page.
#[derive(Debug, Clone)]
pub struct NextUse(Vec<u32>);

impl NextUse {
    /// Looks ahead. `requests` must be shorter than 2^32 - 1, its pages below `pages`.
    pub fn of(requests: &[u32], pages: u32) -> Self {
        let mut next = vec![NEVER; requests.len()];
        let mut seen = vec![NEVER; pages as usize];
        for (i, &page) in requests.iter().enumerate().rev() {
            next[i] = std::mem::replace(&mut seen[page as usize], i as u32);
        }
        Self(next)
    }

    /// The position of the next request for the page of the request at `at`, if there is one.
    pub fn after(&self, at: usize) -> Option<u32> {
        self.0.get(at).copied().filter(|&next| next != NEVER)
    }
}

/// What the optimum comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Optimum {
    /// Requests for pages that were not there.
    pub misses: u64,
    /// Pages that are there at the end.
    pub resident: u64,
}

/// Runs the optimum with `size` pages. `each` is called for every request with whether it was a hit.
pub fn optimum(next: &NextUse, size: u32, mut each: impl FnMut(bool)) -> Optimum {
    let mut set = PositionSet::new(next.0.len());
    let (mut misses, mut live, mut dead) = (0u64, 0u32, 0u32);
    for (i, &next) in next.0.iter().enumerate() {
        let hit = set.remove(i);
        each(hit);
        if hit {
            live -= 1;
        } else {
            misses += 1;
            if live + dead == size {
                if dead > 0 {
                    dead -= 1;
                } else {
                    set.remove_last();
                    live -= 1;
                }
            }
        }
        if next == NEVER {
            dead += 1;
        } else {
            set.insert(next as usize);
            live += 1;
        }
    }
    Optimum { misses, resident: u64::from(live) + u64::from(dead) }
}

/// A set of small numbers: bits, and above them bits that tell which words are not empty.
#[derive(Debug)]
struct PositionSet {
    levels: Vec<Vec<u64>>,
}

impl PositionSet {
    fn new(len: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = len.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels };
            }
            words = words.div_ceil(64);
        }
    }

    #[inline]
    fn insert(&mut self, mut at: usize) {
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    #[inline]
    fn remove(&mut self, mut at: usize) -> bool {
        if self.levels[0][at / 64] & (1 << (at % 64)) == 0 {
            return false;
        }
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                break;
            }
            at /= 64;
        }
        true
    }

    fn remove_last(&mut self) {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            if word == 0 {
                return;
            }
            at = at * 64 + 63 - word.leading_zeros() as usize;
        }
        self.remove(at);
    }
}
