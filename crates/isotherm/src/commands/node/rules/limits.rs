//! How much of each control group may go until it is looked again: what `memory.min` and `memory.low` leave.

use isotherm_core::addr::PAGE_SIZE;
use isotherm_linux::cgroup::memory::Protection;
use std::collections::HashMap;
use std::io;

/// What may be taken from a group until it is looked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// So many bytes.
    Bytes(u64),
    /// Nothing, since it cannot be read what is protected: why.
    Unknown(String),
}

impl Limit {
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => *bytes,
            Self::Unknown(_) => 0,
        }
    }

    /// Code and sentence where all that was found to spare has gone.
    pub fn protected() -> (&'static str, String) {
        ("protected", "no more was found to spare beyond what memory.min or memory.low protect".to_owned())
    }

    /// Code and sentence, if nothing may go.
    pub fn idle(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Bytes(bytes) if *bytes >= PAGE_SIZE => None,
            Self::Bytes(_) => Some(Self::protected()),
            Self::Unknown(why) => {
                Some(("protection_unknown", format!("what protects the group cannot be read: {why}")))
            }
        }
    }
}

/// A group that may be protected.
#[derive(Debug)]
pub struct Sharer {
    pub place: usize,
    /// How many take from it.
    pub takers: u64,
    pub protections: io::Result<Vec<Protection>>,
}

/// The limits of groups from what protects each and those above it. Groups below the same protected one share what it has
/// to spare, in equal parts, so that together they leave what is protected. A group counts as often as it has takers, of
/// which each has the limit: pages that are paged out, and page cache. Who is not in the answer has no limit.
pub fn limits(groups: &[Sharer]) -> HashMap<usize, Limit> {
    let mut sharers: HashMap<&str, u64> = HashMap::new();
    for (takers, protections) in groups.iter().filter_map(|g| Some((g.takers, g.protections.as_ref().ok()?))) {
        protections.iter().for_each(|p| *sharers.entry(&p.path).or_default() += takers);
    }
    let limit = |protections: &io::Result<Vec<Protection>>| match protections {
        Ok(all) => all.iter().map(|p| p.spare / sharers[&*p.path]).min().map(Limit::Bytes),
        Err(why) => Some(Limit::Unknown(why.to_string())),
    };
    groups.iter().filter_map(|group| Some((group.place, limit(&group.protections)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn protection(path: &str, spare: u64) -> Protection {
        Protection { path: path.to_owned(), spare }
    }

    #[test]
    fn groups_below_a_protected_one_share_what_it_can_spare() {
        let of = |place, takers, protections| Sharer { place, takers, protections };
        let groups = [
            of(0, 1, Ok(vec![protection("/s", 18000)])),
            of(1, 2, Ok(vec![protection("/s/b", 1000), protection("/s", 18000)])),
            of(2, 1, Ok(vec![])),
            of(4, 1, Err(io::ErrorKind::PermissionDenied.into())),
        ];
        let limits = limits(&groups);
        assert_eq!((&limits[&0], &limits[&1]), (&Limit::Bytes(6000), &Limit::Bytes(500)));
        assert_eq!((limits.get(&2), limits[&4].bytes()), (None, 0));
        assert_eq!((limits[&0].idle(), limits[&1].idle().unwrap().0), (None, "protected"));
        let (code, text) = limits[&4].idle().unwrap();
        assert_eq!((code, &*text), ("protection_unknown", "what protects the group cannot be read: permission denied"));
    }

    proptest! {
        #[test]
        fn no_protected_group_is_ever_undercut(
            groups in prop::collection::vec((prop::collection::vec(0usize..4, 0..3), 1u64..3), 1..20),
            spare in prop::array::uniform4(0u64..1 << 40),
        ) {
            let protections = |of: &Vec<usize>| {
                let of: std::collections::BTreeSet<_> = of.iter().collect();
                Ok(of.into_iter().map(|&i| protection(&format!("/{i}"), spare[i])).collect())
            };
            let sharer = |(place, (of, takers)): (usize, &(Vec<usize>, u64))| {
                Sharer { place, takers: *takers, protections: protections(of) }
            };
            let groups: Vec<_> = groups.iter().enumerate().map(sharer).collect();
            let limits = limits(&groups);
            for (i, spare) in spare.into_iter().enumerate() {
                let below = |p: &Vec<Protection>| p.iter().any(|p| p.path == format!("/{i}"));
                let taken: u64 = groups
                    .iter()
                    .filter(|group| group.protections.as_ref().is_ok_and(below))
                    .map(|group| limits[&group.place].bytes() * group.takers)
                    .sum();
                prop_assert!(taken <= spare);
            }
        }
    }
}
