//! Reclaim: how much is scanned, and when a generation is created instead.

use super::lruvec::{Lruvec, MIN_GENS};
use super::pages::Pages;
use super::tables::PageTables;

/// The priority that reclaim begins with; each further one scans twice as much, 0 everything.
pub(crate) const DEF_PRIORITY: u32 = 12;

/// What is asked of reclaim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// Pages to evict.
    pub pages: u64,
    /// For the sake of the whole machine rather than of this memory's limit: stops as soon as enough was evicted.
    /// A memory at its limit is scanned as much as its size demands, which is fair among several.
    pub global: bool,
    /// Preference for anonymous memory.
    pub swappiness: u8,
}

/// What became of a memory at one priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shrunk {
    /// Pages evicted.
    pub reclaimed: u64,
    /// It was aged instead: it is others' turn now.
    pub aged: bool,
}

impl Lruvec {
    /// Evicts as much as a priority demands, or creates a generation.
    pub fn shrink<T: PageTables>(
        &mut self,
        pages: &mut Pages,
        tables: &mut T,
        demand: Demand,
        priority: u32,
    ) -> Shrunk {
        let mut done = Shrunk::default();
        let mut scanned = 0;
        loop {
            let (wants, total) = self.wants_aging(demand.swappiness);
            if wants && priority != DEF_PRIORITY {
                done.aged = self.age(pages, tables, demand.swappiness, false);
                break;
            }
            let wanted = total >> priority;
            if wanted == 0 {
                break;
            }
            let round = self.evict_batch(pages, tables, demand.swappiness);
            done.reclaimed += round.reclaimed;
            scanned += round.scanned;
            if round.scanned == 0 || scanned >= wanted || (demand.global && done.reclaimed >= demand.pages) {
                break;
            }
        }
        done
    }

    /// Evicts as many pages as demanded, at ever more pressure. How many it evicted.
    pub fn reclaim<T: PageTables>(&mut self, pages: &mut Pages, tables: &mut T, demand: Demand) -> u64 {
        let mut reclaimed = 0;
        for priority in (0..=DEF_PRIORITY).rev() {
            reclaimed += self.shrink(pages, tables, demand, priority).reclaimed;
            if reclaimed >= demand.pages {
                break;
            }
        }
        reclaimed
    }

    /// Evicts one page whatever speaks against it: the last resort.
    pub(super) fn force<T: PageTables>(&mut self, pages: &mut Pages, tables: &mut T) -> bool {
        for seq in self.max_seq.saturating_sub(MIN_GENS + 1)..=self.max_seq {
            for kind in [1, 0] {
                if let Some(page) = pages.tail(self.list(super::lruvec::index(seq), kind)) {
                    self.take_off(pages, page);
                    self.evict(pages, tables, page);
                    self.detail.forced += 1;
                    return true;
                }
            }
        }
        false
    }
}
