//! Ways to isolate free memory so that nobody can use it until we return it, without a module.
//!
//! | way | how | isolates | limits |
//! |---|---|---|---|
//! | [`offline`] | memory blocks go offline | exclusively, nothing is cleared | 128 MiB or more at a time; blocks with unmovable pages refuse |
//! | [`touch`] | huge pages on demand, touched | exclusively | always clears |
//!
//! Both outlive the agent: memory that the kernel took back at its death could be in use by the time that a host
//! handles a report of it. Blocks stay offline; huge pages belong to System V shared memory segments, which stay until
//! they are removed. Once the host has answered, huge pages belong to a process that the kernel ends before any other
//! when memory runs out.

mod holder;
pub(super) mod offline;
mod physical;
mod pool;
pub(super) mod segment;
mod touch;

use self::offline::Offline;
use self::touch::Touch;
use super::ledger::Ledger;
use super::put_back::{StillTaken, put_back};
use crate::roots::Roots;
use isotherm_core::addr::{AddrRange, normalize};
use isotherm_core::hinter::{BLOCK_BYTES, IsolateError, Isolator, Way};
use std::time::Duration;

/// Size of a huge page, the least that is isolated.
const HUGE_PAGE: u64 = BLOCK_BYTES;
/// An attempt to take a memory block offline takes this long, at most, if none has run out of time. Meanwhile nobody
/// gets what is free in it.
const OFFLINE_LIMIT: Duration = Duration::from_millis(500);

/// An error if not all of `reported` lies in what is `held`.
fn check_held(reported: &[AddrRange], mut held: Vec<AddrRange>) -> Result<(), IsolateError> {
    normalize(&mut held);
    let inside = |r: &AddrRange| held.iter().any(|h| h.start <= r.start && r.end <= h.end);
    match reported.iter().find(|r| !inside(r)) {
        None => Ok(()),
        Some(r) => {
            Err(IsolateError::Foreign(format!("{:#x}-{:#x} is to be reported and not isolated", r.start, r.end)))
        }
    }
}

/// The ways that this guest has, and the ledger of what is isolated.
#[derive(Debug)]
pub struct KernelIsolator {
    roots: Roots,
    ledger: Ledger,
    offline: Option<Offline>,
    touch: Option<Touch>,
}

impl KernelIsolator {
    /// One that has no ways yet. What a predecessor left is in the ledger.
    pub fn new(roots: &Roots, ledger: Ledger) -> Self {
        Self { roots: roots.clone(), ledger, offline: None, touch: None }
    }

    /// Makes ready for a way, if the guest has it. How much memory is isolated at a time, bytes.
    pub fn add(&mut self, way: Way) -> Result<u64, IsolateError> {
        match way {
            Way::Offline => Ok(self.offline.insert(Offline::new(&self.roots, OFFLINE_LIMIT)?).block_size()),
            Way::Touch => Touch::new(&self.roots).map(|touch| {
                self.touch = Some(touch);
                HUGE_PAGE
            }),
        }
    }

    /// Memory has come or gone, or others have returned what they had isolated.
    pub fn memory_changed(&mut self) {
        if let Some(offline) = &mut self.offline {
            offline.look_again();
        }
    }

    /// Puts back everything that is written down, also what a predecessor left. **No report of it may be on its way to
    /// a host any more.**
    pub fn put_back(&mut self) -> Result<(), StillTaken> {
        put_back(&mut self.ledger, &self.roots)
    }
}

impl Isolator for KernelIsolator {
    fn isolate(&mut self, way: Way, wanted: &[AddrRange]) -> Result<Vec<AddrRange>, IsolateError> {
        match (way, &mut self.offline, &mut self.touch) {
            (Way::Offline, Some(offline), _) => offline.take(wanted, &mut self.ledger),
            (Way::Touch, _, Some(touch)) => touch.take(wanted, &mut self.ledger),
            _ => Err(IsolateError::Unsupported(format!("{way} was not made ready"))),
        }
    }

    fn check(&mut self, reported: &[AddrRange]) -> Result<(), IsolateError> {
        match (&mut self.offline, &self.touch) {
            (Some(offline), _) if offline.held() > 0 => offline.check(reported),
            (_, Some(touch)) => touch.check(reported),
            _ => check_held(reported, Vec::new()),
        }
    }

    fn release(&mut self) -> Result<(), IsolateError> {
        self.offline.as_mut().map_or(Ok(()), |offline| offline.give_back(&mut self.ledger))?;
        self.touch.as_mut().map_or(Ok(()), |touch| touch.give_back(&mut self.ledger, &self.roots))
    }

    // Of memory blocks there is never more isolated than what is reported: they are returned batch by batch.
    fn acked(&mut self) {
        self.touch.iter_mut().for_each(Touch::acked);
    }

    fn release_answered(&mut self) {
        self.touch.iter_mut().for_each(Touch::release_answered);
    }

    fn isolated(&self) -> u64 {
        self.offline.as_ref().map_or(0, Offline::held) + self.touch.as_ref().map_or(0, Touch::held)
    }
}
