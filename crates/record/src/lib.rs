//! Records: what a monitor found, kept in files.
//!
//! * [`Writer`] and [`Reader`]: Isotherm's own format (`.iso`), append-only, compressed, checksummed. Its bytes are
//!   described in `docs/format.md`.
//! * [`Record`]: a whole record in memory, for views; loads every supported format.
//!
//! Everything read is treated as hostile: lengths never lead to allocations beyond the documented limits, damage is told
//! as a [`Warning`], and what lies before the damage is handed out.
#![forbid(unsafe_code)]

mod error;
mod format;
mod reader;
mod record;
mod rotation;
mod writer;

pub use error::{ReadError, Warning, WriteError};
pub use reader::Reader;
pub use record::{LoadOptions, MappingsAt, Record, TargetEnded};
pub use rotation::{Rotation, part_path, parts};
pub use writer::{Options, Summary, Writer};
