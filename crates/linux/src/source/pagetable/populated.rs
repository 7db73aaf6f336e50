//! Which parts of large reservations have page tables at all.
//!
//! One entry is read per span of 512 GiB; where something is below it, one per 1 GiB; where something is below that,
//! one per 2 MiB. A reservation of terabytes with little in it thus costs a few hundred reads.

use super::space::{Observer, ProcessSpace, SpaceError};
use super::walker::{Mapped, Span};
use crate::proc::Process;
use isotherm_core::addr::{AddrRange, normalize};

/// log2 of the spans asked about, widest first.
const SHIFTS: [u8; 3] = [39, 30, 21];

impl Observer {
    /// See [`isotherm_core::source::AccessSource::populated`].
    pub fn populated(
        &mut self,
        space: &mut ProcessSpace,
        process: &Process,
        ranges: &[AddrRange],
        out: &mut Vec<AddrRange>,
    ) -> Result<(), SpaceError> {
        out.clear();
        out.extend_from_slice(ranges);
        for shift in SHIFTS {
            let pieces: Vec<AddrRange> = out.iter().flat_map(|r| aligned_pieces(*r, shift)).collect();
            out.clear();
            let spans: Vec<Span> = pieces.iter().map(|p| Span { start: p.start, pages: 1 }).collect();
            let mut at = 0;
            while at < spans.len() {
                let n = self.read(space, process, &spans[at..])?;
                let used = (0..n).filter(|&i| !is_empty(self.span(i).mapped, shift));
                out.extend(used.map(|i| pieces[at + i]));
                at += n;
            }
        }
        normalize(out);
        Ok(())
    }
}

/// Whether there is nothing in the whole span of 2^`shift` bytes.
fn is_empty(mapped: Mapped, shift: u8) -> bool {
    matches!(mapped, Mapped::Nothing { shift: nothing } if nothing >= shift)
}

/// `range` cut at multiples of 2^`shift`.
fn aligned_pieces(range: AddrRange, shift: u8) -> impl Iterator<Item = AddrRange> {
    let size = 1u64 << shift;
    let first = range.start & !(size - 1);
    (first..range.end)
        .step_by(size as usize)
        .map(move |at| AddrRange::new(at.max(range.start), at.saturating_add(size).min(range.end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_tile_the_range() {
        let m = 1 << 20;
        let got: Vec<_> = aligned_pieces(AddrRange::new(3 * m, 9 * m), 21).map(|r| (r.start / m, r.end / m)).collect();
        assert_eq!(got, [(3, 4), (4, 6), (6, 8), (8, 9)]);
    }

    #[test]
    fn only_a_hole_of_the_whole_span_counts_as_empty() {
        assert!(is_empty(Mapped::Nothing { shift: 39 }, 30));
        assert!(!is_empty(Mapped::Nothing { shift: 21 }, 30));
        assert!(!is_empty(Mapped::Table, 21));
        assert!(!is_empty(Mapped::Unreadable, 21));
    }
}
