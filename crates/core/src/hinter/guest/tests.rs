//! A guest of a few blocks in virtual time, for tests of what is decided for it.

use super::super::block::{BLOCK_BYTES, Block};
use super::super::way::Way;
use super::*;
use crate::addr::AddrRange;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::convert::Infallible;

/// A guest, which is its own isolator.
#[derive(Debug, Default)]
pub(in crate::hinter) struct TestGuest {
    now_ns: Cell<u64>,
    looked_at: Cell<u64>,
    cpu_ns: Cell<u64>,
    pub(in crate::hinter) blocks: u64,
    /// What a look at free memory takes, and an attempt to isolate.
    pub(in crate::hinter) look_ns: u64,
    pub(in crate::hinter) isolate_ns: u64,
    /// Others have all processors.
    pub(in crate::hinter) busy: bool,
    pub(in crate::hinter) used_pages: BTreeSet<u64>,
    pub(in crate::hinter) allocated: u64,
    /// Free blocks; the kernel gives out the last ones first. Memory blocks that come online again are given out last.
    pub(in crate::hinter) free: Vec<Block>,
    pub(in crate::hinter) isolated: Vec<Block>,
    /// Of the isolated ones those that the host has answered for.
    pub(in crate::hinter) answered: usize,
    /// What was tried, and the last report.
    pub(in crate::hinter) tried: Vec<Way>,
    pub(in crate::hinter) reported: Vec<(u64, Vec<Block>)>,
    pub(in crate::hinter) troubles: Vec<String>,
    /// The ways that fail, and whether returning does.
    pub(in crate::hinter) broken: Vec<Way>,
    pub(in crate::hinter) stuck: bool,
    pub(in crate::hinter) taken_back: bool,
    /// Free blocks in pieces that compaction puts together; whether it works, and how often it was asked for.
    pub(in crate::hinter) scattered: Vec<Block>,
    pub(in crate::hinter) compacts: bool,
    pub(in crate::hinter) compactions: usize,
}

impl TestGuest {
    /// All of it is free.
    pub(in crate::hinter) fn new(blocks: u64) -> Self {
        let looked_at = Cell::new(u64::MAX);
        Self { blocks, looked_at, free: (0..blocks).rev().map(Block).collect(), ..Self::default() }
    }

    pub(in crate::hinter) fn set_now(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    fn spend(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
        self.cpu_ns.set(self.cpu_ns.get() + ns);
    }

    /// Takes every other page of blocks: the others are free and no longer in whole blocks.
    pub(in crate::hinter) fn scatter(&mut self, blocks: std::ops::Range<u64>) {
        self.free.retain(|block| !blocks.contains(&block.0));
        self.used_pages.extend((blocks.start * 512..blocks.end * 512).step_by(2));
        self.scattered.extend(blocks.map(Block));
    }

    /// Takes blocks into use from `first` on.
    pub(in crate::hinter) fn occupy(&mut self, blocks: std::ops::Range<u64>) {
        self.free.retain(|block| !blocks.contains(&block.0));
        self.used_pages.extend(blocks.start * 512..blocks.end * 512);
        self.allocated += 512 * (blocks.end - blocks.start);
    }
}

impl Isolator for TestGuest {
    fn isolate(&mut self, way: Way, wanted: &[AddrRange]) -> Result<Vec<AddrRange>, IsolateError> {
        self.tried.push(way);
        self.spend(self.isolate_ns);
        if self.broken.contains(&way) {
            return Err(IsolateError::Unsupported("broken".into()));
        }
        let mut given: Vec<Block> = wanted.iter().copied().flat_map(Block::inside).collect();
        match way {
            Way::Offline => given.retain(|block| self.free.contains(block)),
            Way::Touch => given = self.free.iter().rev().take(given.len()).copied().collect(),
        }
        self.free.retain(|block| !given.contains(block));
        self.isolated.extend(&given);
        Ok(given.into_iter().map(Block::range).collect())
    }

    fn check(&mut self, reported: &[AddrRange]) -> Result<(), IsolateError> {
        assert!(reported.iter().copied().flat_map(Block::inside).all(|block| self.isolated.contains(&block)));
        if std::mem::take(&mut self.taken_back) { Err(IsolateError::Taken) } else { Ok(()) }
    }

    fn release(&mut self) -> Result<(), IsolateError> {
        if self.stuck {
            return Err(IsolateError::Unsupported("stuck".into()));
        }
        self.answered = 0;
        let at = if self.tried.last() == Some(&Way::Offline) { 0 } else { self.free.len() };
        self.free.splice(at..at, self.isolated.drain(..));
        Ok(())
    }

    fn acked(&mut self) {
        self.answered = self.isolated.len();
    }

    fn release_answered(&mut self) {
        let answered = std::mem::take(&mut self.answered);
        self.free.extend(self.isolated.drain(..answered));
    }

    fn isolated(&self) -> u64 {
        self.isolated.len() as u64 * BLOCK_BYTES
    }
}

impl Guest for TestGuest {
    type Error = Infallible;
    type Isolator = Self;

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn free_memory(&self) -> Result<FreeMemory, Infallible> {
        let free_huge = self.free.len() as u64 * BLOCK_BYTES;
        let free = free_huge + self.scattered.len() as u64 * BLOCK_BYTES;
        let total = self.blocks * BLOCK_BYTES;
        Ok(FreeMemory { total, free, free_huge, allocated_pages: Some(self.allocated) })
    }

    fn page_is_free(&self, addr: u64) -> Result<bool, Infallible> {
        let block = addr / BLOCK_BYTES;
        // A look begins.
        if block == 0 && self.looked_at.replace(block) != 0 {
            self.spend(self.look_ns);
        }
        self.looked_at.set(block);
        Ok(!self.used_pages.contains(&(addr / 4096)))
    }

    fn idle_ns(&self) -> Option<u64> {
        Some(if self.busy { 0 } else { self.now_ns() })
    }

    fn cpu_ns(&self) -> u64 {
        self.cpu_ns.get()
    }

    fn compact(&mut self) -> io::Result<()> {
        self.compactions += 1;
        if !self.compacts {
            return Err(io::Error::other("broken"));
        }
        assert!(self.isolated.is_empty(), "what is isolated cannot be moved");
        let whole: Vec<Block> = self.scattered.drain(..).collect();
        for block in &whole {
            self.used_pages.retain(|page| page / 512 != block.0);
        }
        self.free.extend(whole);
        Ok(())
    }

    fn isolator(&mut self) -> &mut Self {
        self
    }

    fn report(&mut self, batch: u64, blocks: &[Block], _unit: u64) {
        self.reported.push((batch, blocks.to_vec()));
    }

    fn trouble(&mut self, what: fmt::Arguments<'_>) {
        self.troubles.push(what.to_string());
    }
}
