//! Folders and files with their values, known by inode numbers.

use crate::errno::Errno;
use crate::schema::{DAMON, Entry, File, FileKind, What};
use crate::value;
use std::collections::BTreeMap;

/// The number of a file or a folder. A number is never given twice.
pub type Inode = u64;

/// The folder that everything else is in.
pub const ROOT: Inode = 1;

/// The most files and folders that there may be: what writers may ask for is bounded by this process's memory.
const MOST_NODES: usize = 1 << 20;

/// What a directory listing tells of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub inode: Inode,
    /// Its name.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// What `stat` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Permission bits.
    pub mode: u16,
    /// `None` for a file; else how many folders are in it.
    pub folders: Option<u32>,
    /// What a file claims to be long, bytes: 4096 in sysfs, 0 in debugfs, however much there is to read. A reader who
    /// trusts a size other than 0 would look for the end in the wrong place.
    pub size: u64,
}

impl Attr {
    /// A file of sysfs.
    pub const fn sysfs(mode: u16) -> Self {
        Self { mode, folders: None, size: 4096 }
    }

    /// A folder with so many folders in it.
    pub const fn folder(folders: u32) -> Self {
        Self { mode: 0o755, folders: Some(folders), size: 0 }
    }

    /// The same file in debugfs.
    #[must_use]
    pub const fn of_debugfs(self) -> Self {
        Self { size: 0, ..self }
    }
}

/// All files and folders.
#[derive(Debug)]
pub struct Tree {
    nodes: BTreeMap<Inode, Node>,
    next: Inode,
}

#[derive(Debug)]
struct Node {
    parent: Inode,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Folder {
        children: BTreeMap<String, Inode>,
        /// What a numbered folder in it holds.
        each: &'static [Entry],
    },
    File {
        file: &'static File,
        text: String,
    },
}

impl Tree {
    /// What stands in `/sys/kernel/mm/damon`.
    pub fn damon() -> Self {
        Self::of(&DAMON)
    }

    /// A folder with these entries.
    pub(crate) fn of(entries: &'static [Entry]) -> Self {
        let mut tree = Self { nodes: BTreeMap::new(), next: ROOT + 1 };
        tree.nodes.insert(ROOT, Node { parent: ROOT, content: folder(&[]) });
        tree.add_all(ROOT, entries);
        tree
    }

    /// The entry of that name in a folder.
    pub fn lookup(&self, parent: Inode, name: &str) -> Result<Inode, Errno> {
        if name == ".." {
            return Ok(self.node(parent)?.parent);
        }
        self.children(parent)?.get(name).copied().ok_or(Errno::NoEntry)
    }

