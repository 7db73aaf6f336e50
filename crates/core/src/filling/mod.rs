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
//! trusted it is [collapsed](Verdict::AskAndCollapse) once a quarter of it is there: a copy for each block, and no more faults. Where one of its
//! length was filled wholly, that is done at sight; and then it is looked whether it gets denser.
//!
//! Requests are about whole mappings, never a part of one: `mremap` refuses ranges that lie in several, and allocators
//! use it.

mod fill;

pub use fill::{Fill, Populated};

use crate::addr::{AddrRange, TABLE_SPAN};
use std::collections::HashMap;
use std::ops::RangeInclusive;

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
/// And for one to be taken back while huge pages are expensive.
const ROOM_LEFT: u64 = 2;
/// So many huge pages more, and what they hold is sampled.
const SAMPLE_EVERY: u64 = 8;
/// Blocks that a sample looks into.
const SAMPLES: usize = 4;
/// Part of a block that was never written, from which on it is sparse.
const SPARSE: f64 = 0.5;
/// The same of mappings of a length of which one was filled wholly: part of that may have been zeros.
const SPARSE_AGAIN: f64 = 0.75;
/// Such part less than before, after this time, ns, and it is still being filled.
const DENSER: f64 = 0.02;
const SETTLES_NS: u64 = 500_000_000;
/// Blocks with base pages that are collapsed in a mapping that turned out to be dense: fewer are not worth a call, and each takes 0.5 ms,
/// in which its program may have to wait.
const FRONT: RangeInclusive<u64> = 8..=64;
/// While a block is being filled it cannot be collapsed as long as one of its pages waits in a batch of a processor's (31 pages at
/// most) for its place in the kernel's lists. Tried again after this time, ns, once more after as much, then after twice as much each time, ...
const AGAIN_NS: u64 = 50_000_000;
/// ... up to this.
const AGAIN_AT_MOST_NS: u64 = 2_000_000_000;
/// What was full before the first look, of a process that is trusted, is collapsed if it is still there after this time, ns, ...
const LASTS_NS: u64 = 100_000_000;
/// ... one block for each of these, ns: a hundredth of the time at most; ...
const FULL_BLOCK_NS: u64 = 50_000_000;
/// ... and of so many blocks: larger ones are not filled between two looks, but grow together with what was there long before.
const FULL_AT_MOST: u64 = 128;
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
    AskAndCollapse,
    /// Make huge pages of what is there; the request stands.
    Collapse,
    /// Take the request back for now.
    TakeBack,
    /// Look which part of each of these blocks, all of them huge pages, was ever written, and tell [`Filling::sampled`].
    Sample(Vec<u64>),
}

/// What is known of a mapping.
#[derive(Debug)]
enum State {
    /// Huge pages were asked for.
    Asked(Asked),
    /// They were, and it would have gone on as before, but they had become expensive.
    Paused,
    /// They were, in vain: it was sparse, and had so many blocks with a page then.
    Sparse(u64),
    /// It was full of base pages before it could be asked for. When it is collapsed if it is still there, ns; `None`: not, or not once more.
    Full(Option<u64>),
}

#[derive(Debug, Default)]
struct Asked {
    /// Length of the mapping, bytes.
    len: u64,
    /// Blocks with a page then.
    populated: u64,
    /// Blocks with base pages, at least.
    based: u64,
    /// Huge pages that there were, at most.
    most_huge: u64,
    /// Huge pages that there were at the last sample, or that are older than the request.
    seen: Vec<u64>,
    /// Dense samples in a row.
    dense: u32,
    /// Whether what was there before the request has had its turn to be collapsed.
    front_done: bool,
    doubt: Option<Doubt>,
    again: Option<Again>,
}

/// What was collapsed may have blocks that could not be.
#[derive(Debug)]
struct Again {
    /// When it is tried, ns.
    due_ns: u64,
    /// How long after that the next time, ns.
    rest_ns: u64,
}

impl Again {
    const fn at(due_ns: u64) -> Self {
        Self { due_ns, rest_ns: AGAIN_NS }
    }
}

