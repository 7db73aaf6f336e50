//! The pages below one last-level page table, a byte each; tables whose pages are alike take one byte for all.

use super::epoch::{ABSENT, BLIND, Begun, Epochs, KINDS, STANDING};
use super::to_clear::ToClear;
use crate::bits::TableBits;
use crate::mask::{self, NO_PAGES, PageMask};

/// Pages below a table.
pub const PAGES: usize = 512;
/// The most that [`Table::level`] can be: at each walk one of its pages is cleared.
pub(crate) const HIGHEST_LEVEL: u8 = 9;

/// Unit of [`Table::known_from_ds`], ns: a second would be too coarse for ages of a second.
pub(crate) const TENTH_NS: u64 = 100_000_000;

/// The byte of a page whose bit was set when the watch began, and has not been cleared since.
const NEVER: u8 = STANDING | Epochs::BEFORE;

/// The pages' bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Codes {
    /// All the same.
    Alike(u8),
    /// One each.
    Each(Box<[u8; PAGES]>),
}

/// What is known of the pages below one table.
#[derive(Debug, Clone)]
pub struct Table {
    codes: Codes,
    /// One entry of 2 MiB maps all of it.
    pub huge: bool,
    /// Of the pages that are accessed walk after walk, one part in 2^level is cleared by each walk.
    level: u8,
    /// Low bits of the number of the walk that last came across it.
    pub seen_by: u16,
    /// From when on the last accesses to nearly all of its pages are known, in [`TENTH_NS`] after the watch began.
    pub known_from_ds: u32,
}

/// What a walk learnt from a table, pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Learnt {
    /// Present pages.
    pub present: u64,
    /// Of these, pages that cannot be observed.
    pub blind: u64,
    /// Bits cleared.
    pub cleared: u64,
    /// Left standing without ever having been cleared.
    pub unresolved: u64,
    /// Seen with a bit that is clear for the first time.
    pub resolved: u64,
    /// Found accessed by the two walks before, and cleared.
    pub steady: Retried,
    /// Those that were fresh at the walk before, and fresh ones left set until then.
    pub fresh: Retried,
    /// Left set for some time, and cleared by the walk before to see whether they are still in use.
    pub held: Retried,
}

/// Pages that the walk before cleared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retried {
    /// All of them.
    pub cleared: u32,
    /// Those found accessed.
    pub accessed: u32,
}

impl Retried {
    const fn add(&mut self, other: Self) {
        self.cleared = self.cleared.saturating_add(other.cleared);
        self.accessed = self.accessed.saturating_add(other.accessed);
    }
}

impl Learnt {
    /// Adds another table's.
    pub fn add(&mut self, other: &Self) {
        self.present += other.present;
        self.blind += other.blind;
        self.cleared += other.cleared;
        self.unresolved += other.unresolved;
        self.resolved += other.resolved;
        self.steady.add(other.steady);
        self.fresh.add(other.fresh);
        self.held.add(other.held);
    }

    /// Adds pages whose bytes are of the walk before, by [`Begun`].
    fn retried(&mut self, by_kind: &[Retried; KINDS]) {
        use Begun::{Fresh, FreshTrial, Steady, SteadyTrial};
        let of = |kind: Begun| by_kind[kind as usize];
        self.steady.add(of(Steady));
        [Fresh, FreshTrial].into_iter().for_each(|kind| self.fresh.add(of(kind)));
        self.held.add(of(SteadyTrial));
    }

    /// Whether of so many pages that the last access is not known before this walk that it cannot be overlooked.
    pub(crate) const fn is_new(&self) -> bool {
        (self.unresolved + self.resolved) * 16 > self.present
    }
}

impl Default for Table {
    fn default() -> Self {
        Self { codes: Codes::Alike(ABSENT), huge: false, level: 0, seen_by: 0, known_from_ds: 0 }
    }
}

impl Table {
    /// The byte of page `i`.
    pub fn code(&self, i: usize) -> u8 {
        match &self.codes {
            Codes::Alike(code) => *code,
            Codes::Each(codes) => codes[i],
        }
    }

