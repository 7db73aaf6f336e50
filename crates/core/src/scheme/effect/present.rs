//! Which pages that went are present again: one call to the source for each target, in however many sets its pages are.

use crate::addr::AddrRange;
use crate::pages::PageSet;
use crate::source::{AccessSource, Clear, SourceError};
use crate::target::TargetId;
use std::collections::BTreeMap;

/// Those of `pages` that are not present.
pub(super) fn absent(source: &mut dyn AccessSource, target: TargetId, pages: &PageSet) -> Result<PageSet, SourceError> {
    let mut out = pages.clone();
    source.scan(target, &pages.ranges(), Clear::Nothing, &mut |bits| {
        if bits.leaf_shift > 12 {
            out.remove(AddrRange::new(bits.base, bits.base + (1 << bits.leaf_shift)));
        } else {
            out.remove_mask(bits.base, &bits.present);
        }
    })?;
    Ok(out)
}

/// Pages that are to be looked for, of any targets.
#[derive(Debug, Default)]
pub(super) struct Wanted(BTreeMap<TargetId, PageSet>);

impl Wanted {
    /// These as well.
    pub fn add(&mut self, target: TargetId, pages: &PageSet) {
        if !pages.is_empty() {
            self.0.entry(target).or_default().unite(pages);
        }
    }

    /// Looks for all of them.
    pub fn find(self, source: &mut dyn AccessSource) -> Present {
        let mut found = Present::default();
        for (target, mut pages) in self.0 {
            match absent(source, target, &pages) {
                Ok(still) => {
                    pages.subtract(&still);
                    if !pages.is_empty() {
                        found.pages.insert(target, pages);
                    }
                }
                Err(_) => found.gone.push(target),
            }
        }
        found
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Present {
    pages: BTreeMap<TargetId, PageSet>,
    /// Targets that cannot be asked any more.
    pub gone: Vec<TargetId>,
}

impl Present {
    /// Takes what is present out of `set`; how many bytes that were.
    pub fn take_from(&self, target: TargetId, set: &mut PageSet) -> u64 {
        let Some(pages) = self.pages.get(&target) else { return 0 };
        let before = set.len();
        set.subtract(pages);
        before - set.len()
    }
}
