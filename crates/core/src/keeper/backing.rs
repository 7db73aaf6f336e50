//! What follows from the mappings of an address space.

use crate::addr::{AddrRange, TABLE_SPAN};
use crate::mapping::{Mapping, MappingKind};
use crate::mask::{NO_PAGES, PageMask, or};
use crate::pages::{mask_of, push_range};

/// The mappings, as far as eviction is concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backings(Vec<Backing>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Backing {
    range: AddrRange,
    file: bool,
    fixed: bool,
}

/// What backs the pages of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backed {
    /// Belong to files; the rest is anonymous, or shared memory, which goes to swap as well.
    pub file: PageMask,
    /// Locked, or memory of a kind that is never evicted.
    pub fixed: PageMask,
}

impl Backings {
    /// Those of `mappings` (sorted, disjoint).
    pub fn of(mappings: &[Mapping]) -> Self {
        let one = |m: &Mapping| Backing {
            range: m.range,
            file: m.kind == MappingKind::File,
            fixed: m.locked || matches!(m.kind, MappingKind::Hugetlb | MappingKind::Special),
        };
        Self(mappings.iter().map(one).collect())
    }

    /// Addresses that are mapped: sorted, disjoint.
    pub fn mapped(&self) -> Vec<AddrRange> {
        let mut out = Vec::new();
        self.0.iter().for_each(|b| push_range(&mut out, b.range));
        out
    }

    /// What backs the pages of the table at `base`.
    pub fn of_table(&self, base: u64) -> Backed {
        let mut backed = Backed { file: NO_PAGES, fixed: NO_PAGES };
        let from = self.0.partition_point(|b| b.range.end <= base);
        for b in self.0[from..].iter().take_while(|b| b.range.start < base + TABLE_SPAN) {
            let pages = if b.file || b.fixed { mask_of(base, b.range) } else { continue };
            backed.file = if b.file { or(&backed.file, &pages) } else { backed.file };
            backed.fixed = if b.fixed { or(&backed.fixed, &pages) } else { backed.fixed };
        }
        backed
    }

    /// Whether `range` lies in one mapping.
    pub(crate) fn is_in_one(&self, range: AddrRange) -> bool {
        let at = self.0.partition_point(|b| b.range.end < range.end);
        self.0.get(at).is_some_and(|b| b.range.start <= range.start && range.end <= b.range.end)
    }
}
