//! How true a monitor's picture is where single pages are hot: judged page by page.
//!
//! Ranges cannot tell scattered pages: a region that holds one hot page in fifty is neither hot nor cold. Here each
//! page that a monitor calls hot is compared with what the workload really touched in the time that the monitor talks
//! about. Terabytes are judged by a sample of their page tables, chosen by hash.

use super::Score;
use crate::machine::activity::Activity;
use crate::random::mix;
use crate::workload::truth::{Slice, hot};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, normalize, overlap_len, parts_in, subtract, total_len};
use isotherm_core::history::epoch::{ABSENT, BLIND, Epochs, STANDING};
use isotherm_core::history::pages::PageHistory;
use isotherm_core::pages::push_runs;
use isotherm_core::{mask, snapshot::Snapshot};

/// Page tables that are judged at most: 1 GiB of memory.
pub(crate) const MOST_TABLES: u64 = 512;

/// What was touched, page by page.
pub trait TouchedPages {
    /// Appends the runs of pages of `range` that were touched during `[from_ns, to_ns)`: sorted, disjoint.
    fn touched(&self, range: AddrRange, from_ns: u64, to_ns: u64, out: &mut Vec<AddrRange>);
}

/// A workload on simulated memory that begins at an address.
#[derive(Debug)]
pub struct Simulated<'a> {
    pub activity: &'a Activity,
    pub arena_start: u64,
}

impl TouchedPages for Simulated<'_> {
    fn touched(&self, range: AddrRange, from_ns: u64, to_ns: u64, out: &mut Vec<AddrRange>) {
        let page = |address: u64| (address - self.arena_start) / PAGE_SIZE;
        self.activity.for_each_touched(page(range.start)..page(range.end), from_ns, to_ns, |run| {
            let [start, end] = [run.start, run.end].map(|p| self.arena_start + p * PAGE_SIZE);
            match out.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end = end,
                None => out.push(AddrRange::new(start, end)),
            }
        });
    }
}

/// What a workload on real memory reported about itself, for one span of time.
#[derive(Debug)]
pub struct Reported {
    /// Touched in it: sorted, disjoint.
    touched: Vec<AddrRange>,
    /// Touched in slices that lie only partly in it, and in no others: nobody knows whether within the span.
    unclear: Vec<AddrRange>,
}

impl Reported {
    /// The pages that were touched at all during `[from_ns, to_ns)`.
    pub fn new(slices: &[Slice], from_ns: u64, to_ns: u64) -> Self {
        let (mut touched, mut border) = (Vec::new(), Vec::new());
        for slice in slices.iter().filter(|s| s.start_ns < to_ns && from_ns < s.end_ns) {
            let one = std::slice::from_ref(slice);
            if from_ns <= slice.start_ns && slice.end_ns <= to_ns {
                touched.extend(hot(one, slice.start_ns, slice.end_ns, 1.0));
            } else {
                // What is touched in rounds was touched in any part of the slice that holds a few.
                touched.extend(hot(one, from_ns, to_ns, 3.0));
                border.extend(hot(one, slice.start_ns, slice.end_ns, 1.0));
            }
        }
        normalize(&mut touched);
        normalize(&mut border);
        let unclear = subtract(&border, &touched);
        Self { touched, unclear }
    }

    /// Of `judged`, what the workload's account is clear about.
    pub fn clear_part(&self, judged: &[AddrRange]) -> Vec<AddrRange> {
        subtract(judged, &self.unclear)
    }
}

impl TouchedPages for Reported {
    fn touched(&self, range: AddrRange, _: u64, _: u64, out: &mut Vec<AddrRange>) {
        out.extend(parts_in(&self.touched, range));
    }
}

/// The judgement: `hot` are the pages that the monitor calls accessed during `[from_ns, to_ns)`, as sorted, disjoint
/// ranges; of all addresses, only those in `judged` (sorted, disjoint) count, which should be those that the monitor
/// claims to know.
pub fn score(hot: &[AddrRange], judged: &[AddrRange], truth: &dyn TouchedPages, (from_ns, to_ns): (u64, u64)) -> Score {
    let mut sum = Score { end_ns: to_ns, hot: 0, reported: 0, common: 0 };
    let mut touched = Vec::new();
    for range in judged {
        touched.clear();
        truth.touched(*range, from_ns, to_ns, &mut touched);
        let called: Vec<AddrRange> = parts_in(hot, *range).collect();
        sum.hot += total_len(&touched);
        sum.reported += total_len(&called);
        sum.common += overlap_len(&touched, &called);
    }
    sum
}