    /// With these bytes.
    pub(crate) fn of_codes(codes: &[u8; PAGES], huge: bool) -> Self {
        let alike = codes.iter().all(|&c| c == codes[0]);
        let codes = if alike { Codes::Alike(codes[0]) } else { Codes::Each(Box::new(*codes)) };
        Self { codes, huge, ..Self::default() }
    }

    /// The byte that all pages have, if they are alike.
    pub const fn alike(&self) -> Option<u8> {
        match &self.codes {
            Codes::Alike(code) => Some(*code),
            Codes::Each(_) => None,
        }
    }

    /// Bytes of memory that it takes beside itself.
    pub(crate) const fn heap_bytes(&self) -> usize {
        match &self.codes {
            Codes::Alike(_) => 0,
            Codes::Each(_) => PAGES,
        }
    }

    /// Calls `f` with each byte and how many pages have it.
    pub fn count(&self, mut f: impl FnMut(u8, u64)) {
        match &self.codes {
            Codes::Alike(code) => f(*code, PAGES as u64),
            Codes::Each(codes) => {
                let mut counts = [0u16; 256];
                // Neighbours are mostly alike: of small processes most are not there.
                for eight in codes.as_chunks::<8>().0 {
                    if *eight == [eight[0]; 8] {
                        counts[usize::from(eight[0])] += 8;
                    } else {
                        eight.iter().for_each(|&c| counts[usize::from(c)] += 1);
                    }
                }
                (0..=255u8).zip(counts).filter(|(_, n)| *n > 0).for_each(|(c, n)| f(c, u64::from(n)));
            }
        }
    }

    /// The same for the pages in `inside`.
    pub(crate) fn count_in(&self, inside: &PageMask, mut f: impl FnMut(u8, u64)) {
        match &self.codes {
            Codes::Alike(code) => f(*code, u64::from(mask::count(inside))),
            Codes::Each(_) if *inside == [u64::MAX; 8] => self.count(f),
            Codes::Each(codes) => mask::iter(inside).for_each(|i| f(codes[i], 1)),
        }
    }

    /// The pages whose byte `wanted` holds.
    pub fn pages(&self, wanted: &[bool; 256]) -> PageMask {
        match &self.codes {
            Codes::Alike(code) => {
                if wanted[usize::from(*code)] {
                    [u64::MAX; 8]
                } else {
                    NO_PAGES
                }
            }
            Codes::Each(codes) => masks(codes, |c| wanted[usize::from(c)]),
        }
    }

    /// The part of the pages, of those accessed walk after walk, whose turn to be cleared it is at walk `turn`.
    pub fn due(&self, turn: u64) -> PageMask {
        let parts = 1usize << self.level;
        let part = turn as usize % parts;
        if self.huge {
            return if part == 0 { [u64::MAX; 8] } else { NO_PAGES };
        }
        let size = PAGES / parts;
        mask::span_mask(part * size, (part + 1) * size)
    }

    /// Of the pages that a walk finds accessed, those that it should clear.
    pub fn wanted(&self, bits: &TableBits, epochs: &Epochs, turn: u64) -> ToClear {
        let is_steady = |c: u8| c != NEVER && (c & STANDING != 0 || epochs.is_of_last_walk(c));
        let codes = match &self.codes {
            Codes::Alike(NEVER) => return ToClear { never: bits.accessed, ..ToClear::NOTHING },
            Codes::Alike(ABSENT) => return ToClear { new: bits.accessed, ..ToClear::NOTHING },
            Codes::Alike(c) => {
                let due = if is_steady(*c) { self.due(turn) } else { [u64::MAX; 8] };
                return ToClear { again: mask::and(&bits.accessed, &due), ..ToClear::NOTHING };
            }
            Codes::Each(codes) => codes,
        };
        let never = mask::and(&bits.accessed, &masks(codes, |c| c == NEVER));
        let new = mask::and(&bits.accessed, &masks(codes, |c| c == ABSENT));
        let mut again = mask::and_not(&bits.accessed, &mask::or(&never, &new));
        for i in mask::iter(&mask::and_not(&again, &self.due(turn))) {
            if is_steady(codes[i]) {
                again[i / 64] &= !(1 << (i % 64));
            }
        }
        ToClear { again, new, never }
    }

