//! The LRU of memories: whose turn it is to be reclaimed when the whole machine is short.
//!
//! Two generations of memories (three places, so that a reader that is late cannot take the oldest for the youngest),
//! each of eight bins. Which bin a memory is put into is drawn at random, and reclaim begins at a random bin, so that
//! several reclaimers at once seldom meet. Reclaim goes through the old generation; what it is done with joins the
//! young one.

const GENS: usize = 3;
/// Bins of each.
pub const BINS: usize = 8;
const NONE: u32 = u32::MAX;

/// What happens to a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// To the head of its generation: above its soft limit.
    Head,
    /// To the tail of its generation: to be tried once more, last.
    Tail,
    /// To the tail of the young generation: done for this time.
    Young,
}

/// Where a memory stands within its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Segment {
    /// Neither.
    #[default]
    Default,
    /// Put at the head.
    Head,
    /// Put at the tail, tried once already.
    Tail,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    prev: u32,
    next: u32,
    /// Place of the generation times bins, plus bin.
    list: u8,
    on: bool,
    segment: Segment,
}

/// The LRU of memories, which are known by small numbers.
#[derive(Debug, Clone)]
pub struct MemcgLru {
    seq: u64,
    members: Vec<Member>,
    ends: [(u32, u32); GENS * BINS],
    counts: [u32; GENS],
    rng: fastrand::Rng,
}

impl MemcgLru {
    /// No memories. The seed decides over the bins.
    pub fn new(seed: u64) -> Self {
        Self {
            seq: 0,
            members: Vec::new(),
            ends: [(NONE, NONE); GENS * BINS],
            counts: [0; GENS],
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// How often a generation was used up.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    const fn old(&self) -> usize {
        (self.seq % GENS as u64) as usize
    }

    const fn young(&self) -> usize {
        ((self.seq + 1) % GENS as u64) as usize
    }

    /// A bin drawn at random.
    pub fn random_bin(&mut self) -> usize {
        self.rng.usize(..BINS)
    }

    fn unlink(&mut self, id: u32) {
        let Member { prev, next, list, .. } = self.members[id as usize];
        match prev {
            NONE => self.ends[list as usize].0 = next,
            prev => self.members[prev as usize].next = next,
        }
        match next {
            NONE => self.ends[list as usize].1 = prev,
            next => self.members[next as usize].prev = prev,
        }
        self.members[id as usize].on = false;
        self.counts[list as usize / BINS] -= 1;
    }

    fn link(&mut self, id: u32, generation: usize, head: bool, segment: Segment) {
        let list = generation * BINS + self.random_bin();
        let (first, last) = self.ends[list];
        let (prev, next) = if head { (NONE, first) } else { (last, NONE) };
        self.members[id as usize] = Member { prev, next, list: list as u8, on: true, segment };
        match prev {
            NONE => self.ends[list].0 = id,
            prev => self.members[prev as usize].next = id,
        }
        match next {
            NONE => self.ends[list].1 = id,
            next => self.members[next as usize].prev = id,
        }
        self.counts[generation] += 1;
    }

    fn used_up(&mut self) {
        // At most as often as there are generations: with nobody left it stays where it is.
        while self.counts[self.old()] == 0 && self.counts[self.young()] > 0 {
            self.seq += 1;
        }
    }

    /// A new memory: last of the old generation. Does nothing for one that is known.
    pub fn add(&mut self, id: u32) {
        let at = id as usize;
        if at >= self.members.len() {
            let none = Member { prev: NONE, next: NONE, list: 0, on: false, segment: Segment::Default };
            self.members.resize(at + 1, none);
        }
        if !self.members[at].on {
            self.link(id, self.old(), false, Segment::Default);
        }
    }

    /// Where it stands; none if it is not known.
    pub fn segment(&self, id: u32) -> Option<Segment> {
        self.members.get(id as usize).filter(|member| member.on).map(|member| member.segment)
    }

    /// Whether it is in the old generation.
    pub fn is_old(&self, id: u32) -> bool {
        self.segment(id).is_some() && self.members[id as usize].list as usize / BINS == self.old()
    }

    /// Moves a memory. Does nothing for one that is not known.
    pub fn apply(&mut self, id: u32, op: Move) {
        if self.segment(id).is_none() {
            return;
        }
        let current = self.members[id as usize].list as usize / BINS;
        self.unlink(id);
        match op {
            Move::Head => self.link(id, current, true, Segment::Head),
            Move::Tail => self.link(id, current, false, Segment::Tail),
            Move::Young => self.link(id, self.young(), false, Segment::Default),
        }
        self.used_up();
    }

    /// The memories of the old generation that are in a bin, in their order.
    pub fn bin(&self, bin: usize) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.ends[self.old() * BINS + bin].0;
        std::iter::from_fn(move || {
            let id = at;
            at = self.members.get(id as usize)?.next;
            Some(id)
        })
    }

    /// The memories in the old and in the young generation.
    pub const fn counts(&self) -> (u32, u32) {
        (self.counts[self.old()], self.counts[self.young()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn old(lru: &MemcgLru) -> Vec<u32> {
        let mut all: Vec<u32> = (0..BINS).flat_map(|bin| lru.bin(bin)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_generation_is_used_up_when_all_are_done() {
        let mut lru = MemcgLru::new(1);
        (0..5).for_each(|id| lru.add(id));
        assert_eq!(old(&lru), [0, 1, 2, 3, 4]);
        for id in 0..4 {
            lru.apply(id, Move::Young);
            assert_eq!(lru.seq(), 0);
        }
        assert_eq!((old(&lru), lru.counts()), (vec![4], (1, 4)));
        lru.apply(4, Move::Young);
        assert_eq!((lru.seq(), lru.counts()), (1, (5, 0)));
    }

    #[test]
    fn head_and_tail_stay_in_their_generation() {
        let mut lru = MemcgLru::new(1);
        (0..40).for_each(|id| lru.add(id));
        lru.apply(3, Move::Young);
        lru.apply(3, Move::Head);
        assert!(!lru.is_old(3));
        assert_eq!(lru.segment(3), Some(Segment::Head));
        lru.apply(7, Move::Head);
        assert!((0..BINS).any(|bin| lru.bin(bin).next() == Some(7)));
        lru.apply(7, Move::Tail);
        assert!((0..BINS).any(|bin| lru.bin(bin).last() == Some(7)));
        assert_eq!(lru.segment(7), Some(Segment::Tail));
    }

    proptest! {
        #[test]
        fn none_is_lost(ops in prop::collection::vec((0_u32..20, 0_u8..4), 1..300)) {
            let mut lru = MemcgLru::new(7);
            let mut known = std::collections::BTreeSet::new();
            for (id, op) in ops {
                match op {
                    0 => { lru.add(id); known.insert(id); }
                    1 => lru.apply(id, Move::Head),
                    2 => lru.apply(id, Move::Tail),
                    _ => lru.apply(id, Move::Young),
                }
                let (old_count, young_count) = lru.counts();
                prop_assert_eq!((old_count + young_count) as usize, known.len());
                prop_assert_eq!(old(&lru).len(), old_count as usize);
                prop_assert!(known.iter().all(|&id| lru.segment(id).is_some()));
                prop_assert!(known.is_empty() || old_count > 0, "reclaim always finds someone");
            }
        }
    }
}
