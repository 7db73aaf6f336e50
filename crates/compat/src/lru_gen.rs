//! The control files of the multi-generational LRU: `enabled` and `min_ttl_ms` in sysfs, `lru_gen` and `lru_gen_full` in
//! debugfs.
//!
//! Where the kernel has one, reads and writes go to its own files. Where it has none, generations are kept here, by the
//! same walks and evictions as those of `isotherm lru`.
//!
//! * `command` reads the two commands; `generations` carries them out and shows what became of it;
//! * [`machine`] is the border to what they work on, [`live`] this machine;
//! * `passed` is the kernel's own.

mod command;
mod generations;
pub mod live;
pub mod machine;
mod own;
mod passed;

use crate::errno::Errno;
use crate::files::Files;
use crate::tree::{Attr, Inode, Listed, ROOT};
use isotherm_linux::roots::Roots;
use live::LiveMachine;
use machine::Machine;
use std::fmt::Debug;

/// The folder of the two files in sysfs.
const SWITCHES: Inode = 2;

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum File {
    Enabled,
    MinTtl,
    Generations,
    Full,
}

/// The files with their numbers, the folders that they are in, and their names.
const FILES: [(File, Inode, Inode, &str); 4] = [
    (File::Enabled, 3, SWITCHES, "enabled"),
    (File::MinTtl, 4, SWITCHES, "min_ttl_ms"),
    (File::Generations, 5, ROOT, "lru_gen"),
    (File::Full, 6, ROOT, "lru_gen_full"),
];

impl File {
    fn of(inode: Inode) -> Result<Self, Errno> {
        match FILES.iter().find(|(_, number, ..)| *number == inode) {
            Some((file, ..)) => Ok(*file),
            None if [ROOT, SWITCHES].contains(&inode) => Err(Errno::Invalid),
            None => Err(Errno::NoEntry),
        }
    }

    /// In the kernel those of debugfs can be opened by everybody, but are in a folder that is root's alone.
    const fn attr(self) -> Attr {
        match self {
            Self::Enabled | Self::MinTtl => Attr::sysfs(0o644),
            Self::Generations => Attr::sysfs(0o600).of_debugfs(),
            Self::Full => Attr::sysfs(0o400).of_debugfs(),
        }
    }
}

/// What is behind the files.
trait Control: Send + Sync + Debug {
    /// Whether there is such a file.
    fn has(&self, file: File) -> bool;
    /// What it shows.
    fn read(&self, file: File) -> Result<Vec<u8>, Errno>;
    /// Takes in what was written, all of it.
    fn write(&self, file: File, data: &[u8]) -> Result<(), Errno>;
    /// Drops what is kept.
    fn stop(&self);
}

/// The files.
#[derive(Debug)]
pub struct LruGen {
    control: Box<dyn Control>,
}

impl LruGen {
    /// The kernel's own, or else with generations of ours for this machine.
    pub fn here(roots: &Roots) -> Self {
        match passed::Passed::open(roots) {
            Some(passed) => Self { control: Box::new(passed) },
            None => Self::own(Box::new(LiveMachine::new(roots))),
        }
    }

    /// With generations of ours.
    pub fn own(machine: Box<dyn Machine>) -> Self {
        Self { control: Box::new(own::Own::new(machine)) }
    }

    /// The paths that the files stand at, and the entries to place there.
    pub fn places(&self) -> Vec<(&'static str, Inode)> {
        let all = [
            ("/sys/kernel/mm/lru_gen", SWITCHES),
            ("/sys/kernel/debug/lru_gen", 5),
            ("/sys/kernel/debug/lru_gen_full", 6),
        ];
        all.into_iter().filter(|&(_, inode)| File::of(inode).map_or(true, |file| self.control.has(file))).collect()
    }
}

impl Files for LruGen {
    fn lookup(&self, parent: Inode, name: &str) -> Result<Inode, Errno> {
        if name == ".." && [ROOT, SWITCHES].contains(&parent) {
            return Ok(ROOT);
        }
        self.list(parent)?.into_iter().find(|entry| entry.name == name).map(|entry| entry.inode).ok_or(Errno::NoEntry)
    }

    fn list(&self, inode: Inode) -> Result<Vec<Listed>, Errno> {
        if ![ROOT, SWITCHES].contains(&inode) {
            return File::of(inode).and(Err(Errno::NotDir));
        }
        let files = FILES.iter().filter(|&&(file, _, parent, _)| parent == inode && self.control.has(file));
        let mut all: Vec<Listed> =
            files.map(|&(_, inode, _, name)| Listed { inode, name: name.to_owned(), is_folder: false }).collect();
        if inode == ROOT {
            all.push(Listed { inode: SWITCHES, name: "switches".to_owned(), is_folder: true });
        }
        Ok(all)
    }

    fn attr(&self, inode: Inode) -> Result<Attr, Errno> {
        match inode {
            ROOT => Ok(Attr::folder(1)),
            SWITCHES => Ok(Attr::folder(0)),
            _ => Ok(File::of(inode)?.attr()),
        }
    }

    fn read(&self, inode: Inode) -> Result<Vec<u8>, Errno> {
        self.control.read(File::of(inode)?)
    }

    fn write(&self, inode: Inode, data: &[u8]) -> Result<usize, Errno> {
        self.control.write(File::of(inode)?, data)?;
        Ok(data.len())
    }

    fn stop(&self) {
        self.control.stop();
    }
}

#[cfg(test)]
mod tests;
