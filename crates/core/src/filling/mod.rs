//! Which mappings are being filled so densely that huge pages should back what comes next.
//!
//! Pages that a program touches one by one cost a fault each, and turning them into a huge page afterwards costs a copy
//! more, while a huge page that is there from the first touch costs one fault and saves 511. So this looks at mappings
//! while they grow: where some blocks of 2 MiB have been filled wholly and hardly any partly, huge pages are [asked
//! for](Verdict::Ask) ahead of the faults. From then on page tables no longer tell which pages of a block are used.
//! Samples of what the huge pages hold do: where most of it was never written, the request is [taken
//! back](Filling::sampled), and the process has to show more before it is trusted again.
//!
//! Who works in rounds maps memory of the same length again and again: where one of a length was filled wholly, the next one is asked for
//! before its first page, which has to be [seen in time](Filling::look).
//!
//! What is filled page by page all over, with a stride, never has a block wholly filled before all are. Where the process is
//! trusted it is [collapsed](Verdict::Collapse) once a quarter of it is there: a copy for each block, and no more faults.
//!
//! Requests are about whole mappings, never a part of one: `mremap` refuses ranges that lie in several, and allocators
//! use it.

mod fill;

pub use fill::{Fill, Populated};

use crate::addr::{AddrRange, TABLE_SPAN};
use std::collections::HashMap;

/// The smallest mapping that is worth a request, bytes.
pub const WORTH: u64 = (ROOM + 1) * TABLE_SPAN;
/// Blocks that a mapping must have filled wholly.
const EVIDENCE: u64 = 2;
/// A process that has filled so many blocks, and none in vain, is trusted: its mappings of up to half of that have to
/// show less.
const TRUSTED: u64 = 32;
/// Blocks from which on a mapping of a trusted process has to show nothing. Smaller ones may be stacks of threads, of
/// which only the end is used.
const NO_STACK: u64 = 16;
/// Blocks without a page that a mapping must have left for a request: it stops the process for about a millisecond, and
/// saves half of one for each block.
const ROOM: u64 = 6;
/// And for one to be taken back while huge pages are dear.
const ROOM_LEFT: u64 = 2;
/// So many huge pages more, and what they hold is sampled.
const SAMPLE_EVERY: u64 = 8;
/// Blocks that a sample looks into.
const SAMPLES: usize = 4;
/// Samples in a row that were dense, after which they get rarer.
const SURE_AFTER: u32 = 4;
/// Lengths of mappings that are remembered.
const MOST_LENGTHS: usize = 1000;
/// Requests for mappings that turned out to be sparse double what a process has to show, so often at most.
const MOST_DOUBLINGS: u32 = 6;

/// What is to be done about a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Leave,
    /// Ask for huge pages for all of it.
    Ask,
    /// The same, and make huge pages of what is there.
    Collapse,
    /// Take the request back for now.
    TakeBack,
    /// Look which part of these blocks, all of them huge pages, was ever written, and tell [`Filling::sampled`].
    Sample(Vec<u64>),
}

/// What is known of a mapping.
#[derive(Debug)]
enum State {
    /// Huge pages were asked for.
    Asked(Asked),
    /// They were, and it would have gone on as before, but they had become dear.
    Paused,
    /// They were, in vain: it was sparse, and had so many blocks with a page then.
    Sparse(u64),
}

#[derive(Debug, Default)]
struct Asked {
    /// Blocks with a page then.
    populated: u64,
    /// Blocks full of base pages, at least.
    full: u64,
    /// Huge pages that there were, at most.
    most_huge: u64,
    /// Huge pages that there were at the last sample, or that are older than the request.
    seen: Vec<u64>,
    /// Dense samples in a row.
    dense: u32,
}

/// What is known of the mappings of one process.
#[derive(Debug, Default)]
pub struct Filling {
    /// By first address.
    mappings: HashMap<u64, State>,
    /// Requests that were taken back.
    taken_back: u32,
    /// Blocks seen filled at the same time, at most: with base pages, or with huge ones that samples found dense.
    proven: u64,
    /// The same so far, of this round.
    round: u64,
    /// Of lengths of mappings, bytes, whether one of it was filled wholly; false: one turned out to be sparse. Who works in rounds
    /// maps the same again and again.
    lengths: HashMap<u64, bool>,
}