/// Memory that is filled all over is sparse until it is full: whether it gets denser is looked at once more.
#[derive(Debug)]
struct Doubt {
    /// Blocks that were looked into, ...
    blocks: Vec<u64>,
    /// ... and the part of them that was never written then.
    zero: f64,
    /// When it is looked again, ns.
    due_ns: u64,
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
    /// Huge pages in mappings of which samples were dense, in the last round, and in this one so far.
    dense: u64,
    dense_round: u64,
    /// Of lengths of mappings, bytes, whether one of it was filled wholly; false: one turned out to be sparse. Who works in rounds
    /// maps the same again and again.
    lengths: HashMap<u64, bool>,
    /// When this round began, and the first one.
    now_ns: u64,
    began_ns: Option<u64>,
    /// Blocks that were full before they could be asked for, and were collapsed.
    full_collapsed: u64,
}

impl Filling {
    /// Looks at a mapping: one of private anonymous memory that may be written, of at least [`WORTH`] bytes. `sample` is
    /// the same of some of its blocks, spread over all of it, where it is so scattered that `fill` is not complete. `expensive`
    /// says whether huge pages cost more than base pages at present, or are not to be had; it is asked only where that
    /// matters, and whether a request stands already.
    pub fn look(
        &mut self,
        mapping: AddrRange,
        fill: &Fill,
        sample: Option<&Fill>,
        mut expensive: impl FnMut(bool) -> bool,
    ) -> Verdict {
        let start = mapping.start;
        match self.mappings.get_mut(&start) {
            Some(State::Asked(asked)) if asked.is_of_another(fill) => {
                self.mappings.remove(&start);
            }
            Some(State::Asked(asked)) => {
                asked.most_huge = asked.most_huge.max(fill.huge.len() as u64);
                // The kernel collapses blocks of base pages by itself.
                asked.based = asked.based.min(fill.based());
                let wholly = asked.dense > 0 && fill.is_whole();
                let dense = if asked.dense > 0 { fill.huge.len() as u64 } else { 0 };
                self.round += fill.full + dense;
                self.dense_round += dense;
                if fill.empty >= ROOM_LEFT && expensive(true) {
                    self.mappings.insert(start, State::Paused);
                    return Verdict::TakeBack;
                }
                let of_all = if self.taken_back == 0 { self.dense } else { 0 };
                asked.notice_front(fill, dense.max(of_all), self.now_ns);
                let verdict = match asked.sample(fill, self.now_ns) {
                    Verdict::Leave if asked.tries_again(fill, self.now_ns) && !expensive(true) => Verdict::Collapse,
                    verdict => verdict,
                };
                if wholly {
                    self.remember(mapping.len(), true);
                }
                return verdict;
            }
            Some(State::Paused) if expensive(false) => return Verdict::Leave,
            // Also where no room is left: what is forbidden there could not become huge pages afterwards, either.
            Some(State::Paused) => {
                self.ask(mapping, fill, fill.huge.clone(), None);
                return Verdict::Ask;
            }
            // One that has doubled gets another chance.
            Some(State::Sparse(blocks)) if fill.populated() >= 2 * *blocks => {
                self.mappings.remove(&start);
            }
            Some(State::Sparse(_)) => return Verdict::Leave,
            Some(State::Full(due_ns)) if fill.is_whole() => {
                self.round += fill.full;
                let is_due = due_ns.is_some_and(|due_ns| due_ns <= self.now_ns);
                return if is_due { self.collapse_full(start, fill, expensive) } else { Verdict::Leave };
            }
            // It has grown, or is another at the same address.
            Some(State::Full(_)) => {
                self.mappings.remove(&start);
            }
            None => {}
        }
        self.round += fill.full;
        let blocks = fill.blocks();
        if fill.huge.is_empty() && fill.is_whole() {
            self.remember(mapping.len(), true);
        }
        let recurs = self.recurs(mapping.len());
        let evidence = if recurs { 0 } else { self.evidence(blocks) };
        let all_over = sample.unwrap_or(fill);
        let trusted = self.is_trusted();
        let is_half = trusted && blocks >= NO_STACK && all_over.is_half();
        let evenly = all_over.is_even() && (evidence == 0 || is_half);
        if (evenly || recurs && all_over.is_thin()) && !expensive(false) {
            let first = mapping.start.next_multiple_of(TABLE_SPAN);
            let seen: Vec<u64> = (0..blocks).map(|i| first + i * TABLE_SPAN).collect();
            let due_ns = self.now_ns + SETTLES_NS;
            let doubt = Doubt { blocks: spread(&seen), zero: all_over.empty_part(), due_ns };
            self.ask(mapping, fill, seen, Some(doubt));
            return Verdict::AskAndCollapse;
        }
        // What was not looked at of a scattered one counts as empty in `fill`, and need not be.
        let scattered = sample.is_some();
        if scattered || fill.full < evidence || !fill.is_dense() {
            return Verdict::Leave;
        }
        let is_new = self.began_ns.is_some_and(|began_ns| began_ns < self.now_ns);
        if fill.is_whole() && (ROOM..=FULL_AT_MOST).contains(&fill.based()) && (trusted || !is_new) {
            // What was there before anybody looked may not be in use at all.
            self.mappings.insert(start, State::Full(is_new.then_some(self.now_ns + LASTS_NS)));
            return Verdict::Leave;
        }
        if fill.empty < ROOM || expensive(false) {
            return Verdict::Leave;
        }
        self.ask(mapping, fill, fill.huge.clone(), None);
        Verdict::Ask
    }

