//! From pages' bytes to figures: how many pages have been idle for how long.

use super::epoch::{ABSENT, Epochs, STANDING};
use super::frame::{IdlePages, MappingPages, PageAges, PageFrame, TablePages, sum};
use super::known::Known;
use super::pages::PageHistory;
use super::table::{TENTH_NS, Table};
use super::times::AGES_NS;
use super::usage::Usage;
use crate::addr::TABLE_SPAN;
use crate::mapping::Mapping;
use crate::pages::mask_of;
use crate::target::TargetId;

/// Where fewer pages than one in so many are known for long enough, they say nothing about the others; ...
const KNOWN_PART: u64 = 32;
/// ... nor do fewer than these.
const KNOWN_LEAST: u64 = 512;

/// Where tables are counted that were there before the watch began and are known for all ages, and those that came
/// later: what is new is in use more than the rest, and says nothing of it.
const ALWAYS: usize = AGES_NS.len();
const NEW: usize = ALWAYS + 1;

/// How many pages have each byte, by how many of [`AGES_NS`] their table has been known for.
#[derive(Debug, Clone)]
pub(crate) struct CodeCounts {
    watched_ns: u64,
    by_ages: [Option<Box<[u64; 256]>>; NEW + 1],
    /// Which of these are not 0, in no order.
    used: Vec<(u8, u8)>,
}

impl CodeCounts {
    /// Nothing counted yet; to count pages of `history` as of its last walk.
    pub fn new(history: &PageHistory) -> Self {
        let watched_ns = history.now_ns() - history.begin_ns();
        Self { watched_ns, by_ages: [const { None }; NEW + 1], used: Vec::new() }
    }

    /// Begins anew. Of thousands of processes with few pages in each of their mappings, a new one for each is expensive.
    fn clear(&mut self) {
        for (ages, code) in self.used.drain(..) {
            if let Some(counts) = &mut self.by_ages[usize::from(ages)] {
                counts[usize::from(code)] = 0;
            }
        }
    }

    /// Adds `pages` of `table` with the byte `code`.
    pub fn add(&mut self, table: &Table, code: u8, pages: u64) {
        if pages == 0 {
            return;
        }
        let known_ns = self.watched_ns.saturating_sub(u64::from(table.known_from_ds) * TENTH_NS);
        let ages = if table.known_from_ds == 0 { NEW } else { AGES_NS.partition_point(|&age| age <= known_ns) };
        let count = &mut self.by_ages[ages].get_or_insert_with(|| Box::new([0; 256]))[usize::from(code)];
        if *count == 0 {
            self.used.push((ages as u8, code));
        }
        *count += pages;
    }

    /// Whether any page was present.
    fn any_present(&self) -> bool {
        self.used.iter().any(|&(_, code)| code != ABSENT)
    }

    /// What was counted, by ages and then by byte.
    fn sorted(&self) -> Vec<(usize, u8, u64)> {
        let mut used = self.used.clone();
        used.sort_unstable();
        let pages = |ages: usize, code: u8| self.by_ages[ages].as_ref().map_or(0, |counts| counts[usize::from(code)]);
        used.iter().map(|&(ages, code)| (usize::from(ages), code, pages(usize::from(ages), code))).collect()
    }

    /// Their ages at the last walk of `history`.
    pub fn ages(&self, history: &PageHistory) -> PageAges {
        let scale = u64::from(history.one_in());
        let watched = history.now_ns() - history.begin_ns();
        let (ages, longer) = AGES_NS.split_at(AGES_NS.partition_point(|&age| age <= watched));
        let usage = history.usage();
        let (mut resident, mut unobservable, mut alike) = (0, 0, Vec::with_capacity(self.used.len()));
        for (known_for, code, pages) in self.sorted() {
            resident += if code == ABSENT { 0 } else { pages };
            let Some(known) = history.known(code) else { continue };
            unobservable += if known == Known::Blind { pages } else { 0 };
            let is_fresh = Epochs::is_epoch(code) && history.epochs().is_fresh(code);
            alike.push(Alike { known_for, known, usage: usage.of(is_fresh), pages });
        }
        PageAges {
            resident: resident * scale,
            unobservable: unobservable * scale,
            idle: ages.iter().enumerate().map(|(i, &age)| scaled(idle_for(history, &alike, i, age), scale)).collect(),
            longer: match history.started_ns() {
                Some(_) => longer.iter().map(|&age| scaled(sum_idle(history, &alike, age).0, scale)).collect(),
                None => Vec::new(),
            },
        }
        .in_order()
    }
}

