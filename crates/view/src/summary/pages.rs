//! What the page history says: how much memory was accessed within some time, and how much has been idle for longer.

use super::estimate::Estimate;
use super::idle::{Cold, Idle, THRESHOLDS_NS};
use super::working_set::{WINDOWS_NS, Window};
use isotherm_core::history::frame::{PageAges, bytes, sum};
use isotherm_core::units::NS_PER_S;
use serde::Serialize;

/// Ages that summaries tell about, ns.
const AGES: [u64; 5] = [NS_PER_S, EXPLAINED_NS, 60 * NS_PER_S, 300 * NS_PER_S, 1800 * NS_PER_S];
/// The age by which resident memory is divided into accessed and cold.
pub(crate) const EXPLAINED_NS: u64 = 10 * NS_PER_S;

/// Memory that can be observed, divided by whether it was accessed within some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    pub accessed: Estimate,
    pub cold: Estimate,
    /// Nobody knows: it had been accessed when the watch began, at an unknown time.
    pub not_resolved: u64,
}

impl Split {
    /// `None` where the target was not watched for so long.
    pub fn at(ages: &PageAges, age_ns: u64) -> Option<Self> {
        let (idle, accessed) = (ages.idle_for(age_ns)?, ages.accessed_within(age_ns)?);
        Some(Self {
            accessed: Estimate::of_pages(accessed.pages, accessed.least, accessed.most),
            cold: Estimate::of_pages(idle.pages, idle.least, idle.most),
            not_resolved: bytes(idle.unresolved),
        })
    }
}

/// Present memory by what is known about it; the parts add up to `resident`. Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ResidentPages {
    /// Present pages.
    pub resident: u64,
    /// The time that divides accessed and cold memory, ns: 10 s, or less where nothing was watched for that long.
    pub within_ns: u64,
    /// Accessed within this time.
    pub accessed: u64,
    pub cold: u64,
    /// In use when the watch began; nobody knows when it was accessed last.
    pub not_resolved: u64,
    /// Cannot be observed: neither hot nor cold.
    pub not_observable: u64,
}

/// All that a summary tells of one or several parts of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageFigures {
    resident: u64,
    not_observable: u64,
    /// For each of [`AGES`] for which anything was watched.
    splits: [Option<Split>; AGES.len()],
}

impl PageFigures {
    /// Of several parts, each page of which counts for itself; of one, if there is only one. `None` if there is none of
    /// which anything is known.
    pub fn of<'a>(parts: impl Iterator<Item = &'a PageAges>) -> Option<Self> {
        let all = sum(parts);
        let (resident, not_observable) = (bytes(all.resident), bytes(all.unobservable));
        let splits = AGES.map(|age| Split::at(&all, age));
        splits[0].is_some().then_some(Self { resident, not_observable, splits })
    }

    fn split(&self, age_ns: u64) -> Option<&Split> {
        self.splits[AGES.iter().position(|&a| a == age_ns)?].as_ref()
    }

    /// The longest of the ages that is known, ns; not longer than `most_ns`.
    pub fn longest_ns(&self, most_ns: Option<u64>) -> Option<u64> {
        let mut known = AGES.iter().zip(&self.splits).filter(|(_, split)| split.is_some()).map(|(&age, _)| age);
        known.rfind(|age| most_ns.is_none_or(|most| *age <= most))
    }

    /// What was not accessed for one of the listed ages, ns; `None`: nothing was watched for so long.
    pub fn cold(&self, age_ns: u64) -> Option<Estimate> {
        Some(self.split(age_ns)?.cold)
    }

    /// Memory accessed within each of the windows.
    pub fn windows(&self) -> [Window; WINDOWS_NS.len()] {
        WINDOWS_NS.map(|within_ns| Window::new(within_ns, self.split(within_ns).map(|s| s.accessed)))
    }

    /// The same as for records of regions.
    pub fn idle(&self) -> Idle {
        let r = self.resident();
        Idle {
            accessed: r.accessed,
            not_accessed: r.cold,
            cold: THRESHOLDS_NS.map(|for_ns| Cold::new(for_ns, self.cold(for_ns))),
            not_observable: r.not_observable,
            not_visited: r.not_resolved,
            present_only: true,
        }
    }

    /// Present memory without a rest.
    pub fn resident(&self) -> ResidentPages {
        self.divided(EXPLAINED_NS)
    }

    /// The same, divided at an age of one's own, or at the longest known below it.
    pub fn divided(&self, within_ns: u64) -> ResidentPages {
        let known = AGES.iter().zip(&self.splits).filter(|(age, _)| **age <= within_ns);
        let (within_ns, split) = known.filter_map(|(&age, s)| s.map(|s| (age, s))).next_back().unwrap_or_default();
        ResidentPages {
            resident: self.resident,
            within_ns,
            accessed: split.accessed.bytes,
            cold: split.cold.bytes,
            not_resolved: split.not_resolved,
            not_observable: self.not_observable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, ages};

    #[test]
    fn ends_are_shown_where_they_differ() {
        let e = |bytes, least, most| Estimate { bytes, least, most }.text();
        assert_eq!(e(100 * MIB, 98 * MIB, 103 * MIB), "100 MiB");
        assert_eq!(e(100 * MIB, 98 * MIB, 104 * MIB), "100 MiB (98.0 to 104)");
        assert_eq!(e(MIB, MIB / 2, 2 * MIB), "1.00 MiB (512 KiB to 2.00 MiB)");
        assert_eq!(e(0, 0, 0), "0 B");
        assert_eq!(e(0, 0, MIB), "0 B (0 B to 1.00 MiB)");
    }

    #[test]
    fn resident_memory_is_explained_without_a_rest() {
        let mut a = ages(100, &[90, 88, 85, 80], 10);
        for idle in &mut a.idle {
            (idle.unresolved, idle.most) = (5, idle.most + 5);
        }
        let f = PageFigures::of(std::iter::once(&a)).expect("watched for 10 s");
        let r = f.resident();
        assert_eq!(
            r,
            ResidentPages {
                resident: bytes(110),
                within_ns: 10 * NS_PER_S,
                accessed: bytes(15),
                cold: bytes(80),
                not_resolved: bytes(5),
                not_observable: bytes(10)
            }
        );
        assert_eq!(r.accessed + r.cold + r.not_resolved + r.not_observable, r.resident);
        assert_eq!(f.windows().map(|w| w.bytes), [Some(bytes(5)), Some(bytes(15)), None, None]);
        assert_eq!(
            f.idle().cold.map(|c| (c.bytes, c.most)),
            [(Some(bytes(80)), Some(bytes(85))), (None, None), (None, None), (None, None)]
        );
    }

    #[test]
    fn what_was_not_watched_for_so_long_is_not_cold_in_a_sum() {
        let (old, young, new) = (ages(100, &[90, 88, 85, 80], 0), ages(50, &[40], 0), ages(7, &[], 0));
        let parts = [old, young, new];
        let f = PageFigures::of(parts.iter()).expect("one is known");
        let r = f.resident();
        assert_eq!((r.accessed, r.cold, r.not_resolved), (bytes(30), bytes(80), bytes(47)));
        assert_eq!(r.accessed + r.cold + r.not_resolved, r.resident);
        assert_eq!(f.idle().cold[0].most, Some(bytes(80 + 47)));
        assert_eq!(PageFigures::of(parts[2..].iter()), None, "nothing is known of it");
    }
}
