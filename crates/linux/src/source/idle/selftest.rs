//! Before anything is called cold: see that accesses are seen, and that their absence is seen too, on pages of our own.

use super::marks::ProcessMarks;
use super::observer::{ObserveError, Observer};
use super::physical::PhysicalPages;
use crate::arena::{Arena, HugePages};
use crate::source::selftest::SelfTestError;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::bits::Window;
use std::cell::RefCell;
use std::fs::File;
use std::io;

const PAGES: usize = 64;
/// Every third page is touched.
const STRIDE: usize = 3;
/// Pages that appeared a moment ago may wait in a per-CPU list, off the reclaim lists. Each attempt uses new ones.
const ATTEMPTS: u32 = 5;

/// Touches pages of our own and leaves others alone; fails with the reason if they are not distinguished.
pub(super) fn run(observer: &mut Observer<impl PhysicalPages>) -> Result<(), SelfTestError> {
    let pagemap = File::open("/proc/self/pagemap")
        .map_err(|e| SelfTestError::Failed(format!("cannot open /proc/self/pagemap: {e}")))?;
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let mut pages = Arena::new(PAGES as u64 * PAGE_SIZE, HugePages::No).map_err(SelfTestError::failed)?;
        pages.touch(&(0..PAGES as u64).collect::<Vec<_>>());
        let pages = RefCell::new(pages);
        let start = pages.borrow().range().start;
        let flush = || pages.borrow_mut().flush_translations();
        match attempt(observer, &pagemap, start, flush, |i| pages.borrow_mut().touch(&[i as u64])) {
            Ok(None) => return Ok(()),
            Ok(Some(wrong)) => last = wrong,
            Err(ObserveError::SpaceGone) => {
                return Err(SelfTestError::failed("the self-test cannot find its own memory"));
            }
            Err(ObserveError::Hidden) => {
                return Err(SelfTestError::failed("/proc/self/pagemap hides page frames: run as root"));
            }
            Err(ObserveError::Io(e)) => return Err(SelfTestError::failed(e)),
        }
    }
    Err(SelfTestError::Wrong(last))
}

/// Looks at [`PAGES`] pages from address `start` on. `Some` says what was seen wrongly. Pages that cannot be observed
/// count for nothing, but most must be observable.
fn attempt(
    observer: &mut Observer<impl PhysicalPages>,
    pagemap: &File,
    start: u64,
    flush: impl FnOnce() -> io::Result<()>,
    touch: impl Fn(usize),
) -> Result<Option<String>, ObserveError> {
    let mut space = ProcessMarks::default();
    let mut windows: Vec<Window> = (0..PAGES as u64).map(|i| Window::new(start + i * PAGE_SIZE, 1)).collect();
    observer.windows(pagemap, &mut space, &mut windows, true)?;
    let blind = windows.iter().filter(|w| w.seen.present == 0 || w.seen.blind > 0).count();
    if blind > PAGES / 2 {
        return Ok(Some(format!("of {PAGES} pages of its own, {blind} cannot be observed")));
    }
    // The kernel does not flush translations that this processor still holds; they would hide our accesses.
    flush()?;
    observer.windows(pagemap, &mut space, &mut windows, false)?;
    let untouched = windows.iter().filter(|w| w.seen.accessed > 0).count();
    if untouched > 0 {
        return Ok(Some(format!("of {PAGES} pages left alone, {untouched} were seen as accessed")));
    }
    (0..PAGES).step_by(STRIDE).for_each(touch);
    observer.windows(pagemap, &mut space, &mut windows, false)?;
    let wrong = |(i, w): &(usize, &Window)| w.seen.blind == 0 && (w.seen.accessed > 0) != i.is_multiple_of(STRIDE);
    let wrong = windows.iter().enumerate().filter(wrong).count();
    Ok((wrong > 0).then(|| format!("of {PAGES} pages, a third of them touched, {wrong} were reported wrongly")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::idle::simulated::{SimulatedPages, pagemap};

    /// The test on pages in frames 100 to 163; touches reach the pages if `see`.
    fn outcome(pages: &SimulatedPages, see: bool) -> Option<String> {
        let frames: Vec<Option<u64>> = (100..164).map(Some).collect();
        let mut observer = Observer::new(pages);
        let touch = |i: usize| {
            if see {
                pages.access(100 + i);
            }
        };
        attempt(&mut observer, &pagemap(&frames), 0, || Ok(()), touch).unwrap()
    }

    #[test]
    fn a_truthful_kernel_passes() {
        assert_eq!(outcome(&SimulatedPages::base(200), true), None);
    }

    #[test]
    fn a_kernel_that_sees_no_access_fails() {
        let wrong = outcome(&SimulatedPages::base(200), false).unwrap();
        assert!(wrong.contains("22 were reported wrongly"), "{wrong}");
    }

    #[test]
    fn pages_that_cannot_be_marked_fail() {
        let pages = SimulatedPages::base(200);
        (100..164).for_each(|pfn| pages.refuse(pfn));
        assert!(outcome(&pages, true).unwrap().contains("64 cannot be observed"));
    }
}