/// What a page history says of some ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByHistory {
    /// Pages accessed between its last two walks: sorted, disjoint.
    pub hot: Vec<AddrRange>,
    /// The pages of the ranges of which it claims to know whether they are.
    pub known: Vec<AddrRange>,
    /// What it talks about: from the end of its last walk but one to the begin of its last, ...
    pub time: (u64, u64),
    /// ... and from the begin of the one to the end of the other: a walk takes its time, and looks at each page some
    /// time in it.
    pub most: (u64, u64),
}

impl ByHistory {
    /// Of what it knows, the pages that were not touched during its walks only: whether it should have seen that,
    /// nobody can tell.
    pub fn clear_part(&self, truth: &dyn TouchedPages) -> Vec<AddrRange> {
        let (mut surely, mut perhaps) = (Vec::new(), Vec::new());
        for range in &self.known {
            truth.touched(*range, self.time.0, self.time.1, &mut surely);
            truth.touched(*range, self.most.0, self.most.1, &mut perhaps);
        }
        subtract(&self.known, &subtract(&perhaps, &surely))
    }
}

/// What `history` says of `judged` (sorted, disjoint): hot is what it does not know to have been idle since its last
/// walk but one. Not known is what cannot be observed, and what was used before the watch began and may or may not have
/// been used since. `None` before the end of the second walk, and while one is under way.
pub fn by_history(history: &PageHistory, judged: &[AddrRange]) -> Option<ByHistory> {
    let [before, last] = history.epochs().last_walks()?;
    let (idle, epochs) = (history.idle_codes(before.1), history.epochs());
    let unknown: [bool; 256] = std::array::from_fn(|c| {
        let code = c as u8;
        code == BLIND
            || code == Epochs::BEFORE | STANDING
            || (Epochs::is_epoch(code) && code & STANDING == 0 && !idle[c] && epochs.of(code).after_ns.is_none())
    });
    let hot: [bool; 256] = std::array::from_fn(|c| c as u8 != ABSENT && !idle[c] && !unknown[c]);
    let mut out = ByHistory { hot: Vec::new(), known: Vec::new(), time: (before.1, last.0), most: (before.0, last.1) };
    history.each_table_in(judged, |base, table, asked| {
        push_runs(base, &mask::and(&table.pages(&hot), asked), &mut out.hot);
        push_runs(base, &mask::and_not(asked, &table.pages(&unknown)), &mut out.known);
    });
    Some(out)
}

/// What regions say: those of which any look found a page accessed.
pub fn hot_by_regions(snapshot: &Snapshot) -> Vec<AddrRange> {
    let accessed = snapshot.regions.iter().filter(|r| r.nr_accesses >= 1);
    accessed.map(|r| AddrRange::new(r.start, r.end)).collect()
}

/// The tables of `arena` to judge: all, or a sample. `history`: only tables that it watches.
pub fn judged(arena: AddrRange, history: Option<&PageHistory>) -> Vec<AddrRange> {
    let tables = (arena.end.div_ceil(TABLE_SPAN) - arena.start / TABLE_SPAN).max(1);
    let bases: Vec<u64> = match history {
        Some(history) => {
            let watched: Vec<u64> = history.tables().map(|(base, _)| base).filter(|b| *b < arena.end).collect();
            sample(watched.len() as u64).map(|i| watched[i as usize]).collect()
        }
        None => sample(tables).map(|i| (arena.start / TABLE_SPAN + i) * TABLE_SPAN).collect(),
    };
    bases.into_iter().filter_map(|base| AddrRange::new(base, base + TABLE_SPAN).intersect(&arena)).collect()
}

