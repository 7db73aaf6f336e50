//! Bodies for fuzzers and damage tests: each takes bytes from anywhere and panics if a promise of the readers is
//! broken.

use crate::{Format, Input, Options, Outcome, ReadError, Reader, Writer, read_events};
use isotherm_core::event::Event;
use isotherm_core::history::frame::TablePages;
use std::io::Cursor;
use std::sync::{Arc, Mutex};

/// What a reading yielded: events, and how it ended.
#[derive(Debug)]
pub struct Reading {
    /// Events handed out before the end or the error.
    pub events: Vec<Event>,
    /// How it ended.
    pub end: Result<Outcome, ReadError>,
}

/// Reads `bytes` as `format`, or as what they look like.
pub fn read(bytes: &[u8], format: Option<Format>) -> Reading {
    let mut events = Vec::new();
    let end = Input::from_reader("bytes", Box::new(Cursor::new(bytes.to_vec()))).and_then(|input| {
        read_events(input, format, &mut |e| {
            events.push(e);
            Ok(())
        })
    });
    Reading { events, end }
}

/// Reads `bytes` in every format and as what they look like; checks what comes out.
pub fn every_format(bytes: &[u8]) {
    for format in Format::ALL.into_iter().map(Some).chain([None]) {
        check(&read(bytes, format).events);
    }
}

/// Reads `bytes` as frames behind a valid file header and behind a valid frame header, so that damage reaches the
/// decoder and is not stopped by a checksum.
pub fn payload(bytes: &[u8]) {
    check(&read(&framed(bytes), Some(Format::Iso)).events);
}

/// A record of one valid frame whose unpacked payload is `bytes`.
pub fn framed(bytes: &[u8]) -> Vec<u8> {
    crate::format::frame::wrap(bytes)
}

/// Checks that what was read keeps the rules that views rely on, and that our own format carries it unchanged.
pub fn check(events: &[Event]) {
    for event in events {
        if let Event::Snapshot(s) = event {
            assert!(s.start_ns <= s.end_ns, "a snapshot ends before it starts");
            assert!(s.regions.iter().all(|r| r.start < r.end), "a region is empty");
            assert!(s.regions.windows(2).all(|w| w[0].end <= w[1].start), "regions overlap");
        }
        if let Event::Pages(f) = event {
            assert!(f.mappings.windows(2).all(|w| w[0].range.end <= w[1].range.start), "mappings overlap");
            assert!(f.tables.windows(2).all(|w| w[0].base < w[1].base), "page tables are not in order");
            let fits = |t: &TablePages| t.base.is_multiple_of(2 << 20) && t.accessed <= t.present && t.present <= 512;
            assert!(f.tables.iter().all(fits), "a page table holds too much");
        }
    }
    let written = write(events);
    let reader = Reader::new(&written[..], "bytes").expect("what we wrote can be opened");
    let back: Vec<Event> = reader.map(|e| e.expect("what we wrote can be read")).collect();
    // Debug texts, since a budget that is not a number is not equal to itself.
    assert!(back == events || format!("{back:?}") == format!("{events:?}"), "our own format changes events");
}

/// The bytes of a record of `events`.
pub fn write(events: &[Event]) -> Vec<u8> {
    let bytes = Shared::default();
    let mut writer =
        Writer::to_stream("bytes", Box::new(bytes.clone()), Options::default()).expect("memory is writable");
    for event in events {
        writer.write(event).expect("valid events can be written");
    }
    writer.finish().expect("memory is writable");
    bytes.take()
}

/// A memory that can be looked at while a writer owns it.
#[derive(Debug, Default, Clone)]
pub struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    /// Takes out what was written.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The unpacked payload of a frame of `events`; damage it and give it to [`payload`].
pub fn raw_payload(events: &[Event]) -> Vec<u8> {
    let (mut raw, mut state) = (Vec::new(), crate::format::event::FrameState::default());
    for event in events {
        crate::format::event::encode(&mut raw, &mut state, event).expect("valid events can be written");
    }
    raw
}
