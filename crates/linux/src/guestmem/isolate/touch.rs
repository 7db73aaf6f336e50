//! Huge pages on demand (surplus pages of the pool), touched: allocated to a segment of ours, so that nobody else can
//! get them, whoever uses the pool. The kernel clears each. Physical addresses come from `/proc/self/pagemap`.
//!
//! A page of a segment stays where it is unless somebody moves it on purpose (a memory block that goes offline, a
//! driver that wants contiguous memory, `move_pages`); addresses are looked at again before each report.

use super::holder::{Holder, Score};
use super::physical::Pagemap;
use super::pool::Pool;
use super::segment::{Attached, Segment, put_back};
use super::{HUGE_PAGE, check_held};
use crate::guestmem::ledger::Ledger;
use crate::roots::Roots;
use isotherm_core::addr::{AddrRange, total_len};
use isotherm_core::hinter::IsolateError;
use std::io;

/// Allocates huge pages.
#[derive(Debug)]
pub(super) struct Touch {
    pool: Pool,
    pagemap: Pagemap,
    /// Of which a report may be on its way.
    held: Vec<Taken>,
    holder: Option<Holder>,
    score: Score,
    /// Huge pages that the holder alone has.
    settled: u64,
}

/// What one step took.
#[derive(Debug)]
struct Taken {
    /// Unmapped before its segment is removed, as the order of fields says.
    attached: Attached,
    segment: Segment,
    /// Physical addresses, in the order of the virtual ones.
    at: Vec<u64>,
}

