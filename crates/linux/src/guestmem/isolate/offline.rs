//! Memory blocks (128 MiB, or more on large machines) taken offline: exclusive, contiguous, nothing is cleared.
//!
//! The kernel moves what is used out of a block first. That can fail (pages that cannot be moved) or go on for ever;
//! each attempt is bounded, and a block that refused is left alone for a while, each time for longer. One that ran out
//! of time may only have been on a busy host: it gets more time first.

use super::{HUGE_PAGE, check_held};
use crate::clock::monotonic_ns;
use crate::guestmem::deadline::Deadline;
use crate::guestmem::ledger::Ledger;
use crate::guestmem::overcommit;
use crate::roots::Roots;
use isotherm_core::addr::AddrRange;
use isotherm_core::hinter::IsolateError;
use isotherm_core::units::format_size;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

const MEMORY: &str = "/sys/devices/system/memory";
/// How long a block that refused is left alone, at first and at most.
const REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// What an attempt may take at most after others have run out of time, in terms of the first limit.
const MOST_PATIENCE: u32 = 4;

#[derive(Debug, Clone)]
struct Block {
    number: u64,
    range: AddrRange,
    /// Not to be tried before (CLOCK_MONOTONIC, ns).
    rest_until_ns: u64,
    rest: Duration,
    /// What the next attempt may take, in terms of the first limit.
    patience: u32,
}

impl Block {
    fn new(number: u64, range: AddrRange) -> Self {
        Self { number, range, rest_until_ns: 0, rest: REST, patience: 1 }
    }

    /// An attempt has failed.
    fn refused(&mut self, out_of_time: bool, now_ns: u64) {
        self.rest_until_ns = now_ns.saturating_add(self.rest.as_nanos() as u64);
        if out_of_time && self.patience < MOST_PATIENCE {
            self.patience *= 2;
        } else {
            self.rest = (self.rest * 2).min(LONGEST_REST);
        }
    }

    /// An attempt has succeeded.
    const fn obeyed(&mut self) {
        self.rest = REST;
        self.patience = 1;
    }
}

/// Takes memory blocks offline.
#[derive(Debug)]
pub(super) struct Offline {
    roots: Roots,
    block_size: u64,
    blocks: Vec<Block>,
    held: Vec<u64>,
    limit: Duration,
}

impl Offline {
    /// Looks at which blocks there are. An attempt takes `limit` at most, and up to four times that where it was too
    /// short.
    pub(super) fn new(roots: &Roots, limit: Duration) -> Result<Self, IsolateError> {
        let block_size = block_size(roots).ok_or_else(|| {
            let why = format!("{MEMORY}/block_size_bytes is missing: the kernel lacks CONFIG_MEMORY_HOTREMOVE");
            IsolateError::Unsupported(why)
        })?;
        let mut found = Self { roots: roots.clone(), block_size, blocks: Vec::new(), held: Vec::new(), limit };
        found.look_again();
        if found.blocks.is_empty() {
            let why = format!("no memory block below {MEMORY} is online: CONFIG_MEMORY_HOTREMOVE is not built in");
            return Err(IsolateError::Unsupported(why));
        }
        if let Some(why) = overcommit::objection(roots) {
            return Err(IsolateError::Unsupported(why));
        }
        Ok(found)
    }

    /// Reads again which blocks there are.
    pub(super) fn look_again(&mut self) {
        let names = self.roots.names(MEMORY);
        let numbers = names.iter().filter_map(|n| n.strip_prefix("memory")?.parse::<u64>().ok());
        let mut blocks = Vec::new();
        for number in numbers {
            let usable = self.held.contains(&number) || state(&self.roots, number).as_deref() == Some("online");
            let Some(start) = number.checked_mul(self.block_size).filter(|_| usable) else { continue };
            let old = self.blocks.iter().find(|b| b.number == number);
            let fresh = || Block::new(number, AddrRange::new(start, start.saturating_add(self.block_size)));
            blocks.push(old.cloned().unwrap_or_else(fresh));
        }
        blocks.sort_unstable_by_key(|b| b.number);
        self.blocks = blocks;
    }

    /// Size of a block, bytes.
    pub(super) const fn block_size(&self) -> u64 {
        self.block_size
    }

