//! Where control sockets are, and how those of running instances are found.

use crate::socket::{BoundSocket, CONNECTING, PATIENCE, SocketError, clear_way, failed, sweep_private};
use isotherm_linux::folder_lock::FolderLock;
use isotherm_linux::unix_socket::connect;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What root's sockets are below.
const SYSTEM_FOLDER: &str = "/run/isotherm";

/// Where the environment says that sockets belong.
#[derive(Debug, Clone, Default)]
pub struct SocketFolders {
    /// What systemd gives a service: `RUNTIME_DIRECTORY`.
    pub service: Option<PathBuf>,
    /// What a session gives its user: `XDG_RUNTIME_DIR`.
    pub session: Option<PathBuf>,
    /// Whether we are root.
    pub root: bool,
}

impl SocketFolders {
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
    sweep_private(folder);
    for path in sockets(folder) {
        let dead = owner(&path).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if dead && clear_way(&path).is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The sockets in `folder`, sorted by name; none where it cannot be read.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|e| e.path());
    let mut found: Vec<_> = paths.filter(|p| p.extension().is_some_and(|e| e == "sock")).collect();
    found.sort();
    found
}

/// Those of `folders` that this user may not read, and the sockets in the others that it may not connect to: somebody
/// may listen there.
pub fn forbidden(folders: &[PathBuf]) -> Vec<PathBuf> {
    let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let of_folder = |folder: &PathBuf| {
        if std::fs::read_dir(folder).is_err_and(denied) {
            return vec![folder.clone()];
        }
        sockets(folder).into_iter().filter(|path| connect(path, CONNECTING).is_err_and(denied)).collect()
    };
    folders.iter().flat_map(of_folder).collect()
}

/// The sockets in `folders` that somebody listens on.
pub fn live(folders: &[PathBuf]) -> Vec<PathBuf> {
    // One whose queue is full is there.
    let listens =
        |path: &PathBuf| connect(path, CONNECTING).map_or_else(|e| e.kind() == io::ErrorKind::TimedOut, |_| true);
    folders.iter().flat_map(|folder| sockets(folder)).filter(listens).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_the_dead_are_swept_away() {
        let folder = tempfile::tempdir().unwrap();
        // No process has a number this large.
        let (dead, mine) = (folder.path().join(name(u32::MAX)), folder.path().join(name(std::process::id())));
        drop(UnixListener::bind(&dead).unwrap());
        let other = folder.path().join("chosen.sock");
        drop(UnixListener::bind(&other).unwrap());
        // Of one that was killed while it made its socket, and somebody's own.
        let (killed, own) = (folder.path().join(".i4194305"), folder.path().join(".icons"));
        for folder in [&killed, &own] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("s"), "").unwrap();
        }
        let socket = bind_in(folder.path()).unwrap();
        assert_eq!(socket.path(), mine);
        assert!(!dead.exists() && other.exists());
        assert!(!killed.exists() && own.join("s").exists());
        let found = live(&[folder.path().to_owned()]);
        assert_eq!(found, [mine]);
    }

    #[test]
    fn the_folder_follows_the_environment() {
        let none = SocketFolders::default();
        assert_eq!(none.home(), None);
        let session = SocketFolders { session: Some("/run/user/7".into()), ..none.clone() };
        assert_eq!(session.home().unwrap(), Path::new("/run/user/7/isotherm"));
        let root = SocketFolders { root: true, ..session.clone() };
        assert_eq!(root.home().unwrap(), Path::new("/run/isotherm"));
        let service = SocketFolders { service: Some("/run/x".into()), ..root };
        assert_eq!(service.home().unwrap(), Path::new("/run/x"));
        assert_eq!(service.all().len(), 3);
    }
}
