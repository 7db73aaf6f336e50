//! A guest's messages in any order, and what the host does of them.

use crate::host::allowance::Allowance;
use crate::host::bucket::Bucket;
use crate::host::layout::{Layout, LayoutPart};
use crate::host::memory::{Memory, MemoryError};
use crate::host::session::{HostSession, Outcome};
use crate::protocol::{Hello, MemoryArea, MemoryKind, Message, Verdict};
use isotherm_core::addr::AddrRange;
use std::cell::RefCell;
use std::io;

/// Bytes of the guest's memory.
const SIZE: u64 = 64 << 20;
/// The first byte of the input says how many of these may be dropped in a second, 0: any number.
const RATE: u64 = 2 << 20;
/// Messages looked at: more take long and find nothing new.
const MOST_MESSAGES: usize = 4096;

/// Memory that remembers what was dropped, of which the last part cannot be.
#[derive(Default)]
struct Fake(RefCell<Vec<LayoutPart>>);

impl Memory for Fake {
    fn layout(&self, areas: &[MemoryArea]) -> Result<Layout, MemoryError> {
        Ok(Layout::of_guest(areas, SIZE)?)
    }

    fn punch(&self, piece: &LayoutPart) -> io::Result<()> {
        if piece.offset >= SIZE - RATE {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.borrow_mut().push(*piece);
        Ok(())
    }
}

/// What the host has agreed to.
struct Agreed {
    token: u64,
    hello: Hello,
    /// The last report that it has answered, and the answer.
    last: Option<(u64, Message)>,
}

struct World {
    rate: u64,
    session: HostSession,
    allowance: Allowance,
    memory: Fake,
    agreed: Option<Agreed>,
    /// Tokens so far.
    tokens: u64,
    now_ns: u64,
    /// Bytes dropped, and the longest range among them.
    dropped: u64,
    longest: u64,
}

/// Reads bytes as messages: how many tens of milliseconds pass before it, its kind, the length of its payload (two
/// bytes), the payload. A connection that the host closes is followed by the next one of the same guest.
pub fn session(bytes: &[u8]) {
    let (&first, mut bytes) = bytes.split_first().unwrap_or((&0, &[]));
    let rate = u64::from(first) * RATE;
    let mut world = World {
        rate,
        session: HostSession::new(rate),
        allowance: Allowance::new(Bucket::new(rate, rate, 0), 0),
        memory: Fake::default(),
        agreed: None,
        tokens: 0,
        now_ns: 0,
        dropped: 0,
        longest: 0,
    };
    for _ in 0..MOST_MESSAGES {
        let Some((&[wait, kind, low, high], rest)) = bytes.split_first_chunk() else { break };
        let (payload, next) = rest.split_at(usize::from(u16::from_le_bytes([low, high])).min(rest.len()));
        bytes = next;
        world.now_ns += u64::from(wait) * 10_000_000;
        if let Ok(message) = Message::decode(kind, payload) {
            world.say(message);
        }
    }
}

impl World {
    fn say(&mut self, message: Message) {
        self.memory.0.borrow_mut().clear();
        let outcome = if let Message::Hello(hello) = &message {
            self.tokens += 1;
            let outcome = self.session.hello(hello, self.tokens, &self.memory);
            assert!(self.memory.0.borrow().is_empty(), "a greeting drops memory");
            if let Some(Message::Welcome { session, token, .. }) = &outcome.answer {
                assert_eq!((*session, *token), (hello.session, self.tokens));
                self.agreed = Some(Agreed { token: *token, hello: hello.clone(), last: None });
            }
            outcome
        } else {
            let outcome = self.session.message(message.clone(), &mut self.allowance, self.now_ns, &self.memory);
            self.check(&message, &outcome);
            outcome
        };
        if let Some(answer) = &outcome.answer {
            answer.encode().expect("an answer can be sent");
        }
        if outcome.closing.is_some() || outcome.bye {
            self.session = HostSession::new(self.rate);
            self.agreed = None;
        }
        assert_eq!(self.session.is_open(), self.agreed.is_some());
    }

    /// Only a new report under the token in force drops memory, and only what it names and the guest has.
    fn check(&mut self, message: &Message, outcome: &Outcome) {
        let dropped = self.memory.0.borrow().clone();
        let sum: u64 = dropped.iter().map(|piece| piece.addr.len()).sum();
        assert_eq!(sum, outcome.dropped);
        let new = match (message, &mut self.agreed) {
            (Message::Report { token, batch, ranges }, Some(agreed)) if *token == agreed.token => match &agreed.last {
                Some((last, answer)) if last == batch => {
                    assert_eq!(outcome.answer.as_ref(), Some(answer), "another answer to the same report");
                    None
                }
                Some((last, _)) if last > batch => None,
                _ => Some((agreed, *batch, ranges)),
            },
            _ => None,
        };
        let Some((agreed, batch, ranges)) = new else {
            assert!(dropped.is_empty(), "{message:?} drops {dropped:?}");
            return;
        };
        let Some(answer) = &outcome.answer else {
            assert!(outcome.closing.is_some() && dropped.is_empty(), "a report without an answer");
            return;
        };
        let Message::Ack { token, batch: answered, verdicts, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((*token, *answered, verdicts.len()), (agreed.token, batch, ranges.len()));
        let reported: Vec<AddrRange> =
            ranges.iter().zip(verdicts).filter(|(_, v)| **v == Verdict::Dropped).map(|(range, _)| *range).collect();
        assert_eq!(reported.iter().map(AddrRange::len).sum::<u64>(), sum, "reported is what was dropped");
        let ram = || agreed.hello.memory.iter().filter(|area| area.kind == MemoryKind::Ram).map(|area| area.range);
        for piece in &dropped {
            assert!(piece.file == 0 && piece.offset + piece.addr.len() <= SIZE, "{piece:?} leaves the file");
            assert!(reported.iter().any(|range| range.start <= piece.addr.start && piece.addr.end <= range.end));
            let owned: u64 = ram().filter_map(|area| area.intersect(&piece.addr)).map(|part| part.len()).sum();
            assert_eq!(owned, piece.addr.len(), "{piece:?} is not the guest's");
        }
        for (range, other) in
            reported.iter().enumerate().flat_map(|(i, range)| reported[..i].iter().map(move |o| (range, o)))
        {
            assert!(range.intersect(other).is_none(), "{range:?} and {other:?} overlap");
        }
        let block = agreed.hello.block_size;
        assert!(reported.iter().all(|range| range.start % block == 0 && range.end % block == 0), "not whole blocks");
        agreed.last = Some((batch, answer.clone()));
        self.dropped += sum;
        self.longest = reported.iter().map(AddrRange::len).max().unwrap_or(0).max(self.longest);
        // What is larger than the bucket goes at once, but is paid for before anything else goes.
        if self.rate > 0 {
            let at_once = u128::from(self.rate.max(self.longest));
            let most = at_once + u128::from(self.rate) * u128::from(self.now_ns) / 1_000_000_000;
            assert!(u128::from(self.dropped) <= most, "{} dropped, {most} allowed", self.dropped);
        }
    }
}
