//! Advice on many ranges by few calls: what is refused is passed over, what is taken is counted exactly.

use super::pace::Pace;
use super::swap_room::NoSwapRoom;
use super::tally::Tally;
use crate::mm::advise::MAX_RANGES;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, normalize, parts_in};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// Tries for a block that the kernel could not collapse just now.
const TRIES: u32 = 3;
/// Blocks in a row that find no free huge page, before the rest is given up.
const HOPELESS: u32 = 8;

/// What advice is given to: a process, or a test's stand-in.
pub(super) trait Advised {
    /// Gives advice on the ranges in order; tells how many bytes were done.
    fn advise(&mut self, ranges: &[AddrRange]) -> io::Result<u64>;
    /// The process's mappings now, sorted. Empty if they cannot be read.
    fn mappings(&mut self) -> Vec<AddrRange>;
    /// How many bytes may be given advice on now; less than a block of 2 MiB: none, for this reason.
    fn room(&mut self) -> Result<u64, NoSwapRoom> {
        Ok(u64::MAX)
    }
    /// Whether somebody asked to stop.
    fn stopped(&self) -> bool;
    /// The text of a refusal.
    fn refusal(&self, range: AddrRange, error: &io::Error) -> String;
    /// Waits a little before the same is tried again.
    fn rest(&self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How the advice wants its ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Whole pages; calls end at multiples of 2 MiB, so that none splits a huge page that the request does not.
    Pages,
    /// Each 2 MiB block on its own: the kernel tells of a range only whether all of it worked.
    Blocks,
}

/// A range that waits for its turn.
#[derive(Debug, Clone, Copy)]
struct AdviceRange {
    range: AddrRange,
    /// Whether it is known to lie in one mapping.
    whole: bool,
}

/// Gives the advice on `ranges` (sorted, disjoint, page aligned).
pub(super) fn give(to: &mut impl Advised, ranges: &[AddrRange], shape: Shape, pace: &mut Pace) -> Tally {
    let mut tally = Tally::default();
    let mut queue = pieces(ranges, shape);
    let mut mappings: Option<Vec<AddrRange>> = None;
    let mut batch: Vec<AdviceRange> = Vec::new();
    let (mut tries, mut hopeless) = (0, 0);
    while !queue.is_empty() {
        if to.stopped() {
            tally.refuse(|| "stopped before it was finished".into());
            break;
        }
        let room = match to.room() {
            Ok(room) => room,
            Err(why) => {
                tally.refuse(|| why.to_string());
                break;
            }
        };
        take(&mut queue, &mut batch, pace.limit().min(room), shape);
        let list: Vec<AddrRange> = batch.iter().map(|p| p.range).collect();
        let begin = Instant::now();
        let result = to.advise(&list);
        let took = begin.elapsed();
        let done = *result.as_ref().unwrap_or(&0);
        let (finished, rest) = split_at_bytes(&batch, done);
        finished.iter().for_each(|p| tally.add(p.range));
        if done > 0 {
            pace.learn(done, took);
            (tries, hopeless) = (0, 0);
        }
        // All but the refused one get another call; after a partial success the refused one does, too, to learn why.
        let Err(error) = result else {
            rest.iter().rev().for_each(|p| queue.push_front(*p));
            if done == 0 && !rest.is_empty() {
                // Neither done nor refused, which the kernel never says: do not ask for ever.
                queue.pop_front();
                tally.refuse(|| to.refusal(rest[0].range, &io::Error::from_raw_os_error(libc::EIO)));
            }
            continue;
        };
        rest[1..].iter().rev().for_each(|p| queue.push_front(*p));
        let refused = rest[0];
        let again = match error.raw_os_error() {
            Some(libc::ESRCH | libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EBADF) => {
                tally.refuse(|| to.refusal(refused.range, &error));
                break;
            }
            Some(libc::EINTR) => true,
            Some(libc::EAGAIN | libc::EBUSY) => true,
            Some(libc::ENOMEM) => shape == Shape::Blocks && hopeless < HOPELESS,
            _ => false,
        };
        if again && tries + 1 < TRIES {
            tries += 1;
            to.rest();
            queue.push_front(refused);
            continue;
        }
        tries = 0;
        if shape == Shape::Pages && !refused.whole {
            // It may hold a gap or one area that takes no advice: every mapping in it gets its own chance.
            let mappings = mappings.get_or_insert_with(|| to.mappings());
            let parts: Vec<AddrRange> = parts_in(mappings, refused.range).collect();
            if parts.len() != 1 || parts[0] != refused.range {
                if parts.is_empty() {
                    tally.refuse(|| to.refusal(refused.range, &error));
                }
                parts.into_iter().rev().for_each(|range| queue.push_front(AdviceRange { range, whole: true }));
                continue;
            }
        }
        tally.refuse(|| to.refusal(refused.range, &error));
        if shape == Shape::Blocks && error.raw_os_error() == Some(libc::ENOMEM) {
            hopeless += 1;
            if hopeless == HOPELESS {
                break;
            }
        }
    }
    tally
}

/// The ranges joined where they touch, cut to what the shape wants.
fn pieces(ranges: &[AddrRange], shape: Shape) -> VecDeque<AdviceRange> {
    let mut joined = ranges.to_vec();
    normalize(&mut joined);
    match shape {
        Shape::Pages => joined.into_iter().map(|range| AdviceRange { range, whole: false }).collect(),
        Shape::Blocks => joined
            .into_iter()
            .flat_map(|r| {
                let end = r.end / TABLE_SPAN;
                (r.start.div_ceil(TABLE_SPAN)..end).map(|i| AddrRange::new(i * TABLE_SPAN, (i + 1) * TABLE_SPAN))
            })
            .map(|range| AdviceRange { range, whole: true })
            .collect(),
    }
}

/// Moves pieces of up to `limit` bytes from `queue` to `batch`, cut at a multiple of 2 MiB; always some.
fn take(queue: &mut VecDeque<AdviceRange>, batch: &mut Vec<AdviceRange>, limit: u64, shape: Shape) {
    batch.clear();
    let mut left = limit;
    while let Some(piece) = queue.pop_front() {
        let range = piece.range;
        if range.len() <= left || (shape == Shape::Blocks && batch.is_empty()) {
            left = left.saturating_sub(range.len());
            batch.push(piece);
        } else {
            let mut cut = (range.start + left) / TABLE_SPAN * TABLE_SPAN;
            if cut <= range.start && batch.is_empty() {
                cut = (range.start + PAGE_SIZE).next_multiple_of(TABLE_SPAN);
            }
            if cut <= range.start || shape == Shape::Blocks {
                queue.push_front(piece);
                return;
            }
            let cut = cut.min(range.end);
            batch.push(AdviceRange { range: AddrRange::new(range.start, cut), ..piece });
            if cut < range.end {
                queue.push_front(AdviceRange { range: AddrRange::new(cut, range.end), ..piece });
            }
            return;
        }
        if batch.len() == MAX_RANGES || left == 0 {
            return;
        }
    }
}

/// Pieces that `bytes` cover wholly, and the others. The kernel counts whole ranges only.
fn split_at_bytes(batch: &[AdviceRange], bytes: u64) -> (&[AdviceRange], &[AdviceRange]) {
    let mut left = bytes;
    let whole = batch.iter().take_while(|p| {
        let fits = p.range.len() <= left;
        left = left.saturating_sub(p.range.len());
        fits
    });
    batch.split_at(whole.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::addr::{overlap_len, total_len};
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// A process with mappings, of which some refuse the advice, as `process_madvise` treats it.
    struct Toy {
        mappings: Vec<AddrRange>,
        refusing: Vec<AddrRange>,
        error: i32,
        /// Refusals after which refusing mappings give in.
        patience: u32,
        calls: Vec<Vec<AddrRange>>,
        stop_after: usize,
        /// Bytes of swap.
        swap: u64,
    }

    impl Toy {
        fn new(mappings: Vec<AddrRange>, refusing: Vec<AddrRange>, error: i32) -> Self {
            Self {
                mappings,
                refusing,
                error,
                patience: u32::MAX,
                calls: Vec::new(),
                stop_after: usize::MAX,
                swap: u64::MAX,
            }
        }
    }

    impl Advised for Toy {
        fn advise(&mut self, ranges: &[AddrRange]) -> io::Result<u64> {
            assert!((1..=MAX_RANGES).contains(&ranges.len()));
            self.calls.push(ranges.to_vec());
            let mut done = 0;
            for r in ranges {
                let code = if overlap_len(&[*r], &self.refusing) > 0 && self.patience > 0 {
                    self.patience -= 1;
                    self.error
                } else if overlap_len(&[*r], &self.mappings) < r.len() {
                    libc::ENOMEM
                } else {
                    done += r.len();
                    self.swap -= r.len();
                    continue;
                };
                return if done > 0 { Ok(done) } else { Err(io::Error::from_raw_os_error(code)) };
            }
            Ok(done)
        }

        fn room(&mut self) -> Result<u64, NoSwapRoom> {
            if self.swap < TABLE_SPAN {
                Err(NoSwapRoom::NearlyFull { size: 1 << 30, free: self.swap })
            } else {
                Ok(self.swap)
            }
        }

        fn mappings(&mut self) -> Vec<AddrRange> {
            self.mappings.clone()
        }

        fn stopped(&self) -> bool {
            self.calls.len() >= self.stop_after
        }

        fn refusal(&self, range: AddrRange, error: &io::Error) -> String {
            format!("{range:x?}: {error}")
        }

        fn rest(&self) {}
    }

    fn mib(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start * MIB, end * MIB)
    }

    #[test]
    fn a_refused_range_is_passed_over_and_the_rest_is_counted() {
        let mut toy = Toy::new(vec![mib(0, 64), mib(64, 65), mib(65, 100)], vec![mib(64, 65)], libc::EINVAL);
        let tally = give(&mut toy, &[mib(1, 2), mib(3, 70), mib(70, 120)], Shape::Pages, &mut Pace::default());
        assert_eq!(tally.applied, 97 * MIB);
        assert!(tally.error.unwrap().contains("Invalid argument"));
        assert!(toy.calls.iter().all(|c| total_len(c) <= 32 * MIB));
    }

    #[test]
    fn calls_end_between_huge_pages() {
        let all = AddrRange::new(5 * 4096, 77 * MIB + 4096);
        let mut toy = Toy::new(vec![all], Vec::new(), 0);
        assert_eq!(give(&mut toy, &[all], Shape::Pages, &mut Pace::default()).applied, all.len());
        let inner: Vec<u64> = toy.calls.iter().flatten().map(|r| r.end).filter(|e| *e != all.end).collect();
        assert!(!inner.is_empty() && inner.iter().all(|e| e % TABLE_SPAN == 0), "{inner:x?}");
    }

    #[test]
    fn blocks_are_the_aligned_inner_part_and_busy_ones_get_another_try() {
        let mut toy = Toy::new(vec![mib(0, 100)], vec![mib(4, 6)], libc::EAGAIN);
        toy.patience = 2;
        let ranges = [AddrRange::new(4096, 9 * MIB)];
        let tally = give(&mut toy, &ranges, Shape::Blocks, &mut Pace::default());
        assert_eq!((tally.applied, tally.error), (6 * MIB, None));
        toy.patience = u32::MAX;
        let tally = give(&mut toy, &ranges, Shape::Blocks, &mut Pace::default());
        assert_eq!(tally.applied, 4 * MIB);
        assert!(tally.error.is_some());
    }

    #[test]
    fn without_free_huge_pages_it_gives_up() {
        let mut toy = Toy::new(vec![mib(0, 2000)], vec![mib(0, 2000)], libc::ENOMEM);
        assert_eq!(give(&mut toy, &[mib(0, 2000)], Shape::Blocks, &mut Pace::default()).applied, 0);
        assert!(toy.calls.len() <= (HOPELESS * TRIES) as usize);
    }

    #[test]
    fn a_dead_process_and_a_stop_end_it_at_once() {
        let mut toy = Toy::new(vec![mib(0, 100)], vec![mib(0, 100)], libc::ESRCH);
        let tally = give(&mut toy, &[mib(0, 100)], Shape::Pages, &mut Pace::default());
        assert_eq!((tally.applied, toy.calls.len()), (0, 1));
        let mut toy = Toy::new(vec![mib(0, 100)], Vec::new(), 0);
        toy.stop_after = 1;
        let tally = give(&mut toy, &[mib(0, 100)], Shape::Pages, &mut Pace::default());
        assert_eq!((tally.applied, toy.calls.len()), (4 * MIB, 1));
        assert!(tally.error.is_some());
    }

    proptest! {
        #[test]
        fn just_what_is_mapped_and_takes_it_is_counted(
            lens in prop::collection::vec((1u64..900, 0u64..3, any::<bool>()), 1..20),
            cuts in prop::collection::vec((0u64..12_000, 1u64..4000), 1..20),
        ) {
            let (mut at, mut mappings, mut refusing) = (0, Vec::new(), Vec::new());
            for (len, gap, refuses) in lens {
                let r = AddrRange::new(at * 4096, (at + len) * 4096);
                mappings.push(r);
                if refuses { refusing.push(r) }
                at += len + gap;
            }
            let mut ranges: Vec<_> = cuts.iter().map(|(s, l)| AddrRange::new(s * 4096, (s + l) * 4096)).collect();
            normalize(&mut ranges);
            let want = overlap_len(&ranges, &mappings) - overlap_len(&ranges, &refusing);
            let mut toy = Toy::new(mappings, refusing, libc::EINVAL);
            prop_assert_eq!(give(&mut toy, &ranges, Shape::Pages, &mut Pace::default()).applied, want);
        }
    }

    #[test]
    fn no_more_is_advised_than_there_is_room_for() {
        for swap_kib in [1, 2048, 5000, 9000, 16 << 10] {
            let mut to = Toy { swap: swap_kib << 10, ..Toy::new(vec![mib(0, 64)], vec![], 0) };
            // From the midst of a block of 2 MiB on.
            let tally = give(&mut to, &[mib(1, 2), mib(3, 33)], Shape::Pages, &mut Pace::default());
            assert_eq!(tally.applied, (swap_kib << 10) - to.swap);
            assert!(to.swap < TABLE_SPAN, "{swap_kib} KiB: {} are left", to.swap);
            assert_eq!(tally.error, to.room().err().map(|why| why.to_string()));
            assert!(tally.error.is_some_and(|why| why.starts_with("swap is nearly full (")));
        }
    }
}
