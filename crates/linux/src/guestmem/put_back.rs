//! Puts back what the ledger has written down, after a death as well.

use super::isolate::offline::put_online;
use super::isolate::segment;
use super::ledger::Ledger;
use super::overcommit;
use crate::roots::Roots;
use std::fmt;

/// What is still isolated or changed, and why.
#[derive(Debug)]
pub struct StillTaken(Vec<String>);

impl std::error::Error for StillTaken {}

impl fmt::Display for StillTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// Puts back everything that this agent or a dead predecessor took. **No report of it may be on its way to a host any
/// more.** What cannot be put back stays written down.
pub fn put_back(ledger: &mut Ledger, roots: &Roots) -> Result<(), StillTaken> {
    let mut troubles = Vec::new();
    for n in ledger.taken().offline.clone() {
        match put_online(roots, n, ledger.taken().movable.contains(&n)) {
            Ok(()) => troubles
                .extend(ledger.change(|l| l.block_is_back(n)).err().map(|e| format!("cannot write the ledger: {e}"))),
            Err(e) => troubles.push(format!("memory block {n} stays offline: {e}")),
        }
    }
    troubles.extend(overcommit::put_back(ledger, roots).err().map(|e| format!("vm.overcommit_memory stays 1: {e}")));
    troubles.extend(segment::put_back(ledger, roots).err().map(|e| format!("huge pages stay isolated: {e}")));
    if troubles.is_empty() { Ok(()) } else { Err(StillTaken(troubles)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn blocks_come_online_again_and_what_cannot_stays_written_down() {
        let state = |n| format!("sys/devices/system/memory/memory{n}/state");
        let t = tree(&[(&state(5), "offline\n"), (&state(7), "offline\n"), ("proc/sys/vm/overcommit_memory", "0\n")]);
        let mut ledger = Ledger::open(&t.roots).unwrap();
        assert!(overcommit::refuse_nobody(&mut ledger, &t.roots).unwrap());
        [5, 6, 7].into_iter().for_each(|n| ledger.change(|l| l.block_goes(n, n == 7)).unwrap());
        let troubles = put_back(&mut ledger, &t.roots).unwrap_err();
        assert!(troubles.to_string().starts_with("memory block 6 stays offline"), "{troubles:?}");
        assert_eq!(t.roots.line("/sys/devices/system/memory/memory5/state").as_deref(), Some("online"));
        assert_eq!(t.roots.line(state(7)).as_deref(), Some("online_movable"), "in the zone it was in");
        assert_eq!((&ledger.taken().offline, &ledger.taken().movable), (&[6].into(), &[].into()));
        let refused = || t.roots.line(overcommit::OVERCOMMIT_FILE).unwrap();
        assert_eq!(refused(), "1", "a block is away");
        ledger.change(|l| l.block_is_back(6)).unwrap();
        put_back(&mut ledger, &t.roots).unwrap();
        assert_eq!((refused().as_str(), ledger.is_empty()), ("0", true));
    }
}
