//! Finds where physical memory is visible to the kernel, without kallsyms and without privileges beyond BPF's.
//!
//! The top-level table's kernel address is its physical address plus the wanted base; the base is a multiple of 1 GiB,
//! and the physical address is below the end of memory. That leaves as many candidates as the machine has GiB. The
//! right one is recognized by a pattern: pages of our own, touched or not by a coin's toss, whose last-level entries
//! must show just that.
//!
//! Candidates are tried from the lowest up. A candidate below the true base plus a physical address that exists is an
//! address below the end of the direct map: at worst plain memory, never device registers, which live above.

use super::memory_end::max_phys;
use super::pte;
use super::walker::{Batch, Layout, Mapped, Span, Walker, WalkerError};
use crate::mm::scratch::Scratch;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::mask;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;

const GIB: u64 = 1 << 30;
/// Bits 12..52 of an entry.
const FULL_MASK: u64 = 0x000f_ffff_ffff_f000;
/// Where the base is when it is not randomised, for 4 and 5 levels.
const USUAL_BASES: [(u8, u64); 2] = [(4, 0xffff_8880_0000_0000), (5, 0xff11_0000_0000_0000)];
/// Pages of the pattern; a wrong candidate passes with a probability of 2^-64.
const PATTERN_PAGES: usize = 64;

/// Finds the layout and puts it into `walker`.
pub fn calibrate(walker: &mut Walker) -> Result<(), WalkerError> {
    let fail = |why: String| WalkerError::Calibrate(why);
    let root = Path::new("/");
    let max_phys = max_phys(root).ok_or_else(|| {
        fail(
            "cannot tell how much physical memory there is: neither /proc/iomem nor /proc/zoneinfo says (needs root)"
                .into(),
        )
    })?;
    let pattern = std::hash::RandomState::new().build_hasher().finish();
    let pages = Scratch::new(PATTERN_PAGES).map_err(|e| fail(format!("cannot map test pages: {e}")))?;
    mask::iter(&[pattern, 0, 0, 0, 0, 0, 0, 0]).for_each(|i| pages.touch(i));
    let span = [Span { start: pages.addr(0), pages: PATTERN_PAGES as u16 }];

    let link = walker.attach(std::process::id());
    // A first run with a bound of 0, so that nothing is followed, tells the top-level table's address.
    walker.set_layout(Layout { direct_map: 0, max_phys: 0, phys_mask: FULL_MASK, levels: 4 });
    match walker.read_spans(&link, &span)? {
        (_, Batch::Done(_)) => {}
        (_, other) => return Err(fail(format!("the BPF task iterator does not find this process ({other:?})"))),
    }
    let top = walker.top_table();
    let levels = if has_la57(root) { [5, 4] } else { [4, 5] };
    // With memory encryption an entry carries a bit that is not part of the address; it lies above all memory.
    let masks = [FULL_MASK, (max_phys.next_power_of_two() - 1) & FULL_MASK];
    for phys_mask in masks {
        for levels in levels {
            for direct_map in candidates(top, max_phys, levels) {
                walker.set_layout(Layout { direct_map, max_phys, phys_mask, levels });
                walker.read_spans(&link, &span)?;
                let seen = walker.span(0);
                if seen.mapped == Mapped::Table && shows(seen.entries, pattern, phys_mask, max_phys) {
                    return Ok(());
                }
            }
        }
    }
    Err(fail(format!(
        "cannot find the kernel's direct map of physical memory ({} GiB of addresses tried); this kernel's page tables cannot be read",
        max_phys.div_ceil(GIB)
    )))
}

/// Candidates for the base, given the top-level table's kernel address.
fn candidates(top: u64, max_phys: u64, levels: u8) -> impl Iterator<Item = u64> {
    let lowest = top.saturating_sub(max_phys) / GIB * GIB + GIB;
    let usual = USUAL_BASES.iter().filter(move |b| b.0 == levels && (lowest..=top).contains(&b.1)).map(|b| b.1);
    usual.chain((lowest..=top).step_by(GIB as usize))
}

/// Whether entries are those of the test pages.
fn shows(entries: &[u64], pattern: u64, phys_mask: u64, max_phys: u64) -> bool {
    entries.iter().enumerate().all(|(i, &e)| match pattern >> i & 1 {
        0 => e == 0,
        _ => pte::is_present(e) && pte::frame(e, phys_mask) < max_phys / PAGE_SIZE,
    })
}

/// Whether the processor uses (or could use) five levels.
fn has_la57(root: &Path) -> bool {
    std::fs::read_to_string(root.join("proc/cpuinfo"))
        .is_ok_and(|s| s.lines().find(|l| l.starts_with("flags")).is_some_and(|l| l.split(' ').any(|f| f == "la57")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_hold_the_base_and_nothing_above_the_table() {
        let base = 0xffff_9a40_0000_0000;
        for phys in [0x1000, 3 * GIB, 24 * GIB - 0x1000] {
            let c: Vec<u64> = candidates(base + phys, 24 * GIB, 4).collect();
            assert!(c.contains(&base), "{phys:#x}");
            assert!(c.len() <= 25 && c.iter().all(|&c| c <= base + phys));
        }
        let usual = USUAL_BASES[0].1;
        assert_eq!(candidates(usual + 5 * GIB, 24 * GIB, 4).next(), Some(usual));
    }
}
