use super::*;
use crate::protocol::frame::{HEADER, SEALED};
use crate::protocol::{DecodeError, Decoder, ErrorCode, Message};
use proptest::prelude::*;

const EXCHANGE: Exchange = Exchange { host: [1; NONCE], guest: [2; NONCE] };

fn key() -> Key {
    Key::new(b"correct horse battery".to_vec()).unwrap()
}

/// What a guest says in turn, each in its sealed frame.
fn frames(exchange: Exchange, numbers: &[u64]) -> Vec<Vec<u8>> {
    let mut seal = exchange.of_guest(&key());
    numbers.iter().map(|number| Message::Ping(*number).frame(Some(&mut seal)).unwrap()).collect()
}

/// What one who expects these seals takes of the frames: the numbers, and what was wrong in the end.
fn taken<'a>(seal: Seal, frames: impl IntoIterator<Item = &'a Vec<u8>>) -> (Vec<u64>, Option<DecodeError>) {
    let mut decoder = Decoder::new();
    decoder.expect_seals(seal);
    let mut numbers = vec![];
    for frame in frames {
        assert_eq!(decoder.push(frame), frame.len());
        loop {
            match decoder.message() {
                Ok(Some(Message::Ping(number))) => numbers.push(number),
                Ok(Some(other)) => panic!("{other:?}"),
                Ok(None) => break,
                Err(error) => return (numbers, Some(error)),
            }
        }
    }
    (numbers, None)
}

/// The same for the host's side of [`EXCHANGE`].
fn host_takes<'a>(frames: impl IntoIterator<Item = &'a Vec<u8>>) -> (Vec<u64>, Option<DecodeError>) {
    taken(EXCHANGE.of_guest(&key()), frames)
}

fn arb_exchange() -> impl Strategy<Value = Exchange> {
    (any::<Nonce>(), any::<Nonce>()).prop_map(|(host, guest)| Exchange { host, guest })
}

proptest! {
    #[test]
    fn what_one_side_seals_the_other_takes(exchange in arb_exchange(), numbers in prop::collection::vec(any::<u64>(), 0..9)) {
        let sent = frames(exchange, &numbers);
        prop_assert_eq!(taken(exchange.of_guest(&key()), &sent), (numbers, None));
    }

    #[test]
    fn no_bit_can_be_changed(numbers in prop::collection::vec(any::<u64>(), 1..6), at: prop::sample::Index, bit: prop::sample::Index) {
        let mut sent = frames(EXCHANGE, &numbers);
        let at = at.index(sent.len());
        let bit = bit.index(sent[at].len() * 8);
        sent[at][bit / 8] ^= 1 << (bit % 8);
        let (before, error) = host_takes(&sent);
        // In a length the next frames may be needed to tell.
        prop_assert_eq!(before, &numbers[..at]);
        prop_assert!(error.is_some());
    }

    /// Whoever changes it puts the header's check right, too.
    #[test]
    fn no_header_can_be_changed(kind: u8, number: u64) {
        let mut sent = frames(EXCHANGE, &[number]);
        prop_assume!(sent[0][5] != kind);
        sent[0][5] = kind;
        let check = crc32fast::hash(&sent[0][..8]).to_le_bytes();
        sent[0][8..HEADER].copy_from_slice(&check);
        prop_assert_eq!(host_takes(&sent), (vec![], Some(DecodeError::Forged)));
    }

    #[test]
    fn no_frame_can_be_left_out_or_sent_again_or_moved(
        numbers in prop::collection::vec(any::<u64>(), 2..8), a: prop::sample::Index, b: prop::sample::Index,
    ) {
        let sent = frames(EXCHANGE, &numbers);
        let (a, b) = (a.index(sent.len()), b.index(sent.len()));
        let mut dropped = sent.clone();
        dropped.remove(a);
        let found = host_takes(&dropped);
        let error = (a + 1 < sent.len()).then_some(DecodeError::Forged);
        prop_assert_eq!(found, (numbers[..a].to_vec(), error), "left out");
        let mut doubled = sent.clone();
        doubled.insert(a.max(b) + 1, sent[a].clone());
        prop_assert_eq!(host_takes(&doubled), (numbers[..=a.max(b)].to_vec(), Some(DecodeError::Forged)), "again");
        prop_assume!(a != b);
        let mut moved = sent;
        moved.swap(a, b);
        prop_assert_eq!(host_takes(&moved), (numbers[..a.min(b)].to_vec(), Some(DecodeError::Forged)), "moved");
    }

    #[test]
    fn what_was_recorded_is_of_no_use(recorded in arb_exchange(), now in arb_exchange(), numbers in prop::collection::vec(any::<u64>(), 1..4)) {
        // It is enough that one side contributes something new.
        prop_assume!(recorded != now);
        let sent = frames(recorded, &numbers);
        prop_assert_eq!(taken(now.of_guest(&key()), &sent), (vec![], Some(DecodeError::Forged)));
        prop_assert!(!now.proves(&key(), &recorded.proof(&key())));
    }

    #[test]
    fn another_key_proves_and_seals_nothing(other in prop::collection::vec(any::<u8>(), 16..=64), number: u64) {
        let other = Key::new(other).unwrap();
        prop_assume!(other != key());
        prop_assert!(!EXCHANGE.proves(&key(), &EXCHANGE.proof(&other)));
        let sent = Message::Ping(number).frame(Some(&mut EXCHANGE.of_guest(&other))).unwrap();
        prop_assert_eq!(host_takes(&vec![sent]), (vec![], Some(DecodeError::Forged)));
    }
}

