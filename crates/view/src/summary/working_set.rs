//! The working set: memory in use.

use super::estimate::Estimate;
use crate::basis::Basis;
use crate::series::distribution::Distribution;
use isotherm_core::units::NS_PER_S;
use serde::Serialize;

/// Windows that summaries show, ns.
pub(crate) const WINDOWS_NS: [u64; 4] = [NS_PER_S, 10 * NS_PER_S, 60 * NS_PER_S, 300 * NS_PER_S];

/// Memory accessed within some time before the end of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Window {
    /// The time, ns.
    pub within_ns: u64,
    /// Bytes; `None` where nothing was watched for so long, or where the record does not tell.
    pub bytes: Option<u64>,
    /// The least that may be true.
    pub least: Option<u64>,
    pub most: Option<u64>,
}

impl Window {
    /// From what is known.
    pub fn new(within_ns: u64, known: Option<Estimate>) -> Self {
        let (bytes, least, most) = (known.map(|e| e.bytes), known.map(|e| e.least), known.map(|e| e.most));
        Self { within_ns, bytes, least, most }
    }

    /// Bytes and their ends.
    pub fn estimate(&self) -> Option<Estimate> {
        Some(Estimate { bytes: self.bytes?, least: self.least?, most: self.most? })
    }
}

/// The working set's size, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WorkingSet {
    /// Half of the time it was at most this: of pages, what was accessed within a second; of regions, within an
    /// aggregation interval.
    pub p50: u64,
    /// 95 % of the time.
    pub p95: u64,
    /// 99 % of the time.
    pub p99: u64,
    /// What it is drawn from.
    pub basis: Basis,
    /// Moments that the percentiles are drawn from.
    pub snapshots: usize,
    /// Snapshots left out at the begin, while regions still adapted.
    pub skipped: usize,
    /// Memory accessed within some times before the end.
    pub windows: [Window; WINDOWS_NS.len()],
}

impl WorkingSet {
    /// From sizes over time that pages tell, and the windows at the end.
    pub(crate) fn of_pages(sizes: &[u64], windows: [Window; WINDOWS_NS.len()]) -> Self {
        Self::new(sizes, 0, Basis::Pages, windows)
    }

    /// From sizes over time that regions tell.
    pub fn of_regions(sizes: &[u64]) -> Self {
        let basis = Basis::Regions;
        Self::new(sizes, basis.skipped(sizes.len()), basis, WINDOWS_NS.map(|within_ns| Window::new(within_ns, None)))
    }

    fn new(sizes: &[u64], skipped: usize, basis: Basis, windows: [Window; WINDOWS_NS.len()]) -> Self {
        let sorted = Distribution::new(sizes[skipped..].iter().copied());
        let at = |percent| sorted.percentile(percent).unwrap_or(0);
        let snapshots = sizes.len() - skipped;
        Self { p50: at(50.0), p95: at(95.0), p99: at(99.0), basis, snapshots, skipped, windows }
    }
}
