//! What was done, and why nothing is.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Counters, in blocks where nothing else is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintStats {
    /// Passes begun.
    pub passes: u64,
    /// Isolated.
    pub isolated: u64,
    /// Asked for and not had.
    pub not_had: u64,
    /// Given by the isolator though nothing is known of them, or given twice.
    pub odd: u64,
    /// Batches sent, without repetitions.
    pub batches: u64,
    /// Batches sent again.
    pub resent: u64,
    /// Reported.
    pub reported: u64,
    /// Dropped by the host.
    pub dropped: u64,
    /// Refused by the host.
    pub refused: u64,
    /// Put off by the host.
    pub put_off: u64,
    /// On their way when that became void.
    pub void: u64,
    /// Answers to no batch on its way, or of the wrong length.
    pub odd_acks: u64,
    /// Returned.
    pub released: u64,
    /// Times that memory was needed by somebody else.
    pub pressures: u64,
}

/// Why nothing is done at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Too little became free since the last pass.
    NothingNew,
    /// Free memory is down to the reserve, or to what the way in use must leave.
    Reserve,
    /// Nobody to report to.
    NoHost,
    /// A report is on its way.
    NoAnswer,
    /// The host asked to be left alone.
    PutOff,
    /// Somebody needed memory lately.
    Pressure,
    /// A pass was made just now.
    Gap,
    /// The guest is busy, and the agent has taken what it may of its processors.
    Budget,
    /// The isolator or the returning of blocks is at work.
    Busy,
    /// Asked to stop.
    Stopped,
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingNew => "too little memory became free since the last pass",
            Self::Reserve => "the rest of free memory is left to programs",
            Self::NoHost => "no host to report to",
            Self::NoAnswer => "a report waits for the host's answer",
            Self::PutOff => "the host asked for a pause",
            Self::Pressure => "somebody needed memory lately",
            Self::Budget => "the guest is busy, and has lost as much CPU time to this as it may",
            Self::Gap => "a pass was made just now",
            Self::Busy => "blocks are being isolated or returned",
            Self::Stopped => "asked to stop",
        })
    }
}
