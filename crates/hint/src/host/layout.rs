//! Which part of which file is which guest-physical address.
//!
//! The VMM knows ([`mtree`](super::mtree)). Without it, the guest's own memory map is taken for it if it leaves no
//! doubt: a PC's memory is one file, whose first part lies at address 0 and whose second, if there is one, at 4 GiB.
//! Where the first part ends follows from two facts that have to agree: the size of the file less the length of the
//! second part, and an end in the memory map with nothing but memory and firmware below it. A wrong end would have the
//! guest lose memory in use, so that anything but agreement is refused. (QEMU's q35 with 4 GiB splits at 2 GiB, the
//! older pc at 3 GiB.)

use crate::protocol::{MemoryArea, MemoryKind};
use isotherm_core::addr::AddrRange;

const GIB: u64 = 1 << 30;
/// Where a PC's second part begins.
const HIGH: u64 = 4 * GIB;
/// The first memory of a PC begins below this: the first page or a little more may be taken by the firmware.
const LOW_START: u64 = 1 << 20;

/// A part of a file that is memory of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutPart {
    /// Where the guest sees it.
    pub addr: AddrRange,
    /// Which of the files.
    pub file: usize,
    /// Where it begins in the file.
    pub offset: u64,
}

/// All parts, by guest-physical address, without overlaps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    pieces: Vec<LayoutPart>,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Memory does not begin where a PC's does.
    #[error("the guest's memory begins at {0:#x}, which is no PC's; give the VMM's QMP socket (qmp=PATH)")]
    Start(u64),
    /// Memory does not add up to the file.
    #[error(
        "the guest's memory map does not add up to its {size} bytes of memory: {why}; give the VMM's QMP socket (qmp=PATH)"
    )]
    Sum {
        /// Size of the file.
        size: u64,
        /// What does not fit.
        why: String,
    },
    /// Parts overlap, or leave their file.
    #[error("the VMM's memory map is not understood: {0}")]
    Map(String),
}

impl Layout {
    /// From parts in any order, of files of these sizes.
    pub fn new(mut pieces: Vec<LayoutPart>, sizes: &[u64]) -> Result<Self, LayoutError> {
        pieces.sort_unstable_by_key(|piece| piece.addr);
        for piece in &pieces {
            let end = piece.offset.checked_add(piece.addr.len());
            if piece.addr.is_empty() || end.is_none_or(|end| sizes.get(piece.file).is_none_or(|size| end > *size)) {
                return Err(LayoutError::Map(format!(
                    "{:#x}-{:#x} is not inside its file",
                    piece.addr.start, piece.addr.end
                )));
            }
        }
        if let Some(pair) = pieces.windows(2).find(|pair| pair[0].addr.end > pair[1].addr.start) {
            return Err(LayoutError::Map(format!("two parts overlap at {:#x}", pair[1].addr.start)));
        }
        Ok(Self { pieces })
    }

    /// From a PC guest's own map, of one file of `size` bytes.
    pub(crate) fn of_guest(areas: &[MemoryArea], size: u64) -> Result<Self, LayoutError> {
        let no = |why: String| LayoutError::Sum { size, why };
        let ram = || areas.iter().filter(|area| area.kind == MemoryKind::Ram).map(|area| area.range);
        let start = ram().next().map_or(0, |range| range.start);
        if start >= LOW_START {
            return Err(LayoutError::Start(start));
        }
        if let Some(range) = ram().find(|range| range.start < HIGH && range.end > HIGH) {
            return Err(no(format!("{:#x}-{:#x} crosses 4 GiB", range.start, range.end)));
        }
        let high = ram().filter(|range| range.start >= HIGH).fold(None, |whole: Option<AddrRange>, range| {
            Some(AddrRange::new(whole.map_or(range.start, |w| w.start), range.end))
        });
        let high = high.unwrap_or(AddrRange::new(HIGH, HIGH));
        if high.start != HIGH {
            return Err(no(format!("memory above 4 GiB begins at {:#x}", high.start)));
        }
        let Some(split) = size.checked_sub(high.len()).filter(|split| *split <= HIGH) else {
            return Err(no(format!("{} bytes of it lie above 4 GiB", high.len())));
        };
        let low_end = ram().filter(|range| range.start < HIGH).map(|range| range.end).max().unwrap_or(0);
        if low_end > split {
            return Err(no(format!(
                "below 4 GiB it ends at {low_end:#x}, but only {split:#x} bytes are left for that"
            )));
        }
        // From the last memory to the split there must be firmware without a gap, which ends exactly there.
        let mut end = low_end;
        for area in areas.iter().filter(|area| area.range.start >= low_end && area.range.end <= split) {
            if area.range.start == end {
                end = area.range.end;
            }
        }
        if end != split {
            return Err(no(format!("below 4 GiB it ends at {end:#x}, and {split:#x} bytes should lie there")));
        }
        let mut pieces = vec![LayoutPart { addr: AddrRange::new(0, split), file: 0, offset: 0 }];
        if !high.is_empty() {
            pieces.push(LayoutPart { addr: high, file: 0, offset: split });
        }
        Self::new(pieces, &[size])
    }

