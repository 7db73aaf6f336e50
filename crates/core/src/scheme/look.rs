//! Which pages of matching memory an action is for, as the page tables show them.

use super::page_rule::{PageFacts, PageRule};
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, total_len};
use crate::pages::{mask_of, push_range, push_runs};
use crate::source::{AccessSource, Clear, SourceError};
use crate::target::TargetId;

/// Appends the present, observable pages of `ranges` that pass by `rule`; how many bytes were present. Where the rule asks
/// for young pages, their bits are cleared, so that the next look tells of the time in between.
pub(super) fn passing_pages(
    source: &mut dyn AccessSource,
    target: TargetId,
    ranges: &[AddrRange],
    rule: PageRule,
    out: &mut Vec<AddrRange>,
) -> Result<u64, SourceError> {
    let clear = if rule.asks_young() { Clear::All } else { Clear::Nothing };
    let (mut present, mut range) = (0, 0);
    source.scan(target, ranges, clear, &mut |bits| {
        while range < ranges.len() && ranges[range].end <= bits.base {
            range += 1;
        }
        let leaf = 1u64 << bits.leaf_shift;
        let mut passing = [0; 8];
        for r in ranges[range..].iter().take_while(|r| r.start < bits.base + TABLE_SPAN) {
            let asked = mask_of(bits.base, *r);
            for i in 0..8 {
                let there = asked[i] & bits.present[i] & !bits.blind[i];
                present += u64::from(there.count_ones()) * PAGE_SIZE;
                let passes = |young| rule.passes(PageFacts { young, leaf });
                passing[i] |= there & bits.accessed[i] & if passes(true) { u64::MAX } else { 0 };
                passing[i] |= there & !bits.accessed[i] & if passes(false) { u64::MAX } else { 0 };
            }
        }
        if bits.leaf_shift == 12 {
            push_runs(bits.base, &passing, out);
        } else if passing == [u64::MAX; 8] && ranges[range].end >= bits.base + leaf {
            // Huge pages go whole or stay, so that none is split.
            push_range(out, AddrRange::new(bits.base, bits.base + leaf));
        }
    })?;
    Ok(present)
}

/// Appends the 2 MiB blocks in `range` that are mapped by base pages of which at least `min_bp` basis points are
/// present: there a huge page wastes no more than the rest. How many bytes are present in blocks that are sparser.
pub(super) fn dense_blocks(
    source: &mut dyn AccessSource,
    target: TargetId,
    range: AddrRange,
    min_bp: u32,
    out: &mut Vec<AddrRange>,
) -> Result<u64, SourceError> {
    let mut sparse = 0;
    source.scan(target, &[range], Clear::Nothing, &mut |bits| {
        let block = AddrRange::new(bits.base, bits.base + TABLE_SPAN);
        if bits.leaf_shift > 12 || block.start < range.start || range.end < block.end {
            return;
        }
        let pages: u32 = bits.present.iter().map(|w| w.count_ones()).sum();
        if u64::from(pages) * 10_000 >= 512 * u64::from(min_bp) {
            push_range(out, block);
        } else {
            sparse += u64::from(pages) * PAGE_SIZE;
        }
    })?;
    debug_assert!(total_len(out).is_multiple_of(TABLE_SPAN));
    Ok(sparse)
}
