//! Symbolic links that somebody else has laid out.

use rustix::process::geteuid;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Links followed at most, as by the kernel.
const MOST_LINKS: usize = 40;

/// The file that `path` names through any number of links, be it there or not. A link to what is no plain file (a pipe
/// below /proc/self/fd) is handed out itself. Refuses links that somebody else has put into a folder that all may write to
/// and where each owns what is theirs, like /tmp: the rule of the kernel's `fs.protected_symlinks`, which holds only where
/// a link is opened, not where it is read, and can be off.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        match place.symlink_metadata() {
            Ok(meta) if !meta.is_symlink() => return Ok(place),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(place),
            Err(e) => return Err(e),
        }
        refuse_foreign(&place)?;
        if place.metadata().is_ok_and(|meta| !meta.is_file()) {
            return Ok(place);
        }
        let target = std::fs::read_link(&place)?;
        place = place.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(io::Error::other("too many symbolic links"))
}

fn refuse_foreign(link: &Path) -> io::Result<()> {
    const STICKY_AND_WRITABLE: u32 = 0o1002;
    let folder = match link.parent() {
        Some(folder) if folder != Path::new("") => folder.metadata()?,
        _ => Path::new(".").metadata()?,
    };
    let owner = link.symlink_metadata()?.uid();
    if folder.mode() & STICKY_AND_WRITABLE == STICKY_AND_WRITABLE
        && owner != geteuid().as_raw()
        && owner != folder.uid()
    {
        let text = "it is somebody else's symbolic link; remove it, or name another file";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    #[test]
    fn links_are_followed_to_files_and_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("missing", at("dangling")).unwrap();
        assert_eq!(followed(&at("dangling")).unwrap(), at("missing"));
        symlink("dangling", at("twice")).unwrap();
        assert_eq!(followed(&at("twice")).unwrap(), at("missing"));
        symlink("/dev/null", at("null")).unwrap();
        assert_eq!(followed(&at("null")).unwrap(), at("null"));
        symlink("round", at("round")).unwrap();
        assert!(followed(&at("round")).is_err());
    }

    #[test]
    fn root_somebody_elses_link_in_a_sticky_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (sticky, link) = (folder.path().join("sticky"), folder.path().join("sticky/link"));
        std::fs::create_dir(&sticky).unwrap();
        symlink("file", &link).unwrap();
        if lchown(&link, Some(65_534), Some(65_534)).is_err() {
            eprintln!("skipped: needs root");
            return;
        }
        assert_eq!(followed(&link).unwrap(), sticky.join("file"), "this folder is ours alone");
        std::fs::set_permissions(&sticky, PermissionsExt::from_mode(0o1777)).unwrap();
        assert_eq!(followed(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
