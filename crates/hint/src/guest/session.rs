//! The guest's side of the protocol: bytes in, bytes out, no files and no clock of its own.
//!
//! It says `Hello` until it is welcomed, turns batches of blocks into reports and answers into fates. What an answer
//! means for what is isolated is reported as [`Heard`]; the rules are those of [`crate::protocol`]. With a key it says
//! nothing before the host has asked it to prove that it knows the key, and believes nothing but what is sealed.

use crate::protocol::auth::{Exchange, Key, Nonce, Seal};
use crate::protocol::{
    Decoder, ErrorCode, GuestStat, Hello, Limits, MemoryArea, Message, REPEAT_MS, STALL_MS, VERSION, Verdict,
};
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::hinter::{BLOCK_BYTES, Block, Fate, joined};
use std::collections::BTreeSet;

const MS: u64 = 1_000_000;
/// Bytes that may wait to be written before no more are made: some reports.
const MOST_WAITING: usize = 64 << 10;

/// What the other side said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It is there, and whatever was reported before is done with.
    Welcome {
        limits: Limits,
        /// Whether it is another host than before, or the first.
        new_host: bool,
    },
    /// It has begun anew: nothing can be sent until it welcomes us.
    Lost,
    /// What became of a batch.
    Acked {
        batch: u64,
        /// One for each block.
        fates: Vec<Fate>,
        /// How long to leave it alone, ns.
        wait_ns: u64,
    },
    /// It refuses us, and why.
    Refused(ErrorCode, String),
    Bye(String),
    /// What came is not from a host that this guest may believe, and why: the connection is to be closed.
    Mistrusted(String),
}

/// A batch that was sent.
#[derive(Debug)]
struct Sent {
    batch: u64,
    token: u64,
    ranges: Vec<AddrRange>,
    /// Which of the ranges each block is in.
    places: Vec<usize>,
}

/// A conversation with a host.
#[derive(Debug)]
pub struct GuestSession {
    hello: Hello,
    key: Option<Key>,
    /// This guest's part of the exchange, never used in two connections.
    nonce: Nonce,
    /// Seals what is said, once the host has asked for a proof.
    seal: Option<Seal>,
    /// Whether the host has welcomed us, and whether it has said that it goes or closes, over this connection.
    welcomed: bool,
    farewell: bool,
    decoder: Decoder,
    out: Vec<u8>,
    /// From the last `Welcome`; `None` until there is one.
    token: Option<u64>,
    /// Tokens of this session that are no longer good: a `Welcome` that comes again must not void what was sent since.
    old_tokens: BTreeSet<u64>,
    /// The host's number, once it has greeted.
    host: Option<u64>,
    welcomed_by: Option<u64>,
    hello_sent_ns: Option<u64>,
    last_byte_ns: u64,
    sent: Option<Sent>,
}

impl GuestSession {
    /// One that has not said anything yet. `hello.session` is replaced by `random`, as on each new beginning. With a
    /// `key` nothing is said to a host that does not have it.
    pub fn new(hello: Hello, key: Option<Key>) -> Self {
        Self {
            hello,
            key,
            nonce: Nonce::default(),
            seal: None,
            welcomed: false,
            farewell: false,
            decoder: Decoder::new(),
            out: Vec::new(),
            token: None,
            old_tokens: BTreeSet::new(),
            host: None,
            welcomed_by: None,
            hello_sent_ns: None,
            last_byte_ns: 0,
            sent: None,
        }
    }

    /// There is a new connection. `nonce`: random, never the same.
    pub fn connected(&mut self, nonce: Nonce) {
        self.disconnected();
        self.nonce = nonce;
        if self.key.is_some() {
            // It begins with the connection.
            self.decoder.strict();
        }
    }

    /// The connection is gone: whatever was half said is forgotten.
    pub(crate) fn disconnected(&mut self) {
        self.decoder = Decoder::new();
        self.out.clear();
        self.token = None;
        self.seal = None;
        (self.welcomed, self.farewell) = (false, false);
    }

    /// Whether the end of this connection, as seen from the other side, means that nothing reported so far will be
    /// acted upon any more: not if that was reported over an earlier one, and with a key only if the host has said so,
    /// as anybody on the way can end a connection and keep a report for later.
    pub(crate) const fn end_is_final(&self) -> bool {
        self.welcomed && (self.key.is_none() || self.farewell)
    }

