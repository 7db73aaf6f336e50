//! The page history against a plain model that remembers every access.

use super::ages::CodeCounts;
use super::epoch::{ABSENT, BLIND, Epochs, Kept, STANDING};
use super::pages::PageHistory;
use super::rest::Rests;
use super::stored;
use super::table::Table;
use super::times::AGES_NS;
use super::to_clear::ToClear;
use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
use crate::bits::TableBits;
use crate::mapping::Mapping;
use crate::mask::{self, NO_PAGES, PageMask};
use proptest::prelude::*;

const S: u64 = 1_000_000_000;
const TABLES: usize = 3;
const PAGES: usize = TABLES * 512;

/// What really happened to a page.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Truth {
    present: bool,
    blind: bool,
    bit: bool,
    /// Its last access; 0: before the watch.
    accessed_ns: u64,
}

/// What happens between two walks.
#[derive(Debug, Clone)]
enum Step {
    /// Every so many pages from the first on are accessed so long after the last walk, of 100 parts of the time to the
    /// next.
    Access { first: usize, every: usize, at: u64 },
    /// Pages go, or come back.
    Unmap { first: usize, len: usize },
    /// Pages that have not been accessed lately are moved to where none are (mremap), with their bits.
    Move { first: usize, len: usize },
    /// Somebody else clears bits and tells.
    Note { first: usize, len: usize },
    /// Somebody else clears bits that the history has left set, and does not tell. (With other bits an access would be
    /// lost, which nobody could know.)
    Steal { first: usize, len: usize },
    /// Pages cannot be observed from now on, or can again.
    Blind { first: usize, len: usize, on: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let run = || (0..PAGES, 1..PAGES);
    let step = prop_oneof![
        6 => (0..PAGES, 1usize..700, 1u64..100).prop_map(|(first, every, at)| Step::Access { first, every, at }),
        1 => run().prop_map(|(first, len)| Step::Unmap { first, len }),
        1 => run().prop_map(|(first, len)| Step::Move { first, len }),
        1 => run().prop_map(|(first, len)| Step::Note { first, len }),
        1 => run().prop_map(|(first, len)| Step::Steal { first, len }),
        1 => (run(), any::<bool>()).prop_map(|((first, len), on)| Step::Blind { first, len, on }),
    ];
    prop::collection::vec(step, 0..6)
}

struct World {
    pages: Vec<Truth>,
    /// As they were when the last walk looked at them.
    looked_at: Vec<Truth>,
    history: PageHistory,
    now_ns: u64,
    /// How often the process has run, and who looks at that, if anybody does.
    runs: u64,
    rests: Rests,
}

impl World {
    fn new(present: &[bool], bits: &[bool]) -> Self {
        let page =
            |i: usize| Truth { present: present[i % present.len()], bit: bits[i % bits.len()], ..Truth::default() };
        let pages: Vec<Truth> = (0..PAGES).map(page).collect();
        let (history, now_ns) = (PageHistory::new(100 * S), 100 * S);
        Self { looked_at: pages.clone(), pages, history, now_ns, runs: 0, rests: Rests::default() }
    }

    /// Since when the process has not run, for who looks at `now_ns`.
    fn rests_since(&mut self, now_ns: u64) -> Option<u64> {
        self.rests.note(0, Some(self.runs), now_ns)
    }

    /// Looks after `ns` whether it has run since the last walk began, at `begun_ns`; it has not since that ended.
    fn rest(&mut self, ns: u64, begun_ns: u64) {
        self.now_ns += ns;
        let Some(since_ns) = self.rests_since(self.now_ns) else { return };
        let known = self.history.total();
        assert_eq!(self.history.rest(since_ns, self.now_ns), since_ns <= begun_ns);
        if since_ns > begun_ns {
            assert_eq!(self.history.total(), known, "it may have run during the walk");
            self.now_ns -= ns;
        }
        self.check();
    }

    fn range(first: usize, len: usize) -> std::ops::Range<usize> {
        first..(first + len).min(PAGES)
    }

