//! The messages.

use super::VERSION;
use super::auth::{Nonce, Seal, Tag};
use super::error::{DecodeError, EncodeError};
use super::frame;
use super::limits::{MOST_AREAS, MOST_KEY, MOST_RANGES};
use super::wire::{Reader, Writer};
use isotherm_core::addr::{AddrRange, is_sorted_disjoint};
use isotherm_core::hinter::{MemoryArea, MemoryKind};

/// How a guest introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`] of the sender.
    pub version: u16,
    /// A random number, another one at each start and after each change of the memory map. Repetitions of a `Hello`
    /// keep it.
    pub session: u64,
    /// Who it is, for people: its machine-id, say. Proves nothing.
    pub guest_id: [u8; 16],
    /// Size of a page, bytes.
    pub page_size: u32,
    /// Ranges that it reports begin and end at multiples of this, bytes; a power of two, at least `page_size`.
    pub block_size: u64,
    /// Its memory, by address, without overlaps.
    pub memory: Vec<MemoryArea>,
    /// Program, version and kernel, for people.
    pub agent: String,
}

/// What a host allows a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Ranges in a report, at most; 1 to [`MOST_RANGES`].
    pub ranges: u16,
    /// Batches on their way at a time, at most; 1 or more.
    pub batches: u16,
    /// Bytes a second that the host drops, on average; more of them wait ([`Verdict::NotNow`]). 0: as many as come.
    pub bytes_per_second: u64,
}

/// How a guest is doing, for people who look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestStat {
    /// Free memory, bytes.
    pub free: u64,
    /// Isolated now, bytes.
    pub isolated: u64,
    /// Reported and acknowledged since the agent's start, bytes.
    pub reported: u64,
    /// Passes since the agent's start.
    pub passes: u64,
    /// CPU time that the agent took since its start, us.
    pub cpu_us: u64,
}

/// What became of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The host has its memory back.
    Dropped,
    /// It does not begin and end at blocks of the size named in the `Hello`.
    Misaligned,
    /// It is not in the guest's memory.
    Outside,
    /// It overlaps one before it in the same batch.
    Overlapping,
    /// The host tried and failed.
    Failed,
    /// Too much at a time; it may be reported again after the time named in the `Ack`.
    NotNow,
}

impl Verdict {
    /// All of them; their places are their codes.
    pub const ALL: [Self; 6] =
        [Self::Dropped, Self::Misaligned, Self::Outside, Self::Overlapping, Self::Failed, Self::NotNow];
}

/// Why a host closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// Bytes came that are no message, or a message that has no place there.
    Malformed,
    /// The host does not speak the guest's version.
    Version,
    /// The memory map does not match the memory that the host knows of.
    Memory,
    /// No guest has this key, or the connection belongs to no guest that the host knows.
    Denied,
    /// Too many bad ranges or messages.
    Abuse,
    /// The host cannot do it for another reason.
    Failed,
}

impl ErrorCode {
    /// All of them; their places are their codes.
    pub const ALL: [Self; 6] = [Self::Malformed, Self::Version, Self::Memory, Self::Denied, Self::Abuse, Self::Failed];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Host: here I am; say hello.
    Greet {
        /// [`VERSION`] of the sender.
        version: u16,
        /// A random number, another one at each start of the host and for each connection.
        host: u64,
    },
    /// Guest: who I am.
    Hello(Hello),
    /// Host: go ahead.
    Welcome {
        /// That of the `Hello`.
        session: u64,
        /// To be repeated in every report; random, never the same again.
        token: u64,
        limits: Limits,
    },
    /// Guest: these ranges are free and isolated.
    Report {
        /// From the `Welcome`.
        token: u64,
        /// Its number, growing from 1 with each new batch of the session; the same for the same batch sent again.
        batch: u64,
        /// Guest-physical addresses, at least one range.
        ranges: Vec<AddrRange>,
    },
    /// Host: this is what I did.
    Ack {
        token: u64,
        batch: u64,
        /// How long not to send another report, ms.
        wait_ms: u32,
        /// One for each range, in their order.
        verdicts: Vec<Verdict>,
    },
    /// Either: are you there?
    Ping(u64),
    /// The answer, with the same number.
    Pong(u64),
    /// Guest: how I am doing.
    Stat(GuestStat),
    /// Either: I go. Nothing more comes.
    Bye(String),
    /// Host: I close this connection.
    Error {
        /// Why.
        code: ErrorCode,
        /// The same in words.
        text: String,
    },
    /// Host, where guests call that have a [key](super::auth): prove that you know it.
    Challenge {
        /// [`VERSION`] of the sender.
        version: u16,
        nonce: Nonce,
    },
    /// Guest: I do.
    Response {
        /// [`VERSION`] of the sender.
        version: u16,
        nonce: Nonce,
        proof: Tag,
    },
}

