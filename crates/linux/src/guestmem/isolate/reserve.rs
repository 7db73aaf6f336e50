//! Huge pages reserved on demand (surplus pages of the pool) and never touched: cheap where the kernel does not clear pages on
//! allocation, and the kernel chooses which.
//!
//! A reserved page is tied to nobody until it is touched, so this is sound only while nobody else takes huge pages of this size.
//! Nobody can while the pool has no other page and no more may be allocated on demand than we hold; an administrator can raise
//! either number at any moment. Hence: it works only where the pool was empty, and all numbers are looked at again before each
//! report. What remains is that somebody raises them and uses huge pages in the milliseconds between that look and the host's
//! dropping; [`touch`](super::touch) closes that, too, at the price of clearing.
//!
//! When some of what is reserved is given up, the kernel frees free pages of the pool, and which is its choice (mm/hugetlb.c:
//! `remove_pool_hugetlb_folio` takes the first of its list, the one that came last). So nothing is given up while a report is on
//! its way, unless what was reported could be tied to its segment by touching it; and there is no process that the kernel may end
//! to have memory back, as [`touch`](super::touch) has.

use super::physical::Pagemap;
use super::pool::{Counts, Pool};
use super::segment::{Attached, Segment, or_fewer, put_back};
use super::{HUGE_PAGE, IsolateError, Isolator, Way};
use crate::guestmem::{FlagSampler, Ledger, MemoryMap};
use crate::roots::Roots;
use isotherm_core::addr::AddrRange;
use std::collections::BTreeSet;
use std::io;

/// Reserves huge pages.
#[derive(Debug)]
pub struct Reserve {
    pool: Pool,
    flags: FlagSampler,
    pagemap: Pagemap,
    ram: Vec<AddrRange>,
    /// Those for which the host has answered, and those of which a report may be on its way.
    settled: Vec<Segment>,
    waiting: Vec<Segment>,
    /// Physical addresses of all that is held, and of those of which a report may be on its way.
    held: BTreeSet<u64>,
    unanswered: BTreeSet<u64>,
    /// What was touched because the host is late: the mappings of `waiting`. Empty if it was not.
    touched: Vec<Attached>,
}

impl Reserve {
    /// Makes sure that the pool is there and nobody uses it. `leftover`: a dead predecessor may, whose pages are given back before
    /// any are taken.
    pub fn new(roots: &Roots, map: &MemoryMap, leftover: bool) -> Result<Self, IsolateError> {
        let pool = Pool::new(roots);
        let counts = counts(&pool)?;
        // Otherwise it is looked at when the first are taken.
        if !leftover && is_in_use(&counts) {
            return Err(in_use(&counts));
        }
        let flags = FlagSampler::open(roots).map_err(IsolateError::io("open /proc/kpageflags"))?;
        Ok(Self {
            pool,
            flags,
            pagemap: Pagemap::open(roots).map_err(IsolateError::io("open /proc/self/pagemap"))?,
            ram: map.whole_blocks(HUGE_PAGE),
            settled: Vec::new(),
            waiting: Vec::new(),
            held: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            touched: Vec::new(),
        })
    }

    /// Takes `pages` more. `None`: that many are not to be had.
    fn reserve(&mut self, pages: u64, ledger: &mut Ledger) -> Result<Option<Vec<AddrRange>>, IsolateError> {
        let before = self.held.len() as u64;
        if before == 0 {
            let counts = counts(&self.pool)?;
            if is_in_use(&counts) {
                return Err(in_use(&counts));
            }
            let note = IsolateError::io("write down that huge pages are reserved");
            ledger
                .change(|l| {
                    l.overcommit.get_or_insert(0);
                    l.segments = true;
                })
                .map_err(note)?;
        } else {
            self.check()?;
        }
        self.pool.set_overcommit(before + pages).map_err(IsolateError::io("allow huge pages on demand"))?;
        let segment = match Segment::reserve(pages) {
            Ok(segment) => segment,
            Err(e) => {
                self.pool.set_overcommit(before).map_err(IsolateError::io("forbid huge pages on demand"))?;
                return match e.raw_os_error() {
                    Some(libc::ENOMEM | libc::ENOSPC | libc::EINTR) => Ok(None),
                    _ => Err(IsolateError::io("reserve huge pages in a shared memory segment")(e)),
                };
            }
        };
        self.waiting.push(segment);
        let counts = counts(&self.pool)?;
        let heads = self.pool_heads().map_err(IsolateError::io("read /proc/kpageflags"))?;
        let new: BTreeSet<u64> = heads.difference(&self.held).copied().collect();
        // All of the pool must be what we know, old and new.
        let ours = before + pages;
        if only_ours(&counts, ours) && (heads.len() as u64) < ours {
            return Err(IsolateError::Elsewhere);
        }
        if !only_ours(&counts, ours) || heads.len() as u64 != ours || new.len() as u64 != pages {
            return Err(IsolateError::Foreign(format!(
                "somebody else takes huge pages: {ours} are reserved here, the pool has {counts:?} and {} were found",
                heads.len()
            )));
        }
        let ranges = new.iter().map(|&start| AddrRange::new(start, start + HUGE_PAGE)).collect();
        self.unanswered.extend(&new);
        self.held.extend(new);
        Ok(Some(ranges))
    }

    /// Touches what the host has not answered for. True if it was given the very pages that were reported, which are nobody
    /// else's from then on.
    fn tie(&mut self) -> io::Result<bool> {
        let mut at = BTreeSet::new();
        for segment in &self.waiting {
            let mut attached = segment.attach()?;
            attached.touch();
            at.extend(self.pagemap.huge_pages(&attached)?);
            self.touched.push(attached);
        }
        Ok(at == self.unanswered)
    }

