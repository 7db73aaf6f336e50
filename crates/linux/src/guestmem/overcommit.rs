//! How much memory the kernel lets programs map (`vm.overcommit_memory`), beside memory blocks that are offline.
//!
//! By default (0) it refuses a single request for more than there is of RAM and swap, and what is offline is not there: a
//! program that maps nearly all memory at once would fail in the moment in which a block is away, although it is back a moment
//! later. So until all blocks are online again the kernel is to refuse nothing (1).
//!
//! Where it promises no more than a part of what there is (2, with `CommitLimit` in `/proc/meminfo`), each block that goes offline and each
//! huge page lowers what is left to promise.

use super::ledger::Ledger;
use crate::roots::Roots;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// What is read and written.
pub const OVERCOMMIT_FILE: &str = "/proc/sys/vm/overcommit_memory";

/// One part in so many of what may still be promised may be isolated: programs have the rest in any moment.
const PART: u64 = 4;

/// What the kernel refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overcommit {
    /// A request for more than RAM and swap.
    Obvious,
    /// Nothing.
    Nothing,
    /// What goes beyond `CommitLimit`, all requests together.
    BeyondLimit,
}

impl Overcommit {
    /// What it refuses now; `None` where that is not known.
    pub(super) fn read(roots: &Roots) -> Option<Self> {
        match roots.line(OVERCOMMIT_FILE)?.as_str() {
            "0" => Some(Self::Obvious),
            "1" => Some(Self::Nothing),
            "2" => Some(Self::BeyondLimit),
            _ => None,
        }
    }
}

fn open(roots: &Roots) -> io::Result<std::fs::File> {
    // Never created.
    OpenOptions::new().write(true).open(roots.path(OVERCOMMIT_FILE))
}

fn write(roots: &Roots, word: &str) -> io::Result<()> {
    open(roots)?.write_all(word.as_bytes())
}

/// Why blocks must not go offline here, for their absence would be noticed by programs that map memory; `None` where they may.
pub(super) fn objection(roots: &Roots) -> Option<String> {
    match Overcommit::read(roots) {
        Some(Overcommit::Nothing) => None,
        Some(Overcommit::Obvious) => open(roots).err().map(|e| {
            format!("{OVERCOMMIT_FILE} cannot be written to ({e}), and a program that maps nearly all memory would fail while a block is offline")
        }),
        Some(Overcommit::BeyondLimit) => Some(format!(
            "{OVERCOMMIT_FILE} is 2: the kernel promises a part of the memory that is online, and programs could not map what they may while a block is \
             offline"
        )),
        None => Some(format!("{OVERCOMMIT_FILE} cannot be read")),
    }
}

/// A block is about to go offline: nobody is refused from here on. Whether that is so.
pub(super) fn refuse_nobody(ledger: &mut Ledger, roots: &Roots) -> io::Result<bool> {
    match Overcommit::read(roots) {
        Some(Overcommit::Nothing) => Ok(true),
        Some(Overcommit::Obvious) => {
            ledger.change(|l| l.refused_obvious = true)?;
            write(roots, "1").map(|()| true)
        }
        Some(Overcommit::BeyondLimit) | None => Ok(false),
    }
}

/// All blocks are online: as it was. Whoever has set something else meanwhile keeps it.
pub(super) fn put_back(ledger: &mut Ledger, roots: &Roots) -> io::Result<()> {
    if !ledger.taken().refused_obvious || !ledger.taken().offline.is_empty() {
        return Ok(());
    }
    match Overcommit::read(roots) {
        Some(Overcommit::Nothing) => write(roots, "0")?,
        Some(_) => {}
        // It stays written down.
        None => return Err(io::Error::other(format!("{OVERCOMMIT_FILE} cannot be read"))),
    }
    ledger.change(|l| l.refused_obvious = false)
}

/// What may be isolated without programs being refused what they map, bytes; `None` where there is no limit. `bytes`: a field of `/proc/meminfo`.
pub(super) fn may_be_isolated(roots: &Roots, bytes: impl Fn(&str) -> io::Result<u64>) -> io::Result<Option<u64>> {
    if Overcommit::read(roots) != Some(Overcommit::BeyondLimit) {
        return Ok(None);
    }
    Ok(Some(bytes("CommitLimit")?.saturating_sub(bytes("Committed_AS")?) / PART))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::{Tree, tree};

    fn machine(word: &str) -> (Tree, Ledger) {
        let t = tree(&[(&OVERCOMMIT_FILE[1..], &format!("{word}\n"))]);
        let ledger = Ledger::open(&t.roots).unwrap();
        (t, ledger)
    }

    fn word(t: &Tree) -> String {
        t.roots.line(OVERCOMMIT_FILE).unwrap()
    }

    #[test]
    fn nobody_is_refused_until_all_blocks_are_back() {
        let (t, mut ledger) = machine("0");
        assert!(refuse_nobody(&mut ledger, &t.roots).unwrap());
        ledger.change(|l| l.block_goes(5, false)).unwrap();
        assert!(refuse_nobody(&mut ledger, &t.roots).unwrap() && ledger.taken().refused_obvious);
        put_back(&mut ledger, &t.roots).unwrap();
        assert_eq!(word(&t), "1", "a block is away");
        ledger.change(|l| l.block_is_back(5)).unwrap();
        put_back(&mut ledger, &t.roots).unwrap();
        assert_eq!((word(&t).as_str(), ledger.is_empty()), ("0", true));
    }

    #[test]
    fn what_others_have_set_stays() {
        let (t, mut ledger) = machine("1");
        assert!(refuse_nobody(&mut ledger, &t.roots).unwrap() && ledger.is_empty());
        put_back(&mut ledger, &t.roots).unwrap();
        assert_eq!(word(&t), "1");
        let (t, mut ledger) = machine("0");
        assert!(refuse_nobody(&mut ledger, &t.roots).unwrap());
        std::fs::write(t.roots.path(OVERCOMMIT_FILE), "2\n").unwrap();
        put_back(&mut ledger, &t.roots).unwrap();
        assert_eq!((word(&t).as_str(), ledger.is_empty()), ("2", true));
        assert!(!refuse_nobody(&mut ledger, &t.roots).unwrap());
        ledger.change(|l| l.refused_obvious = true).unwrap();
        std::fs::remove_file(t.roots.path(OVERCOMMIT_FILE)).unwrap();
        assert!(
            put_back(&mut ledger, &t.roots).is_err() && ledger.taken().refused_obvious,
            "what is not known is not forgotten"
        );
    }

    #[test]
    fn under_a_limit_no_block_goes_and_a_part_of_what_may_be_promised_is_isolated() {
        let info = |committed| move |name: &str| Ok(if name == "CommitLimit" { 500 << 10 } else { committed });
        let (t, mut ledger) = machine("2");
        assert!(!refuse_nobody(&mut ledger, &t.roots).unwrap() && ledger.is_empty());
        assert!(objection(&t.roots).unwrap().contains("is 2"));
        assert_eq!(may_be_isolated(&t.roots, info(300 << 10)).unwrap(), Some(50 << 10));
        assert_eq!(may_be_isolated(&t.roots, info(700 << 10)).unwrap(), Some(0));
        assert!(
            may_be_isolated(&t.roots, |name| Err(io::Error::other(name.to_owned()))).is_err(),
            "unknown is not unlimited"
        );
        let (t, _ledger) = machine("0");
        assert_eq!((objection(&t.roots), may_be_isolated(&t.roots, info(0)).unwrap()), (None, None));
        assert!(objection(&tree(&[]).roots).unwrap().contains("cannot be read"));
    }
}