    /// Takes over what a walk saw and cleared. `most_level`: how seldom pages that are accessed all the time may be
    /// cleared at most. `first`: nobody has watched this address space before.
    pub fn take(&mut self, bits: &TableBits, epochs: &mut Epochs, first: bool, most_level: u8) -> Learnt {
        self.huge = bits.leaf_shift > 12;
        let mut learnt = Learnt {
            present: u64::from(mask::count(&bits.present)),
            blind: u64::from(mask::count(&bits.blind)),
            ..Learnt::default()
        };
        if let Codes::Alike(code) = self.codes {
            return self.take_alike(code, bits, epochs, (first, most_level), learnt);
        }
        let mut codes = match std::mem::replace(&mut self.codes, Codes::Alike(ABSENT)) {
            Codes::Alike(code) => Box::new([code; PAGES]),
            Codes::Each(codes) => codes,
        };
        let last_walk = epochs.last_walk();
        let mut retried_by_kind = [Retried::default(); KINDS];
        for (w, codes) in codes.chunks_exact_mut(64).enumerate() {
            let (present, accessed, blind) = (bits.present[w], bits.accessed[w], bits.blind[w]);
            // Present, idle, and known to be: nothing is to be learnt of these.
            let quiet = present & !accessed & !blind & bit_mask(codes, |c| c > BLIND && c < STANDING);
            let gone = if present == u64::MAX { 0 } else { !present & bit_mask(codes, |c| c == ABSENT) };
            // Left set, and still is: nor of these.
            let set = present & accessed & !blind & !bits.cleared[w];
            let (mut never, mut standing) = (0, 0);
            if set != 0 {
                never = set & bit_mask(codes, |c| c == NEVER);
                standing = set & !never & bit_mask(codes, |c| c & STANDING != 0);
                learnt.unresolved += u64::from(never.count_ones());
            }
            let mut rest = !(quiet | gone | never | standing);
            // Of what was cleared by the last walk, how much was accessed again?
            let retried = quiet & bit_mask(codes, |c| last_walk.contains(&c));
            if retried != 0 {
                for (sum, code) in retried_by_kind.iter_mut().zip(last_walk).filter(|(_, code)| *code != ABSENT) {
                    sum.cleared += (retried & bit_mask(codes, |c| c == code)).count_ones();
                }
            }
            while rest != 0 {
                let i = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let state = Seen::of(bits, w * 64 + i);
                if matches!(state, Seen::Cleared | Seen::Set)
                    && let Some(kind) = last_walk.iter().position(|&c| c == codes[i] && c != ABSENT)
                {
                    retried_by_kind[kind].add(Retried { cleared: 1, accessed: 1 });
                }
                codes[i] = self.learn(codes[i], state, 1, epochs, first, &mut learnt);
            }
        }
        self.note_retried(&retried_by_kind, &mut learnt, most_level);
        self.codes = match codes.iter().all(|&c| c == codes[0]) {
            true => Codes::Alike(codes[0]),
            false => Codes::Each(codes),
        };
        learnt
    }

