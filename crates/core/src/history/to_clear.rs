//! What a walk should clear of a table, by what that tells.

use crate::mask::{NO_PAGES, PageMask, or};

/// Of the pages of a table that a walk finds accessed, those whose bits it should clear. No page is in two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToClear {
    /// Cleared before: what changed, and the part of those in constant use whose turn it is.
    pub again: PageMask,
    /// Not there at the walk before: they were accessed when they came, and nobody knows yet whether they are in use.
    pub new: PageMask,
    /// There when the watch began, and never cleared since.
    pub never: PageMask,
}

impl ToClear {
    /// Nothing.
    pub const NOTHING: Self = Self { again: NO_PAGES, new: NO_PAGES, never: NO_PAGES };

    /// All of them.
    pub fn all(&self) -> PageMask {
        or(&self.again, &self.first())
    }

    /// Those cleared for the first time.
    pub fn first(&self) -> PageMask {
        or(&self.new, &self.never)
    }
}
