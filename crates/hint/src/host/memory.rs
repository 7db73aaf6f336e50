//! A guest's memory: the files of its VMM, found and locked.

use super::layout::{Layout, LayoutError, LayoutPart};
use super::mtree;
use super::pinned::PinnedFiles;
use super::qmp::{self, QmpError};
use crate::protocol::MemoryArea;
use isotherm_linux::folder_lock::FolderLock;
use isotherm_linux::hostmem::hole;
use isotherm_linux::hostmem::others::{self, FileIdentity};
use isotherm_linux::hostmem::ram_file::{self, RamFile};
use isotherm_linux::hostmem::shared_maps::SharedMaps;
use isotherm_linux::proc::{PidFd, ProcessError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// How much is dropped at once; the end of this process waits for no more than that.
const MOST_AT_ONCE: u64 = 256 << 20;
/// Files below this size are nobody's memory.
pub const LEAST: u64 = 16 << 20;

/// Why a guest's memory cannot be dropped.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The process cannot be looked at.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The number may be another's by now.
    #[error("process {0} has ended; whatever has its number now is another one, and nothing of it is touched")]
    Ended(u32),
    #[error(
        "process {0} has no shared memory of 16 MiB or more that it holds open; start QEMU with -object memory-backend-memfd,id=m,size=SIZE,share=on -machine memory-backend=m"
    )]
    None(u32),
    /// Which of several files is the guest's memory?
    #[error(
        "process {pid} has {count} shared files that could be the guest's memory; give the VMM's QMP socket (qmp=PATH)"
    )]
    Many {
        pid: u32,
        /// How many.
        count: usize,
    },
    /// Hardware goes on using what is dropped.
    #[error(
        "process {pid} has {device} open, and so its memory pinned for a device: what is dropped would be missed there; pass no device through, or do without hints"
    )]
    Pinned { pid: u32, device: String },
    /// Hardware of another process does.
    #[error(
        "process {other} has the memory of process {pid} mapped and {device} open, and so that memory pinned for a device: what is dropped would be missed there; give the guest a backend that pins nothing, or do without hints"
    )]
    PinnedElsewhere {
        pid: u32,
        /// Who has it pinned.
        other: u32,
        /// For which device.
        device: String,
    },
    /// Another one is at it.
    #[error("somebody else drops memory of process {0} already; end the other isotherm first")]
    Locked(u32),
    #[error("cannot lock the memory of process {pid}: {source}")]
    Lock {
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

/// What a [`HostSession`](super::session::HostSession) needs to know of memory, and does to it.
pub trait Memory {
    /// Where the guest's memory is, by what the VMM says or else by the guest's own map.
    fn layout(&self, areas: &[MemoryArea]) -> Result<Layout, MemoryError>;
    /// Gives a part back.
    fn punch(&self, piece: &LayoutPart) -> io::Result<()>;
}

/// The memory of a VMM's guest. Nobody else who asks for the lock drops any of it as long as this lives.
///
/// Files come and go when memory is plugged and unplugged. A file keeps its number, and no other gets it: whoever found
/// a number before never reaches another file by it.
///
/// What /proc tells of a pid is believed only if the process that was meant is still there afterwards.
#[derive(Debug)]
pub struct GuestMemory {
    process: Arc<PidFd>,
    files: RwLock<Vec<Option<Arc<Held>>>>,
    qmp: Option<PathBuf>,
    stop: Arc<AtomicBool>,
    pinned: Arc<PinnedFiles>,
}

/// A file, and the right to drop parts of it.
#[derive(Debug)]
pub struct Held {
    pub file: RamFile,
    _lock: FolderLock,
}

impl GuestMemory {
    /// That of a process; `qmp`: where the VMM can be asked about it; `stop`: once set, nothing more is asked or
    /// dropped; `pinned`: what other processes have pinned, which somebody keeps up to date.
    pub fn of_process(
        process: Arc<PidFd>,
        qmp: Option<&Path>,
        stop: Arc<AtomicBool>,
        pinned: Arc<PinnedFiles>,
    ) -> Result<Self, MemoryError> {
        let pid = process.pid();
        let files = RwLock::default();
        let memory = Self { process, files, qmp: qmp.map(Path::to_owned), stop, pinned };
        memory.look_again()?;
        memory.check_unpinned()?;
        match memory.files().len() {
            0 => Err(MemoryError::None(pid)),
            count if count > 1 && qmp.is_none() => Err(MemoryError::Many { pid, count }),
            _ => Ok(memory),
        }
    }

    /// Takes files that have come, and lets go of those that are gone: as long as they are held open here, they keep
    /// their memory.
    pub fn look_again(&self) -> Result<(), MemoryError> {
        let pid = self.pid();
        let now = self.reported(ram_file::of_process(pid, LEAST))?;
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let is_gone = |held: &mut Arc<Held>| now.iter().all(|file| file.identity != held.file.identity);
        let gone: Vec<_> = files.iter_mut().filter_map(|place| place.take_if(is_gone)).collect();
        for file in now {
            if files.iter().flatten().any(|held| held.file.identity == file.identity) {
                continue;
            }
            let lock = file.lock().map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => MemoryError::Locked(pid),
                _ => MemoryError::Lock { pid, source },
            })?;
            files.push(Some(Arc::new(Held { file, _lock: lock })));
        }
        // Closing the last descriptor of a file frees its memory, which takes a while.
        drop(files);
        drop(gone);
        Ok(())
    }

    /// Lets go of all files, once the VMM has ended: whoever holds them open keeps the whole guest's memory from being
    /// freed.
    pub(crate) fn let_go(&self) {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = files.iter_mut().filter_map(Option::take).collect();
        drop(files);
        drop(gone);
    }

    /// Whether memory may still be dropped: devices come while a guest runs, too.
    pub(crate) fn check_unpinned(&self) -> Result<(), MemoryError> {
        let pid = self.pid();
        if let Some(device) = self.reported(others::pinning_device(pid))? {
            return Err(MemoryError::Pinned { pid, device });
        }
        match self.pinned.other_than(pid, &self.identities()) {
            Some(pinner) => Err(MemoryError::PinnedElsewhere { pid, other: pinner.pid, device: pinner.device }),
            None => Ok(()),
        }
    }

    /// Which files they are.
    pub(crate) fn identities(&self) -> Vec<FileIdentity> {
        self.files().iter().map(|(_, held)| held.file.identity).collect()
    }

    /// What was read of the process by its number, which is its own as long as it has not ended.
    fn reported<T>(&self, read: Result<T, ProcessError>) -> Result<T, MemoryError> {
        if self.process.has_exited() {
            return Err(MemoryError::Ended(self.pid()));
        }
        Ok(read?)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The files, each with its number.
    pub fn files(&self) -> Vec<(usize, Arc<Held>)> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.iter().enumerate().filter_map(|(number, held)| Some((number, Arc::clone(held.as_ref()?)))).collect()
    }

    /// Bytes in all.
    pub fn size(&self) -> u64 {
        self.files().iter().map(|(_, held)| held.file.size).sum()
    }

    /// Bytes that they take now, in memory and swap; `None` where that cannot be known.
    pub fn resident(&self) -> Option<u64> {
        self.files().iter().map(|(_, held)| held.file.resident().ok()).sum()
    }
}

