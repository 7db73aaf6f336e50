//! What can go wrong with records, and what merely deserves a word.

use std::fmt;
use std::io;

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system refused.
    #[error("cannot read {origin}: {error}")]
    Io {
        /// Path, or `standard input`.
        origin: String,
        /// The system's reason.
        error: io::Error,
    },
    /// The content is of no supported format.
    #[error("{origin} is not a record: {looks_like}")]
    Foreign {
        /// Path, or `standard input`.
        origin: String,
        /// What it looks like, and what to do about it.
        looks_like: String,
    },
    /// A later version of Isotherm wrote it in a format that this version does not know.
    #[error(
        "{origin} is a record of format version {version}, this Isotherm reads up to {known}: use a newer Isotherm"
    )]
    NewerVersion {
        /// Path, or `standard input`.
        origin: String,
        /// The file's version.
        version: u16,
        /// The largest version known here.
        known: u16,
    },
    /// The content breaks the rules of its format and cannot be skipped.
    #[error("{origin}: {position}: {what}")]
    Malformed {
        /// Path, or `standard input`.
        origin: String,
        /// `line N` or `byte N`.
        position: String,
        /// What is wrong.
        what: String,
    },
    /// Whoever takes the events failed.
    #[error("{0}")]
    Sink(isotherm_core::event::SubscriberError),
}

/// Why a record could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The operating system refused: a full disk, a missing folder, no permission.
    #[error("cannot write {origin}: {error}{}", if *.written > 0 { "; what was written before is kept and readable" } else { "" })]
    Io {
        /// Path, or `standard output`.
        origin: String,
        /// Bytes of whole frames in the file.
        written: u64,
        /// The system's reason.
        error: io::Error,
    },
    /// The file that stood in the way could not be renamed.
    #[error("cannot rename the existing {from} to {to}: {error}; move it away or choose another name")]
    KeepOld {
        /// The existing file.
        from: String,
        /// Its new name.
        to: String,
        /// The system's reason.
        error: io::Error,
    },
    /// An event beyond the format's limits.
    #[error("cannot write {origin}: {what}")]
    TooLarge {
        /// Path, or `standard output`.
        origin: String,
        /// What is too large and what the limit is.
        what: String,
    },
    /// The record holds something that the format has no place for, or lacks something that the format needs.
    #[error("cannot write {origin}: {what}")]
    Unfit {
        /// Path, or `standard output`.
        origin: String,
        /// What does not fit and which format to choose.
        what: String,
    },
    /// An earlier write failed; nothing was written since.
    #[error("cannot write {origin}: an earlier write failed")]
    Failed {
        /// Path, or `standard output`.
        origin: String,
    },
}

impl WriteError {
    /// Whether whoever read the output went away (`| head`).
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Something about a record that a reader should know and that did not stop the reading.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The record ends before its end: recording was killed, is still running, or the file was cut off.
    Truncated {
        /// Length of the readable part in bytes.
        offset: u64,
    },
    /// Bytes that are no whole frame (bit errors, overwritten parts) were skipped.
    Damaged {
        /// Where they begin.
        offset: u64,
        /// How many were skipped.
        bytes: u64,
        /// What is wrong with them.
        what: String,
    },
    /// The sequence numbers tell that frames are missing.
    LostFrames {
        /// How many.
        frames: u64,
    },
    /// Events of kinds that this version does not know were skipped; a newer Isotherm wrote them.
    UnknownEvents {
        /// How many.
        count: u64,
    },
    /// Lines of a text format that hold nothing of use were skipped.
    SkippedLines {
        /// How many.
        count: u64,
        /// Number of the first.
        first: u64,
        /// What is wrong with the first.
        what: String,
    },
    /// Snapshots whose regions overlapped, were empty or not in order, or whose times went back, were put right.
    Adjusted {
        /// How many.
        snapshots: u64,
    },
    /// Regions beyond all addresses were left out, and intervals of more than 35 years taken for that.
    Impossible {
        /// Of how many snapshots.
        snapshots: u64,
    },
    /// Snapshots came later than others that began after their end: figures over time are wrong.
    OutOfOrder {
        /// How many.
        snapshots: u64,
    },
    /// Further warnings are not listed.
    More {
        /// How many.
        count: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { offset } => write!(
                f,
                "the record has no end (killed, still running, or cut off); the first {offset} bytes are whole and used"
            ),
            Self::Damaged { offset, bytes, what } => {
                write!(f, "{bytes} damaged bytes at byte {offset} were skipped: {what}")
            }
            Self::LostFrames { frames } => write!(f, "{frames} frames (about a second each) are missing"),
            Self::UnknownEvents { count } => {
                write!(f, "{count} events of an unknown kind were skipped; a newer Isotherm wrote this record")
            }
            Self::SkippedLines { count, first, what } => {
                write!(f, "{count} lines were skipped, the first is line {first}: {what}")
            }
            Self::Adjusted { snapshots } => {
                write!(f, "{snapshots} snapshots with overlapping, empty or unordered regions or times were put right")
            }
            Self::Impossible { snapshots } => write!(
                f,
                "{snapshots} snapshots have regions beyond all addresses, which were left out, or intervals of more than 35 years"
            ),
            Self::OutOfOrder { snapshots } => write!(
                f,
                "{snapshots} snapshots are not in the order of time, so figures over time are wrong; sort the record by the end of snapshots"
            ),
            Self::More { count } => write!(f, "{count} further warnings are not shown"),
        }
    }
}

/// A list of warnings that cannot grow without bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings {
    list: Vec<Warning>,
}

impl Warnings {
    /// Warnings listed one by one; the rest is counted.
    const LISTED: usize = 50;

    pub(crate) fn push(&mut self, warning: Warning) {
        if let Some(Warning::More { count }) = self.list.last_mut() {
            *count += 1;
        } else if self.list.len() == Self::LISTED {
            self.list.push(Warning::More { count: 1 });
        } else {
            self.list.push(warning);
        }
    }

    pub(crate) fn as_slice(&self) -> &[Warning] {
        &self.list
    }

    pub(crate) fn into_vec(self) -> Vec<Warning> {
        self.list
    }
}
