//! What can be wrong with bytes, and with messages to be sent.

use super::limits::{MOST_DAMAGED, MOST_PAYLOAD, MOST_SKIPPED};

/// Bytes that are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No frame begins here.
    #[error("no frame begins where one should")]
    Magic,
    /// The frame's form is one of the future, or has no place here.
    #[error("a frame of form {0}, which has no place here")]
    Form(u8),
    /// A frame without seal where there must be one.
    #[error("a frame came without seal: it is from somebody without the key")]
    Unsealed,
    /// The seal is wrong.
    #[error(
        "the seal of a frame is wrong: it was changed on its way, left out, sent again, or comes from somebody without the key"
    )]
    Forged,
    /// The header's check is wrong.
    #[error("the header of a frame is damaged")]
    Header,
    /// A length beyond the limit.
    #[error("a frame of {0} bytes; {MOST_PAYLOAD} are allowed")]
    TooLong(u32),
    /// The checksum is wrong.
    #[error("a frame is damaged: its checksum does not match")]
    Checksum,
    /// A kind that does not exist.
    #[error("messages of kind {0} are unknown")]
    Kind(u8),
    /// The payload is shorter than what it claims to hold.
    #[error("a message of kind {0} ends early")]
    Short(u8),
    /// The payload is longer than what it holds.
    #[error("a message of kind {0} has {1} bytes too many")]
    Long(u8, usize),
    /// A value that makes no sense.
    #[error("{0}")]
    Value(&'static str),
    /// Garbage without end instead of a greeting.
    #[error("{MOST_SKIPPED} bytes came that are no message")]
    Garbage,
    /// Damaged frames without end instead of a greeting.
    #[error("{MOST_DAMAGED} frames came that are damaged")]
    Damaged,
}

impl DecodeError {
    /// Whether it took the checksum of a whole frame to find it.
    pub(super) const fn is_of_whole_frame(&self) -> bool {
        !matches!(self, Self::Magic | Self::Form(_) | Self::Unsealed | Self::Header | Self::TooLong(_))
    }

    /// Whether it shows that what came is not from one who has the key.
    pub const fn is_forgery(&self) -> bool {
        matches!(self, Self::Unsealed | Self::Forged)
    }
}

/// A message that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More of something than the other side would take.
    #[error("{count} {what} in a message; at most {most} can be sent")]
    TooMany {
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// A value that the other side would refuse.
    #[error("{0}")]
    Value(&'static str),
}