/// So many pages of which the same is known.
struct Alike {
    /// Their table is known for so many of [`AGES_NS`], or [`ALWAYS`] or [`NEW`].
    known_for: usize,
    known: Known,
    usage: Usage,
    pages: u64,
}

/// The pages idle for `age`, the `i`th of [`AGES_NS`], of all that `alike` holds by how long their tables are known.
///
/// Tables are cleared for the first time in an order that has nothing to do with their use
/// ([`PageHistory::set_begun_in`]). So what is not known of a part of them yet is expected to be as in the others: a
/// ratio estimate.
fn idle_for(history: &PageHistory, alike: &[Alike], i: usize, age: u64) -> IdlePages {
    let (younger, known) = alike.split_at(alike.partition_point(|a| a.known_for <= i));
    let (known, new) = known.split_at(known.partition_point(|a| a.known_for < NEW));
    let (mut sum, seen) = sum_idle(history, known, age);
    let (new, _) = sum_idle(history, new, age);
    let (mut rest, rest_seen) = sum_idle(history, younger, age);
    // Pages that are still open in these tables say nothing of the others.
    let resolved = seen - sum.unresolved;
    if rest.unresolved > 0 && resolved >= KNOWN_LEAST && resolved * KNOWN_PART >= rest_seen {
        let expected = (sum.pages as f64 * rest_seen as f64 / resolved as f64).round() as u64;
        (rest.pages, rest.unresolved) = (expected.clamp(rest.least, rest.most), 0);
    }
    sum.add(&rest);
    sum.add(&new);
    sum
}

/// The pages idle for `age`, without an estimate of those that nothing is known of; and how many can be observed.
fn sum_idle(history: &PageHistory, alike: &[Alike], age: u64) -> (IdlePages, u64) {
    let now = history.now_ns();
    let (mut sum, mut expected, mut seen) = (IdlePages::default(), 0.0, 0);
    for &Alike { known, usage, pages, .. } in alike {
        expected += pages as f64 * known.idle(now.saturating_sub(age), usage, pages, &mut sum);
        seen += if known == Known::Blind { 0 } else { pages };
    }
    sum.pages = sum.least + expected.round() as u64;
    (sum, seen)
}

fn scaled(idle: IdlePages, by: u64) -> IdlePages {
    IdlePages { pages: idle.pages * by, least: idle.least * by, most: idle.most * by, unresolved: idle.unresolved * by }
}

impl PageHistory {
    /// All pages together.
    pub fn total(&self) -> PageAges {
        let mut counts = CodeCounts::new(self);
        self.tables().for_each(|(_, table)| table.count(|code, pages| counts.add(table, code, pages)));
        counts.ages(self)
    }

