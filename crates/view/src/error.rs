//! Why a report could not be made.

use std::io;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// Writing the report failed.
    #[error("cannot write the report")]
    Write(#[source] io::Error),
    /// Reading the events failed; the reader's text says it all.
    #[error("{0}")]
    Read(Box<dyn std::error::Error + Send + Sync>),
    /// There is nothing to show.
    #[error(
        "the record holds no snapshot: the recording ended before its first aggregation interval did; record for longer"
    )]
    NoSnapshot,
    /// A file that is not what `isotherm schemes --stats` writes.
    #[error("line {line} is not a line of scheme statistics (isotherm schemes --stats): {why}")]
    BadStatistics {
        /// Line, from 1.
        line: usize,
        why: String,
    },
    /// Statistics without a line.
    #[error("there is no scheme in it: the run ended before its first line was written")]
    NoStatistics,
    /// A target that the record does not have.
    #[error("the record has no target {target}; it has {}", list(.have))]
    NoTarget {
        /// What was asked for.
        target: u32,
        have: Vec<u32>,
    },
    /// A range that holds nothing to show.
    #[error("{}nothing was recorded in the {what} asked for; {have}", of(.target.as_deref()))]
    EmptyRange {
        /// Whose range it is, for people; `None`: there is nothing of any target.
        target: Option<String>,
        /// `time range` or `address range`.
        what: &'static str,
        /// What there is instead, for example `the record holds 0 to 2.00 s`.
        have: String,
    },
    /// A target whose snapshots hold no memory at all.
    #[error("{target}: no memory of it was recorded: all of its snapshots are empty")]
    NoMemory {
        /// For people.
        target: String,
    },
    /// A picture could not be encoded.
    #[error("cannot encode the picture: {0}")]
    Encode(String),
}

impl ViewError {
    /// Whether one target alone has nothing to show, so that others may.
    pub const fn is_of_one_target(&self) -> bool {
        matches!(self, Self::EmptyRange { target: Some(_), .. } | Self::NoMemory { .. })
    }
}

fn of(target: Option<&str>) -> String {
    target.map_or_else(String::new, |target| format!("{target}: "))
}

impl From<io::Error> for ViewError {
    fn from(e: io::Error) -> Self {
        Self::Write(e)
    }
}

impl From<serde_json::Error> for ViewError {
    fn from(e: serde_json::Error) -> Self {
        Self::Write(e.into())
    }
}

fn list(targets: &[u32]) -> String {
    match targets {
        [] => "none".to_owned(),
        _ => targets.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}
