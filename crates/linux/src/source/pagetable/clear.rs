//! Clears accessed bits in batches, and finds out which ranges the kernel refuses.

use crate::mm::advise;
use isotherm_core::addr::AddrRange;
use std::io;
use std::os::fd::BorrowedFd;

/// Why clearing stopped.
#[derive(Debug)]
pub enum ClearError {
    /// The process has no address space any more.
    Gone,
    /// Not allowed, or something unexpected.
    Failed(io::Error),
}

/// Clears the accessed bits in all of `ranges`. A range that the kernel refuses (locked, hugetlb and device memory) is
/// handed to `refuse`, which tells the whole area in which nothing more is to be tried; ranges that are no longer
/// mapped are passed over.
pub fn clear(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddrRange],
    refuse: impl FnMut(AddrRange) -> AddrRange,
) -> Result<(), ClearError> {
    clear_with(|part| advise::mark_cold(pidfd, part), ranges, refuse)
}

/// A range that keeps being interrupted is given up after this many attempts.
const MAX_INTERRUPTIONS: u32 = 16;

fn clear_with(
    mut mark_cold: impl FnMut(&[AddrRange]) -> io::Result<u64>,
    ranges: &[AddrRange],
    mut refuse: impl FnMut(AddrRange) -> AddrRange,
) -> Result<(), ClearError> {
    let mut rest = ranges;
    let mut interruptions = 0;
    while !rest.is_empty() {
        let part = &rest[..rest.len().min(advise::MAX_RANGES)];
        match mark_cold(part) {
            Ok(done) => {
                let n = whole_ranges(part, done);
                rest = &rest[n..];
                // With nothing done and no error there is nothing to go on with; never loop.
                if n == 0 {
                    rest = &rest[1..];
                }
            }
            // The first range is the bad one.
            Err(e) => match e.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) if interruptions < MAX_INTERRUPTIONS => {
                    interruptions += 1;
                    continue;
                }
                Some(libc::EINVAL) => {
                    let area = refuse(rest[0]);
                    let skip = rest[1..].iter().take_while(|r| area.start <= r.start && r.end <= area.end).count();
                    rest = &rest[1 + skip..];
                }
                // Part of the range is not mapped (any more); what is mapped has been done.
                Some(libc::ENOMEM) => rest = &rest[1..],
                Some(libc::ESRCH) => return Err(ClearError::Gone),
                _ => return Err(ClearError::Failed(e)),
            },
        }
        interruptions = 0;
    }
    Ok(())
}

/// How many of the first ranges `bytes` amount to.
fn whole_ranges(ranges: &[AddrRange], bytes: u64) -> usize {
    let mut left = bytes;
    ranges
        .iter()
        .take_while(|r| {
            let whole = left >= r.len();
            left = left.saturating_sub(r.len());
            whole
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Behaves as the kernel does: stops at the first bad range, and tells its error only if it is the first of a call.
    fn kernel<'a>(
        errors: &'a [(u64, i32)],
        done: &'a mut Vec<u64>,
    ) -> impl FnMut(&[AddrRange]) -> io::Result<u64> + 'a {
        move |part| {
            assert!(part.len() <= advise::MAX_RANGES);
            let mut bytes = 0;
            for r in part {
                if let Some(&(_, errno)) = errors.iter().find(|e| e.0 == r.start) {
                    return if bytes > 0 { Ok(bytes) } else { Err(io::Error::from_raw_os_error(errno)) };
                }
                done.push(r.start);
                bytes += r.len();
            }
            Ok(bytes)
        }
    }

    proptest! {
        #[test]
        fn every_good_range_is_cleared_once(n in 0u64..3000, bad in prop::collection::btree_map(0u64..3000, prop::bool::ANY, 0..40)) {
            let ranges: Vec<AddrRange> = (0..n).map(|i| AddrRange::new(i * 10, i * 10 + 1 + i % 9)).collect();
            let errors: Vec<(u64, i32)> =
                bad.iter().map(|(&i, &locked)| (i * 10, if locked { libc::EINVAL } else { libc::ENOMEM })).collect();
            let (mut done, mut refused) = (Vec::new(), Vec::new());
            let refuse = |r| {
                refused.push(r);
                r
            };
            clear_with(kernel(&errors, &mut done), &ranges, refuse).unwrap();
            let good: Vec<u64> = ranges.iter().map(|r| r.start).filter(|s| !errors.iter().any(|e| e.0 == *s)).collect();
            prop_assert_eq!(done, good);
            let locked: Vec<u64> = errors.iter().filter(|e| e.1 == libc::EINVAL && e.0 < n * 10).map(|e| e.0).collect();
            prop_assert_eq!(refused.iter().map(|r| r.start).collect::<Vec<_>>(), locked);
        }
    }

    #[test]
    fn other_errors_end_it() {
        let one = [AddrRange::new(0, 4096)];
        let with = |errno| clear_with(|_| Err(io::Error::from_raw_os_error(errno)), &one, |r| r);
        assert!(matches!(with(libc::ESRCH), Err(ClearError::Gone)));
        assert!(matches!(with(libc::EPERM), Err(ClearError::Failed(_))));
        assert!(matches!(with(libc::EINTR), Err(ClearError::Failed(_))));
        assert!(clear_with(|_| Ok(0), &one, |r| r).is_ok());
    }

    #[test]
    fn nothing_more_is_tried_in_a_refused_area() {
        let ranges: Vec<AddrRange> = (0..100).map(|i| AddrRange::new(i * 10, i * 10 + 5)).collect();
        let errors: Vec<(u64, i32)> = (20..60).map(|i| (i * 10, libc::EINVAL)).collect();
        let (mut done, mut calls) = (Vec::new(), 0);
        let mut kernel = kernel(&errors, &mut done);
        let counted = |part: &[AddrRange]| {
            calls += 1;
            kernel(part)
        };
        clear_with(counted, &ranges, |_| AddrRange::new(200, 600)).unwrap();
        drop(kernel);
        assert_eq!(done.len(), 60);
        assert_eq!(calls, 3);
    }
}
