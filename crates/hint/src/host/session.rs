//! What a guest's messages do. No input or output, no clock: whatever comes in any order is answered or ends the
//! connection.

use super::allowance::Allowance;
use super::layout::{Layout, LayoutError};
use super::memory::{Memory, MemoryError};
use super::ranges::judge;
use crate::protocol::{
    DecodeError, ErrorCode, GuestStat, Hello, Limits, MOST_RANGES, MemoryKind, Message, VERSION, Verdict,
};
use isotherm_core::addr::{AddrRange, normalize, total_len};
use isotherm_core::units::format_size;

/// Reports with bad ranges until a connection is closed.
const MOST_STRIKES: u32 = 16;
/// Bytes of a guest's memory that may be missing in the VMM's files before it is worth a word: the firmware's corners.
const MOST_MISSING: u64 = 16 << 20;
/// Messages that are passed over until a connection is closed: some are left over from before, without end they are
/// not.
const MOST_IGNORED: u32 = 1000;
/// Reports in a row that come before the time that the host has named, until a connection is closed.
const MOST_HASTY: u32 = 64;

/// What a guest gets to read where the reason is none of its business.
const PRIVATE: &str = "the host cannot serve this guest; `isotherm hint status` there says why";

/// How a connection ends from our side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    /// Why.
    pub code: ErrorCode,
    pub why: String,
    /// Whether `why` names things of the host (paths, processes, users), which are not the guest's to know.
    private: bool,
}

impl Closing {
    pub fn new(code: ErrorCode, why: impl Into<String>) -> Self {
        Self { code, why: why.into(), private: false }
    }

    /// One whose reason the guest does not learn.
    pub(super) fn private(code: ErrorCode, why: impl Into<String>) -> Self {
        Self { code, why: why.into(), private: true }
    }

    /// What the guest gets to read.
    pub(super) fn for_guest(&self) -> &str {
        if self.private { PRIVATE } else { &self.why }
    }

    /// What a guest speaks is not what is spoken here.
    pub(super) fn other_version(guest: u16) -> Self {
        let why = format!(
            "this host speaks version {VERSION} of the protocol, the guest {guest}; use the same isotherm on both sides"
        );
        Self::new(ErrorCode::Version, why)
    }
}

impl From<DecodeError> for Closing {
    fn from(error: DecodeError) -> Self {
        Self::new(ErrorCode::Malformed, error.to_string())
    }
}

/// What a message led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub answer: Option<Message>,
    /// The end, after the answer.
    pub closing: Option<Closing>,
    /// The guest has said that it goes.
    pub bye: bool,
    /// Bytes dropped.
    pub dropped: u64,
    /// Ranges not acted upon, put off ones not counted.
    pub refused: u64,
    pub put_off: u64,
    /// How dropping failed, if it did, or what cannot be dropped.
    pub failure: Option<String>,
    /// How the guest is doing.
    pub stat: Option<GuestStat>,
}

impl Outcome {
    fn answer(message: Message) -> Self {
        Self { answer: Some(message), ..Self::default() }
    }

    fn close(code: ErrorCode, why: impl Into<String>) -> Self {
        Self { closing: Some(Closing::new(code, why)), ..Self::default() }
    }
}

#[derive(Debug)]
struct Open {
    token: u64,
    block: u64,
    layout: Layout,
    /// What may be dropped: the guest's memory as both sides know it.
    memory: Vec<AddrRange>,
    /// The last batch and what was answered.
    last: Option<(u64, Message)>,
}

#[derive(Debug)]
pub struct HostSession {
    limits: Limits,
    open: Option<Open>,
    strikes: u32,
    ignored: u32,
    hasty: u32,
    /// When the next report may come, ns.
    next_ns: u64,
}

impl HostSession {
    /// A connection just made.
    pub fn new(bytes_per_second: u64) -> Self {
        let limits = Limits { ranges: MOST_RANGES as u16, batches: 1, bytes_per_second };
        Self { limits, open: None, strikes: 0, ignored: 0, hasty: 0, next_ns: 0 }
    }

    /// What it was made with.
    pub const fn bytes_per_second(&self) -> u64 {
        self.limits.bytes_per_second
    }

    /// Whether the greeting is over.
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// A guest introduces itself. `token`: random, never used before. Whoever calls this has made sure that nothing
    /// reported over another connection is or will be acted upon any more.
    pub fn hello(&mut self, hello: &Hello, token: u64, memory: &dyn Memory) -> Outcome {
        if hello.version != VERSION {
            return Outcome { closing: Some(Closing::other_version(hello.version)), ..Outcome::default() };
        }
        let layout = match memory.layout(&hello.memory) {
            Ok(layout) => layout,
            Err(error) => {
                let why = error.to_string();
                let closing = match error {
                    // Of the guest's own map.
                    MemoryError::Layout(LayoutError::Start(_) | LayoutError::Sum { .. }) => {
                        Closing::new(ErrorCode::Memory, why)
                    }
                    MemoryError::Layout(LayoutError::Map(_)) | MemoryError::Many { .. } => {
                        Closing::private(ErrorCode::Memory, why)
                    }
                    _ => Closing::private(ErrorCode::Failed, why),
                };
                return Outcome { closing: Some(closing), ..Outcome::default() };
            }
        };
        let ram = || hello.memory.iter().filter(|area| area.kind == MemoryKind::Ram).map(|area| area.range);
        let mut both: Vec<AddrRange> = ram()
            .flat_map(|range| layout.pieces().iter().filter_map(move |piece| piece.addr.intersect(&range)))
            .collect();
        normalize(&mut both);
        let claimed: u64 = ram().map(|range| range.len()).fold(0, u64::saturating_add);
        let missing = claimed.saturating_sub(total_len(&both));
        let failure = (missing >= MOST_MISSING).then(|| {
            format!(
                "{} of the guest's memory are in no file that the VMM has mapped shared, and are left alone (share=on)",
                format_size(missing)
            )
        });
        self.open = Some(Open { token, block: hello.block_size, layout, memory: both, last: None });
        let welcome = Message::Welcome { session: hello.session, token, limits: self.limits };
        Outcome { failure, ..Outcome::answer(welcome) }
    }

