//! How much a message, a frame and the search for one may hold.

/// Ranges in a report, at most.
pub(crate) const MOST_RANGES: usize = 1024;
/// Areas of a memory map, at most.
pub(crate) const MOST_AREAS: usize = 512;
/// Bytes of a key, at least and at most.
pub(crate) const LEAST_KEY: usize = 16;
pub(crate) const MOST_KEY: usize = 64;
/// Bytes of a text, at most.
pub(crate) const MOST_TEXT: usize = 200;
/// Bytes of a payload, at most.
pub(crate) const MOST_PAYLOAD: usize = 20 << 10;
/// Bytes of garbage that a search passes over, at most, also with messages in between.
pub(crate) const MOST_SKIPPED: usize = 1 << 20;
/// Frames in that garbage that have a good header and are damaged, at most. The header of such a frame can be repeated
/// within it, and each has all of the rest checked.
pub(crate) const MOST_DAMAGED: usize = 64;
