//! Who it is that calls, where the connection itself does not tell (TCP): both sides prove that they know a key, which
//! never crosses the wire, and every frame after that carries a code that nobody makes without it.
//!
//! ```text
//! guest                                        host
//!                  <-- Challenge(H)            H, G: 16 random bytes, others in each connection
//! Response(G, proof) -->                       proof: the first 16 bytes of K("guest proves")
//!                  <-- Greet                   this and all that follows in sealed frames
//! Hello -->
//! ```
//!
//! K(label) is HMAC-SHA-256 with the shared key over the label, a zero byte, the protocol's version (u16), H and G. The
//! guest seals with K("guest sends"), the host with K("host sends"). A seal is the first 16 bytes of HMAC-SHA-256 with
//! that key over the frame's number (u64, from 0 in each direction), its header and its payload. So a frame that was
//! changed, left out, sent again, put elsewhere, recorded in another connection or sent back where it came from is
//! noticed, and ends the connection. Nothing is hidden: whoever sees the traffic reads it, and can try keys that are
//! easy to guess.

use super::VERSION;
use super::limits::{LEAST_KEY, MOST_KEY};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// Bytes of a nonce.
pub const NONCE: usize = 16;
/// Bytes of a proof and of a seal.
pub const TAG: usize = 16;

/// Random bytes that are never used again.
pub type Nonce = [u8; NONCE];
/// What only one who knows the key can make.
pub type Tag = [u8; TAG];

/// A secret that a guest and its host share. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

/// Bytes that are no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key has {LEAST_KEY} to {MOST_KEY} bytes, this one {0}")]
pub struct KeyError(usize);

impl Key {
    /// A key of these bytes, 16 to 64.
    pub fn new(bytes: Vec<u8>) -> Result<Self, KeyError> {
        if (LEAST_KEY..=MOST_KEY).contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(KeyError(bytes.len())) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// What both sides of one connection have contributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// From the [`Challenge`](super::Message::Challenge).
    pub host: Nonce,
    /// From the [`Response`](super::Message::Response).
    pub guest: Nonce,
}

impl Exchange {
    /// What shows the host that the guest knows the key.
    pub fn proof(&self, key: &Key) -> Tag {
        truncated(self.keyed(key, b"guest proves"))
    }

    /// Whether it does. Takes the same time wherever a wrong proof differs.
    pub fn proves(&self, key: &Key, proof: &Tag) -> bool {
        self.keyed(key, b"guest proves").verify_truncated_left(proof).is_ok()
    }

    /// Seals what the guest sends.
    pub fn of_guest(&self, key: &Key) -> Seal {
        Seal::new(self.keyed(key, b"guest sends"))
    }

    /// Seals what the host sends.
    pub fn of_host(&self, key: &Key) -> Seal {
        Seal::new(self.keyed(key, b"host sends"))
    }

    fn keyed(&self, key: &Key, label: &[u8]) -> Hmac<Sha256> {
        let mut mac = hmac(&key.0);
        for part in [label, &[0], &VERSION.to_le_bytes(), &self.host, &self.guest] {
            mac.update(part);
        }
        mac
    }
}

/// The seals of one direction of a connection, one after the other.
#[derive(Clone)]
pub struct Seal {
    keyed: Hmac<Sha256>,
    /// Of the next frame.
    number: u64,
}

impl Seal {
    fn new(derived: Hmac<Sha256>) -> Self {
        Self { keyed: hmac(&derived.finalize().into_bytes()), number: 0 }
    }

    /// The seal of the next frame, which this is then done with.
    pub(super) fn make(&mut self, frame: &[u8]) -> Tag {
        let tag = truncated(self.over(frame));
        self.number += 1;
        tag
    }

    /// Whether `tag` is the seal of the next frame. Takes the same time wherever a wrong one differs.
    pub(super) fn fits(&self, frame: &[u8], tag: &[u8]) -> bool {
        // A shorter one would be easier to guess.
        tag.len() == TAG && self.over(frame).verify_truncated_left(tag).is_ok()
    }

    /// The next frame was taken.
    pub(super) const fn advance(&mut self) {
        self.number += 1;
    }

    /// Whether any frame was.
    pub(super) const fn has_begun(&self) -> bool {
        self.number > 0
    }

    fn over(&self, frame: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        mac.update(&self.number.to_le_bytes());
        mac.update(frame);
        mac
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("number", &self.number).finish_non_exhaustive()
    }
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    match Hmac::new_from_slice(key) {
        Ok(mac) => mac,
        // HMAC takes keys of any length.
        Err(_) => unreachable!("a key of {} bytes", key.len()),
    }
}

fn truncated(mac: Hmac<Sha256>) -> Tag {
    let mut tag = [0; TAG];
    tag.copy_from_slice(&mac.finalize().into_bytes()[..TAG]);
    tag
}

#[cfg(test)]
mod tests;