impl Touch {
    /// Makes sure that there are huge pages, and that none of an administrator's would be used up.
    pub(super) fn new(roots: &Roots) -> Result<Self, IsolateError> {
        let pool = Pool::new(roots);
        let counts = pool.counts().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                IsolateError::Unsupported(format!("the kernel has no huge pages of 2 MiB (CONFIG_HUGETLBFS): {e}"))
            }
            _ => IsolateError::io("read the pool of huge pages")(e),
        })?;
        if counts.free > counts.reserved {
            return Err(spare(counts.free - counts.reserved));
        }
        let pagemap = Pagemap::open(roots).map_err(IsolateError::io("open /proc/self/pagemap"))?;
        let score = Score::open(roots).map_err(IsolateError::io("open /proc/self/oom_score_adj"))?;
        Ok(Self { pool, pagemap, held: Vec::new(), holder: None, score, settled: 0 })
    }

    fn allocate(&mut self, pages: u64, ledger: &mut Ledger) -> Result<Option<Vec<AddrRange>>, IsolateError> {
        let counts = self.pool.counts().map_err(IsolateError::io("read the pool of huge pages"))?;
        if counts.free > counts.reserved {
            return Err(spare(counts.free - counts.reserved));
        }
        let note = IsolateError::io("write down that huge pages are allocated");
        ledger
            .change(|l| {
                l.overcommit.get_or_insert(counts.overcommit);
                l.segments = true;
            })
            .map_err(note)?;
        let allowed = counts.overcommit.max(counts.surplus + pages);
        self.pool.set_overcommit(allowed).map_err(IsolateError::io("allow huge pages on demand"))?;
        let segment = match Segment::create(pages) {
            Ok(segment) => segment,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::ENOSPC | libc::EINTR)) => return Ok(None),
            Err(e) => return Err(IsolateError::io("reserve huge pages in a shared memory segment")(e)),
        };
        if self.holder.is_none() {
            self.holder = Holder::start(&self.score).ok();
        }
        if self.holder.as_mut().is_none_or(|holder| holder.attach(segment.id()).is_err()) {
            let _ = segment.remove();
            self.release_answered();
            return Err(IsolateError::Taken);
        }
        let mut attached = segment.attach().map_err(IsolateError::io("map a shared memory segment of huge pages"))?;
        attached.touch();
        let at = self.pagemap.huge_pages(&attached).map_err(IsolateError::io("read /proc/self/pagemap"))?;
        let ranges = at.iter().map(|&start| AddrRange::new(start, start + HUGE_PAGE)).collect();
        self.held.push(Taken { attached, segment, at });
        Ok(Some(ranges))
    }

    /// As many huge pages as `wanted` has room for, or half as many, and so on: all or nothing is the kernel's rule, so
    /// near the end less is taken at a time.
    pub(super) fn take(&mut self, wanted: &[AddrRange], ledger: &mut Ledger) -> Result<Vec<AddrRange>, IsolateError> {
        let mut pages = total_len(wanted) / HUGE_PAGE;
        while pages > 0 {
            if let Some(ranges) = self.allocate(pages, ledger)? {
                return Ok(ranges);
            }
            pages /= 2;
        }
        Ok(Vec::new())
    }

    /// Whether `reported` is held, and each page that is held still is where it was.
    pub(super) fn check(&self, reported: &[AddrRange]) -> Result<(), IsolateError> {
        // What has settled was answered for.
        let pages = self.held.iter().flat_map(|taken| &taken.at);
        check_held(reported, pages.map(|&at| AddrRange::new(at, at + HUGE_PAGE)).collect())?;
        if self.holder.as_ref().is_some_and(|holder| !holder.is_alive()) {
            return Err(IsolateError::Taken);
        }
        for taken in &self.held {
            let now = self.pagemap.huge_pages(&taken.attached);
            let now = now.map_err(IsolateError::io("read /proc/self/pagemap"))?;
            if let Some((was, _)) = taken.at.iter().zip(&now).find(|(was, now)| was != now) {
                return Err(IsolateError::Foreign(format!("somebody moved the huge page at {was:#x}, which was held")));
            }
        }
        Ok(())
    }

    /// Gives everything back that is held.
    pub(super) fn give_back(&mut self, ledger: &mut Ledger, roots: &Roots) -> Result<(), IsolateError> {
        while let Some(Taken { attached, segment, .. }) = self.held.pop() {
            drop(attached);
            segment.remove().map_err(IsolateError::io("remove a shared memory segment of huge pages"))?;
        }
        self.holder = None;
        self.settled = 0;
        put_back(ledger, roots)
    }

    /// The host has answered for all that is held: from here on the holder alone has it.
    pub(super) fn acked(&mut self) {
        for Taken { attached, segment, .. } in self.held.drain(..) {
            // If it was ended while the answer was waited for, they are free now.
            self.settled += if self.holder.is_some() { segment.pages() } else { 0 };
            drop(attached);
            // The holder has it attached, and it goes with that.
            let _ = segment.remove();
        }
    }

    /// Ends the holder, with which goes what it alone has.
    pub(super) fn release_answered(&mut self) {
        self.holder = None;
        self.settled = 0;
    }

    /// Bytes held now.
    pub(super) fn held(&self) -> u64 {
        (self.held.iter().map(|t| t.segment.pages()).sum::<u64>() + self.settled) * HUGE_PAGE
    }
}

fn spare(pages: u64) -> IsolateError {
    IsolateError::Unsupported(format!(
        "the pool of huge pages has {pages} that nobody uses yet; they would be taken from whom they are meant for; use \
         --isolate offline"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guestmem::isolate::pool::tests::pool;

    #[test]
    fn spare_pages_of_an_administrator_are_not_used_up() {
        let new = |numbers| {
            let t = pool(numbers);
            std::fs::create_dir_all(t.roots.path("/proc/self")).unwrap();
            for file in ["pagemap", "oom_score_adj"] {
                std::fs::write(t.roots.path("/proc/self").join(file), []).unwrap();
            }
            Touch::new(&t.roots)
        };
        assert!(new([0; 4]).is_ok());
        assert!(new([1, 1, 0, 9]).is_ok(), "used and promised ones are no concern");
        assert!(matches!(new([2, 1, 0, 0]).unwrap_err(), IsolateError::Unsupported(_)));
    }
}