    /// Tries one block; whether it is ours now.
    fn take_block(&mut self, i: usize, ledger: &mut Ledger) -> Result<bool, IsolateError> {
        let number = self.blocks[i].number;
        let note = |e| IsolateError::io("write down which memory block goes offline")(e);
        let lift = |e| IsolateError::io("set vm.overcommit_memory to 1")(e);
        if !overcommit::refuse_nobody(ledger, &self.roots).map_err(lift)? {
            self.blocks[i].refused(false, monotonic_ns());
            return Ok(false);
        }
        let movable = is_movable(&self.roots, number);
        ledger.change(|l| l.block_goes(number, movable)).map_err(note)?;
        let limit = self.limit * self.blocks[i].patience;
        let Err(refusal) = put_offline(&self.roots, number, limit) else {
            self.held.push(number);
            self.blocks[i].obeyed();
            return Ok(true);
        };
        // Nothing else than the state decides what is to be undone: an interrupted write may have succeeded.
        put_online(&self.roots, number, movable)
            .map_err(IsolateError::io(format!("put memory block {number} online")))?;
        ledger.change(|l| l.block_is_back(number)).map_err(note)?;
        self.refuse_again(ledger)?;
        self.blocks[i].refused(refusal.kind() == io::ErrorKind::Interrupted, monotonic_ns());
        match refusal.raw_os_error() {
            Some(libc::EBUSY | libc::EINVAL | libc::EINTR | libc::EAGAIN | libc::ENOMEM) => Ok(false),
            _ => {
                let what = format!("take memory block {number} ({}) offline", format_size(self.block_size));
                Err(IsolateError::io(what)(refusal))
            }
        }
    }

    /// Takes those of the memory blocks in `wanted` offline that can be had; which. Each is a block as a whole.
    pub(super) fn take(&mut self, wanted: &[AddrRange], ledger: &mut Ledger) -> Result<Vec<AddrRange>, IsolateError> {
        let mut taken = Vec::new();
        for range in wanted {
            // It may have been put online since the last look: memory that was plugged in.
            if self.blocks.iter().all(|b| b.range != *range) {
                self.look_again();
            }
            let now = monotonic_ns();
            let willing = |b: &Block| b.range == *range && b.rest_until_ns <= now && !self.held.contains(&b.number);
            if let Some(i) = self.blocks.iter().position(willing)
                && self.take_block(i, ledger)?
            {
                taken.push(*range);
            }
        }
        Ok(taken)
    }

    /// Whether `reported` is held, and all that is held still is offline.
    pub(super) fn check(&self, reported: &[AddrRange]) -> Result<(), IsolateError> {
        let lost = self.held.iter().find(|n| state(&self.roots, **n).as_deref() != Some("offline"));
        let Some(&n) = lost else {
            let held = self.blocks.iter().filter(|b| self.held.contains(&b.number));
            return check_held(reported, held.map(|b| b.range).collect());
        };
        let how = if has_gone(&self.roots, n) { "unplugged" } else { "put online" };
        Err(IsolateError::Foreign(format!("memory block {n} was {how} by somebody while it was held")))
    }

    /// Puts everything online that is held.
    pub(super) fn give_back(&mut self, ledger: &mut Ledger) -> Result<(), IsolateError> {
        while let Some(&number) = self.held.last() {
            let movable = ledger.taken().movable.contains(&number);
            put_online(&self.roots, number, movable)
                .map_err(IsolateError::io(format!("put memory block {number} online")))?;
            self.held.pop();
            let note = IsolateError::io("write down which memory block is online");
            ledger.change(|l| l.block_is_back(number)).map_err(note)?;
        }
        self.refuse_again(ledger)
    }

    /// If all blocks are online, the kernel refuses what it refused before.
    fn refuse_again(&self, ledger: &mut Ledger) -> Result<(), IsolateError> {
        overcommit::put_back(ledger, &self.roots).map_err(IsolateError::io("put vm.overcommit_memory back"))
    }

    /// Bytes held now.
    pub(super) fn held(&self) -> u64 {
        self.held.len() as u64 * self.block_size
    }
}

/// Size of a memory block, bytes; `None` without memory hotplug.
fn block_size(roots: &Roots) -> Option<u64> {
    let text = roots.line(format!("{MEMORY}/block_size_bytes"))?;
    u64::from_str_radix(&text, 16).ok().filter(|n| n.is_power_of_two() && *n >= HUGE_PAGE)
}