    /// The pages of all `mappings` (sorted) together, with what is not known yet estimated in each by itself.
    pub(crate) fn ages_of<'a>(&self, mappings: impl IntoIterator<Item = &'a Mapping>) -> PageAges {
        sum(self.by_mapping(mappings).iter().map(|mapping| &mapping.ages))
    }

    /// The figures at the last walk. `since_ns`: the frame before, if there was one.
    pub fn frame(&self, target: TargetId, mappings: &[Mapping], since_ns: Option<u64>) -> PageFrame {
        let since_ns = since_ns.unwrap_or_else(|| self.begin_ns());
        PageFrame {
            time_ns: self.now_ns(),
            since_ns,
            begin_ns: self.begin_ns(),
            walk_ns: self.walk_ns(),
            target,
            one_in: self.one_in(),
            mappings: self.by_mapping(mappings),
            tables: self.by_table(since_ns),
            reaccessed: Some(Box::new(self.reaccessed())),
            // Known to the source.
            forked: false,
        }
    }

    fn by_mapping<'a>(&self, mappings: impl IntoIterator<Item = &'a Mapping>) -> Vec<MappingPages> {
        let mut out: Vec<MappingPages> = Vec::new();
        let mut tables = self.tables().peekable();
        // A mapping may end, and several may lie, inside one table.
        let mut pending: Option<(u64, &Table)> = None;
        let mut counts = CodeCounts::new(self);
        for mapping in mappings {
            counts.clear();
            while let Some((base, table)) = pending.take().or_else(|| tables.next()) {
                if base >= mapping.range.end {
                    pending = Some((base, table));
                    break;
                }
                if base + TABLE_SPAN <= mapping.range.start {
                    continue;
                }
                table.count_in(&mask_of(base, mapping.range), |code, pages| counts.add(table, code, pages));
                if base + TABLE_SPAN > mapping.range.end {
                    pending = Some((base, table));
                    break;
                }
            }
            if counts.any_present() {
                out.push(MappingPages { range: mapping.range, ages: counts.ages(self) });
            }
        }
        out
    }

    fn by_table(&self, since_ns: u64) -> Vec<TablePages> {
        let accessed = self.accessed_codes(since_ns);
        let one = |(base, table): (u64, &Table)| {
            let (mut pages, mut waits) = (TablePages { base, present: 0, accessed: 0 }, false);
            table.count(|code, n| match code {
                c if c == STANDING | Epochs::BEFORE => waits = true,
                c if Epochs::is_epoch(c) => {
                    pages.present += n as u16;
                    pages.accessed += if accessed[usize::from(c)] { n as u16 } else { 0 };
                }
                _ => {}
            });
            (pages.present > 0 || waits).then_some(pages)
        };
        self.tables().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::known::By;
    use super::super::table::{Learnt, Retried};
    use super::super::usage::{Reuse, Usage};
    use super::*;
    use crate::addr::AddrRange;
    use crate::bits::TableBits;
    use crate::mask;

    const S: u64 = 1_000_000_000;

    #[test]
    fn pages_that_are_open_themselves_or_new_say_nothing_of_the_others() {
        let mut history = PageHistory::new(0);
        history.begin_walk(&[], 20 * S);
        history.end_walk(20 * S);
        let accessed = |after_ns, by_ns| Known::In { after_ns, by: By::certain(by_ns) };
        let never = Known::Open { after_ns: None, by: None };
        let usage = history.usage();
        let alike = |known_for, known, pages| Alike { known_for, known, usage, pages };
        let all = [
            alike(0, never, 4000),
            alike(ALWAYS, accessed(0, S), 600),
            alike(ALWAYS, accessed(19 * S, 20 * S), 200),
            alike(ALWAYS, never, 1000),
            alike(NEW, accessed(19 * S, 20 * S), 2000),
        ];
        let ten_seconds = AGES_NS.iter().position(|&age| age == 10 * S).unwrap();
        let idle = idle_for(&history, &all, ten_seconds, 10 * S);
        // Three quarters of those that are known, and of the 4000.
        assert_eq!((idle.least, idle.pages, idle.unresolved), (600, 600 + 3000, 1000));
    }

    #[test]
    fn what_is_open_at_a_longer_age_is_not_open_at_a_shorter_one_that_is_known() {
        let idle = |pages, unresolved| IdlePages { pages, least: pages, most: pages + unresolved, unresolved };
        // After 30 s, nothing is expected of three in four tables for 30 s: they were cleared 20 s ago. A tenth is in use.
        let ages =
            PageAges { resident: 1000, idle: vec![idle(900, 0), idle(900, 10), idle(200, 760)], ..Default::default() };
        let ages = ages.in_order();
        // A hundred were used within a second, and so within 30.
        assert_eq!(ages.idle, [idle(900, 0), idle(900, 0), idle(200, 700)]);
    }

    #[test]
    fn pages_left_set_are_idle_as_often_as_those_that_were_tried() {
        let mut reuse = Reuse::default();
        let retried = |accessed| Retried { cleared: 1000, accessed };
        reuse.note(&Learnt { steady: retried(1000), held: retried(250), ..Learnt::default() });
        let usage = reuse.usage(100 * S, 10 * S);
        let idle = |known: Known, usage, age| {
            let mut sum = IdlePages::default();
            let expected = known.idle(100 * S - age, usage, 8, &mut sum);
            (expected, sum.least, sum.most)
        };
        let standing = |after| Known::Standing(after);
        assert_eq!(idle(standing(60 * S), usage, 10 * S), (usage.idle(10 * S, 40 * S), 0, 8));
        assert!(idle(standing(0), usage, 10 * S).0 > 0.75 && idle(standing(0), usage, 50 * S).0 < 0.35);
        // A quarter is used again in 10 s by a highest rate of 0.395 in that time.
        let expected = 1.0 - 1.79f64.ln() / 4.95f64.ln();
        assert!((idle(standing(0), usage, 20 * S).0 - expected).abs() < 0.01, "evenly it would be 0.8");
        assert_eq!(idle(standing(60 * S), usage, 60 * S), (0.0, 0, 0), "it was used since");
        assert_eq!(idle(standing(60 * S), Usage::constant(100 * S), 10 * S), (0.0, 0, 8));
        assert_eq!(idle(standing(90 * S), usage, 5 * S), (0.0, 0, 8), "in use all the time, of those just used");
        // The last walk has cleared it at last.
        let cleared = |after_ns| Known::In { after_ns, by: By::certain(100 * S) };
        assert_eq!(idle(cleared(60 * S), usage, 10 * S), (usage.idle(10 * S, 40 * S), 0, 8));
        assert_eq!(idle(cleared(90 * S), usage, 5 * S), (0.0, 0, 8), "in use all the time");
    }

    /// Pages of some tables; in each interval of 20 s one in ten is accessed all the time, and one in fifty others once.
    /// In the last one a garbage collector goes through a third of them, or new ones come.
    fn idle_after(collected: impl Fn(usize) -> bool, come: bool) -> IdlePages {
        const TABLES: usize = 12;
        let is_hot = |page: usize| page.is_multiple_of(10);
        let mut history = PageHistory::new(0);
        for walk in 0..6u64 {
            history.begin_walk(&[AddrRange::new(0, TABLES as u64 * TABLE_SPAN)], walk * 20 * S);
            for table in 0..TABLES {
                let pages = (0..512).filter(|i| !come || walk == 5 || !collected(table * 512 + i));
                let (mut present, mut accessed) = (mask::NO_PAGES, mask::NO_PAGES);
                for i in pages {
                    let page = table * 512 + i;
                    let once = page % 50 == 1 + walk as usize || walk == 5 && collected(page);
                    mask::put(&mut present, i);
                    if is_hot(page) || walk > 0 && once {
                        mask::put(&mut accessed, i);
                    }
                }
                let mut bits = TableBits { present, accessed, ..TableBits::empty(table as u64 * TABLE_SPAN) };
                bits.cleared = if walk < 5 { history.wanted(&bits).all() } else { mask::NO_PAGES };
                history.take(&bits);
            }
            history.end_walk(walk * 20 * S);
        }
        let ten_seconds = AGES_NS.iter().position(|&age| age == 10 * S).unwrap();
        history.total().idle[ten_seconds]
    }

    #[test]
    fn what_was_touched_once_is_as_likely_idle_as_not_and_what_is_in_use_is_not() {
        let idle = idle_after(|_| false, false);
        // 615 are in use, and 122 have been used once in the last 20 s: half of them in the last 10.
        assert!(idle.pages.abs_diff(6144 - 615 - 61) < 20, "{idle:?}");
        let third = |page: usize| page % 9 < 3;
        for come in [false, true] {
            let idle = idle_after(third, come);
            let most = idle.most - idle.least;
            assert!(most > 2048, "the last walk has found them accessed: {idle:?}");
            // Of 1844 fresh ones and those used once half, and of the hot ones none.
            assert!(idle.pages.abs_diff(6144 - 615 - 960) < 120, "{come}: {idle:?}");
        }
    }
}
