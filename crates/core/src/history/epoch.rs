//! Between which two moments a page was last accessed, as one byte.
//!
//! A walk finds a set bit: the page was accessed after its bit was last known to be clear, and by the time of this
//! walk. All pages of which a walk learns the same share an *epoch*; a page keeps its epoch's number. There are fewer
//! numbers than walks, so epochs that lie close together, measured by their age, are joined from time to time: figures
//! about the last minute stay exact to a walk, those about an hour ago to some minutes.

use super::reaccessed::Reaccessed;

/// What a page's byte says besides an epoch: it is not present.
pub const ABSENT: u8 = 0;
/// It is present and cannot be observed.
pub const BLIND: u8 = 1;
/// Its bit has not been cleared since the epoch, and is set: accessed after the epoch's end, at any time until now.
pub const STANDING: u8 = 0x80;

/// The first number of an epoch.
const FIRST: u8 = 2;
/// Epochs that a byte can tell apart.
const MOST: usize = (STANDING - FIRST) as usize;
/// Epochs that one walk may begin.
const PER_WALK: usize = KINDS + 4;
/// Epochs that are left after joining.
const KEPT: usize = 80;

/// An interval that holds the last access of its pages: after the one moment, by the other, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// Not before; `None`: nobody knows, since nobody watched.
    pub after_ns: Option<u64>,
    /// Not after.
    pub by_ns: u64,
}

/// The epochs of one address space.
#[derive(Debug, Clone)]
pub struct Epochs {
    list: Vec<Epoch>,
    /// Begin of the walk before the present one, and begin and end of the present one. A walk of much memory takes its
    /// time; each page was looked at some time in it.
    before_ns: u64,
    begun_ns: u64,
    now_ns: u64,
    /// End of the walk before.
    before_end_ns: u64,
    /// Numbers of the epochs that the present walk and the one before have begun, by [`Begun`]; [`ABSENT`] where there is none.
    this_walk: [u8; KINDS],
    last_walk: [u8; KINDS],
    /// Epochs that only mark the begin of the walk before, and of the present one: for steady pages, and for fresh ones.
    marks: [[u8; 2]; 2],
    /// A bit for each number (less [`FIRST`]): whether its pages were fresh.
    fresh: [u64; 2],
    /// Whether a walk is under way.
    walking: bool,
    /// Pages found accessed again since this was last taken.
    reaccessed: Reaccessed,
}

/// Epochs that a walk begins for pages that it clears, by what earlier walks saw of them.
///
/// A *fresh* page was accessed between the last two walks, but not between the two before, or it has come since: nobody
/// knows whether it is used again. A *steady* one was found accessed by two walks in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// The walk before saw them idle, or not at all.
    Fresh,
    /// The walk before found them accessed and cleared them.
    Steady,
    /// They were fresh, and have been left set since.
    FreshTrial,
    /// They were steady, and have been left set since.
    SteadyTrial,
    /// Nobody had watched them.
    Unknown,
}

/// Number of variants of [`Begun`].
pub(super) const KINDS: usize = 5;

impl Epochs {
    /// Begins to watch at `begin_ns`; the first walk is that of [`begin_walk`](Self::begin_walk).
    pub fn new(begin_ns: u64) -> Self {
        Self {
            list: vec![Epoch { after_ns: None, by_ns: begin_ns }],
            before_ns: begin_ns,
            begun_ns: begin_ns,
            now_ns: begin_ns,
            before_end_ns: begin_ns,
            this_walk: [ABSENT; KINDS],
            last_walk: [ABSENT; KINDS],
            marks: [[ABSENT; 2]; 2],
            fresh: [0; 2],
            walking: false,
            reaccessed: Reaccessed::default(),
        }
    }

    /// Epochs that were [kept](Self::kept); `None` if they cannot have been.
    pub fn restore(kept: Kept) -> Option<Self> {
        let Kept { list, looked_ns, now_ns } = kept;
        let can_be = |e: &Epoch| e.by_ns <= now_ns && e.after_ns.is_none_or(|after| after <= e.by_ns);
        let fits = (1..=MOST).contains(&list.len()) && list.iter().all(can_be) && looked_ns <= now_ns;
        fits.then(|| Self {
            list,
            before_ns: looked_ns,
            begun_ns: looked_ns,
            now_ns,
            before_end_ns: now_ns,
            ..Self::new(now_ns)
        })
    }

    /// What is to be kept at `now_ns`. Of a walk under way, what it has learnt so far may have been seen at any time
    /// until now; pages that it has not come to yet were looked at last by the walk before.
    pub fn kept(&self, now_ns: u64) -> Kept {
        let mut kept = Kept { list: self.list.clone(), looked_ns: self.begun_ns, now_ns: self.now_ns };
        if self.walking {
            (kept.looked_ns, kept.now_ns) = (self.before_ns, now_ns.max(self.now_ns));
            for number in self.this_walk.iter().filter(|n| **n != ABSENT) {
                kept.list[usize::from(number - FIRST)].by_ns = kept.now_ns;
            }
        }
        kept
    }

