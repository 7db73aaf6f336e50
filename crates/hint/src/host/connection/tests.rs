use super::*;
use crate::host::pinned::PinnedFiles;
use crate::host::test_vmm::{RAM, TestVmm};
use crate::protocol::{MemoryArea, MemoryKind};
use isotherm_core::addr::AddrRange;
use std::io::Read;
use std::sync::Mutex;

fn nobody(_: &Hello) -> Result<Arc<Guest>, Closing> {
    Err(Closing::new(ErrorCode::Denied, "nobody is known"))
}

#[test]
fn who_does_not_greet_is_not_waited_for() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let stop = AtomicBool::new(false);
    let mut welcomed = || panic!("nobody was");
    let patience = Some(Duration::from_millis(300));
    let terms = Terms {
        identify: &nobody,
        find_key: None,
        welcomed: &mut welcomed,
        patience,
        fresh: false,
        bytes_per_second: 0,
        now_ns: &monotonic_ns,
        stop: &stop,
    };
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).map(|_| all)
    });
    let end = serve(ours, terms);
    assert!(matches!(end, End::Silent(_)), "{end:?}");
    // The end is seen, and why.
    let all = reader.join().unwrap().unwrap();
    assert!(all.windows(16).any(|part| part == b"no guest has gre"), "{all:?}");
}

/// Says `bytes` again and again to a host side that knows nobody; how it ends.
fn flood(bytes: Vec<u8>, fresh: bool) -> Closing {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::spawn(move || while theirs.write_all(&bytes).is_ok() {});
    let mut welcomed = || panic!("nobody was");
    let terms = Terms {
        identify: &nobody,
        find_key: None,
        welcomed: &mut welcomed,
        patience: None,
        fresh,
        bytes_per_second: 0,
        now_ns: &monotonic_ns,
        stop: &stop,
    };
    match serve(ours, terms) {
        End::Closed(closing) => closing,
        end => panic!("{end:?}"),
    }
}

#[test]
fn what_comes_without_a_greeting_has_an_end() {
    let pong = Message::Pong(7).encode().unwrap();
    assert_eq!(flood(pong.clone(), true).code, ErrorCode::Malformed);
    assert_eq!(flood(b"GET / HTTP/1.1\r\n".to_vec(), true).code, ErrorCode::Malformed);
    assert_eq!(flood(pong.clone(), false).code, ErrorCode::Abuse);
    assert_eq!(flood([&[0; 4000], &pong[..]].concat(), false).code, ErrorCode::Malformed);
}

/// What a host side says to one that answers its challenge with `answer`, up to the end, and how that was. It knows
/// one key, and nobody's memory.
fn challenged(answer: impl FnOnce(Nonce) -> Vec<u8> + Send + 'static) -> (Closing, Vec<u8>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let stop = AtomicBool::new(false);
    let caller = std::thread::spawn(move || {
        let mut decoder = Decoder::new();
        let nonce = loop {
            match decoder.message().unwrap() {
                Some(Message::Challenge { version: VERSION, nonce }) => break nonce,
                Some(other) => panic!("{other:?}"),
                None => assert!(decoder.fill(&mut theirs).unwrap() > 0),
            }
        };
        theirs.write_all(&answer(nonce)).unwrap();
        let mut all = Vec::new();
        // What was not read when the other side closed is reported as an error.
        let _ = theirs.read_to_end(&mut all);
        all
    });
    let find_key = |exchange: &Exchange, proof: &Tag| exchange.proves(&key(), proof).then(key);
    let mut welcomed = || panic!("nobody was");
    let terms = Terms {
        identify: &nobody,
        find_key: Some(&find_key),
        welcomed: &mut welcomed,
        patience: Some(Duration::from_secs(20)),
        fresh: true,
        bytes_per_second: 0,
        now_ns: &monotonic_ns,
        stop: &stop,
    };
    let closing = match serve(ours, terms) {
        End::Closed(closing) => closing,
        end => panic!("{end:?}"),
    };
    (closing, caller.join().unwrap())
}

fn key() -> Key {
    Key::new(vec![9; 32]).unwrap()
}

fn hello() -> Hello {
    let memory = vec![MemoryArea { range: AddrRange::new(0, 1 << 30), kind: MemoryKind::Ram }];
    Hello {
        version: VERSION,
        session: 1,
        guest_id: [0; 16],
        page_size: 4096,
        block_size: 2 << 20,
        memory,
        agent: "test".into(),
    }
}

fn response(host: Nonce, key: &Key) -> (Exchange, Vec<u8>) {
    let exchange = Exchange { host, guest: [1; 16] };
    let proof = exchange.proof(key);
    (exchange, Message::Response { version: VERSION, nonce: exchange.guest, proof }.encode().unwrap())
}

fn said(mut bytes: &[u8], seal: Option<Seal>) -> Vec<Message> {
    let mut decoder = Decoder::new();
    if let Some(seal) = seal {
        decoder.expect_seals(seal);
    }
    decoder.fill(&mut bytes).unwrap();
    std::iter::from_fn(|| decoder.message().unwrap()).collect()
}

#[test]
fn who_knows_the_key_is_served_in_sealed_frames() {
    let used = Arc::new(std::sync::Mutex::new(None));
    let kept = Arc::clone(&used);
    let (closing, all) = challenged(move |host| {
        let (exchange, mut bytes) = response(host, &key());
        *kept.lock().unwrap() = Some(exchange);
        let hello = hello();
        bytes.extend(Message::Hello(hello).frame(Some(&mut exchange.of_guest(&key()))).unwrap());
        bytes
    });
    assert_eq!((closing.code, &*closing.why), (ErrorCode::Denied, "nobody is known"));
    let exchange = used.lock().unwrap().take().unwrap();
    let said = said(&all, Some(exchange.of_host(&key())));
    assert!(matches!(said.last(), Some(Message::Error { code: ErrorCode::Denied, .. })), "{said:?}");
    assert!(matches!(said.first(), Some(Message::Greet { .. } | Message::Error { .. })), "{said:?}");
}

