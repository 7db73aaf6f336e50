//! A folder of the tree whose files are read as settings.

use crate::errno::Errno;
use crate::refused::Refused;
use crate::tree::{Inode, Tree};
use std::str::FromStr;

/// A folder whose files are read as numbers, flags and words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Folder<'a> {
    tree: &'a Tree,
    inode: Inode,
}

/// A file that the schema does not have cannot be asked for but by mistake; one that was removed meanwhile can.
impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::new(format_args!("the files changed while they were read: {error}"))
    }
}

impl<'a> Folder<'a> {
    pub(crate) const fn new(tree: &'a Tree, inode: Inode) -> Self {
        Self { tree, inode }
    }

    pub(crate) fn folder(&self, path: &str) -> Result<Self, Refused> {
        Ok(Self { inode: self.tree.find(self.inode, path)?, ..*self })
    }

    pub(crate) fn text(&self, path: &str) -> Result<String, Refused> {
        Ok(self.tree.value(self.tree.find(self.inode, path)?)?)
    }

    pub(crate) fn number<T: FromStr>(&self, path: &str) -> Result<T, Refused> {
        let text = self.text(path)?;
        text.parse().map_err(|_| Refused::new(format_args!("{path} is {text}, which is too large here")))
    }

    pub(crate) fn flag(&self, path: &str) -> Result<bool, Refused> {
        Ok(self.text(path)? == "Y")
    }

    /// The numbered folders in a folder, in the order of their numbers.
    pub(crate) fn numbered(&self, path: &str) -> Result<Vec<Self>, Refused> {
        let folder = self.folder(path)?;
        (0..self.tree.numbers(folder.inode)?).map(|number| folder.folder(&number.to_string())).collect()
    }
}