    /// The entry at a path of names separated by slashes.
    pub fn find(&self, from: Inode, path: &str) -> Result<Inode, Errno> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(from, |at, name| self.lookup(at, name))
    }

    /// What is in a folder.
    pub fn list(&self, inode: Inode) -> Result<Vec<Listed>, Errno> {
        let listed = |(name, &inode): (&String, &Inode)| Listed {
            inode,
            name: name.clone(),
            is_folder: self.children(inode).is_ok(),
        };
        Ok(self.children(inode)?.iter().map(listed).collect())
    }

    /// What `stat` tells.
    pub fn attr(&self, inode: Inode) -> Result<Attr, Errno> {
        Ok(match &self.node(inode)?.content {
            Content::File { file, .. } => Attr::sysfs(file.mode),
            Content::Folder { children, .. } => {
                let folders = children.values().filter(|&&child| self.children(child).is_ok()).count();
                Attr::folder(folders as u32)
            }
        })
    }

    /// What a file shows, without the newline at the end.
    pub fn value(&self, inode: Inode) -> Result<String, Errno> {
        let node = self.node(inode)?;
        match &node.content {
            Content::File { file, .. } if matches!(file.kind, FileKind::Count { .. }) => {
                Ok(self.numbers(node.parent)?.to_string())
            }
            Content::File { text, .. } => Ok(text.clone()),
            Content::Folder { .. } => Err(Errno::Invalid),
        }
    }

    /// What kind of file it is.
    pub(crate) fn kind(&self, inode: Inode) -> Result<FileKind, Errno> {
        match &self.node(inode)?.content {
            Content::File { file, .. } => Ok(file.kind),
            Content::Folder { .. } => Err(Errno::Invalid),
        }
    }

    /// The folder that holds it.
    pub(crate) fn parent(&self, inode: Inode) -> Result<Inode, Errno> {
        Ok(self.node(inode)?.parent)
    }

    /// Takes in what somebody wrote to a file that holds a value or a count.
    pub fn write(&mut self, inode: Inode, text: &str) -> Result<(), Errno> {
        match self.kind(inode)? {
            FileKind::Value(form) => self.set(inode, form.parse(text)?),
            FileKind::Count { most } => {
                let nr = value::int(text)?;
                if !(0..=most).contains(&nr) {
                    return Err(Errno::Invalid);
                }
                let parent = self.parent(inode)?;
                self.renumber(parent, nr.unsigned_abs() as usize)
            }
            FileKind::State | FileKind::Pid => Err(Errno::Invalid),
        }
    }

    /// Sets what a file shows, whatever its mode.
    pub(crate) fn set(&mut self, inode: Inode, to: String) -> Result<(), Errno> {
        match self.nodes.get_mut(&inode).map(|node| &mut node.content) {
            Some(Content::File { text, .. }) => {
                *text = to;
                Ok(())
            }
            _ => Err(Errno::Gone),
        }
    }

    /// Removes the numbered folders of a folder and makes `nr` new ones.
    pub(crate) fn renumber(&mut self, inode: Inode, nr: usize) -> Result<(), Errno> {
        let Content::Folder { children, each } = &self.node(inode)?.content else { return Err(Errno::NotDir) };
        let each: &'static [Entry] = each;
        let old: Vec<String> = children.keys().filter(|name| is_number(name)).cloned().collect();
        for name in old {
            if let Some(Content::Folder { children, .. }) = self.nodes.get_mut(&inode).map(|n| &mut n.content)
                && let Some(child) = children.remove(&name)
            {
                self.remove(child);
            }
        }
        if nr.saturating_mul(size_of_all(each) + 1) > MOST_NODES.saturating_sub(self.nodes.len()) {
            return Err(Errno::NoMemory);
        }
        for number in 0..nr {
            let child = self.add(inode, number.to_string(), folder(&[]));
            self.add_all(child, each);
        }
        Ok(())
    }

    /// How many numbered folders are in a folder.
    pub(crate) fn numbers(&self, inode: Inode) -> Result<usize, Errno> {
        Ok(self.children(inode)?.keys().filter(|name| is_number(name)).count())
    }

    fn node(&self, inode: Inode) -> Result<&Node, Errno> {
        self.nodes.get(&inode).ok_or(Errno::Gone)
    }

    fn children(&self, inode: Inode) -> Result<&BTreeMap<String, Inode>, Errno> {
        match &self.node(inode)?.content {
            Content::Folder { children, .. } => Ok(children),
            Content::File { .. } => Err(Errno::NotDir),
        }
    }

    fn add(&mut self, parent: Inode, name: String, content: Content) -> Inode {
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, Node { parent, content });
        if let Some(Content::Folder { children, .. }) = self.nodes.get_mut(&parent).map(|n| &mut n.content) {
            children.insert(name, inode);
        }
        inode
    }

    fn add_all(&mut self, parent: Inode, entries: &'static [Entry]) {
        for Entry { name, what } in entries {
            let (content, within): (Content, &'static [Entry]) = match what {
                What::File(file) => (Content::File { file, text: file.default.to_owned() }, &[]),
                What::Folder(within) => (folder(&[]), within),
                What::Numbered { fixed, each } => (folder(each), fixed),
            };
            let inode = self.add(parent, (*name).to_owned(), content);
            self.add_all(inode, within);
        }
    }

    fn remove(&mut self, inode: Inode) {
        if let Some(Node { content: Content::Folder { children, .. }, .. }) = self.nodes.remove(&inode) {
            children.into_values().for_each(|child| self.remove(child));
        }
    }
}

fn folder(each: &'static [Entry]) -> Content {
    Content::Folder { children: BTreeMap::new(), each }
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_digit())
}

/// How many files and folders these entries are.
fn size_of_all(entries: &[Entry]) -> usize {
    let within = |e: &Entry| match e.what {
        What::File(_) => 0,
        What::Folder(within) | What::Numbered { fixed: within, .. } => size_of_all(within),
    };
    entries.iter().map(|e| 1 + within(e)).sum()
}

#[cfg(test)]
mod tests;
