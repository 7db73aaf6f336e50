//! The control socket's file: where it is, and how it comes and goes.
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
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that a socket's path may have.
const LONGEST_PATH: usize = 107;
/// What root's sockets are below.
const SYSTEM_FOLDER: &str = "/run/isotherm";

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
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SocketError + 'a {
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
        let nursery = folder.join(format!(".i{}", std::process::id()));
        let newborn = nursery.join("s");
        if newborn.as_os_str().len().max(path.as_os_str().len()) > LONGEST_PATH {
            return Err(SocketError::TooLong(path));
        }
        let _lock = FolderLock::take(folder, PATIENCE).map_err(failed("lock the folder", folder))?;
        clear_way(&path)?;
        // Left by one of the same number that was killed in between.
        let _ = std::fs::remove_file(&newborn);
        let _ = std::fs::remove_dir(&nursery);
        DirBuilder::new().mode(0o700).create(&nursery).map_err(failed("create", &nursery))?;
        let bound = give_birth(&newborn, &path);
        let _ = std::fs::remove_file(&newborn);
        let _ = std::fs::remove_dir(&nursery);
        let (listener, identity) = bound?;
        Ok(Self { listener, path, identity })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn give_birth(newborn: &Path, path: &Path) -> Result<(UnixListener, (u64, u64)), SocketError> {
    let listener = UnixListener::bind(newborn).map_err(failed("listen at", path))?;
    std::fs::set_permissions(newborn, Permissions::from_mode(0o600)).map_err(failed("set the rights of", path))?;
    let meta = newborn.symlink_metadata().map_err(failed("look at", path))?;
    std::fs::rename(newborn, path).map_err(failed("create", path))?;
    Ok((listener, (meta.dev(), meta.ino())))
}

/// Makes sure that nothing is at `path`, or a socket that nobody listens on.
fn clear_way(path: &Path) -> Result<(), SocketError> {
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

/// Where the environment says that sockets belong.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// What systemd gives a service: `RUNTIME_DIRECTORY`.
    pub service: Option<PathBuf>,
    /// What a session gives its user: `XDG_RUNTIME_DIR`.
    pub session: Option<PathBuf>,
    /// Whether we are root.
    pub root: bool,
}

impl Places {
    /// Those of this process.
    pub fn from_env() -> Self {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty());
        // Several folders are separated by colons; the first is as good as any.
        let service = var("RUNTIME_DIRECTORY").and_then(|v| std::env::split_paths(&v).next());
        Self {
            service: service.filter(|p| p.is_absolute()),
            session: var("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute()),
            // The folder of a process belongs to its effective user.
            root: std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0),
        }
    }

    /// The folder of new sockets; `None` where there is none.
    pub fn home(&self) -> Option<PathBuf> {
        match (&self.service, &self.session) {
            (Some(service), _) => Some(service.clone()),
            (None, _) if self.root => Some(SYSTEM_FOLDER.into()),
            (None, Some(session)) => Some(session.join("isotherm")),
            (None, None) => None,
        }
    }

    /// Every folder in which sockets may be.
    pub fn all(&self) -> Vec<PathBuf> {
        let session = self.session.as_ref().map(|s| s.join("isotherm"));
        let mut all: Vec<PathBuf> = self.service.iter().cloned().chain([SYSTEM_FOLDER.into()]).chain(session).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// Listens at this process's place in `folder`, which is made if it is missing, and clears away what dead ones have
/// left.
pub fn bind_in(folder: &Path) -> Result<BoundSocket, SocketError> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed("create", folder)(e)),
        _ => {}
    }
    sweep(folder);
    BoundSocket::bind(&folder.join(name(std::process::id())))
}

/// The file's name for a process.
pub fn name(pid: u32) -> String {
    format!("{pid}.sock")
}

/// The process that a socket is named after; `None` where its name was chosen by the user.
fn owner(path: &Path) -> Option<u32> {
    path.file_stem()?.to_str()?.parse().ok()
}

/// Removes sockets named after processes that are dead and that nobody listens on.
fn sweep(folder: &Path) {
    let Ok(_lock) = FolderLock::take(folder, PATIENCE) else { return };
    for path in sockets(folder) {
        let dead = owner(&path).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if dead && clear_way(&path).is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The sockets in `folder`, sorted by name.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|e| e.path());
    let mut found: Vec<_> = paths.filter(|p| p.extension().is_some_and(|e| e == "sock")).collect();
    found.sort();
    found
}

/// The sockets in `folders` that somebody listens on.
pub fn live(folders: &[PathBuf]) -> Vec<PathBuf> {
    let all = folders.iter().flat_map(|f| sockets(f));
    all.filter(|path| UnixStream::connect(path).is_ok()).collect()
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
        assert!(none.to_string().contains("no"), "{none}");
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

    #[test]
    fn only_the_dead_are_swept_away() {
        let folder = tempfile::tempdir().unwrap();
        // No process has a number this large.
        let (dead, mine) = (folder.path().join(name(u32::MAX)), folder.path().join(name(std::process::id())));
        drop(UnixListener::bind(&dead).unwrap());
        let other = folder.path().join("chosen.sock");
        drop(UnixListener::bind(&other).unwrap());
        let socket = bind_in(folder.path()).unwrap();
        assert_eq!(socket.path(), mine);
        assert!(!dead.exists() && other.exists());
        let found = live(&[folder.path().to_owned()]);
        assert_eq!(found, [mine]);
    }

    #[test]
    fn the_folder_follows_the_environment() {
        let none = Places::default();
        assert_eq!(none.home(), None);
        let session = Places { session: Some("/run/user/7".into()), ..none.clone() };
        assert_eq!(session.home().unwrap(), Path::new("/run/user/7/isotherm"));
        let root = Places { root: true, ..session.clone() };
        assert_eq!(root.home().unwrap(), Path::new("/run/isotherm"));
        let service = Places { service: Some("/run/x".into()), ..root };
        assert_eq!(service.home().unwrap(), Path::new("/run/x"));
        assert_eq!(service.all().len(), 3);
    }
}
