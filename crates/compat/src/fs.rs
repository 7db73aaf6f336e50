//! The tree as a file system: FUSE's requests as calls of [`Files`]. Nothing is cached, as in sysfs: what a file shows is
//! made up when it is read from its beginning.

use crate::errno::Errno;
use crate::files::Files;
use crate::held::held;
use crate::tree::{Inode, Listed};
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenAccMode,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

/// Bytes that readers had best ask for at a time.
const BLOCK: u32 = 4096;
/// Folders come and go at any time.
const NO_CACHE: Duration = Duration::ZERO;
const NEVER_REUSED: Generation = Generation(0);
/// Marks a file's other number; see [`Fs::number`].
const OTHER: Inode = 1 << 63;

/// The file system.
#[derive(Debug)]
pub(crate) struct Fs {
    files: Arc<dyn Files>,
    /// What open files and folders show.
    open: Mutex<HashMap<u64, Shown>>,
    next: AtomicU64,
    /// Files that somebody writes to.
    written: Mutex<HashSet<Inode>>,
    began: SystemTime,
}

#[derive(Debug)]
enum Shown {
    /// A file, once it was read from its beginning.
    File(Option<Vec<u8>>),
    /// A folder, as it was when it was opened.
    Folder(Vec<Listed>),
}

impl Fs {
    pub(crate) fn new(files: Arc<dyn Files>) -> Self {
        Self {
            files,
            open: Mutex::default(),
            next: AtomicU64::new(1),
            written: Mutex::default(),
            began: SystemTime::now(),
        }
    }

    fn shown(&self) -> MutexGuard<'_, HashMap<u64, Shown>> {
        held(&self.open)
    }

    fn remember(&self, shown: Shown) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.shown().insert(handle, shown);
        FileHandle(handle)
    }

    fn attr(&self, inode: Inode) -> Result<FileAttr, Errno> {
        let attr = self.files.attr(inode)?;
        let is_folder = attr.folders.is_some();
        Ok(FileAttr {
            ino: INodeNo(inode),
            size: attr.size,
            blocks: 0,
            atime: self.began,
            mtime: self.began,
            ctime: self.began,
            crtime: self.began,
            kind: if is_folder { FileType::Directory } else { FileType::RegularFile },
            perm: attr.mode,
            nlink: attr.folders.map_or(1, |folders| folders + 2),
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        })
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let name = name.to_str().ok_or(Errno::NoEntry)?;
        let inode = self.files.lookup(parent.0, name)?;
        Ok(FileAttr { ino: INodeNo(self.number(inode)), ..self.attr(inode)? })
    }

    /// The number by which the kernel is to know a file now. Whoever opens one number of a file to write waits, and cannot be
    /// killed, until the last write to it is answered, and some take long. In sysfs each opening stands alone; here whoever
    /// comes meanwhile gets another number of the same file.
    fn number(&self, inode: Inode) -> Inode {
        if self.written().contains(&inode) { inode | OTHER } else { inode }
    }

    fn written(&self) -> MutexGuard<'_, HashSet<Inode>> {
        held(&self.written)
    }

    fn write_at(&self, number: INodeNo, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let inode = inode_of(number);
        let is_other = number.0 != inode;
        if !is_other {
            self.written().insert(inode);
        }
        let taken = self.files.write_at(inode, offset, data);
        if !is_other {
            self.written().remove(&inode);
        }
        taken
    }

    /// Whether a file can be opened so. Its mode binds root, too, as in sysfs: there is nothing to call.
    fn may_open(&self, inode: Inode, flags: OpenFlags) -> Result<(), Errno> {
        let mode = self.files.attr(inode)?.mode;
        let (reads, writes) = match flags.acc_mode() {
            OpenAccMode::O_RDONLY => (true, false),
            OpenAccMode::O_WRONLY => (false, true),
            OpenAccMode::O_RDWR => (true, true),
        };
        if (reads && mode & 0o444 == 0) || (writes && mode & 0o222 == 0) { Err(Errno::Access) } else { Ok(()) }
    }

    fn read_at(&self, inode: Inode, handle: FileHandle, offset: u64) -> Result<Vec<u8>, Errno> {
        let kept = |shown: &HashMap<u64, Shown>| match shown.get(&handle.0) {
            Some(Shown::File(Some(text))) if offset > 0 => Some(text.clone()),
            _ => None,
        };
        let kept = kept(&self.shown());
        let text = match kept {
            Some(text) => text,
            None => {
                // Not under the lock: it may take a while.
                let text = self.files.read(inode)?;
                if let Some(Shown::File(shown)) = self.shown().get_mut(&handle.0) {
                    *shown = Some(text.clone());
                }
                text
            }
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        Ok(text[from..].to_vec())
    }

    /// Gives `add` what is in a folder from `offset` on, until it returns true.
    fn entries(
        &self,
        inode: Inode,
        handle: FileHandle,
        offset: u64,
        mut add: impl FnMut(u64, Inode, bool, &str) -> bool,
    ) -> Result<(), Errno> {
        let parent = self.files.lookup(inode, "..")?;
        let shown = self.shown();
        let listed = match shown.get(&handle.0) {
            Some(Shown::Folder(listed)) => listed.as_slice(),
            _ => &[],
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let dots = [(inode, true, "."), (parent, true, "..")];
        let rest = listed.get(from.saturating_sub(dots.len())..).unwrap_or_default();
        let entries = dots.into_iter().skip(from).chain(rest.iter().map(|l| (l.inode, l.is_folder, l.name.as_str())));
        for (next, (inode, is_folder, name)) in (offset.saturating_add(1)..).zip(entries) {
            if add(next, inode, is_folder, name) {
                break;
            }
        }
        Ok(())
    }
}

/// The file that has this number.
fn inode_of(number: INodeNo) -> Inode {
    number.0 & !OTHER
}

fn error(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.number())
}