const GREET: u8 = 1;
const HELLO: u8 = 2;
const WELCOME: u8 = 3;
const REPORT: u8 = 4;
const ACK: u8 = 5;
const PING: u8 = 6;
const PONG: u8 = 7;
const STAT: u8 = 8;
const BYE: u8 = 9;
pub(super) const ERROR: u8 = 10;
const CHALLENGE: u8 = 11;
const RESPONSE: u8 = 12;

impl Message {
    /// The plain frame that carries it.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.frame(None)
    }

    /// The frame that carries it, with the next of these seals if there are any; none is used where this fails.
    pub fn frame(&self, seal: Option<&mut Seal>) -> Result<Vec<u8>, EncodeError> {
        let mut w = Writer::default();
        let kind = match self {
            Self::Greet { version, host } => {
                w.u16(*version);
                w.u64(*host);
                GREET
            }
            Self::Hello(hello) => {
                hello.write(&mut w)?;
                HELLO
            }
            Self::Welcome { session, token, limits } => {
                w.u64(*session);
                w.u64(*token);
                limits.write(&mut w)?;
                WELCOME
            }
            Self::Report { token, batch, ranges } => {
                if ranges.is_empty() {
                    return Err(EncodeError::Value("a report without ranges"));
                }
                w.u64(*token);
                w.u64(*batch);
                w.count("ranges", ranges.len(), MOST_RANGES)?;
                ranges.iter().try_for_each(|range| w.range(range))?;
                REPORT
            }
            Self::Ack { token, batch, wait_ms, verdicts } => {
                w.u64(*token);
                w.u64(*batch);
                w.u32(*wait_ms);
                w.count("verdicts", verdicts.len(), MOST_RANGES)?;
                verdicts.iter().for_each(|verdict| w.u8(code(&Verdict::ALL, verdict)));
                ACK
            }
            Self::Ping(number) => {
                w.u64(*number);
                PING
            }
            Self::Pong(number) => {
                w.u64(*number);
                PONG
            }
            Self::Stat(stat) => {
                for value in [stat.free, stat.isolated, stat.reported, stat.passes, stat.cpu_us] {
                    w.u64(value);
                }
                STAT
            }
            Self::Bye(reason) => {
                w.text(reason);
                BYE
            }
            Self::Error { code: why, text } => {
                w.u8(code(&ErrorCode::ALL, why));
                w.text(text);
                ERROR
            }
            Self::Challenge { version, nonce } => {
                w.u16(*version);
                w.bytes(nonce);
                CHALLENGE
            }
            Self::Response { version, nonce, proof } => {
                w.u16(*version);
                w.bytes(nonce);
                w.bytes(proof);
                RESPONSE
            }
        };
        Ok(frame::join(kind, &w.0, seal))
    }

    /// The message of a frame.
    pub(crate) fn decode(kind: u8, payload: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(kind, payload);
        let message = match kind {
            GREET => Self::Greet { version: r.u16()?, host: r.u64()? },
            HELLO => Self::Hello(Hello::read(&mut r)?),
            WELCOME => Self::Welcome { session: r.u64()?, token: r.u64()?, limits: Limits::read(&mut r)? },
            REPORT => {
                let (token, batch) = (r.u64()?, r.u64()?);
                let count = r.count(MOST_RANGES, "a report of too many ranges")?;
                if count == 0 {
                    return Err(DecodeError::Value("a report without ranges"));
                }
                let ranges = (0..count).map(|_| r.range()).collect::<Result<_, _>>()?;
                Self::Report { token, batch, ranges }
            }
            ACK => {
                let (token, batch, wait_ms) = (r.u64()?, r.u64()?, r.u32()?);
                let count = r.count(MOST_RANGES, "an ack of too many ranges")?;
                let verdicts = r.bytes(count)?.iter().map(|byte| of_code(&Verdict::ALL, *byte, "an unknown verdict"));
                Self::Ack { token, batch, wait_ms, verdicts: verdicts.collect::<Result<_, _>>()? }
            }
            PING => Self::Ping(r.u64()?),
            PONG => Self::Pong(r.u64()?),
            STAT => Self::Stat(GuestStat {
                free: r.u64()?,
                isolated: r.u64()?,
                reported: r.u64()?,
                passes: r.u64()?,
                cpu_us: r.u64()?,
            }),
            BYE => Self::Bye(r.text()?),
            ERROR => Self::Error { code: of_code(&ErrorCode::ALL, r.u8()?, "an unknown error code")?, text: r.text()? },
            CHALLENGE => Self::Challenge { version: r.u16()?, nonce: r.id()? },
            RESPONSE => Self::Response { version: r.u16()?, nonce: r.id()?, proof: r.id()? },
            other => return Err(DecodeError::Kind(other)),
        };
        r.end()?;
        Ok(message)
    }
}

