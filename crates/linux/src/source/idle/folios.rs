//! Which folio a page frame belongs to: idleness is kept once per folio, at its first page.

use super::physical::PhysicalPages;
use crate::mm::page_flags;
use std::io;

/// Frames of the largest folio on a reclaim list (2 MiB); folios are aligned to their size.
const BLOCK: u64 = 512;
/// Frames between two wanted ones that are read along rather than by another call.
const READ_ALONG: u64 = 32;

/// A page frame that somebody wants to know about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) pfn: u64,
    /// Where the caller keeps the page.
    pub(super) at: u32,
    /// First frame of its folio; `None`: it cannot be marked idle.
    pub(super) head: Option<u64>,
    /// Whether the folio is 2 MiB large.
    pub(super) huge: bool,
}

impl Frame {
    /// A frame of which nothing is known yet.
    pub(super) const fn new(pfn: u64, at: u32) -> Self {
        Self { pfn, at, head: None, huge: false }
    }
}

/// Sorts `frames` by number and fills in their folios. The kernel may split or free a folio right after: then its
/// frames look accessed or cannot be observed, never idle.
pub(super) fn resolve(pages: &impl PhysicalPages, frames: &mut [Frame]) -> io::Result<()> {
    frames.sort_unstable_by_key(|f| f.pfn);
    let mut block = Block::default();
    let mut flags = Vec::new();
    let mut rest = frames;
    while let Some(first) = rest.first().map(|f| f.pfn) {
        let near = |w: &[Frame]| w[1].pfn - w[0].pfn <= READ_ALONG;
        let len = 1 + rest.windows(2).take_while(|w| near(w)).count();
        let (run, behind) = rest.split_at_mut(len);
        rest = behind;
        flags.clear();
        flags.resize((run[len - 1].pfn - first + 1) as usize, 0);
        pages.flags(first, &mut flags)?;
        for frame in run {
            let own = flags[(frame.pfn - first) as usize];
            if own & (page_flags::NOPAGE | page_flags::HUGE | page_flags::ZERO_PAGE) != 0 {
                continue;
            }
            if own & (page_flags::COMPOUND_HEAD | page_flags::COMPOUND_TAIL) == 0 {
                frame.head = (own & page_flags::LRU != 0).then_some(frame.pfn);
                continue;
            }
            block.load(pages, frame.pfn)?;
            (frame.head, frame.huge) = block.folio(frame.pfn);
        }
    }
    Ok(())
}

/// Flags of the aligned block around a frame.
#[derive(Debug, Default)]
struct Block {
    start: u64,
    flags: Vec<u64>,
}

impl Block {
    fn load(&mut self, pages: &impl PhysicalPages, pfn: u64) -> io::Result<()> {
        let start = pfn / BLOCK * BLOCK;
        if self.flags.is_empty() || self.start != start {
            self.start = start;
            self.flags.resize(BLOCK as usize, 0);
            pages.flags(start, &mut self.flags)?;
        }
        Ok(())
    }

    /// First frame of the folio of `pfn`, if it can be marked idle, and whether the folio fills the block.
    fn folio(&self, pfn: u64) -> (Option<u64>, bool) {
        let at = (pfn - self.start) as usize;
        let is = |i: usize, what: u64| self.flags[i] & what != 0;
        let head = if is(at, page_flags::COMPOUND_HEAD) {
            Some(at)
        } else {
            // Tails follow their head without a gap.
            (0..at).rev().find(|&i| !is(i, page_flags::COMPOUND_TAIL)).filter(|&i| is(i, page_flags::COMPOUND_HEAD))
        };
        let Some(head) = head.filter(|&h| is(h, page_flags::LRU)) else { return (None, false) };
        let huge = head == 0 && (1..self.flags.len()).all(|i| is(i, page_flags::COMPOUND_TAIL));
        (Some(self.start + head as u64), huge)
    }
}