    /// Has a mapping collapsed that was full before it could be asked for, and has lasted, if the time that takes has been earned.
    fn collapse_full(&mut self, start: u64, fill: &Fill, mut expensive: impl FnMut(bool) -> bool) -> Verdict {
        let blocks = self.full_collapsed + fill.based();
        let earned_ns = self.began_ns.unwrap_or(self.now_ns) + blocks * FULL_BLOCK_NS;
        let is_early = self.now_ns < earned_ns;
        self.mappings.insert(start, State::Full(is_early.then_some(earned_ns)));
        if is_early || expensive(false) {
            return Verdict::Leave;
        }
        self.full_collapsed = blocks;
        Verdict::Collapse
    }

    /// Notes a request. `seen`: blocks that samples are not to look into.
    fn ask(&mut self, mapping: AddrRange, fill: &Fill, seen: Vec<u64>, doubt: Option<Doubt>) {
        let (len, populated, based) = (mapping.len(), fill.populated(), fill.based());
        let again = doubt.is_some().then_some(Again::at(self.now_ns + AGAIN_NS));
        let asked =
            Asked { len, populated, based, seen, front_done: doubt.is_some(), doubt, again, ..Asked::default() };
        self.mappings.insert(mapping.start, State::Asked(asked));
    }

    /// Whether a request stands.
    pub fn has_asked(&self) -> bool {
        self.mappings.values().any(|state| matches!(state, State::Asked(_)))
    }

    /// Whether requests were taken back only for now.
    pub fn has_paused(&self) -> bool {
        self.mappings.values().any(|state| matches!(state, State::Paused))
    }

    /// When it is to be looked whether something has got denser, or can be collapsed now, ns; `None`: nothing is in doubt.
    pub fn settles_ns(&self) -> Option<u64> {
        let due = |state: &State| match state {
            State::Asked(Asked { doubt, again, .. }) => {
                doubt.iter().map(|d| d.due_ns).chain(again.iter().map(|a| a.due_ns)).min()
            }
            State::Full(due_ns) => *due_ns,
            State::Paused | State::Sparse(_) => None,
        };
        self.mappings.values().filter_map(due).min()
    }

    /// Takes what a [sample](Verdict::Sample) found: of each of the `blocks` the part that was never written, as far as its content
    /// tells; and the same of [what was filled page by page](Fill::last_full) next to them. Where that holds zeros, too, these were
    /// written, and content tells nothing. True: the request is to be taken back.
    pub fn sampled(
        &mut self,
        mapping: AddrRange,
        fill: &Fill,
        blocks: Vec<u64>,
        zeros: &[f64],
        of_full: Option<f64>,
    ) -> bool {
        let recurs = self.lengths.get(&mapping.len()) == Some(&true);
        let Some(State::Asked(asked)) = self.mappings.get_mut(&mapping.start) else { return false };
        let limit = if recurs { SPARSE_AGAIN } else { SPARSE };
        if zeros.iter().filter(|part| **part >= limit).count() * 2 <= zeros.len() {
            asked.dense += 1;
            asked.doubt = None;
            if fill.is_whole() {
                self.remember(mapping.len(), true);
            }
            return false;
        }
        if of_full.is_some_and(|zero| zero >= SPARSE) {
            asked.doubt = None;
            return false;
        }
        let zero = zeros.iter().sum::<f64>() / zeros.len() as f64;
        let gets_denser = match &asked.doubt {
            Some(before) => zero + DENSER <= before.zero,
            None => recurs,
        };
        if gets_denser {
            asked.doubt = Some(Doubt { blocks, zero, due_ns: self.now_ns + SETTLES_NS });
            return false;
        }
        self.mappings.insert(mapping.start, State::Sparse(fill.populated()));
        self.taken_back += 1;
        self.remember(mapping.len(), false);
        true
    }

