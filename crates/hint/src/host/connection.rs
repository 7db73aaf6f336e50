//! A connection to a guest: bytes in, bytes out, in a thread of its own.

use super::bucket::Bucket;
use super::guest::Guest;
use super::session::{Closing, HostSession, Outcome};
use super::standstill::Standstill;
use crate::protocol::auth::{Exchange, Key, Nonce, Seal, Tag};
use crate::protocol::{Decoder, ErrorCode, Hello, Message, REPEAT_MS, STALL_MS, VERSION};
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::random;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a read waits before it is looked whether to end.
const TICK: Duration = Duration::from_millis(100);
/// How long a guest may take to read an answer.
const WRITE_TIME: Duration = Duration::from_secs(5);
/// How long half a message may wait for its other half once the greeting is over.
const HALF_TIME: Duration = Duration::from_secs(10);
/// Messages a second that are listened to, and how many at once; more of them wait in the guest. As many reads.
const MESSAGES: (u64, u64) = (1000, 200);
/// Bytes and messages until a guest is welcome, at most, where a port may hold what was on its way before; and bytes
/// where nothing can be.
const MOST_BEFORE: (usize, u32) = (2 << 20, 1000);
const MOST_BEFORE_FRESH: usize = 256 << 10;

static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// How a connection ended.
#[derive(Debug)]
pub enum End {
    /// We were asked to.
    Stopped,
    /// The other side has gone.
    Gone,
    /// Another connection of the same guest took its place.
    Replaced,
    /// No guest has greeted in this time.
    Silent(Duration),
    /// We did not run for so long, so that what was said meanwhile may be true no longer.
    Stood(Duration),
    /// We closed it for what it said.
    Closed(Closing),
    /// Reading or writing failed.
    Failed(io::Error),
}

impl End {
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Stopped | Self::Gone => None,
            Self::Replaced => Some("another connection of this guest took over".into()),
            Self::Silent(patience) => Some(format!("no guest has greeted within {} s", patience.as_secs())),
            Self::Stood(time) => Some(format!(
                "this host side did not run for {} s (stopped, or frozen); what was reported meanwhile is not acted upon",
                time.as_secs()
            )),
            Self::Closed(closing) => Some(closing.why.clone()),
            Self::Failed(error) => Some(error.to_string()),
        }
    }
}

/// Tells which guest is calling, once it has said hello.
pub(super) type Identify<'a> = &'a dyn Fn(&Hello) -> Result<Arc<Guest>, Closing>;

/// The key that a caller has proved to know, if there is one.
pub(super) type FindKey<'a> = &'a dyn Fn(&Exchange, &Tag) -> Option<Key>;

/// How a connection is served.
pub(super) struct Terms<'a> {
    pub identify: Identify<'a>,
    /// Where callers have to prove that they know a key, before anything else: whether one does.
    pub find_key: Option<FindKey<'a>>,
    /// Called once a guest is welcome.
    pub welcomed: &'a mut dyn FnMut(),
    /// How long it may last without a guest that is welcome; `None`: for ever, as the connection is ours to a VMM whose
    /// guest has its agent started at any time.
    pub patience: Option<Duration>,
    /// Whether the stream begins with the connection, so that all of it is messages, and the first a greeting. A VMM's
    /// port holds what was sent before.
    pub fresh: bool,
    pub bytes_per_second: u64,
    /// CLOCK_MONOTONIC, ns, by which it is noticed that this process stood still.
    pub now_ns: &'a dyn Fn() -> u64,
    pub stop: &'a AtomicBool,
}

/// Serves a connection until it ends.
pub(super) fn serve(stream: UnixStream, terms: Terms<'_>) -> End {
    let mut connection = Connection {
        number: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
        session: HostSession::new(terms.bytes_per_second),
        welcomed: false,
        before: (0, 0),
        guest: None,
        seal: None,
        stream,
    };
    let end = match connection.run(terms) {
        Ok(end) => end,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe || error.kind() == io::ErrorKind::ConnectionReset => {
            End::Gone
        }
        Err(error) => End::Failed(error),
    };
    connection.finish(&end);
    end
}

