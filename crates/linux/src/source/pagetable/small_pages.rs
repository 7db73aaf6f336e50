//! Which pages of an address space are known not to be part of a large folio.
//!
//! A page that was found not to be part of one stays so as long as the same frame is mapped at the same address: a folio
//! is made of fresh pages. So answers are kept: of narrow windows by address and frame, of wide windows and whole tables
//! as a set of pages, with a hash of their frames.

use isotherm_core::mask::{self, NO_PAGES, PageMask};
use std::collections::HashMap;

/// Pages and spans remembered; either cache is emptied beyond.
const MAX_PAGES: usize = 1 << 16;
const MAX_SPANS: usize = 1 << 18;

/// What is known to be free of large folios, for one address space.
#[derive(Debug, Default)]
pub struct SmallPages {
    /// Frames by page number.
    pages: HashMap<u64, u64>,
    /// By number of the first page.
    spans: HashMap<u64, Span>,
}

/// Pages of a wide window or a table, by their place in it.
#[derive(Debug)]
struct Span {
    pages: PageMask,
    /// Of the frames that they were mapped to.
    hash: u64,
}

impl SmallPages {
    /// Whether `page`, which `frame` is mapped at, is known.
    pub(super) fn knows_page(&self, page: u64, frame: u64) -> bool {
        self.pages.get(&page) == Some(&frame)
    }

    pub(super) fn note_page(&mut self, page: u64, frame: u64) {
        if self.pages.len() >= MAX_PAGES {
            self.pages.clear();
        }
        self.pages.insert(page, frame);
    }

    /// The known pages of a span from page number `first` on, in which `frame` is mapped at each of the pages `present`.
    pub(super) fn in_span(&self, first: u64, present: &PageMask, frame: impl Fn(usize) -> u64) -> PageMask {
        match self.spans.get(&first) {
            Some(Span { pages, hash })
                if mask::and_not(pages, present) == NO_PAGES && *hash == frames_hash(pages, frame) =>
            {
                *pages
            }
            _ => NO_PAGES,
        }
    }

    /// Takes note of all `pages` of a span that are known now.
    pub(super) fn note_span(&mut self, first: u64, pages: PageMask, frame: impl Fn(usize) -> u64) {
        if self.spans.len() >= MAX_SPANS {
            self.spans.clear();
        }
        self.spans.insert(first, Span { pages, hash: frames_hash(&pages, frame) });
    }
}

/// A hash over which frame is mapped where (FNV-1a on words).
fn frames_hash(pages: &PageMask, frame: impl Fn(usize) -> u64) -> u64 {
    mask::iter(pages).fold(0xcbf2_9ce4_8422_2325, |h, i| {
        let word = frame(i) << 9 | i as u64;
        (h ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}
