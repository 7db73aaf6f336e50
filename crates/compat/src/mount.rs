//! The tree as a mounted file system.

use crate::files::Files;
use crate::fs::Fs;
use fuser::{BackgroundSession, Config, Session, SessionACL};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, stat, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the kernel calls the file system.
const KIND: &str = "fuse.isotherm";
/// Requests that are served at a time: one that waits for a kdamond does not stop the others.
const THREADS: usize = 4;

/// Why the tree cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is no FUSE here.
    #[error("/dev/fuse cannot be opened: {reason}; load the module 'fuse', and be root")]
    NoFuse {
        /// What the system said.
        reason: io::Error,
    },
    /// The folder cannot be mounted on.
    #[error("nothing can be mounted on {at}: {reason}; be root, and give an existing folder")]
    Refused {
        /// The folder.
        at: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// Another one is mounted there, and would be hidden from all who use it.
    #[error("another isotherm mount is served at {at}; end that one, or give another folder")]
    Taken {
        /// The folder.
        at: PathBuf,
    },
    /// The file system cannot be served.
    #[error("the mounted tree cannot be served: {0}")]
    Serve(io::Error),
}

/// A mounted tree; dropping it unmounts it, also where somebody still uses it, and ends what runs behind it.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    files: Arc<dyn Files>,
    session: BackgroundSession,
}

impl Mounted {
    /// Serves files at a folder. A mount there that has lost its server, as after a kill, is removed first.
    pub fn new(files: Arc<dyn Files>, at: &Path) -> Result<Self, MountError> {
        let refused = |reason: Errno| MountError::Refused { at: at.to_owned(), reason: reason.into() };
        clear_stuck(at).map_err(refused)?;
        if is_ours(at) {
            return Err(MountError::Taken { at: at.to_owned() });
        }
        let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| MountError::NoFuse { reason: e.into() })?;
        mount("isotherm", at, KIND, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, &*options(&device))
            .map_err(refused)?;
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        let session = Session::from_fd(Fs::new(Arc::clone(&files)), device, SessionACL::All, config);
        match session.and_then(Session::spawn) {
            Ok(session) => Ok(Self { at: at.to_owned(), files, session }),
            Err(e) => {
                let _ = unmount(at, UnmountFlags::DETACH);
                Err(MountError::Serve(e))
            }
        }
    }

    /// Whether it is still served: somebody else may have unmounted it.
    pub fn is_served(&self) -> bool {
        !self.session.guard.is_finished()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.files.stop();
        if self.is_served()
            && let Err(e) = unmount(&self.at, UnmountFlags::DETACH)
        {
            tracing::warn!("{} cannot be unmounted: {}", self.at.display(), io::Error::from(e));
        }
    }
}

/// Whoever may is decided by owner and mode of the files, as in sysfs.
fn options(device: &OwnedFd) -> CString {
    let fd = device.as_raw_fd();
    let text = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other");
    CString::new(text).expect("there is no NUL in it")
}

/// Whether what is mounted there is such a file system: by the mount's number, which is new in Linux 5.8.
fn is_ours(at: &Path) -> bool {
    let Ok(about) = statx(CWD, at, AtFlags::empty(), StatxFlags::MNT_ID) else { return false };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let number = about.stx_mnt_id.to_string();
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&number));
    line.and_then(|line| line.split_once(" - ")).is_some_and(|(_, about)| about.split(' ').next() == Some(KIND))
}

/// Removes FUSE mounts at `at` whose server is gone.
fn clear_stuck(at: &Path) -> Result<(), Errno> {
    // Of several on top of one another each hides the next; there are never many.
    for _ in 0..16 {
        match stat(at) {
            Err(Errno::NOTCONN) => {
                tracing::info!("removing a mount at {} whose server is gone", at.display());
                unmount(at, UnmountFlags::DETACH)?;
            }
            Err(e) => return Err(e),
            Ok(_) => return Ok(()),
        }
    }
    Ok(())
}
