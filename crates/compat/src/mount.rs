//! The tree as a mounted file system.

use crate::files::Files;
use crate::fs::Fs;
use fuser::{BackgroundSession, Config, Session, SessionACL};
use rustix::fs::{Mode, OFlags, open, stat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
        let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| MountError::NoFuse { reason: e.into() })?;
        mount(
            "isotherm",
            at,
            "fuse.isotherm",
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            &*options(&device),
        )
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