    /// The same of the file of another number.
    pub(crate) fn in_file(mut self, number: usize) -> Self {
        self.pieces.iter_mut().for_each(|piece| piece.file = number);
        self
    }

    pub fn pieces(&self) -> &[LayoutPart] {
        &self.pieces
    }

    /// The parts of files that make up `range`; `None` if some of it is not memory.
    pub fn find(&self, range: AddrRange) -> Option<Vec<LayoutPart>> {
        let mut found = Vec::new();
        let mut at = range.start;
        let first = self.pieces.partition_point(|piece| piece.addr.end <= range.start);
        for piece in &self.pieces[first..] {
            if at >= range.end {
                break;
            }
            if piece.addr.start > at {
                return None;
            }
            let addr = AddrRange::new(at, piece.addr.end.min(range.end));
            found.push(LayoutPart { addr, file: piece.file, offset: piece.offset + (at - piece.addr.start) });
            at = addr.end;
        }
        (at >= range.end && !range.is_empty()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn area(start: u64, end: u64, kind: MemoryKind) -> MemoryArea {
        MemoryArea { range: AddrRange::new(start, end), kind }
    }

    /// What the firmware of a PC tells of `low` bytes below 4 GiB and `high` above.
    fn pc(low: u64, high: u64) -> Vec<MemoryArea> {
        use MemoryKind::{Ram, Reserved};
        let mut areas = vec![
            area(0, 0x1000, Reserved),
            area(0x1000, 0x9fc00, Ram),
            area(0x9fc00, 0xa0000, Reserved),
            area(0xf0000, 0x10_0000, Reserved),
            area(0x10_0000, low - 0x2_0000, Ram),
            area(low - 0x2_0000, low, Reserved),
            area(0xb000_0000, 0xc000_0000, Reserved),
            area(0xfed1_c000, 0xfed2_0000, Reserved),
        ];
        if high > 0 {
            areas.push(area(HIGH, HIGH + high, Ram));
        }
        areas
    }

    #[test]
    fn small_memory_is_one_part() {
        let layout = Layout::of_guest(&pc(512 * MIB, 0), 512 * MIB).unwrap();
        assert_eq!(layout.pieces(), [LayoutPart { addr: AddrRange::new(0, 512 * MIB), file: 0, offset: 0 }]);
    }

    #[test]
    fn the_split_is_found() {
        for (low, high) in [(2 * GIB, 2 * GIB), (3 * GIB, GIB), (0xb000_0000, 7 * GIB), (2 * GIB, 6 * GIB)] {
            let layout = Layout::of_guest(&pc(low, high), low + high).unwrap();
            assert_eq!(layout.find(AddrRange::new(HIGH, HIGH + 2 * MIB)).unwrap()[0].offset, low);
            assert_eq!(layout.find(AddrRange::new(low, low + MIB)), None, "the hole is no memory");
            assert_eq!(layout.find(AddrRange::new(low - MIB, low)).unwrap()[0].offset, low - MIB);
        }
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        use MemoryKind::{Ram, Reserved};
        let refused = |areas: &[MemoryArea], size| Layout::of_guest(areas, size).unwrap_err();
        // Another guest's file, or a guest that lies.
        for size in [MIB, 511 * MIB, 513 * MIB, 2 * GIB, 5 * GIB] {
            assert!(matches!(refused(&pc(512 * MIB, 0), size), LayoutError::Sum { .. }), "{size}");
        }
        for size in [GIB, 2 * GIB, 4 * GIB - 2 * MIB, 4 * GIB + 2 * MIB, 8 * GIB, 100 * GIB] {
            assert!(matches!(refused(&pc(2 * GIB, 2 * GIB), size), LayoutError::Sum { .. }), "{size}");
        }
        // Part of the memory above 4 GiB is missing at its end: the split would be wrong.
        let mut cut = pc(2 * GIB, 2 * GIB);
        cut.last_mut().unwrap().range.end -= 2 * MIB;
        assert!(matches!(refused(&cut, 4 * GIB), LayoutError::Sum { .. }));
        // Firmware's memory is not reported.
        let mut untold = pc(2 * GIB, 2 * GIB);
        untold.remove(5);
        assert!(matches!(refused(&untold, 4 * GIB), LayoutError::Sum { .. }));
        // Another machine.
        let arm = [area(GIB, 2 * GIB, Ram)];
        assert_eq!(refused(&arm, GIB), LayoutError::Start(GIB));
        let crossing = [area(0x1000, 5 * GIB, Ram)];
        assert!(matches!(refused(&crossing, 5 * GIB), LayoutError::Sum { .. }));
        let late = [area(0x1000, GIB, Ram), area(HIGH + GIB, HIGH + 2 * GIB, Ram)];
        assert!(matches!(refused(&late, 2 * GIB), LayoutError::Sum { .. }));
        assert!(matches!(refused(&[area(0, GIB, Reserved)], 2 * GIB), LayoutError::Sum { .. }));
    }

    #[test]
    fn parts_are_inside_their_files_and_apart() {
        let piece = |start, end, offset| LayoutPart { addr: AddrRange::new(start, end), file: 0, offset };
        assert!(Layout::new(vec![piece(0, 10, 0), piece(20, 30, 10)], &[20]).is_ok());
        assert!(Layout::new(vec![piece(0, 10, 0), piece(9, 19, 10)], &[20]).is_err());
        assert!(Layout::new(vec![piece(0, 10, 11)], &[20]).is_err());
        assert!(Layout::new(vec![piece(0, 10, u64::MAX)], &[20]).is_err());
        assert!(Layout::new(vec![piece(0, 10, 0)], &[]).is_err());
    }

    proptest! {
        /// Every byte of a found range is where the parts say, and nothing is found that is not all memory.
        #[test]
        fn ranges_are_found_byte_by_byte(
            parts in prop::collection::vec((0u64..4, 1u64..6), 0..8), start in 0u64..40, len in 0u64..20,
        ) {
            let (mut at, mut offset, mut pieces) = (0, 0, vec![]);
            for (gap, len) in parts {
                pieces.push(LayoutPart { addr: AddrRange::new(at + gap, at + gap + len), file: 0, offset });
                at += gap + len;
                offset += len;
            }
            let layout = Layout::new(pieces.clone(), &[offset]).unwrap();
            let place = |byte: u64| pieces.iter().find(|p| p.addr.contains(byte)).map(|p| p.offset + byte - p.addr.start);
            let expected: Option<Vec<u64>> = (start..start + len).map(place).collect();
            let found = layout.find(AddrRange::new(start, start + len));
            let bytes = found.map(|pieces| pieces.iter().flat_map(|p| p.offset..p.offset + p.addr.len()).collect::<Vec<_>>());
            prop_assert_eq!(bytes, expected.filter(|bytes| !bytes.is_empty()));
        }

        #[test]
        fn no_map_is_a_panic(areas in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..20), size: u64) {
            let areas: Vec<MemoryArea> = areas.into_iter()
                .map(|(a, b, ram)| area(a.min(b), a.max(b), if ram { MemoryKind::Ram } else { MemoryKind::Reserved })).collect();
            if let Ok(layout) = Layout::of_guest(&areas, size) {
                prop_assert_eq!(layout.pieces().iter().map(|p| p.addr.len()).sum::<u64>(), size);
            }
        }
    }
}