/// Tells whoever has just called why nothing is listened to, as far as that can be said without waiting, and closes.
pub(super) fn refuse(mut stream: UnixStream, closing: &Closing) {
    let message = Message::Error { code: closing.code, text: closing.for_guest().to_owned() };
    if let (Ok(()), Ok(bytes)) = (stream.set_nonblocking(true), message.encode()) {
        // Whoever does not get it sees the end.
        let _ = stream.write_all(&bytes);
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Waits until one more may be drawn; `false`: it is to stop.
fn wait_for(bucket: &mut Bucket, stop: &AtomicBool) -> bool {
    while !bucket.take(1, monotonic_ns()) {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let wait = Duration::from_nanos(bucket.wait_ns(1, monotonic_ns()));
        std::thread::sleep(wait.min(TICK));
    }
    true
}

struct Connection {
    number: u64,
    session: HostSession,
    guest: Option<Arc<Guest>>,
    /// Whether the guest was welcome once, after which another connection of it ends this one.
    welcomed: bool,
    /// Bytes and messages while no guest was welcome.
    before: (usize, u32),
    /// Seals what is sent, once the caller has proved to know its key.
    seal: Option<Seal>,
    stream: UnixStream,
}

impl Connection {
    fn run(&mut self, terms: Terms<'_>) -> io::Result<End> {
        let Terms { identify, find_key, welcomed, patience, fresh, now_ns, stop, .. } = terms;
        self.stream.set_read_timeout(Some(TICK))?;
        self.stream.set_write_timeout(Some(WRITE_TIME))?;
        let mut decoder = Decoder::new();
        if fresh {
            decoder.strict();
        }
        let mut pace = Bucket::new(MESSAGES.0, MESSAGES.1, monotonic_ns());
        let mut reads = pace.clone();
        let greeting = Message::Greet { version: VERSION, host: random::number()? };
        let mut challenge = None;
        if find_key.is_some() {
            let nonce = random::bytes()?;
            self.send(&Message::Challenge { version: VERSION, nonce })?;
            challenge = Some(nonce);
        }
        let mut greeted: Option<Instant> = None;
        let mut heard = Instant::now();
        let mut open_last = Instant::now();
        let mut standstill = Standstill::new(now_ns());
        while !stop.load(Ordering::Relaxed) {
            if self.session.is_open() {
                open_last = Instant::now();
            } else if let Some(patience) = patience.filter(|patience| open_last.elapsed() >= *patience) {
                return Ok(End::Silent(patience));
            }
            if self.welcomed && self.guest.as_ref().is_some_and(|guest| !guest.listens_to(self.number)) {
                return Ok(End::Replaced);
            }
            let again = greeted.is_none_or(|at| at.elapsed() >= Duration::from_millis(REPEAT_MS));
            if !self.session.is_open() && challenge.is_none() && again {
                self.send(&greeting)?;
                greeted = Some(Instant::now());
            }
            match decoder.fill(&mut self.stream) {
                Ok(0) => return Ok(End::Gone),
                Ok(bytes) => {
                    heard = Instant::now();
                    if let Some(closing) = self.count_before(bytes, 0, fresh) {
                        return Ok(End::Closed(closing));
                    }
                    // Single bytes cost as much as many at once.
                    if !wait_for(&mut reads, stop) {
                        return Ok(End::Stopped);
                    }
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if heard.elapsed() >= Duration::from_millis(STALL_MS) {
                        decoder.stalled();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if let Some(time) = standstill.noticed(now_ns()).filter(|_| self.session.is_open()) {
                return Ok(End::Stood(time));
            }
            if self.session.is_open() && decoder.is_midway() && heard.elapsed() >= HALF_TIME {
                return Ok(End::Closed(Closing::new(ErrorCode::Malformed, "the rest of a message does not come")));
            }
            loop {
                let message = match decoder.message() {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(error) => {
                        if let Some(guest) = &self.guest {
                            guest.closed(error.is_forgery());
                        }
                        return Ok(End::Closed(error.into()));
                    }
                };
                if !wait_for(&mut pace, stop) {
                    return Ok(End::Stopped);
                }
                if let Some((nonce, find_key)) = challenge.zip(find_key) {
                    match self.prove(nonce, &message, find_key) {
                        Ok(seal) => decoder.expect_seals(seal),
                        Err(closing) => return Ok(End::Closed(closing)),
                    }
                    challenge = None;
                    continue;
                }
                if fresh && self.guest.is_none() && !matches!(message, Message::Hello(_)) {
                    let why = "another message came before the greeting";
                    return Ok(End::Closed(Closing::new(ErrorCode::Malformed, why)));
                }
                if let Some(closing) = self.count_before(0, 1, fresh) {
                    return Ok(End::Closed(closing));
                }
                let was_open = self.session.is_open();
                if let Some(time) = standstill.noticed(now_ns()).filter(|_| was_open) {
                    return Ok(End::Stood(time));
                }
                if let Some(end) = self.handle(message, identify)? {
                    return Ok(end);
                }
                standstill.worked(now_ns());
                if self.session.is_open() {
                    if !std::mem::replace(&mut self.welcomed, true) {
                        welcomed();
                    }
                    decoder.strict();
                    self.before = (0, 0);
                } else if was_open && !fresh {
                    decoder.search();
                }
            }
        }
        Ok(End::Stopped)
    }

    /// Takes the answer to a challenge; gives the seals of what the guest sends from here on.
    fn prove(&mut self, nonce: Nonce, answer: &Message, find_key: FindKey<'_>) -> Result<Seal, Closing> {
        match answer {
            Message::Response { version: VERSION, nonce: guest, proof } => {
                let exchange = Exchange { host: nonce, guest: *guest };
                let key = find_key(&exchange, proof).ok_or_else(|| {
                    let why = "no guest has this key, or what was said is of another connection";
                    Closing::new(ErrorCode::Denied, why)
                })?;
                self.seal = Some(exchange.of_host(&key));
                Ok(exchange.of_guest(&key))
            }
            Message::Response { version, .. } | Message::Hello(Hello { version, .. }) if *version != VERSION => {
                Err(Closing::other_version(*version))
            }
            _ => Err(Closing::new(ErrorCode::Denied, "guests that call here have a key; give the agent --key FILE")),
        }
    }

    /// Counts what comes while no guest is welcome.
    fn count_before(&mut self, bytes: usize, messages: u32, fresh: bool) -> Option<Closing> {
        if self.session.is_open() {
            return None;
        }
        self.before.0 += bytes;
        self.before.1 += messages;
        let most = (if fresh { MOST_BEFORE_FRESH } else { MOST_BEFORE.0 }, MOST_BEFORE.1);
        (self.before.0 > most.0 || self.before.1 > most.1).then(|| {
            let why = format!("{} bytes and {} messages came without a greeting", self.before.0, self.before.1);
            Closing::new(ErrorCode::Abuse, why)
        })
    }

    fn handle(&mut self, message: Message, identify: Identify<'_>) -> io::Result<Option<End>> {
        let outcome = match (message, self.guest.clone()) {
            (Message::Hello(hello), known) => {
                let guest = match known.map_or_else(|| identify(&hello), Ok) {
                    Ok(guest) => guest,
                    Err(closing) => return Ok(Some(End::Closed(closing))),
                };
                self.guest = Some(Arc::clone(&guest));
                guest.hello(&mut self.session, &hello, self.number, random::number()?)
            }
            // Left over from before: nobody has said hello here.
            (_, None) => Outcome::default(),
            (message, Some(guest)) => match guest.message(&mut self.session, message, self.number) {
                Some(outcome) => outcome,
                None => return Ok(Some(End::Replaced)),
            },
        };
        if let Some(answer) = outcome.answer {
            self.send(&answer)?;
        }
        Ok(match (outcome.closing, outcome.bye) {
            (Some(closing), _) => Some(End::Closed(closing)),
            (None, true) => {
                // The port stays; whoever comes next says hello.
                self.session = HostSession::new(self.session.bytes_per_second());
                if let Some(guest) = &self.guest {
                    guest.disconnected(self.number, None);
                }
                None
            }
            (None, false) => None,
        })
    }

    fn send(&mut self, message: &Message) -> io::Result<()> {
        let bytes = message.frame(self.seal.as_mut()).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        self.stream.write_all(&bytes)
    }

    fn finish(&mut self, end: &End) {
        if let End::Closed(closing) = end {
            let _ = self.send(&Message::Error { code: closing.code, text: closing.for_guest().to_owned() });
        } else if let End::Silent(_) | End::Stood(_) | End::Replaced = end {
            let _ = self.send(&Message::Bye(end.reason().unwrap_or_default()));
        } else if matches!(end, End::Stopped) {
            let _ = self.send(&Message::Bye("the host side of Isotherm ends".into()));
        }
        if let Some(guest) = &self.guest {
            guest.disconnected(self.number, end.reason());
        }
        // Nothing is dropped for it any more: this tells the guest so.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests;
