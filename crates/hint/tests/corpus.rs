//! Fuzzing's targets on their corpus: streams of frames.
#![allow(missing_docs)]

#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use isotherm_core::addr::AddrRange;
use isotherm_hint::fuzz;
use isotherm_hint::protocol::auth::{Exchange, Key};
use isotherm_hint::protocol::{ErrorCode, Limits, Message, Verdict};

#[test]
fn streams() {
    replay::corpus("hint", fuzz::stream);
}

#[test]
fn sealed_streams() {
    replay::corpus("hint_sealed", fuzz::sealed);
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
