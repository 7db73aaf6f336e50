//! Records: what a monitor found, kept in files.
//!
//! * [`Writer`] and [`Reader`]: Isotherm's own format (`.iso`), append-only, compressed, checksummed. Its bytes are
//!   described in `docs/format.md`.
//! * [`read_events()`]: the events of a record of every supported format, which is recognized by its content.
//! * [`exporter`]: writes records for other tools.
//! * [`parquet`]: what a machine sees of its control groups, window by window, for the analysis of many machines.
//! * [`Record`]: a whole record in memory; loads every supported format.
//!
//! Everything read is treated as hostile: lengths never lead to allocations beyond the documented limits, damage is
//! reported as a [`Warning`], and what lies before the damage is handed out.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_possible_wrap))]

mod detect;
mod error;
mod export;
mod format;
pub mod fuzz;
mod import;
mod input;
mod kind;
mod names;
pub mod parquet;
mod read_events;
mod reader;
mod record;
mod rotation;
mod spool;
mod trace_line;
mod writer;

pub use error::{ReadError, Warning, WriteError};
pub use export::{Export, exporter};
pub use input::{Input, Sink};
pub use kind::Format;
pub use read_events::{Outcome, read_events};
pub use reader::Reader;
pub use record::Record;
pub use rotation::{Rotation, missing_parts, parts};
pub use trace_line::TraceLine;
pub use writer::{Options, Summary, Writer};
