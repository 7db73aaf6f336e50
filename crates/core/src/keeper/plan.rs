//! Who goes next.
//!
//! Groups whose pages are about equally likely to come back form a band, and within a band pages go in order of
//! address: what lies together goes together, in few calls and long ranges.

use super::address_space::AddressSpace;
use super::page::GROUPS;
use super::page_kind::PageKind;
use super::reuse::ReuseModel;
use crate::addr::{AddrRange, PAGE_SIZE, normalize};
use crate::mask::{PageMask, iter};
use crate::pages::push_runs;
use crate::target::TargetId;
use std::collections::{BTreeMap, VecDeque};

/// Groups are about equal if one costs at most so much more than the other, ...
const ABOUT: f64 = 1.25;
/// ... or as little more as this.
const NOISE: f64 = 0.003;

/// Pages of one table that go together.
#[derive(Debug, Clone, Copy)]
struct TablePages {
    target: TargetId,
    base: u64,
    mask: PageMask,
    huge: bool,
}

/// Pages in the order in which they are to be evicted.
#[derive(Debug, Default)]
pub struct Plan {
    queue: VecDeque<TablePages>,
}

impl Plan {
    /// Plans for at least `want` bytes of `spaces`, if there are so many, of pages at least `least_age` generations
    /// old. `turn` chooses where the last band, of which only a part will be needed, begins.
    pub fn new(
        spaces: &BTreeMap<TargetId, AddressSpace>,
        reuse: &ReuseModel,
        swappiness: u8,
        want: u64,
        least_age: u8,
        turn: u64,
    ) -> Self {
        let mut sizes = [[0u64; GROUPS]; 2];
        each(spaces, least_age, |_, _, kind, group, _| sizes[kind as usize][group] += 1);
        let mut band_of = [[None::<u16>; GROUPS]; 2];
        let (mut bands, mut pages, mut first_cost) = (0u16, 0, f64::NEG_INFINITY);
        for rank in reuse.order(swappiness) {
            let size = sizes[rank.kind as usize][rank.group];
            if size == 0 {
                continue;
            }
            if rank.cost > first_cost * ABOUT + NOISE {
                if pages * PAGE_SIZE >= want {
                    break;
                }
                first_cost = rank.cost;
                bands += 1;
            }
            band_of[rank.kind as usize][rank.group] = Some(bands - 1);
            pages += size;
        }
        let mut runs_of_tables: Vec<Vec<TablePages>> = vec![Vec::new(); usize::from(bands)];
        each(spaces, least_age, |target, (base, huge), kind, group, page| {
            let Some(band) = band_of[kind as usize][group] else { return };
            let band = &mut runs_of_tables[usize::from(band)];
            if band.last().is_none_or(|p| p.target != target || p.base != base) {
                band.push(TablePages { target, base, mask: [0; 8], huge });
            }
            if let Some(pages_of_table) = band.last_mut() {
                pages_of_table.mask[page / 64] |= 1 << (page % 64);
            }
        });
        if let Some(last) = runs_of_tables.last_mut().filter(|band| !band.is_empty()) {
            let by = (turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % last.len();
            last.rotate_left(by);
        }
        Self { queue: runs_of_tables.into_iter().flatten().collect() }
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes about `bytes` from the front: at least those (if there are), and at most a table more where it is a huge
    /// page's.
    pub fn take(&mut self, bytes: u64) -> Vec<(TargetId, Vec<AddrRange>)> {
        let mut by_target: BTreeMap<TargetId, Vec<AddrRange>> = BTreeMap::new();
        let mut left = bytes.div_ceil(PAGE_SIZE);
        while left > 0
            && let Some(pages_of_table) = self.queue.front_mut()
        {
            let (taken, done) = if pages_of_table.huge {
                (pages_of_table.mask, true)
            } else {
                first_pages(&mut pages_of_table.mask, left)
            };
            left = left.saturating_sub(taken.iter().map(|w| u64::from(w.count_ones())).sum());
            let mut runs = Vec::new();
            push_runs(pages_of_table.base, &taken, &mut runs);
            by_target.entry(pages_of_table.target).or_default().append(&mut runs);
            if done {
                self.queue.pop_front();
            }
        }
        by_target
            .into_iter()
            .map(|(target, mut ranges)| {
                normalize(&mut ranges);
                (target, ranges)
            })
            .collect()
    }

    /// A space has gone.
    pub fn forget(&mut self, target: TargetId) {
        self.queue.retain(|p| p.target != target);
    }
}

/// Takes the first `count` pages out of `mask`; whether none is left in it.
fn first_pages(mask: &mut PageMask, count: u64) -> (PageMask, bool) {
    let (mut taken, mut left) = ([0; 8], count);
    for (taken, word) in taken.iter_mut().zip(mask.iter_mut()) {
        while left > 0 && *word != 0 {
            let bit = *word & word.wrapping_neg();
            *taken |= bit;
            *word &= !bit;
            left -= 1;
        }
    }
    (taken, *mask == [0; 8])
}

/// Calls `page` for each page that may be evicted, in order of address.
fn each(
    spaces: &BTreeMap<TargetId, AddressSpace>,
    least_age: u8,
    mut page: impl FnMut(TargetId, (u64, bool), PageKind, usize, usize),
) {
    for (&target, space) in spaces {
        for c in space.candidates(least_age) {
            iter(&c.pages).for_each(|i| page(target, (c.base, c.huge), c.kind(i), c.group(i), i));
        }
    }
}