    /// Gives up everything. No report may be on its way.
    fn give_up(&mut self) -> io::Result<()> {
        self.touched.clear();
        while let Some(segment) = self.waiting.pop().or_else(|| self.settled.pop()) {
            segment.remove()?;
        }
        self.held.clear();
        self.unanswered.clear();
        Ok(())
    }

    /// Physical addresses of all pages of the pool.
    fn pool_heads(&self) -> io::Result<BTreeSet<u64>> {
        let mut heads = BTreeSet::new();
        for range in &self.ram {
            for start in (range.start..range.end).step_by(HUGE_PAGE as usize) {
                if self.flags.at(start)?.is_some_and(|f| f.pool_head()) {
                    heads.insert(start);
                }
            }
        }
        Ok(heads)
    }
}

impl Isolator for Reserve {
    fn way(&self) -> Way {
        Way::Reserve
    }

    fn take(&mut self, wanted: &[AddrRange], ledger: &mut Ledger) -> Result<Vec<AddrRange>, IsolateError> {
        or_fewer(wanted, |pages| self.reserve(pages, ledger))
    }

    fn check(&mut self) -> Result<(), IsolateError> {
        let counts = counts(&self.pool)?;
        let ours = self.held.len() as u64;
        if !only_ours(&counts, ours) {
            let why = format!("somebody else takes huge pages: {ours} are reserved here, the pool has {counts:?}");
            return Err(IsolateError::Foreign(why));
        }
        for &start in &self.held {
            let flags = self.flags.at(start).map_err(IsolateError::io("read /proc/kpageflags"))?;
            if !flags.is_some_and(|f| f.pool_head()) {
                return Err(IsolateError::Foreign(format!("the page at {start:#x} has left the pool of huge pages")));
            }
        }
        Ok(())
    }

    fn give_back(&mut self, ledger: &mut Ledger) -> Result<(), IsolateError> {
        self.give_up().map_err(IsolateError::io("remove a shared memory segment of huge pages"))?;
        put_back(&self.pool, ledger)
    }

    fn acked(&mut self) {
        self.settled.append(&mut self.waiting);
        self.unanswered.clear();
        if !self.touched.is_empty() {
            // No longer like the others of the pool.
            self.thin();
        }
    }

    fn thin(&mut self) {
        if self.waiting.is_empty() {
            // A failure shows in the next look at the pool's numbers, and what is left goes with `give_back`.
            let _ = self.give_up();
        } else if self.settled.is_empty() || !self.touched.is_empty() || !self.tie().unwrap_or(false) {
            return;
        } else {
            self.settled.drain(..).for_each(|segment| drop(segment.remove()));
            self.held.clone_from(&self.unanswered);
        }
        // Nobody may take what has become free of the pool.
        let _ = self.pool.set_overcommit(self.held.len() as u64);
    }

    fn held(&self) -> u64 {
        self.held.len() as u64 * HUGE_PAGE
    }

    fn set_memory(&mut self, map: &MemoryMap) {
        self.ram = map.whole_blocks(HUGE_PAGE);
    }
}

fn counts(pool: &Pool) -> Result<Counts, IsolateError> {
    pool.counts().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            IsolateError::Unsupported(format!("the kernel has no huge pages of 2 MiB (CONFIG_HUGETLBFS): {e}"))
        }
        _ => IsolateError::io("read the pool of huge pages")(e),
    })
}

/// Whether the pool has just `ours` pages, all of them on demand, promised and untouched, and may have no more.
fn only_ours(counts: &Counts, ours: u64) -> bool {
    *counts == Counts { all: ours, free: ours, reserved: ours, surplus: ours, overcommit: ours }
}

fn is_in_use(counts: &Counts) -> bool {
    counts.all != 0 || counts.reserved != 0 || counts.overcommit != 0
}

fn in_use(counts: &Counts) -> IsolateError {
    IsolateError::Unsupported(format!(
        "the pool of huge pages is in use or may be at any time ({} pages, {} reserved, {} more on demand); use another --isolate",
        counts.all, counts.reserved, counts.overcommit
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guestmem::isolate::pool::tests::pool;

    fn new(numbers: [u64; 5]) -> Result<Reserve, IsolateError> {
        let t = pool(numbers);
        std::fs::create_dir_all(t.roots.path("/proc/self")).unwrap();
        std::fs::write(t.roots.path("/proc/kpageflags"), []).unwrap();
        std::fs::write(t.roots.path("/proc/self/pagemap"), []).unwrap();
        Reserve::new(&t.roots, &MemoryMap::default(), false)
    }

    #[test]
    fn a_pool_in_use_is_left_alone() {
        assert!(new([0; 5]).is_ok());
        for used in [[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 8]] {
            assert!(matches!(new(used).unwrap_err(), IsolateError::Unsupported(_)), "{used:?}");
        }
    }

    #[test]
    fn any_number_that_is_not_ours_is_seen() {
        let ours = Counts { all: 3, free: 3, reserved: 3, surplus: 3, overcommit: 3 };
        assert!(only_ours(&ours, 3) && !only_ours(&ours, 2));
        for other in [
            Counts { all: 4, ..ours },
            Counts { free: 2, ..ours },
            Counts { reserved: 4, ..ours },
            Counts { surplus: 2, ..ours },
            Counts { overcommit: 4, ..ours },
        ] {
            assert!(!only_ours(&other, 3), "{other:?}");
        }
    }
}