impl Hello {
    /// Whether it makes sense in itself.
    pub fn check(&self) -> Result<(), &'static str> {
        let (page, block) = (u64::from(self.page_size), self.block_size);
        if !page.is_power_of_two() || !(512..=1 << 30).contains(&page) {
            return Err("a page size that is no power of two from 512 bytes to 1 GiB");
        }
        if !block.is_power_of_two() || block < page || block > 1 << 40 {
            return Err("a block size that is no power of two from the page size to 1 TiB");
        }
        // A list of ranges of its own costs little: there are MOST_AREAS at most.
        let ranges: Vec<AddrRange> = self.memory.iter().map(|area| area.range).collect();
        if !is_sorted_disjoint(&ranges) {
            return Err("a memory map that is not sorted or overlaps itself");
        }
        if !self.memory.iter().any(|area| area.kind == MemoryKind::Ram) {
            return Err("a memory map without memory");
        }
        Ok(())
    }

    fn write(&self, w: &mut Writer) -> Result<(), EncodeError> {
        self.check().map_err(EncodeError::Value)?;
        w.u16(self.version);
        w.u64(self.session);
        w.bytes(&self.guest_id);
        // Where version 1 had its key: who speaks that reads so far, and then tells of the versions.
        w.u16(0);
        w.u32(self.page_size);
        w.u64(self.block_size);
        w.count("areas of a memory map", self.memory.len(), MOST_AREAS)?;
        for area in &self.memory {
            w.u8(match area.kind {
                MemoryKind::Ram => 0,
                MemoryKind::Reserved => 1,
            });
            w.range(&area.range)?;
        }
        w.text(&self.agent);
        Ok(())
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (version, session, guest_id) = (r.u16()?, r.u64()?, r.id()?);
        let key_len = r.count(MOST_KEY, "a key is too long")?;
        if !r.bytes(key_len)?.is_empty() && version == VERSION {
            return Err(DecodeError::Value("a greeting with a key, which is never sent"));
        }
        let (page_size, block_size) = (r.u32()?, r.u64()?);
        let areas = r.count(MOST_AREAS, "a memory map of too many areas")?;
        let mut memory = Vec::with_capacity(areas);
        for _ in 0..areas {
            let kind = match r.u8()? {
                0 => MemoryKind::Ram,
                1 => MemoryKind::Reserved,
                _ => return Err(DecodeError::Value("an unknown kind of memory")),
            };
            memory.push(MemoryArea { range: r.range()?, kind });
        }
        let hello = Self { version, session, guest_id, page_size, block_size, memory, agent: r.text()? };
        hello.check().map_err(DecodeError::Value)?;
        Ok(hello)
    }
}

impl Limits {
    fn check(self) -> Result<Self, &'static str> {
        if self.ranges == 0 || usize::from(self.ranges) > MOST_RANGES || self.batches == 0 {
            return Err("limits that allow nothing, or more than a message holds");
        }
        Ok(self)
    }

    fn write(self, w: &mut Writer) -> Result<(), EncodeError> {
        self.check().map_err(EncodeError::Value)?;
        w.u16(self.ranges);
        w.u16(self.batches);
        w.u64(self.bytes_per_second);
        Ok(())
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let limits = Self { ranges: r.u16()?, batches: r.u16()?, bytes_per_second: r.u64()? };
        limits.check().map_err(DecodeError::Value)
    }
}

/// The place of `value` in `all`, which holds every value.
fn code<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|v| v == value).unwrap_or_default() as u8
}

fn of_code<T: Copy>(all: &[T], byte: u8, refusal: &'static str) -> Result<T, DecodeError> {
    all.get(usize::from(byte)).copied().ok_or(DecodeError::Value(refusal))
}
