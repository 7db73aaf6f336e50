//! Fuzzing's targets on their corpus: streams of frames, messages in any order, memory maps of VMMs.
#![allow(missing_docs)]

#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use isotherm_core::addr::AddrRange;
use isotherm_hint::fuzz;
use isotherm_hint::protocol::auth::{Exchange, Key};
use isotherm_hint::protocol::frame::HEADER;
use isotherm_hint::protocol::{ErrorCode, Hello, Limits, MemoryArea, MemoryKind, Message, Verdict};

#[test]
fn streams() {
    replay::corpus("hint", fuzz::stream);
}

#[test]
fn sealed_streams() {
    replay::corpus("hint_sealed", fuzz::sealed);
}

#[test]
fn sessions() {
    replay::corpus("hint_session", fuzz::session);
}

#[test]
fn memory_maps() {
    replay::corpus("mtree", fuzz::memory_map);
}

#[test]
#[ignore = "makes the corpus"]
fn write_sessions() {
    const MIB: u64 = 1 << 20;
    let area = |start, end, kind| MemoryArea { range: AddrRange::new(start, end), kind };
    let hello = |session, block_size, memory: Vec<MemoryArea>| {
        let agent = "test".to_owned();
        Message::Hello(Hello { version: 2, session, guest_id: [0; 16], page_size: 4096, block_size, memory, agent })
    };
    use MemoryKind::{Ram, Reserved};
    let low = || vec![area(0x1000, 0xa0000, Ram), area(MIB, 64 * MIB, Ram)];
    let both = vec![
        area(0, 0x9_0000, Ram),
        area(MIB, 30 * MIB, Ram),
        area(30 * MIB, 32 * MIB, Reserved),
        area(4 << 30, (4 << 30) + 32 * MIB, Ram),
    ];
    let report = |token, batch, ranges: &[(u64, u64)]| {
        let ranges = ranges.iter().map(|(start, end)| AddrRange::new(start * MIB, end * MIB)).collect();
        Message::Report { token, batch, ranges }
    };
    let good = [(2, 4), (4, 8), (6, 8), (3, 5), (62, 64), (62, 66)];
    let write = |name: &str, rate: u8, messages: &[(u8, Message)]| {
        let mut bytes = vec![rate];
        for (wait, message) in messages {
            let frame = message.encode().unwrap();
            // Behind the header; a checksum ends it.
            let payload = &frame[HEADER..frame.len() - 4];
            bytes.extend([*wait, frame[5]]);
            bytes.extend(u16::try_from(payload.len()).unwrap().to_le_bytes());
            bytes.extend(payload);
        }
        std::fs::create_dir_all(replay::folder("hint_session")).unwrap();
        std::fs::write(replay::folder("hint_session").join(name), bytes).unwrap();
    };
    let hi = hello(9, 2 * MIB, low());
    write(
        "reports",
        0,
        &[(0, hi.clone()), (1, report(1, 1, &good)), (1, report(1, 1, &good)), (1, report(1, 7, &good))],
    );
    write(
        "slow",
        1,
        &[(0, hi.clone()), (0, report(1, 1, &good)), (200, report(1, 2, &good)), (0, report(1, 3, &good))],
    );
    write("again", 0, &[(0, hi.clone()), (0, hi.clone()), (0, report(1, 1, &good)), (0, report(2, 1, &good))]);
    write("bye", 2, &[(0, hi.clone()), (0, Message::Bye(String::new())), (0, report(1, 1, &good)), (0, hi.clone())]);
    let high = [(4096, 4098), (4100, 4128), (28, 30), (30, 32)];
    write("two-parts", 40, &[(0, hello(3, 4096, both)), (0, report(1, 1, &high)), (0, Message::Ping(3))]);
    write(
        "nonsense",
        0,
        &[(0, report(0, 0, &good)), (0, Message::Pong(1)), (0, Message::Greet { version: 2, host: 1 })],
    );
}

#[test]
#[ignore = "makes the corpus"]
fn write_streams() {
    let limits = Limits { ranges: 8, batches: 2, bytes_per_second: 1 << 30 };
    let messages = [
        Message::Greet { version: 2, host: 7 },
        Message::Welcome { session: 1, token: 2, limits },
        Message::Report { token: 2, batch: 1, ranges: vec![AddrRange::new(0x20_0000, 0x40_0000); 2] },
        Message::Ack { token: 2, batch: 1, wait_ms: 0, verdicts: Verdict::ALL.to_vec() },
        Message::Ping(3),
        Message::Pong(3),
        Message::Bye("bye".into()),
        Message::Error { code: ErrorCode::ALL[0], text: "why".into() },
        Message::Challenge { version: 2, nonce: [3; 16] },
    ];
    let frames: Vec<Vec<u8>> = messages.iter().map(|m| m.encode().unwrap()).collect();
    let write = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(replay::folder(target)).unwrap();
        std::fs::write(replay::folder(target).join(name), bytes).unwrap();
    };
    for (index, frame) in frames.iter().enumerate() {
        write("hint", &format!("message-{index}"), &[&[255], &frame[..]].concat());
    }
    write("hint", "all", &[&[6], &frames.concat()[..]].concat());
    write("hint", "garbage-before", &[&b"\x1fISOTH garbage IS"[..], &frames[0]].concat());
    write("hint_sealed", "nothing", b"");
    write("hint_sealed", "unsealed", &frames[4]);
    write("hint_sealed", "refusal", &frames[8]);
    // What the target itself sends first and second.
    let exchange = Exchange { host: [1; 16], guest: [2; 16] };
    let mut seal = exchange.of_guest(&Key::new(b"a key that is long enough for one".to_vec()).unwrap());
    let [first, second] = [1, 2].map(|n| Message::Ping(n).frame(Some(&mut seal)).unwrap());
    write("hint_sealed", "replayed", &first);
    write("hint_sealed", "twice", &second);
    let mut changed = second;
    *changed.last_mut().unwrap() ^= 1;
    write("hint_sealed", "changed", &changed);
}