    fn happen(&mut self, step: &Step, until_ns: u64) {
        match *step {
            Step::Access { first, every, at } => {
                let time = self.now_ns + ((until_ns - self.now_ns) * at / 100).max(1);
                self.runs += 1;
                for p in self.pages[first..].iter_mut().step_by(every) {
                    (p.present, p.bit) = (true, true);
                    p.accessed_ns = p.accessed_ns.max(time);
                }
            }
            Step::Unmap { first, len } => {
                self.pages[Self::range(first, len)].fill(Truth::default());
            }
            Step::Move { first, len } => {
                self.runs += 1;
                for i in Self::range(first, len) {
                    let (from, to) = (self.pages[i], (i + PAGES / 2) % PAGES);
                    let is_free = !self.pages[to].present && !self.looked_at[to].present;
                    if from.present && !from.bit && !from.blind && is_free {
                        (self.pages[to], self.pages[i]) = (from, Truth::default());
                    }
                }
            }
            Step::Note { first, len } => {
                let mut found = [NO_PAGES; TABLES];
                for i in Self::range(first, len) {
                    let page = &mut self.pages[i];
                    if page.bit && !page.blind {
                        page.bit = false;
                        mask::put(&mut found[i / 512], i % 512);
                    }
                }
                for (table, found) in found.iter().enumerate() {
                    self.history.note(table as u64 * TABLE_SPAN, found);
                }
            }
            Step::Steal { first, len } => {
                for i in Self::range(first, len) {
                    self.pages[i].bit &= self.code(i) & STANDING == 0;
                }
            }
            Step::Blind { first, len, on } => {
                self.pages[Self::range(first, len)].iter_mut().filter(|p| p.present).for_each(|p| {
                    // What nobody could see may have been accessed at any time.
                    p.blind = on;
                });
            }
        }
    }

    /// A walk that clears of what it wants to clear only what `allowed` says, and of the unresolved what `resolve`
    /// says.
    fn walk(&mut self, now_ns: u64, allowed: &PageMask, resolve: &PageMask) {
        self.slow_walk(now_ns, 0, allowed, resolve);
    }

    /// The same, with so much time from table to table, in which every 100th page is accessed.
    fn slow_walk(&mut self, begin_ns: u64, step_ns: u64, allowed: &PageMask, resolve: &PageMask) {
        let now_ns = begin_ns + step_ns * TABLES as u64;
        self.now_ns = now_ns;
        let all = [AddrRange::new(0, PAGES as u64 * PAGE_SIZE)];
        self.rests_since(begin_ns);
        self.history.begin_walk(&all, begin_ns);
        for table in 0..TABLES {
            if step_ns > 0 {
                self.runs += 1;
                for page in self.pages.iter_mut().step_by(100) {
                    (page.present, page.bit) = (true, true);
                    page.accessed_ns = begin_ns + table as u64 * step_ns;
                }
            }
            let here = table * 512..table * 512 + 512;
            self.looked_at[here.clone()].copy_from_slice(&self.pages[here]);
            let mut bits = TableBits::empty(table as u64 * TABLE_SPAN);
            for i in 0..512 {
                let page = self.pages[table * 512 + i];
                let put = |m: &mut PageMask, on: bool| {
                    if on {
                        mask::put(m, i)
                    }
                };
                put(&mut bits.present, page.present);
                put(&mut bits.blind, page.present && page.blind);
                put(&mut bits.accessed, page.present && page.bit && !page.blind);
            }
            if bits.present == NO_PAGES {
                continue;
            }
            let ToClear { again, new, never } = self.history.wanted(&bits);
            assert_eq!((mask::and(&again, &new), mask::and(&mask::or(&again, &new), &never)), (NO_PAGES, NO_PAGES));
            let again = mask::and(&mask::or(&again, &new), allowed);
            bits.cleared = mask::and(&bits.accessed, &mask::or(&again, &mask::and(&never, resolve)));
            mask::iter(&bits.cleared).for_each(|i| self.pages[table * 512 + i].bit = false);
            self.history.take(&bits);
        }
        let rests_since_ns = self.rests_since(now_ns);
        self.history.end_walk_at_rest(now_ns, rests_since_ns);
    }