#[test]
fn what_is_sent_back_is_not_taken() {
    let sent = frames(EXCHANGE, &[1]);
    assert_eq!(taken(EXCHANGE.of_host(&key()), &sent), (vec![], Some(DecodeError::Forged)));
    // A proof seals nothing, and the first seal proves nothing.
    let proof = EXCHANGE.proof(&key());
    assert_ne!(sent[0][sent[0].len() - TAG..], proof);
}

#[test]
fn a_frame_without_seal_is_refused() {
    let plain = Message::Ping(1).encode().unwrap();
    assert_eq!(host_takes(&vec![plain.clone()]), (vec![], Some(DecodeError::Unsealed)));
    // The header alone tells it: no payload is waited for.
    assert_eq!(host_takes(&vec![plain[..HEADER].to_vec()]).1, Some(DecodeError::Unsealed));
    let sealed = frames(EXCHANGE, &[1]).concat();
    let mut decoder = Decoder::new();
    decoder.strict();
    decoder.push(&sealed);
    assert_eq!(decoder.message(), Err(DecodeError::Form(SEALED)), "where no key was proved");
}

#[test]
fn one_without_the_key_can_refuse_until_the_first_seal() {
    let refusal = Message::Error { code: ErrorCode::Denied, text: "no".into() };
    let plain = refusal.encode().unwrap();
    let mut decoder = Decoder::new();
    decoder.expect_seals(EXCHANGE.of_guest(&key()));
    decoder.push(&plain);
    assert_eq!(decoder.message(), Ok(Some(refusal)));
    assert!(!decoder.is_sealed());
    decoder.push(&frames(EXCHANGE, &[1])[0]);
    assert_eq!(decoder.message(), Ok(Some(Message::Ping(1))));
    assert!(decoder.is_sealed());
    decoder.push(&plain);
    assert_eq!(decoder.message(), Err(DecodeError::Unsealed));
}

/// Figures from another implementation of the description (Python's hmac), so that both sides cannot change together
/// without a word.
#[test]
fn the_description_is_kept() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&EXCHANGE.proof(&key())), "cc9908c5e095264d8a706b7a83c1be35");
    let sent = frames(EXCHANGE, &[7, 8]);
    assert_eq!(hex(&sent[0][sent[0].len() - TAG..]), "16ae669dac1498380c1c7c17b5cd02cf");
    assert_eq!(hex(&sent[1][sent[1].len() - TAG..]), "500f6eba55f29d6c5d6a1245476c1e36");
}

#[test]
fn keys_have_a_length_and_are_not_shown() {
    assert_eq!(Key::new(vec![1; 15]).unwrap_err().to_string(), "a key has 16 to 64 bytes, this one 15");
    assert!(Key::new(vec![1; 65]).is_err());
    assert_eq!(format!("{:?}", Key::new(vec![1; 64])), "Ok(Key)");
}