impl Filling {
    /// Looks at a mapping: one of private anonymous memory that may be written, of at least [`WORTH`] bytes. `sample` is
    /// the same of some of its blocks, spread over all of it, where it is so scattered that `fill` is not complete. `dear`
    /// says whether huge pages cost more than base pages at present, or are not to be had; it is asked only where that
    /// matters, and whether a request stands already.
    pub fn look(
        &mut self,
        mapping: AddrRange,
        fill: &Fill,
        sample: Option<&Fill>,
        mut dear: impl FnMut(bool) -> bool,
    ) -> Verdict {
        let start = mapping.start;
        match self.mappings.get_mut(&start) {
            Some(State::Asked(asked)) if asked.is_of_another(fill) => {
                self.mappings.remove(&start);
            }
            Some(State::Asked(asked)) => {
                asked.most_huge = asked.most_huge.max(fill.huge.len() as u64);
                // The kernel collapses blocks of base pages by itself.
                asked.full = asked.full.min(fill.full);
                let wholly = asked.dense > 0 && fill.is_whole();
                self.round += fill.full + if asked.dense > 0 { fill.huge.len() as u64 } else { 0 };
                if fill.empty >= ROOM_LEFT && dear(true) {
                    self.mappings.insert(start, State::Paused);
                    return Verdict::TakeBack;
                }
                let verdict = asked.sample(fill);
                if wholly {
                    self.remember(mapping.len(), true);
                }
                return verdict;
            }
            Some(State::Paused) if dear(false) => return Verdict::Leave,
            // Also where no room is left: what is forbidden there could not become huge pages afterwards, either.
            Some(State::Paused) => {
                self.ask(start, fill, fill.huge.clone());
                return Verdict::Ask;
            }
            // One that has doubled gets another chance.
            Some(State::Sparse(blocks)) if fill.populated() >= 2 * *blocks => {
                self.mappings.remove(&start);
            }
            Some(State::Sparse(_)) => return Verdict::Leave,
            None => {}
        }
        self.round += fill.full;
        let blocks = fill.populated() + fill.empty;
        if fill.huge.is_empty() && fill.is_whole() {
            self.remember(mapping.len(), true);
        }
        let evidence = if self.lengths.get(&mapping.len()) == Some(&true) { 0 } else { self.evidence(blocks) };
        if evidence == 0 && sample.unwrap_or(fill).is_even() && !dear(false) {
            // None of them is to be sampled: how much of it was written is known.
            let first = mapping.start.next_multiple_of(TABLE_SPAN);
            self.ask(start, fill, (0..blocks).map(|i| first + i * TABLE_SPAN).collect());
            return Verdict::Collapse;
        }
        // What was not looked at of a scattered one counts as empty in `fill`, and need not be.
        let scattered = sample.is_some();
        if scattered || fill.full < evidence || !fill.is_dense() || fill.empty < ROOM || dear(false) {
            return Verdict::Leave;
        }
        self.ask(start, fill, fill.huge.clone());
        Verdict::Ask
    }

    /// Notes a request. `seen`: blocks that samples are not to look into.
    fn ask(&mut self, start: u64, fill: &Fill, seen: Vec<u64>) {
        let asked = Asked { populated: fill.populated(), full: fill.full, most_huge: 0, seen, dense: 0 };
        self.mappings.insert(start, State::Asked(asked));
    }

    /// Whether a request stands.
    pub fn has_asked(&self) -> bool {
        self.mappings.values().any(|state| matches!(state, State::Asked(_)))
    }

    /// Whether requests were taken back only for now.
    pub fn has_paused(&self) -> bool {
        self.mappings.values().any(|state| matches!(state, State::Paused))
    }