impl Memory for GuestMemory {
    fn layout(&self, areas: &[MemoryArea]) -> Result<Layout, MemoryError> {
        self.look_again()?;
        self.check_unpinned()?;
        let files = self.files();
        let sizes_of = |last: usize| {
            // Numbers that are nobody's any more have no bytes.
            let mut sizes = vec![0; last + 1];
            files.iter().for_each(|(number, held)| sizes[*number] = held.file.size);
            sizes
        };
        match (&self.qmp, &files[..]) {
            (_, []) => Err(MemoryError::None(self.pid())),
            (Some(path), [.., (last, _)]) => {
                let (regions, backends) = qmp::memory_map(path, &self.stop)?;
                // After the VMM has answered: what it has unmapped since is in no file then.
                let maps = self.reported(SharedMaps::of_process(self.pid()))?;
                let locate = |host, len| {
                    let mut places =
                        files.iter().filter_map(|(n, held)| Some((*n, maps.offset_of(&held.file, host, len)?)));
                    // Two files with one number and one name, on two file systems: nobody can tell.
                    places.next().filter(|_| places.next().is_none())
                };
                Ok(mtree::layout(&regions, &backends, &sizes_of(*last), &locate)?)
            }
            (None, [(number, held)]) => Ok(Layout::of_guest(areas, held.file.size)?.in_file(*number)),
            (None, _) => Err(MemoryError::Many { pid: self.pid(), count: files.len() }),
        }
    }

    fn punch(&self, piece: &LayoutPart) -> io::Result<()> {
        let held = {
            let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
            files.get(piece.file).and_then(Clone::clone)
        };
        let held = held.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the VMM has unplugged this memory"))?;
        let end = piece.offset + piece.addr.len();
        let mut at = piece.offset;
        while at < end {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "this host side is ending"));
            }
            let len = (end - at).min(MOST_AT_ONCE);
            hole::punch(&held.file.file, at, len)?;
            at += len;
        }
        Ok(())
    }
}
