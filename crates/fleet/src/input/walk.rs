//! The files below a folder of this machine. What cannot be looked at is named, and the rest is still found.

use super::Listed;
use super::judge::{Fault, LeftOut};
use object_store::path::Path as ObjectPath;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A folder by device and inode.
type Id = (u64, u64);

/// What was found below a folder.
#[derive(Debug, Default)]
pub struct Walk {
    pub files: Vec<Listed>,
    pub left_out: Vec<LeftOut>,
    /// Folders that lead to the one at hand.
    above: Vec<Id>,
}

impl Walk {
    /// Looks through `folder`; links are followed. `is_wanted` tells by name.
    pub fn new(folder: &Path, is_wanted: fn(&str) -> bool) -> io::Result<Self> {
        let mut walk = Self::default();
        let about = fs::metadata(folder)?;
        walk.look(folder, (about.dev(), about.ino()), is_wanted)?;
        Ok(walk)
    }

    fn look(&mut self, folder: &Path, id: Id, is_wanted: fn(&str) -> bool) -> io::Result<()> {
        let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        self.above.push(id);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let is_wanted_file = is_wanted(&name.to_string_lossy());
            let about = match fs::metadata(&path) {
                Ok(about) => about,
                // A link to nowhere, or a file that has just got its final name.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => {
                    self.leave_out(&path, Fault::Unreachable(e.to_string()));
                    continue;
                }
            };
            let id = (about.dev(), about.ino());
            if about.is_dir() && self.above.contains(&id) {
                self.leave_out(&path, Fault::Unreachable("a link to a folder that it lies in".to_owned()));
            } else if about.is_dir() {
                if let Err(e) = self.look(&path, id, is_wanted) {
                    self.leave_out(&path, Fault::Unreachable(e.to_string()));
                }
            } else if about.is_file() && is_wanted_file {
                match ObjectPath::from_absolute_path(&path) {
                    Ok(path) => self.files.push(Listed { path, bytes: about.len() }),
                    Err(_) => self.leave_out(&path, Fault::Name),
                }
            }
        }
        self.above.pop();
        Ok(())
    }

    fn leave_out(&mut self, path: &Path, fault: Fault) {
        // Bytes that such paths cannot hold are written in another way.
        self.left_out.push(LeftOut { path: ObjectPath::from(&*path.to_string_lossy()), fault, rows: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    #[test]
    fn strange_names_and_loops_are_named_and_everything_else_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let write = |name: &[u8]| fs::write(deep.join(OsStr::from_bytes(name)), "1").unwrap();
        ["x.parquet", "%20 [1]*?#7.parquet", "y.txt"].into_iter().map(str::as_bytes).for_each(write);
        let strange: [&[u8]; 4] = [b"tab\t.parquet", b"line\n.parquet", b"utf\xff.parquet", b"tab\t.txt"];
        strange.into_iter().for_each(write);
        symlink("..", deep.join("up")).unwrap();
        symlink("itself", deep.join("itself")).unwrap();
        symlink("nowhere", deep.join("nowhere.parquet")).unwrap();
        symlink("a/b", folder.path().join("again")).unwrap();
        let walk = Walk::new(folder.path(), |name| name.ends_with(".parquet")).unwrap();
        let of = |name: &str| walk.files.iter().filter(|file| file.path.filename() == Some(name)).count();
        assert_eq!((walk.files.len(), of("x.parquet"), of("%20 [1]*?#7.parquet")), (4, 2, 2), "{walk:?}");
        let mut out: Vec<_> =
            walk.left_out.iter().map(|out| (out.path.filename().unwrap(), out.fault.code())).collect();
        out.sort_unstable();
        out.dedup();
        let want = [
            // again/up/b lies in itself.
            ("b", "unreachable"),
            ("itself", "unreachable"),
            ("line%0A.parquet", "bad_name"),
            ("tab%09.parquet", "bad_name"),
            ("up", "unreachable"),
            ("utf%EF%BF%BD.parquet", "bad_name"),
        ];
        assert_eq!(out, want);
    }
}
