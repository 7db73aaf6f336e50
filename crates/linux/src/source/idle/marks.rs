//! Which folios of a process do not take the mark.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Scans that clear and come across a folio that refused the mark, until it is tried again: the kernel may just have had
/// it in hand, to reclaim or to move it.
const TRY_AGAIN: u8 = 8;

/// What is known of one process's pages.
#[derive(Debug, Default)]
pub(super) struct ProcessMarks {
    /// Folios, by their first frame, that did not take the mark when it was last tried: they would look accessed for
    /// ever. How many scans are left until they are tried again.
    refused: HashMap<u64, u8>,
}

impl ProcessMarks {
    /// Whether the folio at `head` did not take the mark when it was last tried.
    pub(super) fn is_refused(&self, head: u64) -> bool {
        self.refused.contains_key(&head)
    }

    /// Of `heads`, all that lack the mark were to take it, and `refused` did not.
    pub(super) fn note<'a>(&mut self, heads: &[u64], refused: impl IntoIterator<Item = &'a u64>) {
        heads.iter().for_each(|head| _ = self.refused.remove(head));
        self.refused.extend(refused.into_iter().map(|&head| (head, TRY_AGAIN)));
    }

    /// A scan that clears comes across the folio at `head`: whether the mark is to be tried once more.
    pub(super) fn is_due_again(&mut self, head: u64) -> bool {
        let Entry::Occupied(mut left) = self.refused.entry(head) else { return false };
        *left.get_mut() = left.get().saturating_sub(1);
        *left.get() == 0
    }
}
