//! Captured file trees for tests.

use crate::roots::Roots;

/// A tree in a temporary folder; it lives as long as this.
pub(crate) struct Tree {
    _dir: tempfile::TempDir,
    pub(crate) roots: Roots,
}

/// Writes the files (paths without the leading slash) into a fresh folder.
pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    Tree { roots: Roots::captured(dir.path()), _dir: dir }
}
