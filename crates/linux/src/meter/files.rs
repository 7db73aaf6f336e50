//! Small files that are read again and again: they stay open, and one buffer serves them all.

use crate::roots::Roots;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most files of this kind have less than a page; vmstat has about two.
const CHUNK: usize = 8 << 10;

/// Open files below a root. There are as many as the schemes name metrics, so none is ever given up for room.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) roots: Roots,
    open: HashMap<PathBuf, File>,
    buf: Vec<u8>,
}

impl Files {
    pub(super) fn new(roots: Roots) -> Self {
        Self { roots, open: HashMap::new(), buf: Vec::new() }
    }

    /// The text of a file as it is now. Bytes that are no text end it: these files have none.
    pub(super) fn read(&mut self, path: &Path) -> io::Result<&str> {
        let kept = self.open.get(path).is_some_and(|file| read_all(file, &mut self.buf).is_ok());
        // An open file of a control group that was removed fails for ever, although a new group may have its name.
        if !kept {
            self.open.remove(path);
            let file = File::open(self.roots.path(path))?;
            read_all(&file, &mut self.buf)?;
            self.open.insert(path.to_path_buf(), file);
        }
        Ok(match std::str::from_utf8(&self.buf) {
            Ok(text) => text,
            Err(e) => std::str::from_utf8(&self.buf[..e.valid_up_to()]).unwrap_or_default(),
        })
    }
}

/// Replaces `buf` by the file's content from its beginning, wherever the last reading ended.
fn read_all(file: &File, buf: &mut Vec<u8>) -> io::Result<()> {
    let mut filled = 0;
    loop {
        if buf.len() < filled + CHUNK {
            buf.resize(filled + CHUNK, 0);
        }
        match file.read_at(&mut buf[filled..], filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    buf.truncate(filled);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn a_file_is_read_anew_each_time_and_may_grow_shrink_and_vanish() {
        let t = tree(&[("proc/x", "one\n")]);
        let path = t.roots.path("/proc/x");
        let mut files = Files::new(t.roots.clone());
        assert_eq!(files.read(Path::new("/proc/x")).unwrap(), "one\n");
        let long = "0123456789abcdef\n".repeat(3000);
        std::fs::write(&path, &long).unwrap();
        assert_eq!(files.read(Path::new("/proc/x")).unwrap(), long);
        std::fs::write(&path, "two \u{e4}\n").unwrap();
        assert_eq!(files.read(Path::new("/proc/x")).unwrap(), "two \u{e4}\n");
        std::fs::write(&path, b"a\xffb").unwrap();
        assert_eq!(files.read(Path::new("/proc/x")).unwrap(), "a");
        assert_eq!(files.read(Path::new("/proc/y")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