    /// Whether one of this length was filled wholly, and there is no other of which that is still open: of many that are made at the same
    /// time, and left nearly empty, one alone is to grow.
    fn recurs(&self, len: u64) -> bool {
        let is_open = |state: &State| matches!(state, State::Asked(asked) if asked.len == len && asked.dense == 0);
        self.lengths.get(&len) == Some(&true) && !self.mappings.values().any(is_open)
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
        let asked = Asked { len: mapping.len(), based: fill.based(), ..Asked::default() };
        self.mappings.insert(mapping.start, State::Asked(asked));
    }

    /// Whether the process has filled much, and nothing in vain.
    const fn is_trusted(&self) -> bool {
        self.taken_back == 0 && self.proven >= TRUSTED
    }

    /// Blocks that a mapping of so many blocks must have filled wholly.
    const fn evidence(&self, blocks: u64) -> u64 {
        if self.taken_back > 0 {
            let doublings = if self.taken_back < MOST_DOUBLINGS { self.taken_back } else { MOST_DOUBLINGS };
            EVIDENCE << doublings
        } else if !self.is_trusted() || blocks * 2 > self.proven {
            EVIDENCE
        } else if blocks < NO_STACK {
            1
        } else {
            0
        }
    }

    /// Begins a round of looks at all mappings of the process, whose first addresses are `starts`, ascending. Forgets
    /// the others. `now_ns` is of any clock that only goes on.
    pub fn begin(&mut self, starts: &[u64], now_ns: u64) {
        self.now_ns = now_ns;
        self.began_ns.get_or_insert(now_ns);
        self.proven = self.proven.max(std::mem::take(&mut self.round));
        self.dense = std::mem::take(&mut self.dense_round);
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
            || fill.full > self.based + EVIDENCE
    }

    /// Has what was filled before the request collapsed, once there are as many huge pages in memory that was found `dense`. It may be much:
    /// a request waits for the end of a system call that the program is in, as one that reads a whole file.
    fn notice_front(&mut self, fill: &Fill, dense: u64, now_ns: u64) {
        let front = fill.based();
        if self.front_done || dense == 0 || dense < front {
            return;
        }
        self.front_done = true;
        if FRONT.contains(&front) && fill.is_dense() {
            self.again = Some(Again::at(now_ns));
        }
    }

    /// Whether it is time to collapse what could not be, and there is something.
    fn tries_again(&mut self, fill: &Fill, now_ns: u64) -> bool {
        let Some(Again { due_ns, rest_ns }) = self.again else { return false };
        if now_ns < due_ns {
            return false;
        }
        let is_left = fill.based() > 0;
        let goes_on = is_left && rest_ns <= AGAIN_AT_MOST_NS;
        self.again = goes_on.then_some(Again { due_ns: now_ns + rest_ns, rest_ns: rest_ns * 2 });
        is_left
    }

    /// The blocks to look into, if there are enough new ones, or doubts.
    fn sample(&mut self, fill: &Fill, now_ns: u64) -> Verdict {
        if let Some(doubt) = &self.doubt {
            return if now_ns >= doubt.due_ns { Verdict::Sample(doubt.blocks.clone()) } else { Verdict::Leave };
        }
        let new: Vec<u64> = fill.huge.iter().copied().filter(|b| self.seen.binary_search(b).is_err()).collect();
        let wanted = if self.dense < SURE_AFTER { SAMPLE_EVERY } else { SAMPLE_EVERY.max(self.seen.len() as u64) };
        if (new.len() as u64) < wanted {
            return Verdict::Leave;
        }
        self.seen.clone_from(&fill.huge);
        Verdict::Sample(spread(&new))
    }
}

/// Some of the blocks, spread evenly: whatever the order in which a program fills them, only a few are not finished yet.
fn spread(blocks: &[u64]) -> Vec<u64> {
    (0..SAMPLES).map(|i| blocks[i * blocks.len() / SAMPLES]).collect()
}

#[cfg(test)]
mod tests;
