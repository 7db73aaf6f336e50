//! Page replacement policies: which page leaves when there is no room for another.
//!
//! All work on pages numbered densely from 0, so that what they know of a page lies in flat tables and an access
//! neither hashes nor allocates. A page that is asked for always comes in (no policy here bypasses the cache), and
//! `size` pages fit. Each is checked request by request against a slow model that follows its definition word by word.
//! Linux's own policies are in [`kernel_lru`]; they work in batches, on page tables, and look at how a page is reached.

pub mod arc;
pub mod clock;
pub mod fifo;
pub mod kernel_lru;
pub mod links;
pub mod lirs;
pub mod lru;
pub mod opt;
pub mod s3fifo;
pub mod sieve;
pub mod two_q;
pub mod wtinylfu;

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;

use kernel_lru::Variant;
use serde::Serialize;

/// What a policy did besides missing. `None`: it does no such thing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Pages looked at in search of one to evict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_scanned: Option<u64>,
    /// Entries of page tables read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptes_read: Option<u64>,
    /// Pages looked up in page tables one by one, by reclaim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmap_walks: Option<u64>,
    /// Page tables that were passed over, because nothing in them was accessed or was likely to have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables_skipped: Option<u64>,
    /// Pages moved within or between lists, on hits and in search of one to evict; coming in and going out not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_moves: Option<u64>,
    /// Generations created, or times that the active list was shrunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agings: Option<u64>,
}

/// A policy that decides request by request.
pub(crate) trait Policy {
    /// A request for `page`; whether it was there. `page` must be below the number of pages that the policy was made
    /// for.
    fn access(&mut self, page: u32) -> bool;

    /// Reads what the next requests will need, so that the processor fetches all of it at once instead of one after the
    /// other. Changes nothing; the result only keeps the compiler from leaving it out.
    fn warm(&self, pages: &[u32]) -> u32 {
        _ = pages;
        0
    }

    /// Pages that are there.
    fn resident(&self) -> u64;

    /// What it did so far.
    fn work(&self) -> Work;
}

/// A policy by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyName {
    /// Least recently used goes first.
    Lru,
    /// First in, first out.
    Fifo,
    /// FIFO with a second chance for what was used since.
    Clock,
    /// A FIFO for newcomers, a ghost list, and an LRU for what comes again.
    TwoQ,
    Arc,
    /// Low inter-reference recency set.
    Lirs,
    /// Three static FIFO queues.
    S3Fifo,
    /// FIFO whose hand stays where it evicted.
    Sieve,
    /// A small LRU in front of a segmented one, with admission by frequency.
    WTinyLfu,
    /// Linux's active and inactive lists with refault distances.
    Classic,
    /// Linux's multi-generational LRU, as in these kernels.
    MgLru(Variant),
    /// Belady's optimum without bypass: what is needed last goes first. Knows the future.
    Opt,
}

impl PolicyName {
    pub const ALL: [Self; 13] = [
        Self::Lru,
        Self::Fifo,
        Self::Clock,
        Self::TwoQ,
        Self::Arc,
        Self::Lirs,
        Self::S3Fifo,
        Self::Sieve,
        Self::WTinyLfu,
        Self::Classic,
        Self::MgLru(Variant::V6_14),
        Self::MgLru(Variant::V6_12),
        Self::Opt,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::TwoQ => "2q",
            Self::Arc => "arc",
            Self::Lirs => "lirs",
            Self::S3Fifo => "s3fifo",
            Self::Sieve => "sieve",
            Self::WTinyLfu => "wtinylfu",
            Self::Classic => "classic",
            Self::MgLru(Variant::V6_14) => "mglru",
            Self::MgLru(Variant::V6_12) => "mglru-6.12",
            Self::Opt => "opt",
        }
    }

    /// The policy of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// What share of `size` a part gets: rounded down, but at least one page.
const fn share(size: u32, numerator: u64, denominator: u64) -> u32 {
    let part = (size as u64 * numerator / denominator) as u32;
    if part == 0 { 1 } else { part }
}
