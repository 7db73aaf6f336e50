//! The kdamonds behind the files, and who may have them: one command at a time.

use crate::errno::Errno;
use crate::held::held;
use crate::kdamond::{Kdamond, Stopper};
use crate::tree::Inode;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Kdamonds by the inode of their folder.
type Entries = HashMap<Inode, Entry>;

/// A kdamond that was switched on.
pub(super) struct Entry {
    pub kdamond: Box<dyn Kdamond>,
    /// When its figures were brought up to date last, by `refresh_ms`.
    pub refreshed: Option<Instant>,
}

/// The kdamonds of all folders.
#[derive(Default)]
pub(super) struct Kdamonds {
    /// Held while a command is carried out, which may take as long as two turns of a scheme.
    entries: Mutex<Entries>,
    /// Never held for long.
    meanwhile: Mutex<Meanwhile>,
}

/// What can be done while a command is carried out.
#[derive(Default)]
struct Meanwhile {
    stoppers: HashMap<Inode, Stopper>,
    /// The folder whose command is carried out.
    busy: Option<Inode>,
    /// Nothing is begun any more.
    ended: bool,
}

impl Kdamonds {
    /// All of them, where no command is under way; else EBUSY.
    pub fn all(&self) -> Result<MutexGuard<'_, Entries>, Errno> {
        let entries = self.entries.try_lock().map_err(|_| Errno::Busy)?;
        if held(&self.meanwhile).ended { Err(Errno::Gone) } else { Ok(entries) }
    }

    /// For a command to the kdamond of this folder.
    pub fn begin(&self, folder: Inode) -> Result<Command<'_>, Errno> {
        Ok(self.command(folder, self.all()?, false))
    }

    /// For switching it off. Where a command to it is under way, that ends: it could take hours.
    pub fn begin_off(&self, folder: Inode) -> Result<Command<'_>, Errno> {
        let begun = self.begin(folder);
        if begun.as_ref().err() != Some(&Errno::Busy) {
            return begun;
        }
        {
            let meanwhile = held(&self.meanwhile);
            let stop = meanwhile.stoppers.get(&folder).filter(|_| meanwhile.busy == Some(folder));
            stop.ok_or(Errno::Busy)?();
        }
        Ok(self.command(folder, held(&self.entries), true))
    }

    fn command<'a>(&'a self, folder: Inode, entries: MutexGuard<'a, Entries>, is_asked: bool) -> Command<'a> {
        held(&self.meanwhile).busy = Some(folder);
        Command { kdamonds: self, folder, entries, is_asked }
    }

    /// Ends all of them, and the command that is under way, and begins nothing more.
    pub fn end(&self) {
        {
            let mut meanwhile = held(&self.meanwhile);
            meanwhile.ended = true;
            // Whoever has begun a command before has its kdamond among these.
            meanwhile.stoppers.drain().for_each(|(_, stop)| stop());
        }
        held(&self.entries).drain().for_each(|(_, mut entry)| entry.kdamond.stop());
    }
}

/// The kdamonds in the hands of a command to one of them.
pub(super) struct Command<'a> {
    kdamonds: &'a Kdamonds,
    folder: Inode,
    entries: MutexGuard<'a, Entries>,
    /// Whether it was asked to end while another command was carried out, and so may have ended by now.
    pub is_asked: bool,
}

impl Command<'_> {
    /// Puts a kdamond that was started behind the folder.
    pub fn started(&mut self, kdamond: Box<dyn Kdamond>) {
        let stopper = kdamond.stopper();
        self.entries.insert(self.folder, Entry { kdamond, refreshed: None });
        let mut meanwhile = held(&self.kdamonds.meanwhile);
        // Others' folders may have been removed.
        meanwhile.stoppers.retain(|folder, _| self.entries.contains_key(folder));
        meanwhile.stoppers.insert(self.folder, stopper);
    }
}

impl Deref for Command<'_> {
    type Target = Entries;

    fn deref(&self) -> &Entries {
        &self.entries
    }
}

impl DerefMut for Command<'_> {
    fn deref_mut(&mut self) -> &mut Entries {
        &mut self.entries
    }
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        held(&self.kdamonds.meanwhile).busy = None;
    }
}
