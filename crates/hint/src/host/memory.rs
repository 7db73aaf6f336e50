//! A guest's memory: the files of its VMM, found and locked.

use super::layout::{Layout, LayoutError, Piece};
use super::mtree;
use super::qmp::{self, QmpError};
use crate::protocol::MemoryArea;
use isotherm_linux::folder_lock::FolderLock;
use isotherm_linux::hostmem::hole;
use isotherm_linux::hostmem::ram_file::{self, RamFile};
use isotherm_linux::proc::ProcessError;
use std::io;
use std::path::{Path, PathBuf};

/// Files below this size are nobody's memory.
pub const LEAST: u64 = 16 << 20;

/// Why a guest's memory cannot be dropped.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The process cannot be looked at.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It has none.
    #[error(
        "process {0} has no shared memory of 16 MiB or more that it holds open; start QEMU with -object memory-backend-memfd,id=m,size=SIZE,share=on -machine memory-backend=m"
    )]
    None(u32),
    /// Which of several files is the guest's memory?
    #[error(
        "process {pid} has {count} shared files that could be the guest's memory; give the VMM's QMP socket (qmp=PATH)"
    )]
    Many {
        /// The process.
        pid: u32,
        /// How many.
        count: usize,
    },
    /// Hardware goes on using what is dropped.
    #[error(
        "process {pid} has {device} open, and so its memory pinned for a device: what is dropped would be missed there; pass no device through, or do without hints"
    )]
    Pinned {
        /// The process.
        pid: u32,
        /// The device.
        device: String,
    },
    /// Another one is at it.
    #[error("somebody else drops memory of process {0} already; end the other isotherm first")]
    Locked(u32),
    /// Another failure.
    #[error("cannot lock the memory of process {pid}: {source}")]
    Lock {
        /// The process.
        pid: u32,
        /// How it failed.
        source: io::Error,
    },
    /// The VMM does not tell.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// What the memory map says does not fit.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// What a [`Session`](super::session::Session) needs to know of memory, and does to it.
pub trait Memory {
    /// Where the guest's memory is, by what the VMM says or else by the guest's own map.
    fn layout(&self, areas: &[MemoryArea]) -> Result<Layout, MemoryError>;
    /// Gives a part back.
    fn punch(&self, piece: &Piece) -> io::Result<()>;
}

/// The memory of a VMM's guest. Nobody else who asks for the lock drops any of it as long as this lives.
#[derive(Debug)]
pub struct GuestMemory {
    pid: u32,
    files: Vec<RamFile>,
    _locks: Vec<FolderLock>,
    qmp: Option<PathBuf>,
}

impl GuestMemory {
    /// That of process `pid`; `qmp`: where the VMM can be asked about it.
    pub fn of_process(pid: u32, qmp: Option<&Path>) -> Result<Self, MemoryError> {
        refuse_pinned(pid)?;
        let files = ram_file::of_process(pid, LEAST)?;
        match files.len() {
            0 => return Err(MemoryError::None(pid)),
            count if count > 1 && qmp.is_none() => return Err(MemoryError::Many { pid, count }),
            _ => {}
        }
        let lock = |file: &RamFile| {
            file.lock().map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => MemoryError::Locked(pid),
                _ => MemoryError::Lock { pid, source },
            })
        };
        let locks = files.iter().map(lock).collect::<Result<_, _>>()?;
        Ok(Self { pid, files, _locks: locks, qmp: qmp.map(Path::to_owned) })
    }

    /// Whether memory may still be dropped: devices come while a guest runs, too.
    pub fn check_unpinned(&self) -> Result<(), MemoryError> {
        refuse_pinned(self.pid)
    }

    /// The process.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// The files.
    pub fn files(&self) -> &[RamFile] {
        &self.files
    }

    /// Bytes in all.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Bytes that they take now, in memory and swap; `None` where that cannot be told.
    pub fn resident(&self) -> Option<u64> {
        self.files.iter().map(|file| file.resident().ok()).sum()
    }
}

fn refuse_pinned(pid: u32) -> Result<(), MemoryError> {
    match ram_file::pinning_device(pid)? {
        Some(device) => Err(MemoryError::Pinned { pid, device }),
        None => Ok(()),
    }
}

impl Memory for GuestMemory {
    fn layout(&self, areas: &[MemoryArea]) -> Result<Layout, MemoryError> {
        let sizes: Vec<u64> = self.files.iter().map(|file| file.size).collect();
        match (&self.qmp, &sizes[..]) {
            (Some(path), _) => {
                let (tree, backends) = qmp::memory_map(path)?;
                Ok(mtree::layout(&mtree::parse(&tree)?, &backends, &sizes)?)
            }
            (None, [size]) => Ok(Layout::of_guest(areas, *size)?),
            (None, _) => Err(MemoryError::Many { pid: self.pid, count: sizes.len() }),
        }
    }

    fn punch(&self, piece: &Piece) -> io::Result<()> {
        let file = self.files.get(piece.file).ok_or(io::ErrorKind::InvalidInput)?;
        hole::punch(&file.file, piece.offset, piece.addr.len())
    }
}
