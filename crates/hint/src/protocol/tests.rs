use super::error::EncodeError;
use super::frame::{HEADER, MAGIC, MOST_FRAME};
use super::limits::{MOST_AREAS, MOST_PAYLOAD, MOST_SKIPPED, MOST_TEXT};
use super::*;
use isotherm_core::addr::AddrRange;
use proptest::prelude::*;

fn arb_range() -> impl Strategy<Value = AddrRange> {
    (0..u64::MAX, any::<u64>()).prop_map(|(start, len)| AddrRange { start, end: start.saturating_add(len.max(1)) })
}

fn arb_memory() -> impl Strategy<Value = Vec<MemoryArea>> {
    prop::collection::vec((0u64..1 << 20, 1u64..1 << 20, any::<bool>()), 0..20).prop_map(|parts| {
        let mut at = 0;
        let mut memory = vec![];
        for (gap, len, ram) in parts {
            let kind = if ram { MemoryKind::Ram } else { MemoryKind::Reserved };
            memory.push(MemoryArea { range: AddrRange::new(at + gap, at + gap + len), kind });
            at += gap + len;
        }
        memory.push(MemoryArea { range: AddrRange::new(at, at + 4096), kind: MemoryKind::Ram });
        memory
    })
}

fn arb_hello() -> impl Strategy<Value = Hello> {
    let ids = (any::<u16>(), any::<u64>(), any::<[u8; 16]>());
    (ids, 0u32..10, arb_memory(), "[ -~]{0,200}").prop_map(|((version, session, guest_id), order, memory, agent)| {
        Hello { version, session, guest_id, page_size: 4096, block_size: 4096 << order, memory, agent }
    })
}

fn arb_message() -> impl Strategy<Value = Message> {
    let limits = (1..=MOST_RANGES as u16, 1u16.., any::<u64>())
        .prop_map(|(ranges, batches, bytes_per_second)| Limits { ranges, batches, bytes_per_second });
    let verdict = prop::sample::select(Verdict::ALL.to_vec());
    let stat = any::<[u64; 5]>().prop_map(|[free, isolated, reported, passes, cpu_us]| {
        Message::Stat(GuestStat { free, isolated, reported, passes, cpu_us })
    });
    prop_oneof![
        (any::<u16>(), any::<u64>()).prop_map(|(version, host)| Message::Greet { version, host }),
        arb_hello().prop_map(Message::Hello),
        (any::<u64>(), any::<u64>(), limits).prop_map(|(session, token, limits)| Message::Welcome {
            session,
            token,
            limits
        }),
        (any::<u64>(), any::<u64>(), prop::collection::vec(arb_range(), 1..100))
            .prop_map(|(token, batch, ranges)| Message::Report { token, batch, ranges }),
        (any::<u64>(), any::<u64>(), any::<u32>(), prop::collection::vec(verdict, 0..100))
            .prop_map(|(token, batch, wait_ms, verdicts)| Message::Ack { token, batch, wait_ms, verdicts }),
        any::<u64>().prop_map(Message::Ping),
        any::<u64>().prop_map(Message::Pong),
        stat,
        "[ -~]{0,200}".prop_map(Message::Bye),
        (prop::sample::select(ErrorCode::ALL.to_vec()), "[ -~]{0,200}")
            .prop_map(|(code, text)| Message::Error { code, text }),
        (any::<u16>(), any::<[u8; 16]>()).prop_map(|(version, nonce)| Message::Challenge { version, nonce }),
        (any::<u16>(), any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|(version, nonce, proof)| Message::Response {
            version,
            nonce,
            proof
        }),
    ]
}

