//! `/proc/kpageflags`: what each page frame is; one 64-bit word a frame (include/uapi/linux/kernel-page-flags.h).

/// The file.
pub(crate) const KPAGEFLAGS: &str = "/proc/kpageflags";

/// On a list from which pages are reclaimed; the others cannot be marked idle. Not reported for the tail of a large folio
/// by all kernels.
pub(crate) const LRU: u64 = 1 << 5;
/// Free, in the hands of the buddy allocator. Free pages in the lists of single CPUs are not.
pub(crate) const BUDDY: u64 = 1 << 10;
/// First page of a folio of several pages.
pub(crate) const COMPOUND_HEAD: u64 = 1 << 15;
/// Another page of such a folio.
pub(crate) const COMPOUND_TAIL: u64 = 1 << 16;
/// Memory of hugetlbfs.
pub(crate) const HUGE: u64 = 1 << 17;
/// No page frame.
pub(crate) const NOPAGE: u64 = 1 << 20;
/// The page of zeros that all untouched memory shares.
pub(crate) const ZERO_PAGE: u64 = 1 << 24;
/// Marked idle. Not looked up in page tables: a page accessed a moment ago may still have it.
pub(crate) const IDLE: u64 = 1 << 25;
