//! What can be wrong with a trace.

use super::{MOST_PAGES, MOST_REQUESTS};
use isotherm_record::ReadError;
use std::io;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("cannot read {origin}: {error}")]
    Io {
        origin: String,
        /// What the system says.
        error: io::Error,
    },
    /// Compressed data that does not unpack.
    #[error("cannot unpack {origin} (zstd): {why}")]
    Packed { origin: String, why: String },
    /// Nobody knows what it is.
    #[error("{origin} is no trace of a known kind: {why}")]
    Unknown {
        origin: String,
        /// What it looks like.
        why: String,
    },
    /// A line of text is wrong.
    #[error("{origin}, line {line}: {why}")]
    Line {
        origin: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong, and what was expected.
        why: String,
    },
    /// A binary record is wrong.
    #[error("{origin}, byte {offset}: {why}")]
    Byte {
        origin: String,
        /// Where, after unpacking.
        offset: u64,
        why: String,
    },
    /// Isotherm's reader of records refuses it.
    #[error(transparent)]
    Record(#[from] ReadError),
    /// A record whose pages cannot all have different names.
    #[error(
        "{origin}, snapshot {snapshot}: pages of {targets} targets cannot be told apart at addresses as high as here; \
         end before it with --limit"
    )]
    TooManyTargets {
        origin: String,
        /// Where it becomes so, from 1.
        snapshot: u64,
        /// Targets up to there.
        targets: usize,
    },
    /// More different pages than can be held.
    #[error("the trace names more than {MOST_PAGES} different pages; take a part of them with --sample-rate")]
    TooManyPages,
    /// More requests than can be held.
    #[error("more than {MOST_REQUESTS} requests are to be kept; take a part with --sample-rate or --limit")]
    TooManyRequests,
    /// A generator's description is wrong.
    #[error("'{spec}' describes no trace: {why}")]
    Spec {
        spec: String,
        /// What is wrong, and what was expected.
        why: String,
    },
}
