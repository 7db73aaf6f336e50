//! Files that hold secrets.

use crate::links;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a file is no place for a secret.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    #[error("cannot read {path}: {source}")]
    Io {
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its group or everybody may open it.
    #[error("others may read or change {path} (its mode is {mode:03o}); chmod 600 {path}, and renew what was in it")]
    Open {
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Somebody else chose what is in it.
    #[error("{path} belongs to user {uid}; make it yours or root's (chown), with chmod 600 {path}")]
    Owner {
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
}

/// The first `most` bytes of a file that only its owner can open, which is this user or root. Links are followed unless
/// they are [somebody else's](links::followed).
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, PrivateFileError> {
    let failed = |source| PrivateFileError::Io { path: path.to_owned(), source };
    let place = links::followed(path).map_err(failed)?;
    let is_link = place.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    // A link that has come in between is not followed, but for those that lead to a descriptor of ours.
    let flags = if is_link { OFlags::empty() } else { OFlags::NOFOLLOW };
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(&place).map_err(failed)?;
    // Of what is open, which nobody can exchange any more.
    let meta = file.metadata().map_err(failed)?;
    if meta.mode() & 0o077 != 0 {
        return Err(PrivateFileError::Open { path: path.to_owned(), mode: meta.mode() & 0o7777 });
    }
    if meta.uid() != 0 && meta.uid() != geteuid().as_raw() {
        return Err(PrivateFileError::Owner { path: path.to_owned(), uid: meta.uid() });
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn what_others_may_open_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("key"), folder.path().join("link"));
        std::fs::write(&path, "secret and more").unwrap();
        symlink("key", &link).unwrap();
        for (mode, ok) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false), (0o644, false)]
        {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            for path in [&path, &link] {
                match read(path, 6) {
                    Ok(bytes) => assert!(ok && bytes == b"secret", "{mode:o}"),
                    Err(error) => {
                        assert!(!ok, "{mode:o}: {error}");
                        assert!(error.to_string().contains(&format!("chmod 600 {}", path.display())), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn root_what_somebody_else_owns_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "secret").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        if chown(&path, Some(65_534), None).is_err() {
            eprintln!("skipped: needs root");
            return;
        }
        assert!(matches!(read(&path, 64), Err(PrivateFileError::Owner { uid: 65_534, .. })));
    }
}
