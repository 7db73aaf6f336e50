//! Working sets that jump: what an operator wants in the journal.

use std::collections::BTreeMap;

/// The window of the working sets that are compared, ns.
pub const WINDOW_NS: u64 = 60_000_000_000;
/// A working set has jumped once it is so many times what it was, or that part of it, ...
const FACTOR: u64 = 2;
/// ... and differs by so much, bytes.
const LEAST: u64 = 64 << 20;
/// A usual working set follows what is measured by this part of the difference each time it is looked at.
const FOLLOWS: f64 = 0.1;
/// Times that a group is looked at before anything is usual in it.
const LEARNS: u32 = 5;

/// What is usual for each group.
#[derive(Debug, Default)]
pub struct Jumps {
    groups: BTreeMap<String, Usual>,
}

#[derive(Debug)]
struct Usual {
    bytes: f64,
    looks: u32,
}

/// A group whose working set is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jump {
    /// Its path.
    pub cgroup: String,
    /// What was usual, bytes.
    pub from: u64,
    /// What is measured, bytes.
    pub to: u64,
}

impl Jumps {
    /// Takes in the working sets of all groups, by path, once in a window; groups that are not among them are forgotten.
    /// Tells of each jump once: from then on the new size is the usual one.
    pub fn look<'a>(&mut self, groups: impl Iterator<Item = (&'a str, u64)>) -> Vec<Jump> {
        let mut before = std::mem::take(&mut self.groups);
        let mut jumps = Vec::new();
        for (path, bytes) in groups {
            let mut usual = before.remove(path).unwrap_or(Usual { bytes: bytes as f64, looks: 0 });
            let from = usual.bytes as u64;
            let (less, more) = (from.min(bytes), from.max(bytes));
            if usual.looks >= LEARNS && more >= less.saturating_mul(FACTOR) && more - less >= LEAST {
                jumps.push(Jump { cgroup: path.to_owned(), from, to: bytes });
                usual = Usual { bytes: bytes as f64, looks: LEARNS };
            } else {
                usual.bytes += (bytes as f64 - usual.bytes) * FOLLOWS;
                usual.looks = usual.looks.saturating_add(1);
            }
            self.groups.insert(path.to_owned(), usual);
        }
        jumps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn look(jumps: &mut Jumps, mib: u64) -> Vec<Jump> {
        jumps.look([("/a", mib * MIB), ("/b", 10 * MIB)].into_iter())
    }

    #[test]
    fn a_jump_is_told_once_in_either_direction() {
        let mut jumps = Jumps::default();
        for _ in 0..LEARNS {
            assert_eq!(look(&mut jumps, 100), []);
        }
        let up = Jump { cgroup: "/a".into(), from: 100 * MIB, to: 300 * MIB };
        assert_eq!(look(&mut jumps, 300), [up]);
        assert_eq!(look(&mut jumps, 310), []);
        let down = look(&mut jumps, 50);
        assert_eq!((down.len(), down[0].to), (1, 50 * MIB));
    }

    #[test]
    fn small_slow_and_first_changes_are_none() {
        let mut jumps = Jumps::default();
        assert_eq!(look(&mut jumps, 10), []);
        assert_eq!(look(&mut jumps, 1000), [], "nothing is usual yet");
        let mut jumps = Jumps::default();
        let mut mib = 200;
        for _ in 0..100 {
            assert_eq!(look(&mut jumps, mib), [], "at {mib} MiB");
            mib += mib / 20;
        }
        assert!(mib > 10_000);
        let mut jumps = Jumps::default();
        for _ in 0..LEARNS {
            look(&mut jumps, 10);
        }
        assert_eq!(look(&mut jumps, 60), [], "six times as much, but only 50 MiB");
    }

    #[test]
    fn groups_that_have_gone_are_forgotten() {
        let mut jumps = Jumps::default();
        for _ in 0..LEARNS {
            look(&mut jumps, 100);
        }
        assert_eq!(jumps.look(std::iter::empty()), []);
        assert!(jumps.groups.is_empty());
        assert_eq!(look(&mut jumps, 900), [], "another of the same name");
    }
}
