//! The old binary records; the layout is described at the reader.

use super::{Export, Out};
use crate::error::WriteError;
use crate::import::binary::BINARY_MAGIC;
use isotherm_core::event::Event;
use isotherm_core::snapshot::Snapshot;
use std::collections::BTreeMap;

/// Writes version 0, 1 or 2. Snapshots that end at the same time become one record of several targets.
pub(crate) struct Binary {
    out: Out,
    version: i32,
    /// Snapshots of the same time that are not written yet: their number and their bytes.
    together: (u32, Vec<u8>),
    end_ns: u64,
    /// Targets with one snapshot so far, and the end of the false one they need.
    lone: BTreeMap<u64, Option<u64>>,
}

impl Binary {
    pub(crate) fn new(mut out: Out, version: i32) -> Result<Self, WriteError> {
        if version > 0 {
            out.put(BINARY_MAGIC)?;
            out.put(&version.to_le_bytes())?;
        }
        Ok(Self { out, version, together: (0, Vec::new()), end_ns: 0, lone: BTreeMap::new() })
    }

    fn id(&self, s: &Snapshot) -> Result<u64, WriteError> {
        if self.version != 1 {
            return Ok(u64::from(s.target));
        }
        let needs = "version 1 tells targets by pid, and this record has none; write binary_v2";
        s.pid.filter(|&p| i32::try_from(p).is_ok()).map(u64::from).ok_or_else(|| self.out.unfit(needs))
    }

    fn put_target(&mut self, end_ns: u64, id: u64, regions: &[(u64, u64, u32)]) -> Result<(), WriteError> {
        if end_ns != self.end_ns {
            self.flush()?;
            self.end_ns = end_ns;
        }
        let bytes = &mut self.together.1;
        if self.version == 1 {
            bytes.extend_from_slice(&u32::try_from(id).unwrap_or(u32::MAX).to_le_bytes());
        } else {
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes.extend_from_slice(&u32::try_from(regions.len()).unwrap_or(u32::MAX).to_le_bytes());
        for (start, end, nr) in regions {
            bytes.extend_from_slice(&start.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
            bytes.extend_from_slice(&nr.to_le_bytes());
        }
        self.together.0 += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        let (targets, bytes) = std::mem::take(&mut self.together);
        if targets == 0 {
            return Ok(());
        }
        let mut head = [0; 20];
        head[..8].copy_from_slice(&(self.end_ns / 1_000_000_000).to_le_bytes());
        head[8..16].copy_from_slice(&(self.end_ns % 1_000_000_000).to_le_bytes());
        head[16..].copy_from_slice(&targets.to_le_bytes());
        self.out.put(&head)?;
        self.out.put(&bytes)
    }
}

impl Export for Binary {
    fn write(&mut self, event: &Event) -> Result<(), WriteError> {
        let Event::Snapshot(s) = event else { return Ok(()) };
        let id = self.id(s)?;
        let end_of_false = s.end_ns.saturating_add(s.end_ns - s.start_ns);
        self.lone.entry(id).and_modify(|l| *l = None).or_insert(Some(end_of_false));
        let regions: Vec<_> = s.regions.iter().map(|r| (r.start, r.end, r.nr_accesses)).collect();
        self.put_target(s.end_ns, id, &regions)
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        let mut false_ones: Vec<(u64, u64)> = self.lone.iter().filter_map(|(id, l)| l.map(|end| (end, *id))).collect();
        false_ones.sort_unstable();
        for (end, id) in false_ones {
            self.put_target(end, id, &[(0, 0, u32::MAX)])?;
        }
        self.flush()?;
        self.out.finish()
    }
}
