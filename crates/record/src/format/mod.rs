//! Isotherm's own record format: constants and limits. `docs/format.md` describes every byte.

pub(crate) mod event;
pub(crate) mod frame;
pub(crate) mod pages;
pub(crate) mod points;
pub(crate) mod snapshot;
pub(crate) mod varint;

/// log2 of the page size: the unit of boundaries that all lie on pages.
pub(crate) const PAGE_SHIFT: u32 = 12;
/// First bytes of a record. The high bit, the line ends and the control character show transfers that change bytes.
pub(crate) const MAGIC: [u8; 8] = *b"\x89ISOT\r\n\x1a";
/// Version of the format that this code writes, and the largest it reads.
pub(crate) const VERSION: u16 = 1;
/// Bytes of the file header.
pub(crate) const HEADER_LEN: usize = 28;

/// Largest payload of a frame, stored or unpacked, in bytes.
pub(crate) const MAX_PAYLOAD: usize = 64 << 20;
/// Most regions in a snapshot; the monitor's own limit is 1,000,000.
pub(crate) const MAX_REGIONS: usize = 1 << 20;
/// Most regions that a frame may make its reader remember (last snapshot of each target).
pub(crate) const MAX_REMEMBERED: usize = 1 << 21;
/// Most mappings in an event.
pub(crate) const MAX_MAPPINGS: usize = 1 << 20;
/// Most bytes of mapping names in an event, repetitions counted.
pub(crate) const MAX_NAME_BYTES: usize = 16 << 20;
/// Most thresholds of age in an event about pages, over all its mappings: 16 of each of 262,144 mappings.
pub(crate) const MAX_THRESHOLDS: usize = 1 << 22;
/// Most page tables in an event: those of 8 TiB.
pub(crate) const MAX_TABLES: usize = 1 << 22;