    /// The same where all pages have the byte `code`.
    fn take_alike(
        &mut self,
        code: u8,
        bits: &TableBits,
        epochs: &mut Epochs,
        (first, most_level): (bool, u8),
        mut learnt: Learnt,
    ) -> Learnt {
        let kind = epochs.last_walk().iter().position(|&c| c == code && c != ABSENT);
        let mut retried_by_kind = [Retried::default(); KINDS];
        let mut codes = [ABSENT; PAGES];
        for (state, pages) in Seen::all(bits) {
            let count = mask::count(&pages);
            if count == 0 {
                continue;
            }
            let new = self.learn(code, state, u64::from(count), epochs, first, &mut learnt);
            if let Some(kind) = kind.filter(|_| state != Seen::Absent && state != Seen::Blind) {
                let accessed = if state == Seen::Idle { 0 } else { count };
                retried_by_kind[kind].add(Retried { cleared: count, accessed });
            }
            if count as usize == PAGES {
                codes = [new; PAGES];
            } else if new != ABSENT {
                mask::iter(&pages).for_each(|i| codes[i] = new);
            }
        }
        self.note_retried(&retried_by_kind, &mut learnt, most_level);
        self.codes = match codes.iter().all(|&c| c == codes[0]) {
            true => Codes::Alike(codes[0]),
            false => Codes::Each(Box::new(codes)),
        };
        learnt
    }

    /// The byte of `pages` pages that had `code`, after a walk that saw them in `state`.
    fn learn(&self, code: u8, state: Seen, pages: u64, epochs: &mut Epochs, first: bool, learnt: &mut Learnt) -> u8 {
        let known = Epochs::is_epoch(code);
        let standing = code & STANDING != 0;
        if state == Seen::Cleared {
            learnt.cleared += pages;
        }
        let accessed = matches!(state, Seen::Cleared | Seen::Set);
        if accessed && known && !standing {
            epochs.accessed_again(code, pages);
        }
        let is_new = code == NEVER || !known && (first || code != ABSENT);
        if is_new && matches!(state, Seen::Cleared | Seen::Idle) {
            learnt.resolved += pages;
        }
        match state {
            Seen::Absent => ABSENT,
            Seen::Blind => BLIND,
            Seen::Idle if code == ABSENT && first => Epochs::BEFORE,
            // New pages were accessed when they came, and have their bits set.
            Seen::Cleared if code == ABSENT && !first => epochs.accessed(code),
            Seen::Set if code == ABSENT && !first => epochs.standing(code),
            // What could not be observed, was there before anybody watched, or came with a clear bit: mremap has moved it here, or somebody else has
            // cleared it.
            Seen::Cleared | Seen::Idle if !known => epochs.unknown(),
            Seen::Set if !known => {
                learnt.unresolved += pages;
                NEVER
            }
            // Somebody else may have cleared a bit that was left set.
            Seen::Cleared | Seen::Idle if standing => epochs.trial(code),
            Seen::Idle => code,
            Seen::Cleared => epochs.accessed(code),
            Seen::Set if standing => {
                learnt.unresolved += if code == NEVER { pages } else { 0 };
                code
            }
            Seen::Set => epochs.standing(code),
        }
    }

    /// Of pages that the last walk cleared, by [`Begun`], so many were found accessed again.
    fn note_retried(&mut self, by_kind: &[Retried; KINDS], learnt: &mut Learnt, most_level: u8) {
        learnt.retried(by_kind);
        let mut all = Retried::default();
        by_kind.iter().for_each(|&retried| all.add(retried));
        let Retried { cleared, accessed } = all;
        if cleared > 0 {
            self.level = match () {
                () if accessed * 10 >= cleared * 9 => self.level + 1,
                // What was taken to be in constant use is not any more: look at all of it at once.
                () if accessed * 2 < cleared => 0,
                () => self.level,
            };
        }
        self.level = self.level.min(most_level).min(HIGHEST_LEVEL);
    }

    /// Whether any page is left standing that has been cleared before.
    pub const fn level(&self) -> u8 {
        self.level
    }

