//! The control socket's file: how it comes and goes.
//!
//! It appears under its name with its rights already set, replaces one that nobody listens on, and never one that
//! somebody does. Whoever changes it holds the lock of its folder, so that of two that start at once one loses.

use isotherm_linux::folder_lock::FolderLock;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the folder's lock is waited for; it is held for a few system calls only.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that a socket's path may have.
const LONGEST_PATH: usize = 107;

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("another isotherm listens at {}; give --socket PATH to use a second one", .0.display())]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{} is there and is no socket; give another --socket PATH", .0.display())]
    NoSocket(PathBuf),
    /// Longer than the kernel takes.
    #[error("{}: the path is too long for a socket; give a shorter --socket PATH, below {LONGEST_PATH} bytes", .0.display())]
    TooLong(PathBuf),
    /// A system call failed.
    #[error("cannot {action} {}: {source}; give a --socket PATH in a folder that is there and may be written", path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
}

pub(crate) fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SocketError + 'a {
    move |source| SocketError::Io { action, path: path.to_owned(), source }
}

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
        let path = std::path::absolute(path).map_err(failed("find the folder of", path))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        // A folder of our own keeps everybody away until the rights are set: bind makes the file with those of the
        // umask.
        let private = folder.join(format!(".i{}", std::process::id()));
        let temporary = private.join("s");
        if temporary.as_os_str().len().max(path.as_os_str().len()) > LONGEST_PATH {
            return Err(SocketError::TooLong(path));
        }
        let _lock = FolderLock::take(folder, PATIENCE).map_err(failed("lock the folder", folder))?;
        clear_way(&path)?;
        // Left by one of the same number that was killed in between.
        let _ = std::fs::remove_file(&temporary);
        let _ = std::fs::remove_dir(&private);
        DirBuilder::new().mode(0o700).create(&private).map_err(failed("create", &private))?;
        let bound = listen(&temporary, &path);
        let _ = std::fs::remove_file(&temporary);
        let _ = std::fs::remove_dir(&private);
        let (listener, identity) = bound?;
        Ok(Self { listener, path, identity })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn listen(temporary: &Path, path: &Path) -> Result<(UnixListener, (u64, u64)), SocketError> {
    let listener = UnixListener::bind(temporary).map_err(failed("listen at", path))?;
    std::fs::set_permissions(temporary, Permissions::from_mode(0o600)).map_err(failed("set the rights of", path))?;
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
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::InUse(path.to_owned())),
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
        assert!(matches!(BoundSocket::bind(&long).unwrap_err(), SocketError::TooLong(_)));
        let none = BoundSocket::bind(&folder.path().join("no/such")).unwrap_err();
        let none = none.to_string();
        assert!(
            none.contains("/no: No such file") && none.contains("--socket PATH in a folder that is there"),
            "{none}"
        );
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
