//! From bytes as they come to messages.

use super::auth::Seal;
use super::error::DecodeError;
use super::frame::{self, MAGIC, MOST_FRAME};
use super::limits::{MOST_DAMAGED, MOST_SKIPPED};
use super::message::{ERROR, Message};
use std::io::{self, Read};

/// Takes bytes, hands out messages. Holds one frame of the greatest length at most, whatever comes.
///
/// It begins by searching: bytes that belong to no whole frame are passed over, up to [`MOST_SKIPPED`] in a search.
/// Once the greeting is over its user calls [`strict`](Self::strict); from then on anything but a frame is an error,
/// after which nothing more is handed out.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    strict: bool,
    seal: Option<Seal>,
    skipped: usize,
    damaged: usize,
    failed: Option<DecodeError>,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// From here on nothing but frames may come.
    pub const fn strict(&mut self) {
        self.strict = true;
    }

    /// From here on every frame must have its seal. Until the first has come, the other side may also refuse without one
    /// ([`Message::Error`]), as it may not know the key.
    pub fn expect_seals(&mut self, seal: Seal) {
        self.strict = true;
        self.seal = Some(seal);
    }

    /// Whether a sealed frame has come: the other side has the key.
    pub fn is_sealed(&self) -> bool {
        self.seal.as_ref().is_some_and(Seal::has_begun)
    }

    /// Searches again, after an error too; what has come and was not handed out is searched as well.
    pub fn search(&mut self) {
        self.strict = false;
        (self.skipped, self.damaged) = (0, 0);
        self.failed = None;
    }

    /// Whether half a frame waits for its other half.
    pub(crate) fn is_midway(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Says that no byte has come for a while. In a search, what looks like the beginning of a frame is then taken for
    /// a remainder of something lost, and what came after it is looked at: call [`message`](Self::message) again.
    pub fn stalled(&mut self) {
        if !self.strict && !self.buffer.is_empty() {
            let garbage = garbage(&self.buffer);
            self.skipped += garbage;
            self.buffer.drain(..garbage);
        }
    }

    /// How many bytes it takes now; 0 only while a message waits to be handed out.
    pub fn room(&self) -> usize {
        MOST_FRAME - self.buffer.len()
    }

    /// Takes the first of `bytes` and tells how many it took.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.buffer.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Reads once, as much as there is room for; 0 at the end of the stream, or without room.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<usize> {
        let (len, room) = (self.buffer.len(), self.room());
        // Made ready at once, and never moved: a few KiB a connection.
        self.buffer.resize(len + room, 0);
        let result = from.read(&mut self.buffer[len..]);
        self.buffer.truncate(len + result.as_ref().map_or(0, |n| (*n).min(room)));
        result
    }

    /// The next message; `None` until more bytes come.
    pub fn message(&mut self) -> Result<Option<Message>, DecodeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut at = 0;
        let result = loop {
            let rest = &self.buffer[at..];
            let refusal = (!self.is_sealed()).then_some(ERROR);
            let found = frame::split(rest, self.seal.as_ref(), refusal).and_then(|frame| match frame {
                Some(frame) => Message::decode(frame.kind, frame.payload).map(|message| Some((message, frame))),
                None => Ok(None),
            });
            match found {
                Ok(Some((message, frame))) => {
                    at += frame.len;
                    if let Some(seal) = self.seal.as_mut().filter(|_| frame.sealed) {
                        seal.advance();
                    }
                    break Ok(Some(message));
                }
                Ok(None) => break Ok(None),
                Err(error) if self.strict => break Err(error),
                Err(error) => {
                    self.damaged += usize::from(error.is_of_whole_frame());
                    let garbage = garbage(rest);
                    at += garbage;
                    self.skipped += garbage;
                    if self.skipped > MOST_SKIPPED {
                        break Err(DecodeError::Garbage);
                    }
                    if self.damaged >= MOST_DAMAGED {
                        break Err(DecodeError::Damaged);
                    }
                }
            }
        };
        // At once, not at every byte passed over: that would move all the rest each time.
        self.buffer.drain(..at);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }
}

/// How many bytes to pass over, at least one: up to where the next frame may begin.
fn garbage(bytes: &[u8]) -> usize {
    let may_begin = |at: &usize| {
        let some = MAGIC.len().min(bytes.len() - at);
        bytes[*at..*at + some] == MAGIC[..some]
    };
    (1..bytes.len()).find(may_begin).unwrap_or(bytes.len())
}