    /// Notes that pages of `accessed` were found accessed, and cleared, between two walks; whether that was new of any.
    pub fn note(&mut self, accessed: &PageMask, epochs: &mut Epochs) -> bool {
        let mut codes = match &self.codes {
            Codes::Alike(code) if *code & STANDING != 0 || !Epochs::is_epoch(*code) => return false,
            Codes::Alike(code) => Box::new([*code; PAGES]),
            Codes::Each(codes) => codes.clone(),
        };
        let mut any = false;
        for i in mask::iter(accessed) {
            if Epochs::is_epoch(codes[i]) && codes[i] & STANDING == 0 {
                any = true;
                epochs.noted_again(codes[i]);
                codes[i] = epochs.noted(codes[i]);
            }
        }
        self.codes = if codes.iter().all(|&c| c == codes[0]) { Codes::Alike(codes[0]) } else { Codes::Each(codes) };
        any
    }

    /// Marks in `used` which bytes occur.
    pub(crate) fn mark_used(&self, used: &mut [bool; 256]) {
        match &self.codes {
            Codes::Alike(code) => used[usize::from(*code)] = true,
            Codes::Each(codes) => codes.iter().for_each(|&c| used[usize::from(c)] = true),
        }
    }

    /// Replaces each byte `c` by `renumbered[c]`.
    pub fn renumber(&mut self, renumbered: &[u8; 256]) {
        match &mut self.codes {
            Codes::Alike(code) => *code = renumbered[usize::from(*code)],
            Codes::Each(codes) => codes.iter_mut().for_each(|c| *c = renumbered[usize::from(*c)]),
        }
    }

    /// Takes all pages but those in `kept` out: they are not mapped any more.
    pub fn keep(&mut self, kept: &PageMask) {
        match &mut self.codes {
            Codes::Alike(ABSENT) => {}
            Codes::Alike(code) => {
                let code = *code;
                if *kept != [u64::MAX; 8] {
                    self.codes =
                        Codes::Each(Box::new(std::array::from_fn(|i| if mask::has(kept, i) { code } else { ABSENT })));
                }
            }
            Codes::Each(codes) => (0..PAGES).filter(|&i| !mask::has(kept, i)).for_each(|i| codes[i] = ABSENT),
        }
    }
}

/// What a walk saw of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Absent,
    Blind,
    Idle,
    /// Accessed, and its bit is clear now.
    Cleared,
    /// Accessed, and its bit stays set.
    Set,
}

impl Seen {
    fn of(bits: &TableBits, i: usize) -> Self {
        let has = |m: &PageMask| mask::has(m, i);
        match () {
            () if !has(&bits.present) => Self::Absent,
            () if has(&bits.blind) => Self::Blind,
            () if !has(&bits.accessed) => Self::Idle,
            () if has(&bits.cleared) => Self::Cleared,
            () => Self::Set,
        }
    }

    /// Which pages it saw in which state.
    fn all(bits: &TableBits) -> [(Self, PageMask); 5] {
        let absent = std::array::from_fn(|w| !bits.present[w]);
        let blind = mask::and(&bits.present, &bits.blind);
        let seen = mask::and_not(&bits.present, &bits.blind);
        let accessed = mask::and(&seen, &bits.accessed);
        let idle = mask::and_not(&seen, &accessed);
        let (cleared, set) = (mask::and(&accessed, &bits.cleared), mask::and_not(&accessed, &bits.cleared));
        [(Self::Absent, absent), (Self::Blind, blind), (Self::Idle, idle), (Self::Cleared, cleared), (Self::Set, set)]
    }
}

/// Bit `i` of the result: whether code `i` of 64 is wanted. In two steps, both of which compilers make vector code of:
/// a byte of 0 or 1 for each, then eight of these to eight bits by a multiplication that moves each to its place.
fn bit_mask(codes: &[u8], wanted: impl Fn(u8) -> bool) -> u64 {
    let mut bytes = [0u8; 64];
    bytes.iter_mut().zip(codes).for_each(|(byte, &c)| *byte = u8::from(wanted(c)));
    let eight = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| bytes[8 * i + k]));
    (0..8).fold(0, |mask, i| mask | (eight(i).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i))
}

fn masks(codes: &[u8; PAGES], wanted: impl Fn(u8) -> bool) -> PageMask {
    std::array::from_fn(|w| bit_mask(&codes[w * 64..w * 64 + 64], &wanted))
}