    /// All epochs, by number.
    pub fn list(&self) -> &[Epoch] {
        &self.list
    }

    /// The number of the epoch before the watch: what was clear when it began. With [`STANDING`]: bits that were set
    /// then, and have never been cleared.
    pub const BEFORE: u8 = FIRST;

    /// When the watch began.
    pub fn begin_ns(&self) -> u64 {
        self.list[0].by_ns
    }

    /// When the last walk ended; the begin of one that has not.
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Time from the begin of the walk before to that of the last one, ns.
    pub const fn walk_ns(&self) -> u64 {
        self.begun_ns - self.before_ns
    }

    /// Whether a walk is under way.
    pub const fn is_walking(&self) -> bool {
        self.walking
    }

    /// Begin and end of the walk before the last one, and of the last one, ns; `None` while a walk is under way, and
    /// before the second.
    pub fn last_walks(&self) -> Option<[(u64, u64); 2]> {
        let walks = [(self.before_ns, self.before_end_ns), (self.begun_ns, self.now_ns)];
        (!self.is_walking() && self.walk_ns() > 0).then_some(walks)
    }

    /// A walk begins at `now_ns`. There must be [room](Self::has_room).
    pub fn begin_walk(&mut self, now_ns: u64) {
        self.before_ns = self.begun_ns;
        self.before_end_ns = self.now_ns;
        self.now_ns = now_ns.max(self.now_ns);
        self.begun_ns = self.now_ns;
        self.last_walk = std::mem::take(&mut self.this_walk);
        self.marks = [self.marks[1], [ABSENT; 2]];
        self.walking = true;
    }

    /// The walk ends at `now_ns`. `rests_since_ns`: the process has not run from then on.
    pub fn end_walk(&mut self, now_ns: u64, rests_since_ns: Option<u64>) {
        self.now_ns = now_ns.max(self.now_ns);
        self.walking = false;
        let by_ns = rests_since_ns.map_or(self.now_ns, |since| since.min(self.now_ns));
        for number in self.this_walk.iter().filter(|n| **n != ABSENT) {
            let epoch = &mut self.list[usize::from(number - FIRST)];
            epoch.by_ns = by_ns.max(epoch.after_ns.unwrap_or(0));
        }
    }

    /// The process has not run from `since_ns` to `now_ns`: another walk would have seen at `now_ns` what the last one saw.
    /// `false`, and nothing changes, where it ran after that walk began, or somebody has found pages accessed since.
    pub fn rest(&mut self, since_ns: u64, now_ns: u64) -> bool {
        let was_noted = self.marks[1] != [ABSENT; 2];
        if self.walking || was_noted || since_ns > self.begun_ns {
            return false;
        }
        let ns = now_ns.saturating_sub(self.now_ns);
        for moment in [&mut self.before_ns, &mut self.before_end_ns, &mut self.begun_ns, &mut self.now_ns] {
            *moment += ns;
        }
        true
    }

    /// Whether another walk's epochs have numbers left; if not, [`join`](Self::join).
    pub(crate) const fn has_room(&self) -> bool {
        self.list.len() + PER_WALK <= MOST
    }

    /// The epoch of a page's byte, which must hold one.
    pub fn of(&self, code: u8) -> Epoch {
        self.list[usize::from((code & !STANDING).saturating_sub(FIRST)).min(self.list.len() - 1)]
    }

    /// Whether the byte holds an epoch at all.
    pub const fn is_epoch(code: u8) -> bool {
        code & !STANDING >= FIRST
    }

    /// Whether the byte is one of a page whose bit was cleared by the walk before.
    pub(crate) fn is_of_last_walk(&self, code: u8) -> bool {
        code != ABSENT && self.last_walk.contains(&code)
    }

    /// The bytes of pages whose bit was cleared by the walk before; [`ABSENT`] where there are fewer.
    pub(super) const fn last_walk(&self) -> [u8; KINDS] {
        self.last_walk
    }

    /// Whether the byte is one of pages that were [fresh](Begun) when they were found accessed last.
    pub(super) const fn is_fresh(&self, code: u8) -> bool {
        let at = (code & !STANDING).saturating_sub(FIRST);
        self.fresh[(at / 64) as usize] >> (at % 64) & 1 != 0
    }

    /// The byte of a page that was clear or not there, with `code`, and has been accessed or has come between the last two
    /// walks.
    pub fn accessed(&mut self, code: u8) -> u8 {
        let kind = if self.is_of_last_walk(code) { Begun::Steady } else { Begun::Fresh };
        self.begun(kind, Some(self.before_ns))
    }

