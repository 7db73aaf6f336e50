//! How many connections may be there that have not greeted yet.
//!
//! Once a guest is welcome its connection does not count here: there is one for each guest, as a newer one replaces it.

use super::door::Peer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of all peers at one door.
const MOST: usize = 256;
/// Of one peer.
const MOST_OF_PEER: usize = 32;

/// Why a connection is closed at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error(
        "{0} has {MOST_OF_PEER} connections on which no guest has greeted; more of them are closed at once: find what opens them there"
    )]
    Peer(Peer),
    #[error(
        "{MOST} connections are there on which no guest has greeted, the last from {0}; more of them are closed at once: let fewer machines reach this port"
    )]
    All(Peer),
}

/// The connections at one door on which nobody has greeted.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<BTreeMap<Peer, usize>>);

impl Pending {
    pub(super) fn take(self: &Arc<Self>, peer: Peer) -> Result<PendingSlot, Full> {
        let mut taken = self.taken();
        if taken.get(&peer).is_some_and(|of_peer| *of_peer >= MOST_OF_PEER) {
            return Err(Full::Peer(peer));
        }
        if taken.values().sum::<usize>() >= MOST {
            return Err(Full::All(peer));
        }
        *taken.entry(peer).or_default() += 1;
        Ok(PendingSlot { pending: Arc::clone(self), peer })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<Peer, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that counts; it counts no longer when this is dropped.
#[derive(Debug)]
pub(super) struct PendingSlot {
    pending: Arc<Pending>,
    peer: Peer,
}

impl Drop for PendingSlot {
    fn drop(&mut self) {
        let mut taken = self.pending.taken();
        if let Some(of_peer) = taken.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peer_takes_all_places() {
        let pending = Arc::new(Pending::default());
        let mut held: Vec<PendingSlot> = (0..MOST_OF_PEER).map(|_| pending.take(Peer::User(0)).unwrap()).collect();
        assert_eq!(pending.take(Peer::User(0)).unwrap_err(), Full::Peer(Peer::User(0)));
        for uid in 1..(MOST / MOST_OF_PEER) as u32 {
            held.extend((0..MOST_OF_PEER).map(|_| pending.take(Peer::User(uid)).unwrap()));
        }
        assert_eq!(pending.take(Peer::Cid(3)).unwrap_err(), Full::All(Peer::Cid(3)));
        held.pop();
        let last = pending.take(Peer::Cid(3)).unwrap();
        assert!(pending.take(Peer::User(1)).is_err());
        drop((held, last));
        assert!(pending.taken().is_empty());
    }
}
