//! Folders with files that a mount serves, and how several become one tree.

use crate::errno::Errno;
use crate::tree::{Attr, Inode, Listed, ROOT};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

/// A folder with files. Its own inode is [`ROOT`]; numbers are below 2^48. All methods may be called from any thread.
pub trait Files: Send + Sync + Debug {
    /// The entry of that name in a folder.
    fn lookup(&self, parent: Inode, name: &str) -> Result<Inode, Errno>;
    /// What is in a folder.
    fn list(&self, inode: Inode) -> Result<Vec<Listed>, Errno>;
    /// What `stat` tells.
    fn attr(&self, inode: Inode) -> Result<Attr, Errno>;
    /// What a file shows.
    fn read(&self, inode: Inode) -> Result<Vec<u8>, Errno>;
    /// Takes in what somebody wrote; how many bytes of it, which is at least one unless `data` is empty.
    fn write(&self, inode: Inode, data: &[u8]) -> Result<usize, Errno>;
    /// The same where it matters how far into the file it is written: as far as the writer's descriptor stands.
    fn write_at(&self, inode: Inode, _offset: u64, data: &[u8]) -> Result<usize, Errno> {
        self.write(inode, data)
    }
    /// Ends everything that runs behind the files.
    fn stop(&self);
}

/// The text that somebody wrote to a file; as in the kernel, a zero byte ends it.
///
/// # Errors
///
/// [`Errno::Invalid`] where it is no UTF-8, as no value is.
pub(crate) fn written_text(data: &[u8]) -> Result<&str, Errno> {
    let text = data.split(|&b| b == 0).next().unwrap_or_default();
    std::str::from_utf8(text).map_err(|_| Errno::Invalid)
}

/// Bits of an inode that are an entry's own; those above say which of the placed files it belongs to, 0: the folders
/// above them.
const OWN_BITS: u32 = 48;

/// Files of several kinds, each at its place below one folder.
#[derive(Debug, Default)]
pub struct Combined {
    /// Folders above the placed files, by path without slashes at its ends; the first is the top.
    folders: Vec<Folder>,
    placed: Vec<Arc<dyn Files>>,
    places: Vec<PathBuf>,
    /// What each place's own folder stands in, by its inode here: the way back up.
    parents: BTreeMap<Inode, Inode>,
}

#[derive(Debug, Default)]
struct Folder {
    parent: Inode,
    children: BTreeMap<String, Inode>,
}

impl Combined {
    /// An empty folder.
    pub fn new() -> Self {
        Self { folders: vec![Folder { parent: ROOT, ..Folder::default() }], ..Self::default() }
    }

    /// Places files; their entries are placed one by one with [`Self::place`]. The number is for that.
    pub fn add(&mut self, files: Arc<dyn Files>) -> usize {
        self.placed.push(files);
        self.placed.len()
    }

    /// Lets the entry `own` of the files that [`Self::add`] gave that number appear at a path: a folder or one file. No
    /// path is placed twice, and none below another's.
    pub fn place(&mut self, path: &str, files: usize, own: Inode) {
        let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let Some(last) = names.pop() else { return };
        self.places.push(PathBuf::from(path));
        let at = names.into_iter().fold(ROOT, |at, name| self.folder(at, name));
        let inode = join(files, own);
        self.parents.insert(inode, at);
        if let Some(folder) = self.folders.get_mut(at as usize - 1) {
            folder.children.insert(last.to_owned(), inode);
        }
    }

    /// The paths that something was placed at, in that order.
    pub fn places(&self) -> &[PathBuf] {
        &self.places
    }

    /// The folder of that name in one of the folders above, made where it is missing.
    fn folder(&mut self, parent: Inode, name: &str) -> Inode {
        let next = self.folders.len() as Inode + 1;
        let children = &mut self.folders[parent as usize - 1].children;
        let inode = *children.entry(name.to_owned()).or_insert(next);
        if inode == next {
            self.folders.push(Folder { parent, ..Folder::default() });
        }
        inode
    }

    /// A folder above the placed files, or the files that an inode belongs to with their own number of it.
    fn find(&self, inode: Inode) -> Result<Found<'_>, Errno> {
        let (files, own) = ((inode >> OWN_BITS) as usize, inode & ((1 << OWN_BITS) - 1));
        if files == 0 {
            let index = usize::try_from(own).ok().and_then(|own| own.checked_sub(1)).ok_or(Errno::NoEntry)?;
            return self.folders.get(index).map(Found::Above).ok_or(Errno::NoEntry);
        }
        self.placed.get(files - 1).map(|placed| Found::Placed(files, &**placed, own)).ok_or(Errno::NoEntry)
    }
}

enum Found<'a> {
    Above(&'a Folder),
    Placed(usize, &'a dyn Files, Inode),
}

fn join(files: usize, own: Inode) -> Inode {
    (files as Inode) << OWN_BITS | own
}

impl Files for Combined {
    fn lookup(&self, parent: Inode, name: &str) -> Result<Inode, Errno> {
        match self.find(parent)? {
            Found::Above(folder) if name == ".." => Ok(folder.parent),
            Found::Above(folder) => folder.children.get(name).copied().ok_or(Errno::NoEntry),
            Found::Placed(..) if name == ".." && self.parents.contains_key(&parent) => Ok(self.parents[&parent]),
            Found::Placed(files, placed, own) => Ok(join(files, placed.lookup(own, name)?)),
        }
    }

    fn list(&self, inode: Inode) -> Result<Vec<Listed>, Errno> {
        match self.find(inode)? {
            Found::Above(folder) => folder
                .children
                .iter()
                .map(|(name, &inode)| {
                    let is_folder = self.attr(inode)?.folders.is_some();
                    Ok(Listed { inode, name: name.clone(), is_folder })
                })
                .collect(),
            Found::Placed(files, placed, own) => {
                let mut listed = placed.list(own)?;
                listed.iter_mut().for_each(|entry| entry.inode = join(files, entry.inode));
                Ok(listed)
            }
        }
    }

    fn attr(&self, inode: Inode) -> Result<Attr, Errno> {
        match self.find(inode)? {
            Found::Above(folder) => {
                let is_folder = |&&child: &&Inode| self.attr(child).is_ok_and(|attr| attr.folders.is_some());
                let folders = folder.children.values().filter(is_folder).count();
                Ok(Attr::folder(folders as u32))
            }
            Found::Placed(_, placed, own) => placed.attr(own),
        }
    }

    fn read(&self, inode: Inode) -> Result<Vec<u8>, Errno> {
        match self.find(inode)? {
            Found::Above(_) => Err(Errno::Invalid),
            Found::Placed(_, placed, own) => placed.read(own),
        }
    }

    fn write(&self, inode: Inode, data: &[u8]) -> Result<usize, Errno> {
        match self.find(inode)? {
            Found::Above(_) => Err(Errno::Invalid),
            Found::Placed(_, placed, own) => placed.write(own, data),
        }
    }

    fn write_at(&self, inode: Inode, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        match self.find(inode)? {
            Found::Above(_) => Err(Errno::Invalid),
            Found::Placed(_, placed, own) => placed.write_at(own, offset, data),
        }
    }

    fn stop(&self) {
        self.placed.iter().for_each(|placed| placed.stop());
    }
}

#[cfg(test)]
mod tests;
