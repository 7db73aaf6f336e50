//! A socket's file: how it comes and goes.
//!
//! It appears under its name with its rights already set, replaces one that nobody listens on, and never one that
//! somebody does. Whoever changes it holds the lock of its folder, so that of two that start at once one loses.

use isotherm_linux::folder_lock::FolderLock;
use isotherm_linux::unix_socket::connect;
use std::error::Error;
use std::fmt;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the folder's lock is waited for; it is held for a few system calls only.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long is waited for a place in the queue of who listens at a socket, to tell whether somebody does.
pub(crate) const CONNECTING: Duration = Duration::from_millis(200);
/// Bytes that a socket's path may have.
const LONGEST_PATH: usize = 107;
/// Rights of a socket that its owner alone may connect to.
const PRIVATE: u32 = 0o600;

/// Why a socket cannot be listened on. Shown with what to do about a control socket; [`problem`](Self::problem) says
/// what is wrong alone.
#[derive(Debug)]
pub enum SocketError {
    /// Somebody listens there.
    InUse(PathBuf),
    /// Something else is there.
    NoSocket(PathBuf),
    /// Longer than the kernel takes.
    TooLong {
        path: PathBuf,
        /// Bytes that the path of its folder may have, in which a socket is made under another name first.
        most_of_folder: usize,
    },
    /// A system call failed.
    Io {
        /// What was to be done.
        action: &'static str,
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
}

impl SocketError {
    /// What is wrong, whatever the socket is for.
    pub fn problem(&self) -> String {
        match self {
            Self::InUse(path) => format!("another isotherm listens at {}", path.display()),
            Self::NoSocket(path) => format!("{} is there and is no socket", path.display()),
            Self::TooLong { path, most_of_folder } => format!(
                "{}: the path is too long for a socket, which may have {LONGEST_PATH} bytes, and its folder {most_of_folder} of them",
                path.display()
            ),
            Self::Io { action, path, source } => format!("cannot {action} {}: {source}", path.display()),
        }
    }

    /// What to do, if it is a control socket.
    const fn advice(&self) -> &'static str {
        match self {
            Self::InUse(_) => "give --socket PATH to use a second one",
            Self::NoSocket(_) => "give another --socket PATH",
            Self::TooLong { .. } => "give a shorter --socket PATH",
            Self::Io { .. } => "give a --socket PATH in a folder that is there and may be written",
        }
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem(), self.advice())
    }
}

impl Error for SocketError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

pub(crate) fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SocketError + 'a {
    move |source| SocketError::Io { action, path: path.to_owned(), source }
}

/// The folder in which a process makes its socket is called this and its pid ...
const PRIVATE_FOLDER: &str = ".i";
/// ... and the socket in it this.
const TEMPORARY: &str = "s";

/// A bound socket; its file goes when this is dropped.
#[derive(Debug)]
pub struct BoundSocket {
    pub listener: UnixListener,
    path: PathBuf,
    /// Device and inode, so that only our own file is removed.
    identity: (u64, u64),
}

impl BoundSocket {
    /// Listens at `path`, readable and writable for its owner alone.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        Self::bind_for(path, PRIVATE)
    }

    /// Listens at `path`, for those whom these rights of the file let connect: who may write to it.
    pub fn bind_for(path: &Path, mode: u32) -> Result<Self, SocketError> {
        let path = std::path::absolute(path).map_err(failed("find the folder of", path))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        // A folder of our own keeps everybody away until the rights are set: bind makes the file with those of the
        // umask.
        let private = folder.join(format!("{PRIVATE_FOLDER}{}", std::process::id()));
        let temporary = private.join(TEMPORARY);
        if temporary.as_os_str().len().max(path.as_os_str().len()) > LONGEST_PATH {
            let added = temporary.as_os_str().len() - folder.as_os_str().len();
            return Err(SocketError::TooLong { most_of_folder: LONGEST_PATH - added, path });
        }
        let _lock = FolderLock::take(folder, PATIENCE).map_err(failed("lock the folder", folder))?;
        clear_way(&path)?;
        // Left by one of the same number that was killed in between.
        remove_private(&private);
        DirBuilder::new().mode(0o700).create(&private).map_err(failed("create", &private))?;
        let bound = listen(&temporary, &path, mode);
        remove_private(&private);
        let (listener, identity) = bound?;
        Ok(Self { listener, path, identity })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the folder in which a socket was made.
fn remove_private(folder: &Path) {
    let _ = std::fs::remove_file(folder.join(TEMPORARY));
    let _ = std::fs::remove_dir(folder);
}

/// Removes what those left in `folder` who were killed while they made a socket. Nobody makes one meanwhile: the caller holds the
/// folder's lock.
pub(crate) fn sweep_private(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PRIVATE_FOLDER));
        if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
            remove_private(&entry.path());
        }
    }
}