impl Filesystem for Fs {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(attr) => reply.entry(&NO_CACHE, &attr, NEVER_REUSED),
            Err(e) => reply.error(error(e)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(inode_of(inode)) {
            Ok(attr) => reply.attr(&NO_CACHE, &attr),
            Err(e) => reply.error(error(e)),
        }
    }

    /// Truncation, which comes with most ways to open a file for writing, means nothing here; nor do times.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(fuser::Errno::EPERM);
        }
        match self.attr(inode_of(inode)) {
            Ok(attr) => reply.attr(&NO_CACHE, &attr),
            Err(e) => reply.error(error(e)),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.may_open(inode_of(inode), flags) {
            Ok(()) => reply.opened(self.remember(Shown::File(None)), FopenFlags::FOPEN_DIRECT_IO),
            Err(e) => reply.error(error(e)),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_at(inode_of(inode), handle, offset) {
            Ok(text) => reply.data(&text[..text.len().min(size as usize)]),
            Err(e) => reply.error(error(e)),
        }
    }

    /// Each write stands alone. Where in the file it is means something in debugfs only; there is no end to append to.
    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let appends = flags.0 & OFlags::APPEND.bits() as i32 != 0;
        match self.write_at(inode, if appends { 0 } else { offset }, data) {
            Ok(taken) => reply.written(taken as u32),
            Err(e) => reply.error(error(e)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.shown().remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.files.list(inode.0) {
            Ok(listed) => reply.opened(self.remember(Shown::Folder(listed)), FopenFlags::empty()),
            Err(e) => reply.error(error(e)),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let added = self.entries(inode.0, handle, offset, |next, inode, is_folder, name| {
            let kind = if is_folder { FileType::Directory } else { FileType::RegularFile };
            reply.add(INodeNo(inode), next, kind, name)
        });
        match added {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(error(e)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.shown().remove(&handle.0);
        reply.ok();
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(fuser::Errno::EACCES);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(fuser::Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(fuser::Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn rename(&self, _: &Request, _: INodeNo, _: &OsStr, _: INodeNo, _: &OsStr, _: RenameFlags, reply: ReplyEmpty) {
        reply.error(fuser::Errno::EPERM);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }
}
