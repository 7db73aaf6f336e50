//! Shared memory of our own: what a VMM's looks like, for tests and measurements without one.

use crate::mm::mapping::Mapping;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io;

/// A memfd that is mapped shared.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    mapping: Mapping,
}

impl SharedMemory {
    /// `len` bytes, named as QEMU names its own: `memfd:NAME`.
    pub fn new(name: &str, len: usize) -> io::Result<Self> {
        let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
        file.set_len(len as u64)?;
        let mapping = Mapping::of_file(&file, len)?;
        Ok(Self { file, mapping })
    }

    /// The file behind it.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Fills a part through the mapping, as a guest would.
    pub fn fill(&mut self, at: usize, len: usize, byte: u8) {
        self.mapping.fill(at, len, byte);
    }

    /// A byte as the mapping shows it.
    pub fn byte(&self, at: usize) -> u8 {
        let mut byte = [0];
        self.mapping.read(at, &mut byte);
        byte[0]
    }
}