fn listen(temporary: &Path, path: &Path, mode: u32) -> Result<(UnixListener, (u64, u64)), SocketError> {
    let listener = UnixListener::bind(temporary).map_err(failed("listen at", path))?;
    std::fs::set_permissions(temporary, Permissions::from_mode(mode)).map_err(failed("set the rights of", path))?;
    let meta = temporary.symlink_metadata().map_err(failed("look at", path))?;
    std::fs::rename(temporary, path).map_err(failed("create", path))?;
    Ok((listener, (meta.dev(), meta.ino())))
}

/// Makes sure that nothing is at `path`, or a socket that nobody listens on.
pub(crate) fn clear_way(path: &Path) -> Result<(), SocketError> {
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed("look at", path)(e)),
        Ok(meta) if !meta.file_type().is_socket() => return Err(SocketError::NoSocket(path.to_owned())),
        Ok(_) => {}
    }
    match connect(path, CONNECTING) {
        Ok(_) => Err(SocketError::InUse(path.to_owned())),
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(SocketError::InUse(path.to_owned())),
        Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
        Err(e) => Err(failed("tell whether somebody listens at", path)(e)),
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        // Without the lock somebody could put theirs in its place between the look and the removal; that it cannot be
        // had within seconds is no reason to leave the file behind.
        let _lock = self.path.parent().and_then(|folder| FolderLock::take(folder, PATIENCE).ok());
        if self.path.symlink_metadata().is_ok_and(|m| (m.dev(), m.ino()) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn it_is_private_and_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let socket = BoundSocket::bind(&path).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        assert!(matches!(BoundSocket::bind(&path).unwrap_err(), SocketError::InUse(p) if p == path));
        drop(socket);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_stale_one_is_replaced_and_anything_else_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        // As after kill -9: the file stays.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = BoundSocket::bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        // Somebody else's that took the place is left alone.
        std::fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(socket);
        assert!(path.exists());
        drop(other);

        let plain = folder.path().join("plain");
        std::fs::write(&plain, "kept").unwrap();
        assert!(matches!(BoundSocket::bind(&plain).unwrap_err(), SocketError::NoSocket(_)));
        assert_eq!(std::fs::read(&plain).unwrap(), b"kept");
        let long = folder.path().join("x".repeat(120));
        assert!(matches!(BoundSocket::bind(&long).unwrap_err(), SocketError::TooLong { .. }));
        let none = BoundSocket::bind(&folder.path().join("no/such")).unwrap_err();
        let none = none.to_string();
        assert!(
            none.contains("/no: No such file") && none.contains("--socket PATH in a folder that is there"),
            "{none}"
        );
    }

    #[test]
    fn a_folder_that_leaves_no_room_is_reported_with_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let free = LONGEST_PATH - folder.path().as_os_str().len() - 1;
        // Below the limit itself, but not with the name that it has at first.
        let deep = folder.path().join("x".repeat(free - 4));
        std::fs::create_dir(&deep).unwrap();
        let why = BoundSocket::bind(&deep.join("s")).unwrap_err().problem();
        let added = format!("/.i{}/s", std::process::id()).len();
        assert!(why.contains(&format!("its folder {} of them", LONGEST_PATH - added)), "{why}");
        let fits = folder.path().join("x".repeat(free - added));
        std::fs::create_dir(&fits).unwrap();
        BoundSocket::bind(&fits.join("s")).unwrap();
    }

    #[test]
    fn others_are_let_in_if_that_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let _socket = BoundSocket::bind_for(&path, 0o660).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o660);
    }

    #[test]
    fn root_a_socket_has_the_group_of_its_folder_where_that_passes_it_on() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), None, Some(4711)).unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o2750)).unwrap();
        let path = folder.path().join("a");
        let _socket = BoundSocket::bind_for(&path, 0o660).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().gid(), 4711);
    }

    #[test]
    fn of_many_that_start_at_once_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| BoundSocket::bind(&path))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
        UnixStream::connect(&path).unwrap();
    }
}