    /// Accessed at any time before the present walk.
    pub fn unknown(&mut self) -> u8 {
        self.begun(Begun::Unknown, None)
    }

    /// The byte of a page that was left standing with `code` and has been cleared now.
    pub fn trial(&mut self, code: u8) -> u8 {
        if code == STANDING | Self::BEFORE {
            return self.unknown();
        }
        let after = self.of(code).by_ns;
        let kind = if self.is_fresh(code) { Begun::FreshTrial } else { Begun::SteadyTrial };
        let number = self.begun(kind, Some(after));
        let epoch = &mut self.list[usize::from(number - FIRST)];
        epoch.after_ns = epoch.after_ns.map(|known| known.min(after));
        number
    }

    /// The byte of a page that was accessed after the walk before, and whose bit stays set. `code`: what it had.
    pub fn standing(&mut self, code: u8) -> u8 {
        self.left_set(code, self.before_ns)
    }

    /// The byte of a page with `code` that was accessed since the last walk (or the one before, while one is under
    /// way), and whose bit somebody else has cleared.
    pub(crate) fn noted(&mut self, code: u8) -> u8 {
        self.left_set(code, if self.walking { self.before_ns } else { self.begun_ns })
    }

    /// A walk found so many pages accessed that had been clear since the epoch `code`: the walk before saw them so.
    pub(crate) fn accessed_again(&mut self, code: u8, pages: u64) {
        self.reaccessed.add(self.before_ns.saturating_sub(self.of(code).by_ns), pages);
    }

    /// The same of a page that somebody else has found accessed since the last walk (or the one before, while one is
    /// under way).
    pub(crate) fn noted_again(&mut self, code: u8) {
        let seen_ns = if self.walking { self.before_ns } else { self.begun_ns };
        self.reaccessed.add(seen_ns.saturating_sub(self.of(code).by_ns), 1);
    }

    /// Pages found accessed again since the last call.
    pub(crate) fn take_reaccessed(&mut self) -> Reaccessed {
        std::mem::take(&mut self.reaccessed)
    }

    fn left_set(&mut self, code: u8, after_ns: u64) -> u8 {
        let (slot, is_fresh) = (usize::from(after_ns == self.begun_ns), !self.is_of_last_walk(code));
        let mark = match self.marks[slot][usize::from(is_fresh)] {
            mark if mark != ABSENT && self.of(mark).by_ns == after_ns => mark,
            _ => self.push(Epoch { after_ns: Some(after_ns), by_ns: after_ns }, is_fresh),
        };
        self.marks[slot][usize::from(is_fresh)] = mark;
        STANDING | mark
    }

    /// The number of the group whose end a standing page of epoch `n`, joined into group `own`, may be given: it was
    /// accessed after the end of its epoch, so an end that is later would promise too much.
    fn not_later(&self, groups: &[(Epoch, Vec<u8>)], n: u8, own: usize) -> u8 {
        let end = self.of(n).by_ns;
        let candidates = groups.iter().enumerate().filter(|(_, (e, _))| e.by_ns <= end);
        let known = candidates.filter(|(_, (_, numbers))| n == Self::BEFORE || !numbers.contains(&Self::BEFORE));
        known.max_by_key(|(i, (e, _))| (e.by_ns, *i == own)).map_or(own, |(i, _)| i) as u8 + FIRST
    }

    fn begun(&mut self, which: Begun, after_ns: Option<u64>) -> u8 {
        if self.this_walk[which as usize] != ABSENT {
            return self.this_walk[which as usize];
        }
        let is_fresh = matches!(which, Begun::Fresh | Begun::FreshTrial);
        let number = self.push(Epoch { after_ns, by_ns: self.now_ns }, is_fresh);
        self.this_walk[which as usize] = number;
        number
    }

    fn push(&mut self, epoch: Epoch, is_fresh: bool) -> u8 {
        debug_assert!(self.list.len() < MOST, "a walk was begun without room");
        let at = self.list.len();
        self.fresh[at / 64] |= u64::from(is_fresh) << (at % 64);
        self.list.push(epoch);
        (self.list.len() - 1) as u8 + FIRST
    }