    pub fn message(
        &mut self,
        message: Message,
        allowance: &mut Allowance,
        now_ns: u64,
        memory: &dyn Memory,
    ) -> Outcome {
        match message {
            Message::Report { token, batch, ranges } => self.report(token, batch, &ranges, allowance, now_ns, memory),
            Message::Ping(number) => Outcome::answer(Message::Pong(number)),
            Message::Stat(stat) => Outcome { stat: Some(stat), ..Outcome::default() },
            Message::Bye(_) => Outcome { bye: true, ..Outcome::default() },
            Message::Pong(_) => self.ignore(),
            Message::Hello(_)
            | Message::Greet { .. }
            | Message::Welcome { .. }
            | Message::Ack { .. }
            | Message::Challenge { .. }
            | Message::Response { .. }
            | Message::Error { .. } => Outcome::close(ErrorCode::Malformed, "a message that has no place here"),
        }
    }

    fn report(
        &mut self,
        token: u64,
        batch: u64,
        ranges: &[AddrRange],
        allowance: &mut Allowance,
        now_ns: u64,
        memory: &dyn Memory,
    ) -> Outcome {
        let Some(open) = self.open.as_mut().filter(|open| open.token == token) else { return self.ignore() };
        match &open.last {
            Some((last, answer)) if *last == batch => return Outcome::answer(answer.clone()),
            Some((last, _)) if *last > batch => return self.ignore(),
            _ => {}
        }
        if now_ns < self.next_ns {
            self.hasty += 1;
            if self.hasty >= MOST_HASTY {
                let why = format!("{MOST_HASTY} reports came before the time that this host had named");
                return Outcome::close(ErrorCode::Abuse, why);
            }
        } else {
            self.hasty = 0;
        }
        let mut outcome = Outcome::default();
        let (mut verdicts, mut wait_ns) = match allowance.report(now_ns) {
            Ok(()) => (judge(ranges, open.block, &open.memory), 0),
            // Not even looked at: that takes time, too.
            Err(wait_ns) => {
                outcome.put_off += ranges.len() as u64;
                (vec![Verdict::NotNow; ranges.len()], wait_ns)
            }
        };
        let is_bad = |verdict: &&Verdict| !matches!(verdict, Verdict::Dropped | Verdict::NotNow);
        let bad = verdicts.iter().filter(is_bad).count() as u64;
        for (range, verdict) in ranges.iter().zip(&mut verdicts).filter(|(_, v)| **v == Verdict::Dropped) {
            // Inside memory, so it is found; if not, nothing is dropped.
            let pieces = open.layout.find(*range).unwrap_or_default();
            if wait_ns == 0 {
                wait_ns = allowance.drop(range.len(), pieces.len() as u64, now_ns).err().unwrap_or(0);
            }
            if wait_ns > 0 {
                // Whatever follows waits, too: small ranges do not overtake a large one.
                *verdict = Verdict::NotNow;
                outcome.put_off += 1;
                continue;
            }
            match pieces.iter().try_for_each(|piece| memory.punch(piece)) {
                Ok(()) if !pieces.is_empty() => outcome.dropped += range.len(),
                Ok(()) => *verdict = Verdict::Outside,
                Err(error) => {
                    *verdict = Verdict::Failed;
                    outcome.failure = Some(format!("cannot drop {:#x}-{:#x}: {error}", range.start, range.end));
                }
            }
        }
        let wait_ms = u32::try_from(wait_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        let answer = Message::Ack { token, batch, wait_ms, verdicts };
        open.last = Some((batch, answer.clone()));
        self.next_ns = now_ns + u64::from(wait_ms) * 1_000_000;
        outcome.answer = Some(answer);
        outcome.refused = bad;
        if bad > 0 {
            self.strikes += 1;
            if self.strikes >= MOST_STRIKES {
                let why = format!("{MOST_STRIKES} reports of memory that is not the guest's to report");
                outcome.closing = Some(Closing::new(ErrorCode::Abuse, why));
            }
        }
        outcome
    }

    fn ignore(&mut self) -> Outcome {
        self.ignored += 1;
        if self.ignored > MOST_IGNORED {
            return Outcome::close(ErrorCode::Abuse, "too many messages that mean nothing");
        }
        Outcome::default()
    }
}

#[cfg(test)]
mod tests;
