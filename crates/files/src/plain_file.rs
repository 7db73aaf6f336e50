//! Files that are read without waiting for anybody.

use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a plain file for reading; `None`: there is something else at `path` (a pipe, a device, a folder). It never waits for
/// the other end of a pipe.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    // Of what is open, which nobody can exchange any more.
    Ok(file.metadata()?.is_file().then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::io::Read;

    #[test]
    fn only_plain_files_are_opened_and_nobody_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, "text").unwrap();
        let mut text = String::new();
        open(&file).unwrap().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        // Nobody writes to it: an ordinary open would never return.
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [&pipe, folder.path(), Path::new("/dev/zero")] {
            assert!(open(path).unwrap().is_none(), "{path:?}");
        }
        assert_eq!(open(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