/// Pushes all of `bytes` in pieces of `piece` and gathers what comes out until there is an error.
fn decode_all(decoder: &mut Decoder, mut bytes: &[u8], piece: usize) -> (Vec<Message>, Option<DecodeError>) {
    let mut messages = vec![];
    loop {
        let taken = decoder.push(&bytes[..bytes.len().min(piece)]);
        bytes = &bytes[taken..];
        assert!(decoder.room() <= MOST_FRAME);
        loop {
            match decoder.message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(decoder.room() > 0, "it would never take another byte");
        if bytes.is_empty() {
            return (messages, None);
        }
    }
}

proptest! {
    #[test]
    fn messages_arrive_as_they_were_sent(messages in prop::collection::vec(arb_message(), 0..8), piece in 1usize..5000) {
        let bytes: Vec<u8> = messages.iter().flat_map(|m| m.encode().unwrap()).collect();
        let mut decoder = Decoder::new();
        decoder.strict();
        let (found, error) = decode_all(&mut decoder, &bytes, piece);
        prop_assert_eq!(found, messages);
        prop_assert_eq!(error, None);
        prop_assert!(!decoder.is_midway());
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..3000), piece in 1usize..100, strict: bool) {
        let mut decoder = Decoder::new();
        if strict {
            decoder.strict();
        }
        let (found, _) = decode_all(&mut decoder, &bytes, piece);
        prop_assert_eq!(found, vec![]);
    }

    /// Whole frames with payloads of any content reach the messages' own checks.
    #[test]
    fn any_payload_is_survived(kind: u8, payload in prop::collection::vec(any::<u8>(), 0..500)) {
        let mut decoder = Decoder::new();
        decoder.strict();
        let sent = frame::join(kind, &payload, None);
        for message in decode_all(&mut decoder, &sent, 4096).0 {
            // What is taken for a message is one: the same bytes come back.
            prop_assert_eq!(message.encode().unwrap(), sent.clone());
        }
    }

    #[test]
    fn a_changed_byte_is_an_error(message in arb_message(), at: prop::sample::Index, to: u8) {
        let mut bytes = message.encode().unwrap();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        let mut decoder = Decoder::new();
        decoder.strict();
        let (found, error) = decode_all(&mut decoder, &bytes, 4096);
        prop_assert_eq!(found, vec![]);
        // Never taken for a shorter message; a length that grew is reported by the header's own check.
        prop_assert!(error.is_some());
        prop_assert_eq!(decoder.message().unwrap_err(), error.unwrap());
    }

    #[test]
    fn a_search_finds_what_comes_after_garbage(
        garbage in prop::collection::vec(any::<u8>(), 0..300), cut in arb_message(), at: prop::sample::Index,
        messages in prop::collection::vec(arb_message(), 1..4), piece in 1usize..300,
    ) {
        let cut = cut.encode().unwrap();
        let mut bytes = garbage;
        // The second half of a frame, which the garbage does not complete by chance, and the first half of another.
        bytes.push(0);
        bytes.extend_from_slice(&cut[1 + at.index(cut.len() - 1)..]);
        bytes.extend_from_slice(&cut[..at.index(cut.len() - 1)]);
        bytes.extend(messages.iter().flat_map(|m| m.encode().unwrap()));
        let mut decoder = Decoder::new();
        let (mut found, error) = decode_all(&mut decoder, &bytes, piece);
        prop_assert_eq!(error, None);
        // A half frame may hide what follows for as long as bytes come; when none come, it does not any more.
        while decoder.is_midway() {
            decoder.stalled();
            while let Some(message) = decoder.message().unwrap() {
                found.push(message);
            }
        }
        prop_assert_eq!(found, messages);
    }
}

