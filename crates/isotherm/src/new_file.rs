//! Files that are there whole or not at all.

use isotherm_linux::links;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is written beside its place and takes its name when it is complete; dropped before that, it vanishes.
/// What is no plain file (`/dev/stdout`, a pipe) is written to as it is.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    /// Where it grows; `None` if it is written in place.
    temporary: Option<PathBuf>,
}

impl NewFile {
    /// Begins a file that will be `path`. A link keeps pointing to the file that it names, and is refused where it is
    /// [somebody else's](links::followed).
    pub fn create(path: &Path) -> io::Result<Self> {
        let place = links::followed(path)?;
        if place.metadata().is_ok_and(|m| !m.is_file()) {
            let file = File::options().write(true).open(&place)?;
            return Ok(Self { file, path: place, temporary: None });
        }
        Self::beside(place)
    }

    /// Takes the place of whatever is called so, be it a link that has just come there.
    fn beside(path: PathBuf) -> io::Result<Self> {
        let temporary = neighbour(&path);
        let file = File::create_new(&temporary)?;
        Ok(Self { file, path, temporary: Some(temporary) })
    }

    /// A further handle to write through.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its name.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            self.file.sync_all()?;
            std::fs::rename(temporary, &self.path)?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Whatever went wrong before matters more.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

fn neighbour(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    #[test]
    fn a_link_keeps_pointing_to_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        let mut new = NewFile::create(&link).unwrap();
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
        NewFile::create(&at("dangling")).unwrap().commit().unwrap();
        assert!(at("missing").is_file() && at("dangling").symlink_metadata().unwrap().is_symlink());
        symlink("/dev/null", at("null")).unwrap();
        NewFile::create(&at("null")).unwrap().write_all(b"nothing").unwrap();
        symlink("round", at("round")).unwrap();
        assert!(NewFile::create(&at("round")).is_err());
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
        assert_eq!(NewFile::create(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path().join("sticky")).unwrap().count(), 1, "nothing is left behind");
    }
}