    fn code(&self, i: usize) -> u8 {
        self.history.table((i / 512) as u64 * TABLE_SPAN).map_or(ABSENT, |t| t.code(i % 512))
    }

    fn check(&self) {
        let mut counts = CodeCounts::new(&self.history);
        let nowhere = Table::default();
        for (i, page) in self.looked_at.iter().enumerate() {
            let code = self.code(i);
            counts.add(self.history.table((i / 512) as u64 * TABLE_SPAN).unwrap_or(&nowhere), code, 1);
            match (page.present, page.blind) {
                (false, _) => assert_eq!((code, self.history.accessed_by(code)), (ABSENT, None), "page {i}"),
                (true, true) => assert_eq!((code, self.history.accessed_by(code)), (BLIND, None), "page {i}"),
                (true, false) => self.check_page(i, code, page.accessed_ns),
            }
        }
        // The same, in two parts of each table.
        let mut parts = CodeCounts::new(&self.history);
        for part in [mask::span_mask(0, 100), mask::span_mask(100, 512)] {
            self.history
                .tables()
                .for_each(|(_, table)| table.count_in(&part, |code, pages| parts.add(table, code, pages)));
        }
        assert_eq!(parts.ages(&self.history), self.history.total());
        let ages = counts.ages(&self.history);
        assert_eq!(ages, self.history.total());
        // Whoever rests accesses nothing, whether that could be observed or not.
        let rests = self.history.rests_long();
        let seen = |p: &&Truth| p.present && (rests || !p.blind);
        assert_eq!(ages.resident - ages.unobservable, self.looked_at.iter().filter(seen).count() as u64);
        for (idle, age) in ages.idle.iter().zip(AGES_NS) {
            let limit = self.now_ns - age;
            let truth = self.looked_at.iter().filter(seen).filter(|p| p.accessed_ns <= limit).count() as u64;
            assert!(idle.least <= truth && truth <= idle.most, "{truth} idle for {age} ns, found {idle:?}");
            assert!(idle.least <= idle.pages && idle.pages + idle.unresolved <= idle.most, "{idle:?}");
        }
        let Some(limit) = self.history.now_ns().checked_sub(10 * S) else { return };
        let idle = self.history.idle_codes(limit);
        let all = [AddrRange::new(0, PAGES as u64 * PAGE_SIZE)];
        self.history.each_table_in(&all, |base, table, asked| {
            let first = (base / PAGE_SIZE) as usize;
            let cold = mask::and(&table.pages(&idle), asked);
            for (i, page) in self.looked_at.iter().enumerate().skip(first).take(512) {
                let cold = mask::has(&cold, i - first) && (!table.huge || cold == [u64::MAX; 8]);
                let is_idle = page.present && !page.blind && page.accessed_ns <= self.now_ns - 10 * S;
                assert!(!cold || is_idle, "page {i}: {page:?}");
            }
        });
    }