fn state_file(number: u64) -> PathBuf {
    format!("{MEMORY}/memory{number}/state").into()
}

fn state(roots: &Roots, number: u64) -> Option<String> {
    roots.line(state_file(number))
}

/// Whether a block that was there has been unplugged.
fn has_gone(roots: &Roots, number: u64) -> bool {
    block_size(roots).is_some() && !roots.path(format!("{MEMORY}/memory{number}")).exists()
}

/// Whether an online block is in the zone for movable memory alone, out of which it can be unplugged.
fn is_movable(roots: &Roots, number: u64) -> bool {
    // Of an online block this names the zone it is in.
    roots.line(format!("{MEMORY}/memory{number}/valid_zones")).as_deref() == Some("Movable")
}

/// One write, which must not be tried again when a signal interrupts it.
fn write_state(roots: &Roots, number: u64, word: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(!roots.is_system()).open(roots.path(state_file(number)))?;
    file.write(word.as_bytes()).map(|_| ())
}

/// Takes a block offline, or gives up after `limit`.
fn put_offline(roots: &Roots, number: u64, limit: Duration) -> io::Result<()> {
    let _deadline = Deadline::after(limit)?;
    write_state(roots, number, "offline")
}

/// Puts a block online again: into the zone for movable memory, or into the one that the kernel chooses by itself. That
/// would not be the former for a block at its edge. One that is online is left as it is; of one that was unplugged
/// nothing is left to do.
pub(in crate::guestmem) fn put_online(roots: &Roots, number: u64, movable: bool) -> io::Result<()> {
    let word = if movable { "online_movable" } else { "online" };
    let attempt = || match roots.read(state_file(number)) {
        Ok(state) if state.trim().starts_with("online") => Ok(true),
        Ok(_) => write_state(roots, number, word).map(|()| false),
        Err(e) => Err(e),
    };
    // Onlining does not wait for others; a signal can still come first.
    for _ in 0..100 {
        match attempt() {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(_) if has_gone(roots, number) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted || e.raw_os_error() == Some(libc::EBUSY) => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel refuses again and again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::{Tree, tree};

    fn machine() -> Tree {
        tree(&[
            ("sys/devices/system/memory/block_size_bytes", "8000000\n"),
            ("sys/devices/system/memory/memory0/state", "online\n"),
            ("sys/devices/system/memory/memory1/state", "online\n"),
            ("sys/devices/system/memory/memory2/state", "offline\n"),
            ("sys/devices/system/memory/memory0/valid_zones", "Movable\n"),
            ("sys/devices/system/memory/memory1/valid_zones", "Normal\n"),
            ("sys/devices/system/memory/power/control", "auto\n"),
            ("proc/sys/vm/overcommit_memory", "0\n"),
        ])
    }

    #[test]
    fn a_block_goes_offline_and_comes_back() {
        let t = machine();
        let mut ledger = Ledger::open(&t.roots).unwrap();
        let mut offline = Offline::new(&t.roots, Duration::from_secs(5)).unwrap();
        assert_eq!(offline.blocks.len(), 2, "what somebody else took offline is not ours");
        let second = AddrRange::new(128 << 20, 256 << 20);
        let foreign = AddrRange::new(256 << 20, 384 << 20);
        assert_eq!(offline.take(&[foreign, second], &mut ledger).unwrap(), [second]);
        assert_eq!((offline.held(), ledger.taken().offline.clone()), (128 << 20, [1].into()));
        let refused = || t.roots.line(overcommit::OVERCOMMIT_FILE).unwrap();
        assert_eq!(refused(), "1", "nobody is refused meanwhile");
        let part = AddrRange::new(second.start, second.start + HUGE_PAGE);
        assert!(offline.check(&[second]).is_ok() && offline.check(&[part, part]).is_ok());
        assert!(matches!(offline.check(&[part, foreign]).unwrap_err(), IsolateError::Foreign(_)), "it is not held");
        assert!(offline.take(&[second], &mut ledger).unwrap().is_empty(), "it is held already");
        offline.give_back(&mut ledger).unwrap();
        assert!(offline.check(&[part]).is_err(), "not any more");
        assert_eq!(state(&t.roots, 1).as_deref(), Some("online"));
        assert!(ledger.taken().is_empty() && offline.held() == 0);
        assert_eq!(refused(), "0");
        assert_eq!(state(&t.roots, 2).as_deref(), Some("offline"), "still not ours");
        std::fs::write(t.roots.path(state_file(2)), "online\n").unwrap();
        assert_eq!(offline.take(&[foreign], &mut ledger).unwrap(), [foreign], "put online by somebody since");
        offline.give_back(&mut ledger).unwrap();
        let first = AddrRange::new(0, 128 << 20);
        assert_eq!(offline.take(&[first], &mut ledger).unwrap(), [first]);
        offline.give_back(&mut ledger).unwrap();
        assert_eq!(state(&t.roots, 0).as_deref(), Some("online_movable"), "into the zone it was in");
        assert!(ledger.taken().is_empty());
        let half = AddrRange::new(128 << 20, 192 << 20);
        assert!(offline.take(&[half], &mut ledger).unwrap().is_empty(), "blocks are taken whole");
    }

    #[test]
    fn who_refuses_is_left_alone_for_longer_and_who_is_slow_gets_more_time_first() {
        let mut block = Block::new(1, AddrRange::new(0, 1 << 27));
        block.refused(true, 0);
        assert_eq!((block.patience, block.rest_until_ns), (2, 10_000_000_000));
        block.refused(true, 0);
        assert_eq!((block.patience, block.rest), (4, REST));
        block.refused(true, 0);
        assert_eq!((block.patience, block.rest), (4, 2 * REST), "it had time enough");
        block.obeyed();
        block.refused(false, 0);
        assert_eq!((block.patience, block.rest), (1, 2 * REST));
        (0..64).for_each(|_| block.refused(false, u64::MAX - 5));
        assert_eq!((block.rest, block.rest_until_ns), (LONGEST_REST, u64::MAX));
    }

    #[test]
    fn somebody_elses_onlining_is_seen() {
        let t = machine();
        let mut ledger = Ledger::open(&t.roots).unwrap();
        let mut offline = Offline::new(&t.roots, Duration::from_secs(5)).unwrap();
        offline.take(&[AddrRange::new(0, 128 << 20)], &mut ledger).unwrap();
        let held = offline.held[0];
        std::fs::write(t.roots.path(state_file(held)), "online\n").unwrap();
        assert!(matches!(offline.check(&[]).unwrap_err(), IsolateError::Foreign(_)));
    }

    #[test]
    fn a_block_that_was_unplugged_while_it_was_held_is_not_waited_for() {
        let t = machine();
        let mut ledger = Ledger::open(&t.roots).unwrap();
        let mut offline = Offline::new(&t.roots, Duration::from_secs(5)).unwrap();
        let blocks = [AddrRange::new(0, 128 << 20), AddrRange::new(128 << 20, 256 << 20)];
        assert_eq!(offline.take(&blocks, &mut ledger).unwrap(), blocks);
        std::fs::remove_dir_all(t.roots.path(format!("{MEMORY}/memory1"))).unwrap();
        let error = offline.check(&[]).unwrap_err();
        assert!(matches!(&error, IsolateError::Foreign(why) if why.contains("1 was unplugged")), "{error}");
        offline.give_back(&mut ledger).unwrap();
        assert!(ledger.taken().is_empty() && offline.held() == 0);
        assert_eq!(state(&t.roots, 0).as_deref(), Some("online_movable"));
    }

    #[test]
    fn where_the_kernel_promises_a_part_of_what_is_online_no_block_goes() {
        let t = machine();
        let mut ledger = Ledger::open(&t.roots).unwrap();
        let mut offline = Offline::new(&t.roots, Duration::from_secs(5)).unwrap();
        std::fs::write(t.roots.path(overcommit::OVERCOMMIT_FILE), "2\n").unwrap();
        assert!(offline.take(&[AddrRange::new(0, 128 << 20)], &mut ledger).unwrap().is_empty() && ledger.is_empty());
        assert!(offline.blocks[0].rest_until_ns > monotonic_ns(), "nor is it tried again at once");
        let error = Offline::new(&t.roots, Duration::ZERO).unwrap_err();
        assert!(matches!(&error, IsolateError::Unsupported(why) if why.contains("overcommit_memory is 2")), "{error}");
    }

    #[test]
    fn without_hotplug_it_says_so() {
        let error = Offline::new(&tree(&[]).roots, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("CONFIG_MEMORY_HOTREMOVE"), "{error}");
    }
}