    /// A new connection, or a new memory map: nothing can be reported until the next `Welcome`. `random` is never the
    /// same.
    pub fn begin(&mut self, random: u64, now_ns: u64) {
        self.token = None;
        self.old_tokens.clear();
        self.hello.session = random;
        self.say_hello(now_ns);
    }

    /// Another memory map; to be followed by [`begin`](Self::begin).
    pub fn set_memory(&mut self, memory: Vec<MemoryArea>) {
        self.hello.memory = memory;
    }

    /// Whether reports can be sent.
    pub(crate) const fn is_welcome(&self) -> bool {
        self.token.is_some()
    }

    /// Bytes to be written.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether there are any.
    pub(crate) fn has_out(&self) -> bool {
        !self.out.is_empty()
    }

    /// Where to read into; see [`Decoder::fill`].
    pub fn decoder(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// What time does: `Hello` comes again, half a frame is given up. Returns when to be called again, ns.
    pub fn tick(&mut self, now_ns: u64) -> Option<u64> {
        if self.is_welcome() {
            return None;
        }
        if self.decoder.is_midway() && now_ns >= self.last_byte_ns + STALL_MS * MS {
            self.decoder.stalled();
        }
        let due = self.hello_sent_ns.map_or(0, |sent| sent + REPEAT_MS * MS);
        if now_ns >= due {
            self.say_hello(now_ns);
        }
        let again = self.hello_sent_ns.map_or(now_ns, |sent| sent + REPEAT_MS * MS);
        Some(if self.decoder.is_midway() { again.min(now_ns + STALL_MS * MS) } else { again })
    }

    /// The next thing that the host said, of what was read. `random` as for [`begin`](Self::begin).
    pub fn hear(&mut self, random: u64, now_ns: u64) -> Option<Heard> {
        loop {
            let message = match self.decoder.message() {
                Ok(Some(message)) => message,
                Ok(None) => return None,
                Err(error) if self.key.is_some() => return Some(Heard::Mistrusted(error.to_string())),
                Err(_) => {
                    // Damaged: search for the next frame and begin anew.
                    self.decoder.search();
                    let was_welcome = self.is_welcome();
                    self.begin(random, now_ns);
                    if was_welcome {
                        return Some(Heard::Lost);
                    }
                    continue;
                }
            };
            let heard = match &self.key {
                Some(key) if self.seal.is_none() => self.on_challenge(&key.clone(), message),
                _ => self.on_message(message, random, now_ns),
            };
            if let Some(heard) = heard {
                return Some(heard);
            }
        }
    }

    /// Notes that bytes have come.
    pub(crate) const fn heard_bytes(&mut self, now_ns: u64) {
        self.last_byte_ns = now_ns;
    }

    /// What may come before this guest has proved anything.
    fn on_challenge(&mut self, key: &Key, message: Message) -> Option<Heard> {
        match message {
            Message::Challenge { version: VERSION, nonce } => {
                let exchange = Exchange { host: nonce, guest: self.nonce };
                let response = Message::Response { version: VERSION, nonce: self.nonce, proof: exchange.proof(key) };
                // Nothing else was said over this connection, so there is room.
                self.say(&response);
                self.seal = Some(exchange.of_guest(key));
                self.decoder.expect_seals(exchange.of_host(key));
                None
            }
            Message::Challenge { version, .. } => Some(Heard::Mistrusted(other_version(version))),
            // Before version 2 hosts asked for the key itself.
            Message::Greet { version, .. } if version != VERSION => Some(Heard::Mistrusted(other_version(version))),
            Message::Error { code, text } => Some(Heard::Refused(code, text)),
            _ => Some(Heard::Mistrusted(
                "the host does not ask for the key; connect to where it listens with tcp:".into(),
            )),
        }
    }

    fn on_message(&mut self, message: Message, random: u64, now_ns: u64) -> Option<Heard> {
        match message {
            Message::Greet { host, .. } => {
                let known = self.host.replace(host) == Some(host);
                if known && self.is_welcome() {
                    return None;
                }
                let was_welcome = self.is_welcome();
                if known {
                    self.say_hello(now_ns);
                } else {
                    self.begin(random, now_ns);
                }
                was_welcome.then_some(Heard::Lost)
            }
            Message::Welcome { session, token, limits } => {
                if session != self.hello.session || self.token == Some(token) || self.old_tokens.contains(&token) {
                    return None;
                }
                self.old_tokens.extend(self.token.replace(token));
                self.decoder.strict();
                self.welcomed = true;
                let new_host = self.welcomed_by.is_none() || self.welcomed_by != self.host;
                self.welcomed_by = self.host;
                self.sent = None;
                Some(Heard::Welcome { limits, new_host })
            }
            Message::Ack { token, batch, wait_ms, verdicts } => {
                let sent = self.sent.as_ref()?;
                if (sent.token, sent.batch, sent.ranges.len()) != (token, batch, verdicts.len()) {
                    return None;
                }
                let fates = sent.places.iter().map(|&place| fate(verdicts[place])).collect();
                self.sent = None;
                Some(Heard::Acked { batch, fates, wait_ns: u64::from(wait_ms) * MS })
            }
            Message::Ping(number) => {
                self.say(&Message::Pong(number));
                None
            }
            Message::Bye(reason) => {
                self.farewell = self.decoder.is_sealed();
                Some(Heard::Bye(reason))
            }
            Message::Error { code, text } => {
                self.farewell = self.decoder.is_sealed();
                Some(Heard::Refused(code, text))
            }
            Message::Challenge { .. } if self.key.is_none() => {
                let text = "this host serves guests that have a key; give the same one here with --key FILE";
                Some(Heard::Mistrusted(text.into()))
            }
            // What only guests say, and answers to nothing.
            Message::Pong(_)
            | Message::Hello(_)
            | Message::Report { .. }
            | Message::Stat(_)
            | Message::Challenge { .. }
            | Message::Response { .. } => None,
        }
    }

    /// Reports a batch, in at most `most` ranges; the same batch may be reported again. Blocks belong to units of
    /// `unit` blocks that are isolated as a whole: where the blocks alone would be too many ranges, the units are
    /// reported. False if nothing can be sent now: then nothing was.
    pub fn report(&mut self, batch: u64, blocks: &[Block], unit: u64, most: usize) -> bool {
        let Some(token) = self.token else { return false };
        let mut ranges = joined(blocks);
        if ranges.len() > most {
            let mut units: Vec<Block> = blocks.iter().map(|b| Block(b.0 / unit * unit)).collect();
            units.dedup();
            let all: Vec<Block> = units.iter().flat_map(|u| (u.0..u.0 + unit).map(Block)).collect();
            ranges = joined(&all);
        }
        if ranges.len() > most {
            return false;
        }
        let mut place = 0;
        let places = blocks.iter().map(|block| {
            let start = block.range().start;
            while !ranges[place].contains(start) {
                place += 1;
            }
            place
        });
        let places = places.collect();
        let message = Message::Report { token, batch, ranges: ranges.clone() };
        let said = self.say(&message);
        if said {
            self.sent = Some(Sent { batch, token, ranges, places });
        }
        said
    }

    /// Tells how the guest is doing.
    pub fn stat(&mut self, stat: GuestStat) {
        if self.is_welcome() {
            self.say(&Message::Stat(stat));
        }
    }

    /// Says that nothing more comes.
    pub(crate) fn bye(&mut self, reason: &str) {
        if self.is_welcome() {
            self.say(&Message::Bye(reason.to_owned()));
        }
    }

    fn say_hello(&mut self, now_ns: u64) {
        self.hello_sent_ns = Some(now_ns);
        if self.key.is_none() || self.decoder.is_sealed() {
            self.say(&Message::Hello(self.hello.clone()));
        }
    }

    fn say(&mut self, message: &Message) -> bool {
        if self.out.len() >= MOST_WAITING {
            return false;
        }
        match message.frame(self.seal.as_mut()) {
            Ok(frame) => {
                self.out.extend_from_slice(&frame);
                true
            }
            Err(_) => false,
        }
    }
}

/// How the guest introduces itself.
pub fn hello(memory: Vec<MemoryArea>, guest_id: [u8; 16], agent: String) -> Hello {
    Hello {
        version: VERSION,
        session: 0,
        guest_id,
        page_size: PAGE_SIZE as u32,
        block_size: BLOCK_BYTES,
        memory,
        agent,
    }
}

fn other_version(host: u16) -> String {
    format!("the host speaks version {host} of the protocol, this agent {VERSION}; use the same isotherm on both sides")
}

const fn fate(verdict: Verdict) -> Fate {
    match verdict {
        Verdict::Dropped => Fate::Dropped,
        Verdict::NotNow => Fate::NotNow,
        Verdict::Misaligned | Verdict::Outside | Verdict::Overlapping | Verdict::Failed => Fate::Refused,
    }
}

#[cfg(test)]
mod tests;