/// At most [`MOST_TABLES`] numbers below `count`, one at random in each of as many runs.
fn sample(count: u64) -> impl Iterator<Item = u64> {
    let taken = count.min(MOST_TABLES);
    (0..taken).map(move |i| {
        let (start, end) = (i * count / taken, (i + 1) * count / taken);
        start + mix(count, i) % (end - start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::patterns::{Parameters, Pattern};
    use isotherm_core::bits::TableBits;

    const START: u64 = 1 << 40;

    fn activity(hot: f64, size: u64) -> Activity {
        let p = Parameters { hot: Some(hot), seed: 9, ..Parameters::new(size) };
        Activity::new(Pattern::Random.build(&p).unwrap(), 1e8)
    }

    #[test]
    fn the_very_pages_are_right_and_whole_regions_are_not() {
        let activity = activity(0.02, 64 << 20);
        let arena = AddrRange::new(START, START + (64 << 20));
        let truth = Simulated { activity: &activity, arena_start: START };
        let (judged, time) = (judged(arena, None), (0, 1_000_000_000));
        assert_eq!(judged.len(), 32);
        let mut pages = Vec::new();
        truth.touched(arena, 0, 1_000_000_000, &mut pages);
        let exact = score(&pages, &judged, &truth, time);
        assert_eq!((exact.precision(), exact.recall()), (Some(1.0), Some(1.0)));
        assert_eq!(exact.hot, 328 * PAGE_SIZE);
        let whole = score(&[arena], &judged, &truth, time);
        assert_eq!(whole.recall(), Some(1.0));
        assert!(whole.precision().unwrap() < 0.021);
    }

    #[test]
    fn slices_on_the_border_of_the_time_leave_pages_unclear() {
        use crate::workload::truth::Touched;
        let page = |p: u64| AddrRange::new(p * PAGE_SIZE, (p + 1) * PAGE_SIZE);
        let slice = |start_ns, pages: &[u64]| Slice {
            start_ns,
            end_ns: start_ns + 100,
            stage: String::new(),
            touched: pages.iter().map(|p| Touched::all(page(*p), 1)).collect(),
        };
        let slices = [slice(0, &[0, 1]), slice(100, &[1, 2]), slice(200, &[2, 3]), slice(300, &[4])];
        let rounds = Reported::new(&[Slice { touched: vec![Touched::all(page(7), 10)], ..slice(0, &[]) }], 50, 200);
        assert_eq!((rounds.touched, rounds.unclear), (vec![page(7)], vec![]));
        let reported = Reported::new(&slices, 50, 300);
        let judged = reported.clear_part(&[AddrRange::new(0, 8 * PAGE_SIZE)]);
        assert_eq!(judged, [AddrRange::new(PAGE_SIZE, 8 * PAGE_SIZE)]);
        let score = score(&[page(1), page(2)], &judged, &reported, (50, 300));
        assert_eq!((score.hot, score.reported, score.common), (3 * PAGE_SIZE, 2 * PAGE_SIZE, 2 * PAGE_SIZE));
    }

    #[test]
    fn a_sample_of_tables_stands_for_terabytes() {
        let activity = activity(0.02, 5 << 40);
        let arena = AddrRange::new(START, START + (5 << 40));
        let judged = judged(arena, None);
        assert_eq!(judged.len() as u64, MOST_TABLES);
        assert!(isotherm_core::addr::is_sorted_disjoint(&judged));
        let truth = Simulated { activity: &activity, arena_start: START };
        let share = score(&[], &judged, &truth, (0, 1 << 40)).hot as f64 / total_len(&judged) as f64;
        assert!((share - 0.02).abs() < 0.001, "{share}");
    }

    #[test]
    fn a_history_calls_hot_what_its_last_walk_found() {
        let mut history = PageHistory::new(10);
        let arena = AddrRange::new(START, START + TABLE_SPAN);
        let mut walk = |now, accessed: u64| {
            history.begin_walk(&[arena], now);
            let mut bits = TableBits { present: [u64::MAX; 8], ..TableBits::empty(START) };
            bits.accessed[0] = accessed;
            bits.cleared = bits.accessed;
            history.take(&bits);
            history.end_walk(now);
            by_history(&history, &judged(arena, Some(&history)))
        };
        assert_eq!(walk(10, 0b1111), None);
        let page = |p: u64| AddrRange::new(START + p * PAGE_SIZE, START + (p + 1) * PAGE_SIZE);
        let expected = ByHistory { hot: vec![page(0), page(2)], known: vec![arena], time: (10, 20), most: (10, 20) };
        assert_eq!(walk(20, 0b0101), Some(expected));
    }

    #[test]
    fn walks_over_a_sample_of_terabytes_are_exact() {
        use crate::machine::{CostModel, Process, SimClock, SimSource};
        use isotherm_core::clock::Clock;
        use isotherm_core::history::tracked::{Allowance, Tracked};
        use isotherm_core::source::AccessSource;

        let (activity, arena) = (activity(0.02, 5 << 40), AddrRange::new(START, START + (5 << 40)));
        let mut clock = SimClock::new(0);
        let process = Process::running(1, START, activity.clone()).unwrap();
        let mut source = Tracked::new(SimSource::new(clock.clone(), CostModel::default(), vec![process]));
        source.poll_targets().unwrap();
        source.history_mut(0, 0).set_one_in(1024);
        for _ in 0..4 {
            let now = clock.now_ns();
            while !source.walk(0, &[arena], Some(Allowance::UNLIMITED), &mut clock).unwrap().complete {}
            clock.sleep_until_ns(now + 10_000_000_000);
        }
        let history = source.page_history(0).unwrap();
        let said = by_history(history, &judged(arena, Some(history))).unwrap();
        let truth = Simulated { activity: &activity, arena_start: START };
        let score = score(&said.hot, &said.clear_part(&truth), &truth, said.time);
        assert!(score.hot > 0 && score.is_good(0.999), "{score:?}");
        assert_eq!(total_len(&said.known), MOST_TABLES * TABLE_SPAN);
    }
}
