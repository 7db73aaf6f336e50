//! Sharing a need among several memories by the LRU of memories ([`MemcgLru`]), as the kernel does.
//!
//! Each turn takes a share of a memory's size (the kernel's "total >> priority"), not the same from each: a large one
//! gives more. A memory that had its turn waits until the others had theirs, so nobody is spared and nobody is bled
//! dry. Taking the same number of bytes from each in turn would empty small ones first.

use super::memcg_lru::{BINS, MemcgLru, Move};

/// The share of a memory that one turn takes: one in 2^PRIORITY.
const PRIORITY: u32 = 6;
/// No turn takes less. The kernel's batch of 64 pages would take the same from large and small memories where little is
/// needed; it passes over small ones instead, until the need is large.
const LEAST: u64 = 4096;

impl MemcgLru {
    /// Who is next, if there is anybody.
    fn next_up(&mut self) -> Option<u32> {
        let first = self.random_bin();
        (0..BINS).find_map(|i| self.bin((first + i) % BINS).next())
    }

    /// Distributes `need` bytes over memories with `evictable(id)` bytes each: who gives how much. Less than `need` in
    /// all where they have no more.
    pub(crate) fn distribute(&mut self, need: u64, evictable: impl Fn(u32) -> u64) -> Vec<(u32, u64)> {
        let mut given: Vec<(u32, u64)> = Vec::new();
        let (mut left, mut empty) = (need, Vec::new());
        let (old, young) = self.counts();
        while left > 0
            && empty.len() < (old + young) as usize
            && let Some(id) = self.next_up()
        {
            let size = evictable(id);
            let before = given.iter().position(|g| g.0 == id);
            let already = before.map_or(0, |at| given[at].1);
            let part = (size >> PRIORITY).max(LEAST).min(size.saturating_sub(already)).min(left);
            self.apply(id, Move::Young);
            left -= part;
            match before {
                _ if part == 0 => {
                    if !empty.contains(&id) {
                        empty.push(id);
                    }
                }
                Some(at) => given[at].1 += part,
                None => given.push((id, part)),
            }
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn large_memories_give_more_and_small_ones_are_not_emptied() {
        let sizes = [800 * MIB, 100 * MIB];
        let mut turns = MemcgLru::new(1);
        (0..2).for_each(|id| turns.add(id));
        let given = turns.distribute(90 * MIB, |id| sizes[id as usize]);
        let of = |id| given.iter().find(|g| g.0 == id).map_or(0, |g| g.1);
        assert_eq!(of(0) + of(1), 90 * MIB);
        // Round robin would take 45 MiB from each: 6 % of one, 45 % of the other.
        let shares = [of(0) as f64 / sizes[0] as f64, of(1) as f64 / sizes[1] as f64];
        assert!(shares[0] / shares[1] > 0.7 && shares[0] / shares[1] < 1.4, "{shares:?}");
    }

    #[test]
    fn a_memory_without_anything_to_give_holds_nobody_up() {
        let mut turns = MemcgLru::new(1);
        (0..3).for_each(|id| turns.add(id));
        let given = turns.distribute(10 * MIB, |id| if id == 1 { 100 * MIB } else { 0 });
        assert_eq!(given, [(1, 10 * MIB)]);
        assert_eq!(turns.distribute(MIB, |_| 0), []);
        assert_eq!(MemcgLru::new(1).distribute(MIB, |_| MIB), []);
    }

    #[test]
    fn turns_go_round_over_many_small_requests() {
        let mut turns = MemcgLru::new(3);
        (0..4).for_each(|id| turns.add(id));
        let mut sum = [0u64; 4];
        for _ in 0..400 {
            turns.distribute(MIB, |_| 256 * MIB).into_iter().for_each(|(id, n)| sum[id as usize] += n);
        }
        assert!(sum.iter().all(|&n| n == 100 * MIB), "{sum:?}");
    }

    proptest! {
        #[test]
        fn never_more_than_asked_or_there(sizes in prop::collection::vec(0u64..50, 1..9), need in 0u64..300) {
            let mut turns = MemcgLru::new(7);
            (0..sizes.len() as u32).for_each(|id| turns.add(id));
            let given = turns.distribute(need * MIB, |id| sizes[id as usize] * MIB);
            prop_assert!(given.iter().all(|&(id, n)| n <= sizes[id as usize] * MIB));
            let sum: u64 = given.iter().map(|g| g.1).sum();
            prop_assert_eq!(sum, (need * MIB).min(sizes.iter().sum::<u64>() * MIB));
        }
    }
}
