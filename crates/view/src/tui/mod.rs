//! The live view: what `isotherm top` shows.
//!
//! [`state`] follows the events of a run, `refresh` draws the figures of a [`model`] from it about once a second,
//! [`screen`] puts them on a ratatui frame. Reading keys and the clock is left to the caller.

mod heat;
pub mod history;
mod machine;
pub mod model;
mod refresh;
pub mod screen;
mod selection;
pub mod state;
mod table;

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Quit,
    /// Hold the picture, or let it go on.
    Pause,
    /// The next order of the table.
    Sort,
    Up,
    Down,
    NextTarget,
    PreviousTarget,
    /// The heatmap of the chosen mapping only, or of everything again; of a chosen group what is in it.
    Zoom,
    /// Everything again, then the machine; closes the help first.
    Back,
    /// The list of keys.
    Help,
}
