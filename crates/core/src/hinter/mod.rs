//! Free page hinting: which free memory to report, when, and how much of it at a time.
//!
//! The memory is looked at in blocks of 2 MiB. The [`BlockMap`] keeps a bit for each: set when the block becomes free,
//! cleared when the host has dropped it; a block is not reported again until it was used in between. Once enough bits
//! are set a pass begins. It takes a few blocks at a time away from the allocator (isolates them), reports them, waits
//! for the acknowledgement and returns them.
//!
//! [`Passes`] decides that and does nothing itself: it hands out [`Command`]s and gets what became of them in
//! [`Event`]s. The [`Driver`] carries them out on a [`Guest`]: it decides which [`Way`] of isolating is used, looks at
//! samples of free memory, and returns memory for the sake of others. A guest is the kernel's own means and a
//! connection to a host, or a simulated allocator; time is the guest's.
//!
//! What always holds, whatever the world does (tests/hinter.rs):
//! * a reported block stays isolated until it was acknowledged or the report is known to be void, never less because
//!   time passed;
//! * no more blocks are on their way, and no more isolated, than the [`Config`] says;
//! * no block is isolated if free memory would fall below the reserve by it;
//! * whatever was isolated is returned, also after a stop, pressure, lost and repeated answers.

mod bitmap;
mod block;
mod block_map;
mod budget;
mod calm;
mod command;
mod compaction;
mod config;
mod driver;
mod guest;
mod memory_area;
mod passes;
mod refresh;
mod sampler;
mod stats;
mod way;
mod ways;

pub use bitmap::Bitmap;
pub use block::{BLOCK_BYTES, Block, joined};
pub use block_map::BlockMap;
pub use command::{Command, Event, Fate, Isolation};
pub use compaction::CompactionStats;
pub use config::Config;
pub use driver::{Driver, Settings};
pub use guest::{FreeMemory, Guest, IsolateError, Isolator};
pub use memory_area::{MemoryArea, MemoryKind};
pub use passes::Passes;
pub use stats::{HintStats, Rest};
pub use way::Way;