#[test]
fn garbage_without_end_is_told() {
    let mut decoder = Decoder::new();
    let garbage = MAGIC.repeat(1000);
    let mut pushed = 0;
    let error = loop {
        pushed += decoder.push(&garbage);
        match decoder.message() {
            Ok(None) => assert!(pushed <= MOST_SKIPPED + MOST_FRAME),
            Ok(Some(message)) => panic!("{message:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, DecodeError::Garbage);
    decoder.search();
    assert_eq!(decoder.message(), Ok(None));
}

#[test]
fn garbage_between_messages_adds_up() {
    let mut decoder = Decoder::new();
    let part = [&[0; 10_000][..], &Message::Pong(1).encode().unwrap()].concat();
    let parts = (0..).position(|_| decode_all(&mut decoder, &part, part.len()).1 == Some(DecodeError::Garbage));
    assert_eq!(parts, Some(MOST_SKIPPED / 10_000));
}

#[test]
fn headers_within_a_damaged_frame_cost_little() {
    let mut decoder = Decoder::new();
    // The header of the greatest frame again and again: each claims all that follows it.
    let header = frame::join(4, &[0; MOST_PAYLOAD], None)[..HEADER].to_vec();
    assert_eq!(decode_all(&mut decoder, &header.repeat(4000), 4096).1, Some(DecodeError::Damaged));
    decoder.search();
    assert_ne!(decoder.message(), Err(DecodeError::Damaged), "counted anew");
}

#[test]
fn the_greatest_messages_fit() {
    let ranges: Vec<_> = (0..MOST_RANGES as u64).map(|i| AddrRange::new(i << 21, (i + 1) << 21)).collect();
    let report = Message::Report { token: 1, batch: 2, ranges: ranges.clone() };
    let memory = (0..MOST_AREAS as u64)
        .map(|i| MemoryArea { range: AddrRange::new(i << 30, (i + 1) << 30), kind: MemoryKind::Ram })
        .collect();
    let hello = Message::Hello(Hello {
        version: VERSION,
        session: 1,
        guest_id: [7; 16],
        page_size: 4096,
        block_size: 2 << 20,
        memory,
        agent: "x".repeat(MOST_TEXT),
    });
    let ack = Message::Ack { token: 1, batch: 2, wait_ms: 0, verdicts: vec![Verdict::NotNow; MOST_RANGES] };
    for message in [report, hello, ack] {
        let bytes = message.encode().unwrap();
        assert!(bytes.len() <= MOST_FRAME);
        let mut decoder = Decoder::new();
        assert_eq!(decode_all(&mut decoder, &bytes, 4096), (vec![message], None));
    }
    let many = Message::Report { token: 1, batch: 2, ranges: [ranges, vec![AddrRange::new(0, 1)]].concat() };
    assert!(matches!(many.encode(), Err(EncodeError::TooMany { count: 1025, .. })));
    assert!(Message::Report { token: 1, batch: 2, ranges: vec![] }.encode().is_err());
    assert!(Message::Report { token: 1, batch: 2, ranges: vec![AddrRange { start: 2, end: 1 }] }.encode().is_err());
}

#[test]
fn lengths_are_not_believed() {
    // Valid in every other way.
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&[frame::PLAIN, 4]);
    header.extend_from_slice(&u16::MAX.to_le_bytes());
    header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    assert_eq!(header.len(), HEADER);
    assert!(usize::from(u16::MAX) > MOST_PAYLOAD);
    let mut decoder = Decoder::new();
    decoder.strict();
    assert_eq!(decode_all(&mut decoder, &header, 4096).1, Some(DecodeError::TooLong(65535)));
}

/// The greeting of version 1 held the key; it is still read, so that its sender can learn of the versions.
#[test]
fn a_greeting_of_version_1_is_told_from_one_of_today() {
    let greeting = |version: u16| {
        let mut payload = version.to_le_bytes().to_vec();
        payload.extend_from_slice(&[0; 8 + 16]);
        payload.extend_from_slice(&16u16.to_le_bytes());
        payload.extend_from_slice(b"0123456789abcdef");
        payload.extend_from_slice(&4096u32.to_le_bytes());
        payload.extend_from_slice(&4096u64.to_le_bytes());
        payload.extend_from_slice(&1u16.to_le_bytes());
        payload.push(0);
        payload.extend_from_slice(&0u64.to_le_bytes());
        payload.extend_from_slice(&4096u64.to_le_bytes());
        payload.extend_from_slice(&0u16.to_le_bytes());
        let mut decoder = Decoder::new();
        decoder.strict();
        decoder.push(&frame::join(2, &payload, None));
        decoder.message()
    };
    assert!(matches!(greeting(1), Ok(Some(Message::Hello(Hello { version: 1, .. })))));
    assert!(matches!(greeting(VERSION), Err(DecodeError::Value(_))));
}

#[test]
fn texts_are_made_fit_for_terminals() {
    let sent = Message::Bye("a\u{1b}[2Jb\n\u{e9}".into()).encode().unwrap();
    let mut decoder = Decoder::new();
    assert_eq!(decode_all(&mut decoder, &sent, 4096).0, [Message::Bye("a?[2Jb??".into())]);
    let hostile = frame::join(9, &[&2u16.to_le_bytes()[..], b"\x1b["].concat(), None);
    decoder.strict();
    assert!(matches!(decode_all(&mut decoder, &hostile, 4096).1, Some(DecodeError::Value(_))));
}
