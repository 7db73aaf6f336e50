use super::*;
use crate::protocol::MemoryKind;

const SEC: u64 = 1_000_000_000;
const LIMITS: Limits = Limits { ranges: 64, batches: 1, bytes_per_second: 0 };

fn session() -> GuestSession {
    let memory = vec![MemoryArea { range: AddrRange::new(0, 1 << 30), kind: MemoryKind::Ram }];
    GuestSession::new(hello(memory, [0; 16], "test".into()), None)
}

/// What it says, and forgets.
fn said(session: &mut GuestSession) -> Vec<Message> {
    let mut decoder = Decoder::new();
    let mut messages = Vec::new();
    let bytes = std::mem::take(session.out());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let taken = decoder.push(rest);
        rest = &rest[taken..];
        while let Some(message) = decoder.message().unwrap() {
            messages.push(message);
        }
    }
    messages
}

fn hear(session: &mut GuestSession, message: &Message) -> Option<Heard> {
    session.decoder().push(&message.encode().unwrap());
    session.hear(99, SEC)
}

fn welcome(session: u64, token: u64) -> Message {
    Message::Welcome { session, token, limits: LIMITS }
}

/// One that was welcomed with token 5.
fn welcomed() -> GuestSession {
    let mut s = session();
    s.begin(1, 0);
    hear(&mut s, &Message::Greet { version: VERSION, host: 3 });
    let random = s.hello.session;
    assert_eq!(hear(&mut s, &welcome(random, 5)), Some(Heard::Welcome { limits: LIMITS, new_host: true }));
    said(&mut s);
    s
}

#[test]
fn hello_comes_again_until_it_is_answered() {
    let mut s = session();
    s.begin(1, 0);
    assert!(matches!(&said(&mut s)[..], [Message::Hello(h)] if h.session == 1));
    assert_eq!(s.tick(SEC / 2), Some(SEC));
    assert!(!s.has_out());
    s.tick(SEC);
    assert!(matches!(&said(&mut s)[..], [Message::Hello(h)] if h.session == 1), "a repetition keeps its session");
    assert_eq!(hear(&mut s, &welcome(2, 7)), None, "an answer to somebody else");
    assert!(!s.report(1, &[Block(1)], 1, 64), "nothing is reported before the welcome");
    assert!(matches!(hear(&mut s, &welcome(1, 7)), Some(Heard::Welcome { .. })));
    assert_eq!(s.tick(9 * SEC), None);
}

#[test]
fn a_report_names_ranges_and_its_answer_is_about_blocks() {
    let mut s = welcomed();
    let blocks = [Block(3), Block(4), Block(9), Block(6)];
    assert!(s.report(1, &blocks, 1, 64));
    let [Message::Report { token: 5, batch: 1, ranges }] = &said(&mut s)[..] else { panic!() };
    let mib = |n: u64| n << 21;
    assert_eq!(*ranges, [(3, 5), (9, 10), (6, 7)].map(|(a, b)| AddrRange::new(mib(a), mib(b))));
    let ack = |token, batch, verdicts| Message::Ack { token, batch, wait_ms: 2, verdicts };
    let verdicts = vec![Verdict::Dropped, Verdict::NotNow, Verdict::Outside];
    assert_eq!(hear(&mut s, &ack(4, 1, verdicts.clone())), None, "another token");
    assert_eq!(hear(&mut s, &ack(5, 2, verdicts.clone())), None, "another batch");
    assert_eq!(hear(&mut s, &ack(5, 1, verdicts[..2].to_vec())), None, "too few verdicts");
    let fates = vec![Fate::Dropped, Fate::Dropped, Fate::NotNow, Fate::Refused];
    assert_eq!(hear(&mut s, &ack(5, 1, verdicts.clone())), Some(Heard::Acked { batch: 1, fates, wait_ns: 2 * MS }));
    assert_eq!(hear(&mut s, &ack(5, 1, verdicts)), None, "it came before");
}