    /// Joins epochs that lie close together, and gives up the numbers of those not `used` (by number) any more. Every
    /// byte `c` of the address space must become `renumbered[c]` of what this returns.
    pub fn join(&mut self, used: &[bool; 256]) -> [u8; 256] {
        let keep = |number: u8| {
            number == Self::BEFORE
                || used[usize::from(number)]
                || used[usize::from(STANDING | number)]
                || self.this_walk.contains(&number)
        };
        // Groups of numbers that become one epoch.
        let mut groups: Vec<(Epoch, Vec<u8>)> = (0..self.list.len())
            .map(|i| (self.list[i], vec![i as u8 + FIRST]))
            .filter(|(_, numbers)| keep(numbers[0]))
            .collect();
        let fixed = |numbers: &[u8]| numbers.iter().any(|&n| n == Self::BEFORE || self.this_walk.contains(&n));
        // Those without a begin stay apart, or they would take it from the others.
        groups.sort_by_key(|(epoch, numbers)| (!fixed(numbers), epoch.after_ns.is_some(), epoch.by_ns));
        while groups.len() > KEPT {
            let cost = |i: usize| {
                let ((a, left), (b, right)) = (&groups[i], &groups[i + 1]);
                if fixed(left) || fixed(right) || a.after_ns.is_some() != b.after_ns.is_some() {
                    return f64::INFINITY;
                }
                let begin = a.after_ns.zip(b.after_ns).map_or(a.by_ns, |(a, b)| a.min(b));
                let age = self.now_ns.saturating_sub(b.by_ns) + 1;
                b.by_ns.saturating_sub(begin) as f64 / age as f64
            };
            let Some(at) = (0..groups.len() - 1).min_by(|&a, &b| cost(a).total_cmp(&cost(b))) else { break };
            let (epoch, numbers) = groups.remove(at + 1);
            let into = &mut groups[at];
            into.0.after_ns = into.0.after_ns.zip(epoch.after_ns).map(|(a, b)| a.min(b));
            into.0.by_ns = into.0.by_ns.max(epoch.by_ns);
            into.1.extend(numbers);
        }
        let mut renumbered = [ABSENT; 256];
        renumbered[usize::from(BLIND)] = BLIND;
        let mut new_number = [FIRST; 256];
        for (i, (_, numbers)) in groups.iter().enumerate() {
            for &n in numbers {
                let new = i as u8 + FIRST;
                new_number[usize::from(n)] = new;
                renumbered[usize::from(n)] = new;
                renumbered[usize::from(STANDING | n)] = STANDING | self.not_later(&groups, n, i);
            }
        }
        self.this_walk = self.this_walk.map(|n| if n == ABSENT { ABSENT } else { new_number[usize::from(n)] });
        (self.last_walk, self.marks) = ([ABSENT; KINDS], [[ABSENT; 2]; 2]);
        let mut fresh = [0; 2];
        for (i, (_, numbers)) in groups.iter().enumerate() {
            fresh[i / 64] |= u64::from(numbers.iter().all(|&n| self.is_fresh(n))) << (i % 64);
        }
        self.fresh = fresh;
        self.list = groups.into_iter().map(|(epoch, _)| epoch).collect();
        renumbered
    }
}

/// What of an address space's epochs is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// By number.
    pub list: Vec<Epoch>,
    /// Since when a bit may have been set that was seen clear last, ns.
    pub looked_ns: u64,
    /// When the last walk ended, ns.
    pub now_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_walk_tells_what_was_known_before() {
        let mut e = Epochs::new(S);
        e.begin_walk(S);
        let unknown = e.unknown();
        assert_eq!(e.of(unknown), Epoch { after_ns: None, by_ns: S });
        e.begin_walk(3 * S);
        assert!(e.is_of_last_walk(unknown));
        let regular = e.accessed(unknown);
        assert_eq!(e.of(regular), Epoch { after_ns: Some(S), by_ns: 3 * S });
        let standing = e.standing(regular);
        assert_eq!((standing & STANDING, e.of(standing).by_ns), (STANDING, S));
        e.begin_walk(4 * S);
        assert!(!e.is_of_last_walk(unknown) && e.is_of_last_walk(regular));
        let trial = e.trial(standing);
        assert_eq!(e.of(trial), Epoch { after_ns: Some(S), by_ns: 4 * S });
        let never = e.trial(STANDING | Epochs::BEFORE);
        assert_eq!(e.of(never).after_ns, None);
    }

    #[test]
    fn joined_epochs_hold_what_they_held_and_stay_narrow_for_their_age() {
        let mut e = Epochs::new(0);
        let mut pages: Vec<(u8, u64)> = Vec::new();
        for second in 1..=10_000 {
            if !e.has_room() {
                let mut used = [false; 256];
                pages.iter().for_each(|&(code, _)| used[usize::from(code)] = true);
                let new = e.join(&used);
                pages.iter_mut().for_each(|(code, _)| *code = new[usize::from(*code)]);
                assert!(e.has_room());
            }
            e.begin_walk(second * S);
            pages.push((e.accessed(ABSENT), second * S));
        }
        for (code, accessed) in pages {
            let epoch = e.of(code);
            let after = epoch.after_ns.unwrap();
            assert!(after < accessed && accessed <= epoch.by_ns, "{accessed} is not in {epoch:?}");
            let (width, age) = ((epoch.by_ns - after) / S, 10_000 - accessed / S);
            assert!(width <= 1 + age / 5, "{width} s wide at an age of {age} s");
        }
    }
}