#[test]
fn who_does_not_is_told_so_and_nothing_else() {
    let other = Key::new(vec![8; 32]).unwrap();
    let wrong = challenged(move |host| response(host, &other).1);
    let recorded = challenged(|_| response([5; 16], &key()).1);
    for (closing, all) in [wrong, recorded] {
        assert_eq!(closing.code, ErrorCode::Denied);
        assert!(closing.why.contains("no guest has this key"), "{closing:?}");
        assert!(matches!(&said(&all, None)[..], [Message::Error { code: ErrorCode::Denied, .. }]));
    }
    // An agent that has no key, one of before, one of the future.
    let plain = |message: Message| challenged(move |_| message.encode().unwrap()).0;
    let hello = hello();
    assert!(plain(Message::Hello(hello.clone())).why.contains("--key"));
    assert_eq!(plain(Message::Hello(Hello { version: 1, ..hello })).code, ErrorCode::Version);
    let future = Message::Response { version: 3, nonce: [0; 16], proof: [0; 16] };
    assert_eq!(plain(future).code, ErrorCode::Version);
}

#[test]
fn a_frame_that_was_tampered_with_ends_the_connection() {
    let tampered = |change: fn(&mut Vec<u8>)| {
        let sent = move |host| {
            let (exchange, mut bytes) = response(host, &key());
            let mut frame = Message::Ping(1).frame(Some(&mut exchange.of_guest(&key()))).unwrap();
            change(&mut frame);
            bytes.append(&mut frame);
            bytes
        };
        challenged(sent).0
    };
    let closing = tampered(|frame| frame[15] ^= 1);
    assert!(closing.code == ErrorCode::Malformed && closing.why.contains("seal"), "{closing:?}");
    let closing = tampered(|frame| *frame = Message::Ping(1).encode().unwrap());
    assert!(closing.code == ErrorCode::Malformed && closing.why.contains("without seal"), "{closing:?}");
    assert!(tampered(|_| ()).why.contains("before the greeting"), "untouched, it is read");
}

/// How a host side ends, and what it says from its welcome on, that stands still for so long between two looks at a
/// connection, over which meanwhile a report of 2 MiB comes. And what is left of the memory.
fn stood_still(time: Duration) -> (End, Vec<Message>, u64) {
    let vmm = TestVmm::start(1, false);
    let guest = Arc::new(vmm.guest(Arc::new(PinnedFiles::default())).unwrap());
    let (ours, theirs) = UnixStream::pair().unwrap();
    let report: Mutex<Option<Vec<u8>>> = Mutex::default();
    let passed = AtomicU64::new(0);
    let now_ns = || {
        let now = passed.load(Ordering::SeqCst);
        // The next reading of the clock, which is after whatever led to this one, is that much later.
        if let Some(report) = report.lock().unwrap().take() {
            (&theirs).write_all(&report).unwrap();
            passed.store(time.as_nanos() as u64, Ordering::SeqCst);
        }
        now
    };
    let talk = || {
        let area = |start, end| MemoryArea { range: AddrRange::new(start, end), kind: MemoryKind::Ram };
        let hello = Hello { memory: vec![area(0x1000, 0xa0000), area(1 << 20, RAM)], ..hello() };
        (&theirs).write_all(&Message::Hello(hello).encode().unwrap()).unwrap();
        let mut decoder = Decoder::new();
        let mut said = Vec::new();
        while decoder.fill(&mut &theirs).unwrap_or(0) > 0 {
            while let Some(message) = decoder.message().unwrap() {
                if let Message::Welcome { token, .. } = message {
                    let ranges = vec![AddrRange::new(4 << 20, 6 << 20)];
                    *report.lock().unwrap() = Some(Message::Report { token, batch: 1, ranges }.encode().unwrap());
                } else if !matches!(message, Message::Greet { .. }) {
                    said.push(message);
                    let _ = theirs.shutdown(Shutdown::Both);
                }
            }
        }
        said
    };
    let stop = AtomicBool::new(false);
    let terms = Terms {
        identify: &|_| Ok(Arc::clone(&guest)),
        find_key: None,
        welcomed: &mut || (),
        patience: None,
        fresh: false,
        bytes_per_second: 0,
        now_ns: &now_ns,
        stop: &stop,
    };
    std::thread::scope(|scope| {
        let guest = scope.spawn(talk);
        let end = serve(ours, terms);
        (end, guest.join().unwrap(), vmm.resident())
    })
}

#[test]
fn what_was_reported_before_a_standstill_is_not_acted_upon() {
    let (end, said, left) = stood_still(Duration::ZERO);
    assert!(matches!(&said[..], [Message::Ack { .. }]), "{end:?} {said:?}");
    assert_eq!(left, RAM - (2 << 20));
    let (end, said, left) = stood_still(Duration::from_secs(10));
    assert!(matches!(end, End::Stood(time) if time == Duration::from_secs(10)), "{end:?}");
    assert!(matches!(&said[..], [Message::Bye(why)] if why.contains("did not run for 10 s")), "{said:?}");
    assert_eq!(left, RAM);
}

#[test]
fn who_is_refused_at_once_learns_why() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    refuse(ours, &Closing::new(ErrorCode::Denied, "another port, please"));
    let mut all = Vec::new();
    theirs.read_to_end(&mut all).unwrap();
    assert!(
        matches!(&said(&all, None)[..], [Message::Error { code: ErrorCode::Denied, text }] if text.contains("port"))
    );
}
