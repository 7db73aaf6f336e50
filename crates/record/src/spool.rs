//! A temporary, compressed store for events in several lanes, so that formats which store target by target can be read
//! and written in bounded memory.

use crate::format::event::{self, FrameState};
use crate::format::frame::{FRAME_HEADER_LEN, FrameHeader, FrameKind, Packer, length};
use crate::format::varint::Cursor;
use isotherm_core::event::Event;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Events of a lane are kept in memory up to this many bytes (before compression).
const CHUNK: usize = 32 << 10;
/// All lanes together are kept in memory up to this many bytes.
const MAX_PENDING: usize = 32 << 20;
/// Speed matters more than size here.
const LEVEL: u32 = 1;

#[derive(Debug, Default)]
struct Lane {
    raw: Vec<u8>,
    events: u32,
    state: FrameState,
    /// Offset and length of the frames in the file.
    chunks: Vec<(u64, u32)>,
}

/// Events by lane. The file is unnamed and vanishes with the process.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    file: Option<File>,
    len: u64,
    lanes: Vec<Lane>,
    /// Bytes in all lanes' memory.
    pending: usize,
    packer: Option<Packer>,
}

impl Spool {
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Appends an event to a lane, which is made if there is none.
    pub(crate) fn push(&mut self, lane: usize, event: &Event) -> io::Result<()> {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, Lane::default);
        }
        let l = &mut self.lanes[lane];
        let before = l.raw.len();
        event::encode(&mut l.raw, &mut l.state, event).map_err(io::Error::other)?;
        l.events += 1;
        self.pending += l.raw.len() - before;
        if l.raw.len() >= CHUNK {
            self.store(lane)
        } else if self.pending > MAX_PENDING {
            self.store_all()
        } else {
            Ok(())
        }
    }

    fn store(&mut self, lane: usize) -> io::Result<()> {
        let l = &mut self.lanes[lane];
        if l.events == 0 {
            return Ok(());
        }
        let packer = self.packer.get_or_insert_with(|| Packer::new(LEVEL));
        let bytes = packer.pack(FrameKind::Events, &l.raw, l.events, 0);
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile()?,
        };
        file.write_all(bytes)?;
        self.file = Some(file);
        l.chunks.push((self.len, length(bytes)));
        self.len += bytes.len() as u64;
        self.pending -= l.raw.len();
        l.raw = Vec::new();
        l.events = 0;
        l.state.clear();
        Ok(())
    }

    fn store_all(&mut self) -> io::Result<()> {
        (0..self.lanes.len()).try_for_each(|lane| self.store(lane))
    }

    /// Ends the writing; the lanes can be read now.
    pub(crate) fn finish(mut self) -> io::Result<Stored> {
        self.store_all()?;
        Ok(Stored { file: self.file, lanes: self.lanes.into_iter().map(|l| l.chunks).collect() })
    }
}

/// A spool that is complete.
#[derive(Debug)]
pub(crate) struct Stored {
    file: Option<File>,
    lanes: Vec<Vec<(u64, u32)>>,
}

impl Stored {
    /// Reads a lane from its begin.
    pub(crate) fn lane(&self, lane: usize) -> LaneReader<'_> {
        LaneReader {
            file: self.file.as_ref(),
            chunks: self.lanes.get(lane).map_or(&[], Vec::as_slice),
            raw: Vec::new(),
            used: 0,
            left: 0,
            state: FrameState::default(),
        }
    }
}

/// Yields the events of one lane.
#[derive(Debug)]
pub(crate) struct LaneReader<'a> {
    file: Option<&'a File>,
    chunks: &'a [(u64, u32)],
    raw: Vec<u8>,
    used: usize,
    left: u32,
    state: FrameState,
}

impl LaneReader<'_> {
    /// Reads the next event.
    pub(crate) fn next_event(&mut self) -> io::Result<Option<Event>> {
        let lost = || io::Error::other("the temporary file was changed");
        while self.left == 0 {
            let (Some((&(offset, len), rest)), Some(file)) = (self.chunks.split_first(), self.file) else {
                return Ok(None);
            };
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(&mut bytes, offset)?;
            let (head, payload) = bytes.split_first_chunk::<FRAME_HEADER_LEN>().ok_or_else(lost)?;
            let header = FrameHeader::parse(head).filter(|h| h.matches(payload)).ok_or_else(lost)?;
            header.unpack(payload, &mut self.raw).map_err(io::Error::other)?;
            self.chunks = rest;
            self.used = 0;
            self.left = header.events;
            self.state.clear();
        }
        let rest = &self.raw[self.used..];
        let mut cursor = Cursor::new(rest);
        let event = event::decode(&mut cursor, &mut self.state).map_err(io::Error::other)?;
        self.used += rest.len() - cursor.remaining();
        self.left -= 1;
        event.map(Some).ok_or_else(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::target::Footprint;

    #[test]
    fn lanes_come_back_in_order() {
        let event = |lane: u32, i: u64| {
            Event::Footprint(Footprint {
                time_ns: i,
                target: lane,
                vsz: i * 77_777,
                rss: u64::MAX / (i + 1),
                swap: None,
            })
        };
        let mut spool = Spool::default();
        for i in 0..20_000 {
            spool.push((i % 3) as usize, &event((i % 3) as u32, i)).unwrap();
        }
        assert!(spool.lanes.iter().all(|l| !l.chunks.is_empty()), "the test must reach the file");
        let stored = spool.finish().unwrap();
        for lane in 0..3 {
            let mut reader = stored.lane(lane);
            let mut i = lane as u64;
            while let Some(e) = reader.next_event().unwrap() {
                assert_eq!(e, event(lane as u32, i));
                i += 3;
            }
            assert!(i >= 20_000);
        }
    }
}
