//! What is kept of an evicted page: when it went, how often it had been accessed, whose it was.

/// Bits of the memcg's number, of the node's number.
const MEMCG_BITS: u32 = 16;
const NODE_BITS: u32 = 10;
/// Two bits of accesses below the generation's number.
const REFS_BITS: u32 = 2;
/// One for the working set, one that tells an entry from a pointer.
const TOKEN_AT: u32 = MEMCG_BITS + NODE_BITS + 2;
/// Bits of the generation's number that fit.
pub(crate) const SEQ_BITS: u32 = 64 - TOKEN_AT - REFS_BITS;

/// A shadow, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shadow {
    /// The oldest generation at eviction, the lower 34 bits of its number.
    pub seq: u64,
    /// The accesses less one, 0 to 3.
    pub refs: u32,
    pub memcg: u16,
    /// Which node it was on, 0 to 1023.
    pub node: u16,
    /// Whether it belonged to the working set.
    pub workingset: bool,
}

/// Keeps what fits of a generation's number.
pub const fn mask(seq: u64) -> u64 {
    seq & ((1 << SEQ_BITS) - 1)
}

impl Shadow {
    /// Into one word, as the kernel does: generation, accesses, memcg, node, working set, tag.
    pub const fn pack(self) -> u64 {
        let token = mask(self.seq) << REFS_BITS | (self.refs & 3) as u64;
        token << TOKEN_AT
            | (self.memcg as u64) << (NODE_BITS + 2)
            | (self.node as u64 & ((1 << NODE_BITS) - 1)) << 2
            | (self.workingset as u64) << 1
            | 1
    }

    pub const fn unpack(word: u64) -> Self {
        let token = word >> TOKEN_AT;
        Self {
            seq: token >> REFS_BITS,
            refs: (token & 3) as u32,
            memcg: (word >> (NODE_BITS + 2)) as u16,
            node: (word >> 2) as u16 & ((1 << NODE_BITS) - 1),
            workingset: word & 2 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thirty_four_bits_of_the_generation_fit() {
        assert_eq!(SEQ_BITS, 34);
        let shadow = Shadow { seq: 1 << 34 | 5, refs: 3, memcg: 0xffff, node: 1023, workingset: true };
        assert_eq!(Shadow::unpack(shadow.pack()), Shadow { seq: 5, ..shadow });
        let shadow = Shadow { seq: 1, refs: 2, memcg: 3, node: 4, workingset: false };
        assert_eq!(shadow.pack(), 1 << 30 | 2 << 28 | 3 << 12 | 4 << 2 | 1);
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(seq in 0_u64..1 << 34, refs in 0_u32..4, memcg: u16, node in 0_u16..1024, workingset: bool) {
            let shadow = Shadow { seq, refs, memcg, node, workingset };
            prop_assert_eq!(Shadow::unpack(shadow.pack()), shadow);
        }
    }
}
