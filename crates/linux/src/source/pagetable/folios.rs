//! The large folios that a page table maps, from `/proc/kpageflags`.

use super::frames::Frames;
use super::pte;
use crate::mm::page_flags::{COMPOUND_HEAD, COMPOUND_TAIL};
use std::io;
use std::ops::Range;

/// Frames in the largest folio that last-level entries can map.
const MAX_FOLIO: u64 = 512;
/// Frames whose flags are read first to find a folio.
const FIRST_BLOCK: u64 = 32;

/// The large folio around a page, as far as one table maps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folio {
    /// Its pages in the table.
    pub pages: Range<usize>,
    /// Whether the table maps all of it, in order.
    pub whole: bool,
}

/// Finds the folios that a whole table maps; keeps the frame flags it read last.
#[derive(Debug)]
pub struct FolioFinder<'a> {
    frames: &'a Frames,
    table: &'a [u64],
    /// The aligned block of frames whose flags were read last.
    block: Range<u64>,
    flags: Box<[u64; MAX_FOLIO as usize]>,
}

impl<'a> FolioFinder<'a> {
    /// Of the folios that `table` maps.
    pub fn new(frames: &'a Frames, table: &'a [u64]) -> Self {
        Self { frames, table, block: 0..0, flags: Box::new([0; MAX_FOLIO as usize]) }
    }

    fn frame(&self, page: usize) -> Option<u64> {
        let entry = self.table[page];
        pte::is_present(entry).then(|| pte::frame(entry, self.frames.phys_mask()))
    }

    /// The folio that `page` is part of; `None` if it is not (any more) part of a large one.
    pub fn around(&mut self, page: usize) -> io::Result<Option<Folio>> {
        let Some(frame) = self.frame(page) else { return Ok(None) };
        // Folios are aligned to their size, so the aligned block around the frame holds all of it, if it is as large.
        // Most are small, and each frame's flags take their time.
        let mut frames = FIRST_BLOCK;
        if !self.block.contains(&frame) {
            self.read_around(frame, frames)?;
        }
        while !self.is_whole_in_block(frame) {
            frames = (self.block.end - self.block.start).max(frames) * 2;
            self.read_around(frame, frames)?;
        }
        let flags = &self.flags[..(self.block.end - self.block.start) as usize];
        Ok(folio_in(flags, self.block.start, |i| self.frame(i), page, frame))
    }

    fn read_around(&mut self, frame: u64, frames: u64) -> io::Result<()> {
        let first = frame / frames * frames;
        self.block = 0..0;
        self.frames.read(first, &mut self.flags[..frames as usize])?;
        self.block = first..first + frames;
        Ok(())
    }

    /// Whether the block is as large as folios can be, or shows both ends of the one around `frame`.
    fn is_whole_in_block(&self, frame: u64) -> bool {
        let frames = self.block.end - self.block.start;
        let (at, len) = ((frame - self.block.start) as usize, frames as usize);
        let head = self.flags[..=at].iter().rposition(|f| f & COMPOUND_TAIL == 0);
        let ends = self.flags[at + 1..len].iter().any(|f| f & COMPOUND_TAIL == 0);
        frames >= MAX_FOLIO || self.flags[at] & (COMPOUND_HEAD | COMPOUND_TAIL) == 0 || head.is_some() && ends
    }
}

/// The folio around `frame`, which `page` maps, given the flags of the aligned block of frames from `block` on.
fn folio_in(
    flags: &[u64],
    block: u64,
    frame_of: impl Fn(usize) -> Option<u64>,
    page: usize,
    frame: u64,
) -> Option<Folio> {
    let at = (frame - block) as usize;
    if flags[at] & (COMPOUND_HEAD | COMPOUND_TAIL) == 0 {
        return None;
    }
    // Without a head in the block the folio is larger than any that last-level entries map: cannot be covered.
    let head = (0..=at).rev().find(|&i| flags[i] & COMPOUND_HEAD != 0);
    let Some(head) = head.filter(|&h| (h + 1..=at).all(|i| flags[i] & COMPOUND_TAIL != 0)) else {
        return Some(Folio { pages: page..page + 1, whole: false });
    };
    let len = 1 + flags[head + 1..].iter().take_while(|f| **f & COMPOUND_TAIL != 0).count();
    let (before, after) = (at - head, len - (at - head));
    let whole = page >= before
        && page + after <= 512
        && (0..len).all(|k| frame_of(page - before + k) == Some(block + (head + k) as u64));
    let pages = page.saturating_sub(before)..(page + after).min(512);
    Some(Folio { pages, whole })
}

#[cfg(test)]
mod tests {
    use super::super::frames::tests::{table_with, tree};
    use super::*;

    #[test]
    fn folios_are_whole_only_if_mapped_completely_and_in_order() {
        let (_dir, frames) = tree();
        let whole = table_with(32, 0x230..0x240);
        assert_eq!(FolioFinder::new(&frames, &whole).around(37).unwrap(), Some(Folio { pages: 32..48, whole: true }));
        // Neighbouring folio does not count as part of it.
        let two = table_with(32, 0x230..0x244);
        assert_eq!(FolioFinder::new(&frames, &two).around(48).unwrap(), Some(Folio { pages: 48..52, whole: true }));
        let cut = table_with(32, 0x230..0x23c);
        assert_eq!(FolioFinder::new(&frames, &cut).around(37).unwrap(), Some(Folio { pages: 32..48, whole: false }));
        let at_edge = table_with(0, 0x238..0x240);
        assert_eq!(FolioFinder::new(&frames, &at_edge).around(2).unwrap(), Some(Folio { pages: 0..8, whole: false }));
        let at_end = table_with(504, 0x230..0x238);
        assert_eq!(
            FolioFinder::new(&frames, &at_end).around(505).unwrap(),
            Some(Folio { pages: 504..512, whole: false })
        );
        let small = table_with(0, 0x10..0x20);
        assert_eq!(FolioFinder::new(&frames, &small).around(3).unwrap(), None);
    }
}
