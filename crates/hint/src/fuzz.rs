//! Bodies for fuzzers and damage tests: each takes bytes from anywhere and panics if a promise of the protocol's reader
//! is broken.

mod session;

pub use session::session;

use crate::host::mtree::{self, Backend};
use crate::protocol::auth::{Exchange, Key};
use crate::protocol::{Decoder, Message};

/// Reads bytes as a stream that comes in pieces, of which the first byte says how long they are: searching, and
/// strictly.
pub fn stream(bytes: &[u8]) {
    let (&first, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    for strict in [false, true] {
        let mut decoder = Decoder::new();
        if strict {
            decoder.strict();
        }
        for piece in bytes.chunks(usize::from(first) + 1) {
            if read(&mut decoder, piece, &mut check).is_err() {
                assert!(decoder.message().is_err(), "an error is the end");
                break;
            }
        }
        decoder.stalled();
        let _ = read(&mut decoder, &[], &mut check);
    }
}

/// Reads bytes in the midst of sealed frames: whoever does not know the key is not heard.
pub fn sealed(bytes: &[u8]) {
    let key = Key::new(b"a key that is long enough for one".to_vec()).expect("is long enough");
    let exchange = Exchange { host: [1; 16], guest: [2; 16] };
    let mut seal = exchange.of_guest(&key);
    let mut frame = |number| Message::Ping(number).frame(Some(&mut seal)).expect("is short");
    let (begin, next) = (frame(1), frame(2));
    let mut decoder = Decoder::new();
    decoder.expect_seals(exchange.of_guest(&key));
    let mut heard = Vec::new();
    let mut hear = |message: &Message| heard.push(message.clone());
    read(&mut decoder, &begin, &mut hear).expect("it is sealed");
    let rest = [bytes, &next].concat();
    let _ = read(&mut decoder, &rest, &mut hear);
    let honest = [Message::Ping(1), Message::Ping(2)];
    // The second is heard where nothing came before it, or it itself and then no more.
    assert!(heard == honest || heard == honest[..1], "{heard:?}");
}

/// Hands out all messages of a stream's next bytes.
fn read(decoder: &mut Decoder, mut bytes: &[u8], hear: &mut dyn FnMut(&Message)) -> Result<(), ()> {
    loop {
        let taken = decoder.push(bytes);
        bytes = &bytes[taken..];
        while let Some(message) = decoder.message().map_err(drop)? {
            hear(&message);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        assert!(decoder.room() > 0, "without a message it takes more bytes");
    }
}

/// What was read is what our own frame of it says.
fn check(message: &Message) {
    let frame = message.encode().expect("what was taken can be sent");
    let mut decoder = Decoder::new();
    decoder.strict();
    assert_eq!(decoder.push(&frame), frame.len());
    assert_eq!(decoder.message().as_ref().map(Option::as_ref), Ok(Some(message)));
    assert_eq!(decoder.message(), Ok(None));
}

/// Reads bytes as what a VMM says of its memory map. Each name in it is a backend, as long as its last part needs.
pub fn memory_map(bytes: &[u8]) {
    let Ok(regions) = mtree::parse(&String::from_utf8_lossy(bytes)) else { return };
    let mut backends: Vec<Backend> = Vec::new();
    for region in &regions {
        assert!(region.addr.start < region.addr.end, "a part is empty");
        let Some(size) = region.offset.checked_add(region.addr.len()) else { continue };
        match backends.iter_mut().find(|backend| backend.id == region.name) {
            Some(backend) => backend.size = backend.size.max(size),
            None => backends.push(Backend { id: region.name.clone(), size }),
        }
    }
    let sizes: Vec<u64> = backends.iter().map(|backend| backend.size).collect();
    let Ok(layout) = mtree::layout(&regions, &backends, &sizes, &|_, _| None) else { return };
    assert!(layout.pieces().windows(2).all(|pair| pair[0].addr.end <= pair[1].addr.start), "parts overlap");
    for piece in layout.pieces() {
        assert!(piece.offset + piece.addr.len() <= sizes[piece.file], "a part leaves its file");
        let is_it = |region: &mtree::Region| {
            region.addr == piece.addr && region.offset == piece.offset && region.name == backends[piece.file].id
        };
        assert!(regions.iter().any(is_it), "a part that nobody named");
        assert_eq!(sizes.iter().filter(|size| **size == sizes[piece.file]).count(), 1, "two backends look alike");
    }
}
