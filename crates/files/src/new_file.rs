//! Files that are there whole or not at all.

use crate::links;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that is written beside its place and takes its name when it is complete; dropped before that, it vanishes.
/// What is no plain file (`/dev/stdout`, a pipe) is written to as it is.
#[derive(Debug)]
pub struct NewFile(Place);

#[derive(Debug)]
enum Place {
    Beside { file: NamedTempFile, path: PathBuf },
    Itself(File),
}

impl NewFile {
    /// As others may read files here, by the umask.
    pub const READABLE: u32 = 0o666;
    /// For its owner alone.
    pub const PRIVATE: u32 = 0o600;

    /// Begins a file that will be `path`, with these permissions as far as the umask leaves them. A link keeps pointing to the file
    /// that it names. Fails where nothing can be created there, and for somebody else's link in a folder like /tmp.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        let path = links::followed(path)?;
        if path.metadata().is_ok_and(|m| !m.is_file()) {
            return Ok(Self(Place::Itself(File::options().write(true).open(&path)?)));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".isotherm-")
            .suffix(".tmp")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder)?;
        Ok(Self(Place::Beside { file, path }))
    }

    fn file(&self) -> &File {
        match &self.0 {
            Place::Beside { file, .. } => file.as_file(),
            Place::Itself(file) => file,
        }
    }

    /// A further handle to write through.
    pub fn handle(&self) -> io::Result<File> {
        self.file().try_clone()
    }

    /// Gives the file its name, once it is on disk.
    pub fn commit(self) -> io::Result<()> {
        if let Place::Beside { file, .. } = &self.0 {
            file.as_file().sync_all()?;
        }
        self.commit_unsynced()
    }

    /// The same for what is replaced again before long: a crash of the machine may lose it.
    pub fn commit_unsynced(self) -> io::Result<()> {
        match self.0 {
            Place::Beside { file, path } => file.persist(path).map(drop).map_err(|e| e.error),
            Place::Itself(_) => Ok(()),
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{lchown, symlink};

    fn create(path: &Path) -> io::Result<NewFile> {
        NewFile::create(path, NewFile::READABLE)
    }

    #[test]
    fn what_is_not_complete_vanishes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "old").unwrap();
        drop(create(&file).unwrap());
        let mut private = NewFile::create(&file, NewFile::PRIVATE).unwrap();
        private.write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        private.commit().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_keeps_pointing_to_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        let mut new = create(&link).unwrap();
        new.write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"old", "until it is complete");
        new.commit().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn links_that_lead_nowhere_or_to_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("missing", at("dangling")).unwrap();
        create(&at("dangling")).unwrap().commit().unwrap();
        assert!(at("missing").is_file() && at("dangling").symlink_metadata().unwrap().is_symlink());
        symlink("/dev/null", at("null")).unwrap();
        create(&at("null")).unwrap().write_all(b"nothing").unwrap();
        symlink("round", at("round")).unwrap();
        assert!(create(&at("round")).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn root_somebody_elses_link_in_a_sticky_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("sticky/link"));
        std::fs::create_dir(folder.path().join("sticky")).unwrap();
        std::fs::set_permissions(folder.path().join("sticky"), PermissionsExt::from_mode(0o1777)).unwrap();
        std::fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        if lchown(&link, Some(65_534), Some(65_534)).is_err() {
            eprintln!("skipped: needs root");
            return;
        }
        assert_eq!(create(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path().join("sticky")).unwrap().count(), 1, "nothing is left behind");
    }
}