    /// Takes what a [sample](Verdict::Sample) found: whether most of what the blocks hold was never written. True: the
    /// request is to be taken back.
    pub fn sampled(&mut self, mapping: AddrRange, fill: &Fill, sparse: bool) -> bool {
        match self.mappings.get_mut(&mapping.start) {
            Some(State::Asked(asked)) if !sparse => asked.dense += 1,
            Some(state @ State::Asked(_)) => {
                *state = State::Sparse(fill.populated());
                self.taken_back += 1;
                self.remember(mapping.len(), false);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Remembers of a mapping's length whether one of it was filled wholly. Sparse once is sparse.
    fn remember(&mut self, len: u64, wholly: bool) {
        if self.lengths.len() >= MOST_LENGTHS {
            self.lengths.clear();
        }
        let known = self.lengths.entry(len).or_insert(wholly);
        *known &= wholly;
    }

    /// The request could not be taken back: it stands, and is sampled again as soon as possible.
    pub fn stands(&mut self, mapping: AddrRange, fill: &Fill) {
        self.mappings.insert(mapping.start, State::Asked(Asked { full: fill.full, ..Asked::default() }));
    }

    /// Blocks that a mapping of so many blocks must have filled wholly.
    const fn evidence(&self, blocks: u64) -> u64 {
        if self.taken_back > 0 {
            let doublings = if self.taken_back < MOST_DOUBLINGS { self.taken_back } else { MOST_DOUBLINGS };
            EVIDENCE << doublings
        } else if self.proven < TRUSTED || blocks * 2 > self.proven {
            EVIDENCE
        } else if blocks < NO_STACK {
            1
        } else {
            0
        }
    }

    /// Begins a round of looks at all mappings of the process, whose first addresses are `starts`, ascending. Forgets
    /// the others.
    pub fn begin(&mut self, starts: &[u64]) {
        self.proven = self.proven.max(std::mem::take(&mut self.round));
        self.mappings.retain(|start, _| starts.binary_search(start).is_ok());
    }
}

impl Asked {
    /// Whether this is another mapping at the same address: memory went away, half of the huge pages did, or blocks are filled with
    /// base pages although they were asked for as huge ones. (The second alone tells it of one that was filled all over
    /// between two looks.)
    const fn is_of_another(&self, fill: &Fill) -> bool {
        fill.populated() < self.populated
            || (fill.huge.len() as u64) * 2 < self.most_huge
            || fill.full > self.full + EVIDENCE
    }

    /// The blocks to look into, if there are enough new ones.
    fn sample(&mut self, fill: &Fill) -> Verdict {
        let new: Vec<u64> = fill.huge.iter().copied().filter(|b| self.seen.binary_search(b).is_err()).collect();
        let wanted = if self.dense < SURE_AFTER { SAMPLE_EVERY } else { SAMPLE_EVERY.max(self.seen.len() as u64) };
        if (new.len() as u64) < wanted {
            return Verdict::Leave;
        }
        self.seen.clone_from(&fill.huge);
        // Spread evenly: whatever the order in which a program fills them, only a few of the new ones are not finished
        // yet.
        let count = new.len();
        Verdict::Sample((0..SAMPLES).map(|i| new[i * count / SAMPLES]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::PAGE_SIZE;

    const BLOCK: u64 = TABLE_SPAN;
    const BASE: u64 = 64 * BLOCK;

    /// A mapping of `blocks` blocks.
    fn mapping(blocks: u64) -> AddrRange {
        AddrRange::new(BASE, BASE + blocks * BLOCK)
    }

    fn whole(start: u64, blocks: u64) -> AddrRange {
        AddrRange::new(start * BLOCK, (start + blocks) * BLOCK)
    }

    fn part(from: u64, to: u64, huge: bool) -> Populated {
        Populated { range: AddrRange::new(BASE + from, BASE + to), huge }
    }

    /// Of a mapping of 100 blocks that is filled from the front: `full` blocks of base pages, then `huge` huge ones.
    fn filled(full: u64, huge: u64) -> Fill {
        let end = full * BLOCK;
        Fill::of(mapping(100), &[part(0, end, false), part(end, end + huge * BLOCK, true)])
    }

    fn look(filling: &mut Filling, mapping: AddrRange, fill: &Fill) -> Verdict {
        filling.look(mapping, fill, None, |_| false)
    }

    #[test]
    fn who_fills_densely_gets_huge_pages_ahead() {
        let mut filling = Filling::default();
        assert_eq!(look(&mut filling, mapping(100), &filled(0, 0)), Verdict::Leave);
        assert_eq!(look(&mut filling, mapping(100), &filled(1, 0)), Verdict::Leave);
        assert_eq!(look(&mut filling, mapping(100), &filled(2, 0)), Verdict::Ask);
        assert_eq!(look(&mut filling, mapping(100), &filled(2, 0)), Verdict::Leave, "asked for once");
        // One more was filled with base pages before the request took effect.
        assert_eq!(look(&mut filling, mapping(100), &filled(3, 7)), Verdict::Leave);
        let Verdict::Sample(blocks) = look(&mut filling, mapping(100), &filled(3, 8)) else { panic!() };
        assert!(blocks.iter().all(|b| (BASE + 3 * BLOCK..BASE + 11 * BLOCK).contains(b)), "{blocks:x?}");
        assert!(!filling.sampled(mapping(100), &filled(3, 8), false));
        assert_eq!(look(&mut filling, mapping(100), &filled(3, 8)), Verdict::Leave);
    }

    #[test]
    fn nothing_is_asked_for_what_is_sparse_or_has_no_room() {
        let mut filling = Filling::default();
        // One page in each block, and a dense beginning that turns sparse soon.
        let sparse: Vec<_> = (0..50).map(|i| part(i * BLOCK, i * BLOCK + 4096, false)).collect();
        assert_eq!(look(&mut filling, mapping(100), &Fill::of(mapping(100), &sparse)), Verdict::Leave);
        let mut turns = vec![part(0, 4 * BLOCK, false)];
        turns.extend((5..20).map(|i| part(i * BLOCK, i * BLOCK + 4096, false)));
        assert_eq!(look(&mut filling, mapping(100), &Fill::of(mapping(100), &turns)), Verdict::Leave);
        // At several places at a time, each halfway: a heap.
        let heap = |pages: u64| Fill { full: 8, partial: 6, partial_pages: 6 * pages, empty: 86, ..Fill::default() };
        assert_eq!(look(&mut filling, mapping(100), &heap(210)), Verdict::Leave);
        assert_eq!(look(&mut Filling::default(), mapping(100), &heap(214)), Verdict::Ask);
        // Every second page, everywhere: a table that is filled at random.
        let random: Vec<_> = (0..512 * 10).map(|i| part(i * 8192, i * 8192 + 4096, false)).collect();
        assert_eq!(look(&mut filling, mapping(100), &Fill::of(mapping(100), &random)), Verdict::Leave);
        assert_eq!(look(&mut filling, mapping(100), &filled(99, 0)), Verdict::Leave);
        assert_eq!(look(&mut filling, mapping(100), &filled(97, 3)), Verdict::Leave);
    }

    #[test]
    fn what_turned_out_sparse_is_taken_back_and_more_is_wanted_then() {
        let mut filling = Filling::default();
        assert_eq!(look(&mut filling, mapping(100), &filled(2, 0)), Verdict::Ask);
        assert!(matches!(look(&mut filling, mapping(100), &filled(2, 10)), Verdict::Sample(_)));
        assert!(filling.sampled(mapping(100), &filled(2, 10), true));
        filling.stands(mapping(100), &filled(2, 10));
        assert!(matches!(look(&mut filling, mapping(100), &filled(2, 11)), Verdict::Sample(_)), "again");
        assert!(filling.sampled(mapping(100), &filled(2, 10), true));
        assert_eq!(look(&mut filling, mapping(100), &filled(5, 10)), Verdict::Leave);
        let other = AddrRange::new(BASE << 8, (BASE << 8) + 100 * BLOCK);
        let of_other = |full| Fill { full, empty: 100 - full, ..Fill::default() };
        assert_eq!(look(&mut filling, other, &of_other(7)), Verdict::Leave);
        assert_eq!(look(&mut filling, other, &of_other(8)), Verdict::Ask);
        // The first has doubled, densely.
        assert_eq!(look(&mut filling, mapping(100), &filled(24, 10)), Verdict::Ask);
    }

    #[test]
    fn blocks_that_the_kernel_collapses_meanwhile_hide_nothing() {
        let mut filling = Filling::default();
        let (begin, end) = (8 * BLOCK, 100 * BLOCK);
        assert_eq!(look(&mut filling, mapping(100), &filled(8, 0)), Verdict::Ask);
        let mut samples = 0;
        for i in 1..40 {
            // One more of the first blocks is collapsed each time, and the others fill.
            let base = part(i.min(8) * BLOCK, begin, false);
            let huge = part(begin, (begin + i * BLOCK).min(end), true);
            let populated = [part(0, i.min(8) * BLOCK, true), base, huge];
            let fill = Fill::of(mapping(100), &populated[..]);
            match look(&mut filling, mapping(100), &fill) {
                Verdict::Sample(_) => samples += 1,
                Verdict::Leave => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(samples >= 4, "{samples}");
    }

    #[test]
    fn another_mapping_at_the_same_place_is_asked_for_anew() {
        let mut filling = Filling::default();
        assert_eq!(look(&mut filling, mapping(100), &filled(6, 0)), Verdict::Ask);
        assert_eq!(look(&mut filling, mapping(100), &filled(1, 0)), Verdict::Leave, "begun anew");
        assert_eq!(look(&mut filling, mapping(100), &filled(3, 0)), Verdict::Ask);
        assert_eq!(
            look(&mut filling, mapping(100), &filled(40, 0)),
            Verdict::Ask,
            "filled with base pages all the same"
        );
        filling.begin(&[]);
        assert_eq!(look(&mut filling, mapping(100), &filled(40, 0)), Verdict::Ask);
    }

    #[test]
    fn a_process_that_always_fills_what_it_maps_need_not_show_it_each_time() {
        let empty = |blocks: u64| Fill { empty: blocks, ..Fill::default() };
        let mut filling = Filling::default();
        let old = Fill { full: 40, ..Fill::default() };
        assert_eq!(look(&mut filling, whole(0, 40), &old), Verdict::Leave);
        assert_eq!(look(&mut filling, whole(100, 20), &empty(20)), Verdict::Leave, "not before the round has ended");
        filling.begin(&[0]);
        assert_eq!(look(&mut filling, whole(100, 20), &empty(20)), Verdict::Ask);
        assert_eq!(look(&mut filling, whole(200, 21), &empty(21)), Verdict::Leave, "more than half of it");
        assert_eq!(look(&mut filling, whole(300, 8), &empty(8)), Verdict::Leave, "it may be a stack");
        let scattered = Fill { partial: 3, empty: 17, ..Fill::default() };
        assert_eq!(look(&mut filling, whole(400, 20), &scattered), Verdict::Leave);
        // One that was filled in vain, and nothing is asked for at sight any more.
        let huge =
            |n: u64| Fill { empty: 20 - n, huge: (100..100 + n).map(|b| b * BLOCK).collect(), ..Fill::default() };
        assert!(matches!(look(&mut filling, whole(100, 20), &huge(8)), Verdict::Sample(_)));
        assert!(filling.sampled(whole(100, 20), &huge(8), true));
        assert_eq!(look(&mut filling, whole(500, 20), &empty(20)), Verdict::Leave);
    }

    #[test]
    fn where_one_of_a_length_was_filled_wholly_the_next_is_asked_for_at_sight() {
        let (mut filling, empty) = (Filling::default(), Fill { empty: 15, ..Fill::default() });
        let full = Fill { full: 15, ..Fill::default() };
        assert_eq!(look(&mut filling, whole(0, 15), &empty), Verdict::Leave);
        assert_eq!(look(&mut filling, whole(0, 15), &Fill { full: 14, empty: 1, ..Fill::default() }), Verdict::Leave);
        assert_eq!(look(&mut filling, whole(100, 15), &empty), Verdict::Leave, "not filled wholly");
        assert_eq!(look(&mut filling, whole(0, 15), &full), Verdict::Leave);
        assert_eq!(look(&mut filling, whole(200, 16), &Fill { empty: 16, ..Fill::default() }), Verdict::Leave);
        assert_eq!(
            look(&mut filling, whole(300, 15), &Fill { partial: 3, empty: 12, ..empty.clone() }),
            Verdict::Leave
        );
        assert_eq!(look(&mut filling, whole(100, 15), &empty), Verdict::Ask);
        // It is filled with huge pages, gone, and there again.
        let huge =
            |n: u64| Fill { empty: 15 - n, huge: (100..100 + n).map(|b| b * BLOCK).collect(), ..Fill::default() };
        assert!(matches!(look(&mut filling, whole(100, 15), &huge(15)), Verdict::Sample(_)));
        assert!(!filling.sampled(whole(100, 15), &huge(15), false));
        filling.begin(&[]);
        assert_eq!(look(&mut filling, whole(100, 15), &empty), Verdict::Ask);
        // What has turned out to be sparse once is not trusted again, though others are filled.
        assert!(matches!(look(&mut filling, whole(100, 15), &huge(12)), Verdict::Sample(_)));
        assert!(filling.sampled(whole(100, 15), &huge(12), true));
        assert_eq!(look(&mut filling, whole(400, 15), &full), Verdict::Leave);
        assert_eq!(look(&mut filling, whole(500, 15), &empty), Verdict::Leave);
    }

    #[test]
    fn nothing_is_asked_for_while_huge_pages_are_dear() {
        let mut filling = Filling::default();
        assert_eq!(filling.look(mapping(100), &filled(2, 0), None, |_| true), Verdict::Leave);
        assert_eq!(look(&mut filling, mapping(100), &filled(3, 0)), Verdict::Ask);
        assert!(!filling.has_paused());
        assert_eq!(filling.look(mapping(100), &filled(3, 4), None, |_| true), Verdict::TakeBack);
        assert!(filling.has_paused());
        assert_eq!(filling.look(mapping(100), &filled(20, 4), None, |_| true), Verdict::Leave);
        assert_eq!(look(&mut filling, mapping(100), &filled(40, 4)), Verdict::Ask);
        // One that is full already is left as it is, and a paused one gets its flag back although it is.
        assert_eq!(
            filling.look(mapping(100), &filled(40, 60), None, |_| true),
            Verdict::Sample(filling_blocks(44, 100))
        );
        assert_eq!(filling.look(mapping(100), &filled(40, 58), None, |_| true), Verdict::TakeBack);
        assert_eq!(look(&mut filling, mapping(100), &filled(42, 58)), Verdict::Ask);
        assert!(!filling.has_paused());
    }

    #[test]
    fn what_a_trusted_process_fills_all_over_is_collapsed_once_a_quarter_of_it_is_there() {
        let even = |blocks: u64, pages: u64| {
            let part = |i| part(i * BLOCK, i * BLOCK + pages * PAGE_SIZE, false);
            Fill::of(mapping(blocks), &(0..blocks).map(part).collect::<Vec<_>>())
        };
        let many = mapping(100);
        let trusted = || {
            let mut filling = Filling::default();
            look(&mut filling, whole(500, 200), &Fill { full: 200, ..Fill::default() });
            filling.begin(&[]);
            filling
        };
        let mut filling = trusted();
        assert_eq!(look(&mut filling, many, &even(100, 127)), Verdict::Leave);
        assert_eq!(look(&mut filling, mapping(15), &even(15, 300)), Verdict::Leave, "it may be a stack");
        assert_eq!(
            look(&mut filling, mapping(101), &even(101, 300)),
            Verdict::Leave,
            "more than half of what it has filled"
        );
        assert_eq!(filling.look(many, &even(100, 128), None, |_| true), Verdict::Leave, "dear");
        assert_eq!(look(&mut filling, many, &even(100, 128)), Verdict::Collapse);
        let collapsed = Fill { huge: (0..100).map(|i| BASE + i * BLOCK).collect(), ..Fill::default() };
        assert_eq!(look(&mut filling, many, &collapsed), Verdict::Leave, "not called sparse");
        // Another one at the same address, that had pages in all blocks before it was seen for the first time.
        assert_eq!(look(&mut filling, many, &even(100, 20)), Verdict::Leave);
        assert_eq!(look(&mut filling, many, &even(100, 128)), Verdict::Collapse, "though the request seemed to stand");
        // Some of it is given back to the kernel.
        assert_eq!(look(&mut filling, many, &collapsed), Verdict::Leave);
        let holes = Fill { huge: collapsed.huge[..60].to_vec(), partial: 40, partial_pages: 6000, ..Fill::default() };
        assert_eq!(look(&mut filling, many, &holes), Verdict::Leave);
        // Half of its blocks alone are in use, or it is full already.
        let mut half = even(50, 300);
        half.add(Fill { empty: 50, ..Fill::default() });
        assert_eq!(look(&mut trusted(), many, &half), Verdict::Leave);
        assert_eq!(look(&mut trusted(), many, &filled(100, 0)), Verdict::Leave);
        assert_eq!(look(&mut Filling::default(), many, &even(100, 400)), Verdict::Leave, "it has filled nothing yet");
        // So scattered that only some of its blocks are looked into.
        let cut = Fill { partial: 10, partial_pages: 2000, empty: 90, ..Fill::default() };
        let of_sample = |pages| trusted().look(many, &cut, Some(&even(8, pages)), |_| false);
        assert_eq!((of_sample(127), of_sample(128)), (Verdict::Leave, Verdict::Collapse));
        // Most of it is there: what was not looked at is not room.
        let cut = Fill { full: 20, partial: 10, partial_pages: 4500, empty: 70, ..Fill::default() };
        assert_eq!(look(&mut Filling::default(), many, &cut), Verdict::Ask);
        assert_eq!(Filling::default().look(many, &cut, Some(&even(8, 450)), |_| false), Verdict::Leave);
    }

    #[test]
    fn less_is_needed_for_what_stands_than_for_a_new_request() {
        let mut filling = Filling::default();
        let scarce = |stands: bool| !stands;
        assert_eq!(filling.look(mapping(100), &filled(2, 0), None, scarce), Verdict::Leave);
        assert_eq!(look(&mut filling, mapping(100), &filled(3, 0)), Verdict::Ask);
        assert_eq!(filling.look(mapping(100), &filled(3, 4), None, scarce), Verdict::Leave, "it stands");
        assert_eq!(filling.look(mapping(100), &filled(3, 4), None, |_| true), Verdict::TakeBack);
        assert_eq!(filling.look(mapping(100), &filled(9, 4), None, scarce), Verdict::Leave, "and does no longer");
    }

    /// What a sample of the blocks `from..to` looks into.
    fn filling_blocks(from: u64, to: u64) -> Vec<u64> {
        (0..SAMPLES as u64).map(|i| BASE + (from + i * (to - from) / SAMPLES as u64) * BLOCK).collect()
    }

    #[test]
    fn samples_get_rarer_once_they_were_dense_often() {
        let (mut filling, mut samples) = (Filling::default(), 0);
        let whole = AddrRange::new(BASE, BASE + 10_000 * BLOCK);
        for huge in 0..4000 {
            let end = 2 * BLOCK;
            let fill = Fill::of(whole, &[part(0, end, false), part(end, end + huge * BLOCK, true)]);
            if matches!(look(&mut filling, whole, &fill), Verdict::Sample(_)) {
                samples += 1;
                filling.sampled(whole, &fill, false);
            }
        }
        assert!((8..16).contains(&samples), "{samples}");
    }
}
