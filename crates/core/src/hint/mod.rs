//! Free page hinting: which free memory to report, when, and how much of it at a time.
//!
//! The memory is looked at in blocks of one order of pages. Each [`Zone`] keeps a bit a block: set when the block becomes free,
//! cleared when the other side has dropped it; a block is not reported again until it was used in between. Once enough bits are set a
//! pass begins. It takes a few blocks at a time away from the allocator (isolates them), reports them, waits for the acknowledgement
//! and returns them.
//!
//! [`Hinter`] decides and does nothing itself: it hands out [`Command`]s and is told what became of them in [`Event`]s. Who
//! carries them out is an [`Isolator`] and a [`Reporter`]: the kernel's own means and a connection in a guest, or a simulated
//! buddy allocator ([`drive::step`]). Time and free memory are told to it.
//!
//! What always holds, whatever the world does (tests/hint.rs):
//! * a reported block stays isolated until it was acknowledged or the report is known to be void, never less because time passed;
//! * no more blocks are on their way, and no more isolated, than the [`Config`] says;
//! * no block is isolated if free memory would fall below the reserve by it;
//! * whatever was isolated is returned, also after a stop, pressure, lost and repeated answers.

mod bitmap;
mod block;
mod command;
mod config;
pub mod drive;
mod hinter;
mod stats;
mod zone;
mod zones;

pub use bitmap::Bitmap;
pub use block::{Block, BlockSize, joined};
pub use command::{Command, Event, Fate, Isolation};
pub use config::{Choice, Config, ConfigError};
pub use drive::{Isolator, Reporter};
pub use hinter::Hinter;
pub use stats::{HintStats, Rest};
pub use zone::Zone;
pub use zones::Zones;