#[test]
fn too_many_ranges_become_whole_units() {
    let mut s = welcomed();
    let blocks: Vec<Block> = (64..128).step_by(2).map(Block).collect();
    assert!(!s.report(1, &blocks, 1, 4), "blocks of no unit cannot be made fewer");
    assert!(!s.has_out());
    assert!(s.report(1, &blocks, 64, 4));
    let [Message::Report { ranges, .. }] = &said(&mut s)[..] else { panic!() };
    assert_eq!(*ranges, [AddrRange::new(64 << 21, 128 << 21)]);
    let ack = Message::Ack { token: 5, batch: 1, wait_ms: 0, verdicts: vec![Verdict::Dropped] };
    assert!(matches!(hear(&mut s, &ack), Some(Heard::Acked { fates, .. }) if fates == vec![Fate::Dropped; 32]));
}

#[test]
fn a_welcome_that_comes_again_voids_nothing() {
    let mut s = welcomed();
    let session = s.hello.session;
    assert!(s.report(1, &[Block(1)], 1, 64));
    assert_eq!(hear(&mut s, &welcome(session, 5)), None, "the same");
    assert!(matches!(hear(&mut s, &welcome(session, 6)), Some(Heard::Welcome { new_host: false, .. })), "another");
    assert!(s.report(2, &[Block(1)], 1, 64));
    assert_eq!(hear(&mut s, &welcome(session, 5)), None, "an old one, which would void a report that the host acts on");
    let ack = Message::Ack { token: 6, batch: 2, wait_ms: 0, verdicts: vec![Verdict::Dropped] };
    assert!(matches!(hear(&mut s, &ack), Some(Heard::Acked { batch: 2, .. })));
}

#[test]
fn a_new_host_is_greeted_anew() {
    let mut s = welcomed();
    assert_eq!(hear(&mut s, &Message::Greet { version: VERSION, host: 3 }), None, "the same one");
    assert!(s.is_welcome());
    assert_eq!(hear(&mut s, &Message::Greet { version: VERSION, host: 4 }), Some(Heard::Lost));
    assert!(!s.is_welcome());
    assert!(matches!(&said(&mut s)[..], [Message::Hello(h)] if h.session == 99));
    assert_eq!(hear(&mut s, &welcome(99, 8)), Some(Heard::Welcome { limits: LIMITS, new_host: true }));
}

#[test]
fn damage_is_survived() {
    let mut s = welcomed();
    s.decoder().push(b"garbage");
    assert_eq!(s.hear(50, SEC), Some(Heard::Lost));
    assert!(matches!(&said(&mut s)[..], [Message::Hello(h)] if h.session == 50));
    let ping = Message::Ping(4).encode().unwrap();
    s.decoder().push(&ping[..7]);
    s.heard_bytes(SEC);
    s.tick(2 * SEC);
    said(&mut s);
    assert_eq!(hear(&mut s, &Message::Ping(5)), None);
    assert!(said(&mut s).contains(&Message::Pong(5)), "half a frame does not hide the next for ever");
}

const NONCES: Exchange = Exchange { host: [3; 16], guest: [4; 16] };

fn key() -> Key {
    Key::new(vec![7; 16]).unwrap()
}

/// One with a key on a new connection, and the seals of its host.
fn keyed() -> (GuestSession, Seal) {
    let mut s = session();
    s.key = Some(key());
    s.connected(NONCES.guest);
    s.begin(1, 0);
    (s, NONCES.of_host(&key()))
}

fn challenge() -> Message {
    Message::Challenge { version: VERSION, nonce: NONCES.host }
}

fn hear_sealed(session: &mut GuestSession, seal: &mut Seal, message: &Message) -> Option<Heard> {
    session.decoder().push(&message.frame(Some(seal)).unwrap());
    session.hear(99, SEC)
}