    fn check_page(&self, i: usize, code: u8, accessed_ns: u64) {
        assert!(Epochs::is_epoch(code), "page {i} is present: {code}");
        if code == STANDING | Epochs::BEFORE {
            return;
        }
        let by_ns = self.history.accessed_by(code);
        assert!(by_ns.is_some_and(|by_ns| accessed_ns <= by_ns), "page {i}: {accessed_ns}, by {by_ns:?}");
        let epoch = self.history.epochs().of(code);
        if code & STANDING != 0 {
            assert!(accessed_ns > epoch.by_ns, "page {i}: {accessed_ns}, standing since {epoch:?}");
        } else {
            let after = epoch.after_ns.is_none_or(|after| accessed_ns > after);
            assert!(after && accessed_ns <= epoch.by_ns, "page {i}: {accessed_ns} is not in {epoch:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_last_access_lies_where_the_history_says(
        present in prop::collection::vec(prop::bool::weighted(0.8), 1..9),
        bits in prop::collection::vec(any::<bool>(), 1..7),
        level in 0u8..=9,
        walks in prop::collection::vec((steps(), 1u64..5000, 0u8..4, 0u8..3, 0u64..3, 0u64..3), 1..60),
        is_rest_known: bool,
    ) {
        // What may happen while pages are blind is not known to be an access or not: those come back as unknown.
        let mut world = World::new(&present, &bits);
        world.history.set_most_level(level);
        if is_rest_known {
            world.rests.begin();
        }
        world.walk(100 * S, &[u64::MAX; 8], &NO_PAGES);
        world.check();
        for (steps, ms, allowed, resolve, slow, looks) in walks {
            let until = world.now_ns + ms * 1_000_000;
            steps.iter().for_each(|step| world.happen(step, until));
            let some = |n: u8| match n { 0 => NO_PAGES, 1 => [0x0f0f; 8], _ => [u64::MAX; 8] };
            world.slow_walk(until, slow * 100_000_000, &some(allowed), &some(resolve));
            world.check();
            (0..looks).for_each(|_| world.rest(ms * 3_000_000, until));
        }
    }
}

/// `walks` walks a second apart over one table whose pages `hot` are accessed all the time; how many bits were cleared
/// by each.
fn cleared_by(world: &mut World, hot: &[usize], walks: u64) -> Vec<u64> {
    (0..walks)
        .map(|_| {
            for &i in hot {
                world.pages[i] =
                    Truth { present: true, bit: true, accessed_ns: world.now_ns + S - 1, ..Truth::default() };
            }
            world.walk(world.now_ns + S, &[u64::MAX; 8], &[u64::MAX; 8]);
            world.check();
            world.history.learnt().cleared
        })
        .collect()
}

#[test]
fn pages_in_constant_use_are_cleared_ever_more_seldom_and_noticed_when_they_rest() {
    let mut world = World::new(&[true], &[true]);
    world.history.set_most_level(6);
    let hot: Vec<usize> = (0..1024).collect();
    let cleared = cleared_by(&mut world, &hot, 12);
    assert_eq!(cleared[0], PAGES as u64);
    assert_eq!(cleared[11], 2 * 512 / 64, "one part in 64 of both tables: {cleared:?}");
    let ages = world.history.total();
    assert_eq!(ages.accessed_within(S).unwrap().pages, 1024, "what is set again is taken to be in use");
    // They come to rest: a part tells, then all of the table is looked at.
    cleared_by(&mut world, &[], 13);
    let idle = *world.history.total().idle_for(10 * S).unwrap();
    assert_eq!(idle.pages, PAGES as u64, "{idle:?}");
}

#[test]
fn bits_that_were_set_before_the_watch_say_nothing() {
    let mut world = World::new(&[true], &[true, false, false]);
    world.walk(100 * S, &[u64::MAX; 8], &NO_PAGES);
    world.walk(111 * S, &[u64::MAX; 8], &NO_PAGES);
    let idle = *world.history.total().idle_for(10 * S).unwrap();
    assert_eq!((idle.unresolved, idle.pages), (512, 1024));
    // Cleared, they are young until shown otherwise.
    world.walk(112 * S, &[u64::MAX; 8], &[u64::MAX; 8]);
    world.walk(121 * S, &[u64::MAX; 8], &NO_PAGES);
    assert_eq!(world.history.total().idle_for(10 * S).unwrap().unresolved, 512);
    world.walk(122 * S, &[u64::MAX; 8], &NO_PAGES);
    let idle = *world.history.total().idle_for(10 * S).unwrap();
    assert_eq!((idle.unresolved, idle.pages), (0, 1536));
}

#[test]
fn a_history_that_was_kept_goes_on_where_it_ended() {
    let mut world = World::new(&[true], &[false]);
    for walk in 100..130 {
        world.pages.iter_mut().step_by(walk).for_each(|p| (p.bit, p.accessed_ns) = (true, walk as u64 * S));
        world.walk(walk as u64 * S, &[u64::MAX; 8], &[u64::MAX; 8]);
    }
    let history = &world.history;
    let kept = history.epochs().kept(history.now_ns());
    assert!(Epochs::restore(kept.clone()).is_some());
    assert!(Epochs::restore(Kept { now_ns: kept.now_ns - 1, ..kept.clone() }).is_none(), "an epoch in the future");
    assert!(Epochs::restore(Kept { list: Vec::new(), ..kept }).is_none());
    let mut words = Vec::new();
    stored::write(history, history.now_ns(), |word| words.push(word));
    let again = stored::read(&mut words.into_iter()).unwrap();
    assert_eq!((again.total(), again.memory_bytes()), (history.total(), history.memory_bytes()));
    world.history = again;
    world.walk(131 * S, &[u64::MAX; 8], &[u64::MAX; 8]);
    world.check();
    world.history.begin_walk(&[], 132 * S);
    world.history.take(&TableBits { present: [u64::MAX; 8], ..TableBits::empty(TABLE_SPAN) });
    assert_eq!(world.history.unseen(), [0, 2 * TABLE_SPAN]);
}

#[test]
fn frames_count_by_mapping_and_by_table() {
    let mut world = World::new(&[true], &[false]);
    world.walk(100 * S, &[u64::MAX; 8], &NO_PAGES);
    for i in (0..PAGES).step_by(50) {
        (world.pages[i].bit, world.pages[i].accessed_ns) = (true, 101 * S);
    }
    world.walk(101 * S, &[u64::MAX; 8], &NO_PAGES);
    let at = |page: u64| page * PAGE_SIZE;
    let mappings = [Mapping::anon(at(10), at(100)), Mapping::anon(at(100), at(700)), Mapping::anon(at(1024), at(1536))];
    let frame = world.history.frame(7, &mappings, Some(100 * S));
    let resident: Vec<u64> = frame.mappings.iter().map(|m| m.ages.resident).collect();
    assert_eq!(resident, [90, 600, 512]);
    let accessed: Vec<u64> = frame.mappings.iter().map(|m| m.ages.accessed_within(S).unwrap().pages).collect();
    assert_eq!(accessed, [1, 12, 10]);
    assert_eq!(frame.total().resident, 1202);
    let tables: Vec<(u64, u16, u16)> = frame.tables.iter().map(|t| (t.base, t.present, t.accessed)).collect();
    assert_eq!(tables, [(0, 512, 11), (TABLE_SPAN, 512, 10), (2 * TABLE_SPAN, 512, 10)]);
    assert_eq!((frame.target, frame.since_ns, frame.time_ns, frame.walk_ns), (7, 100 * S, 101 * S, S));
}

#[test]
fn of_a_process_that_rests_one_walk_tells_all() {
    let mut world = World::new(&[true], &[true, false, false]);
    (0..PAGES).step_by(4).for_each(|i| world.pages[i].blind = true);
    world.rests.begin();
    // Found 30 s before it is walked.
    assert_eq!(world.rests_since(100 * S), None);
    world.walk(130 * S, &[u64::MAX; 8], &NO_PAGES);
    assert!(world.history.tells_ages());
    let idle = |world: &World, age| {
        let ages = world.history.total();
        let idle = *ages.idle_for(age).unwrap();
        (ages.unobservable, idle.least, idle.most, idle.unresolved)
    };
    let all = PAGES as u64;
    assert_eq!(idle(&world, 30 * S), (0, all, all, 0));
    world.rest(S * 100, 130 * S);
    assert_eq!(idle(&world, 120 * S), (0, all, all, 0));
    assert_eq!(world.history.accessed_codes(100 * S), [false; 256]);
    // It runs again: nobody knows of which pages, as far as their bits are still set.
    world.happen(&Step::Access { first: 1, every: 3, at: 50 }, 240 * S);
    world.walk(240 * S, &[u64::MAX; 8], &NO_PAGES);
    world.check();
    let (unobservable, least, _, unresolved) = idle(&world, 10 * S);
    assert_eq!((unobservable, unresolved), (all / 4, all / 4));
    assert_eq!(least, all / 4, "those that were clear and still are");
}