/// What it says in sealed frames.
fn said_sealed(session: &mut GuestSession, seal: &Seal) -> Vec<Message> {
    let mut decoder = Decoder::new();
    decoder.expect_seals(seal.clone());
    decoder.push(&std::mem::take(session.out()));
    std::iter::from_fn(|| decoder.message().unwrap()).collect()
}

#[test]
fn with_a_key_nothing_is_said_before_both_have_proved_it() {
    let (mut s, mut seal) = keyed();
    s.tick(5 * SEC);
    assert_eq!(said(&mut s), [], "no greeting: it names this guest's memory");
    assert_eq!(hear(&mut s, &challenge()), None);
    let proof = NONCES.proof(&key());
    assert_eq!(said(&mut s), [Message::Response { version: VERSION, nonce: NONCES.guest, proof }]);
    s.tick(9 * SEC);
    assert!(!s.has_out(), "the host has proved nothing yet");
    assert_eq!(hear_sealed(&mut s, &mut seal, &Message::Greet { version: VERSION, host: 3 }), None);
    let ours = NONCES.of_guest(&key());
    assert!(matches!(&said_sealed(&mut s, &ours)[..], [Message::Hello(h)] if h.session == 99));
    let heard = hear_sealed(&mut s, &mut seal, &welcome(99, 5));
    assert_eq!(heard, Some(Heard::Welcome { limits: LIMITS, new_host: true }));
}

#[test]
fn a_host_without_the_key_is_not_believed() {
    let mistrusted = |heard: Option<Heard>, word: &str| {
        assert!(matches!(&heard, Some(Heard::Mistrusted(why)) if why.contains(word)), "{heard:?}, not {word}");
    };
    // One of before, one that asks for nothing, one of the future, one that answers without the key, one that says what
    // another has said.
    mistrusted(hear(&mut keyed().0, &Message::Greet { version: 1, host: 3 }), "version 1");
    mistrusted(hear(&mut keyed().0, &Message::Greet { version: VERSION, host: 3 }), "does not ask");
    mistrusted(hear(&mut keyed().0, &welcome(1, 5)), "does not ask");
    mistrusted(hear(&mut keyed().0, &Message::Challenge { version: 3, nonce: [0; 16] }), "version 3");
    let (mut s, _) = keyed();
    hear(&mut s, &challenge());
    mistrusted(hear(&mut s, &Message::Greet { version: VERSION, host: 3 }), "without seal");
    let (mut s, _) = keyed();
    hear(&mut s, &challenge());
    let mut other = Exchange { guest: [5; 16], ..NONCES }.of_host(&key());
    mistrusted(hear_sealed(&mut s, &mut other, &Message::Greet { version: VERSION, host: 3 }), "seal");
    // And without a key here, a host that asks for one.
    mistrusted(hear(&mut session(), &challenge()), "--key");
}

#[test]
fn an_end_counts_where_the_host_has_told_it() {
    let mut s = welcomed();
    assert!(s.end_is_final());
    s.connected([0; 16]);
    assert!(!s.end_is_final(), "what was reported over the connection before may still be acted upon");
    let (mut s, mut seal) = keyed();
    hear(&mut s, &challenge());
    assert_eq!(
        hear(&mut s, &Message::Error { code: ErrorCode::Denied, text: "no".into() }),
        Some(Heard::Refused(ErrorCode::Denied, "no".into()))
    );
    assert!(!s.end_is_final(), "anybody can say that");
    hear_sealed(&mut s, &mut seal, &Message::Greet { version: VERSION, host: 3 });
    hear_sealed(&mut s, &mut seal, &welcome(99, 5));
    assert!(s.report(1, &[Block(1)], 1, 64) && !s.end_is_final(), "anybody on the way can end a connection");
    assert_eq!(hear_sealed(&mut s, &mut seal, &Message::Bye("done".into())), Some(Heard::Bye("done".into())));
    assert!(s.end_is_final());
}
