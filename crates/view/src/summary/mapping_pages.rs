//! What the page history says of each mapping.

use super::pages::{PageFigures, ResidentPages};
use crate::names;
use isotherm_core::history::frame::{MappingPages, PageAges, bytes};
use isotherm_core::mapping::Mapping;
use serde::Serialize;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// A nameless anonymous mapping, or all mappings of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MappingUse {
    /// Name in full; of a nameless anonymous mapping its addresses.
    pub name: String,
    /// Length, of all mappings of the name, bytes.
    pub bytes: u64,
    /// What is known of its present pages.
    #[serde(flatten)]
    pub pages: ResidentPages,
}

/// What each mapping holds, divided into accessed within a time and cold; those that hold most cold memory first.
pub(crate) fn mapping_uses(pages: &[MappingPages], mappings: &[Mapping], within_ns: u64) -> Vec<MappingUse> {
    let mut sizes: HashMap<Cow<'_, str>, u64> = HashMap::new();
    for m in mappings {
        *sizes.entry(names::row(m)).or_default() += m.range.len();
    }
    let mut parts: BTreeMap<String, (u64, Vec<&PageAges>)> = BTreeMap::new();
    for p in pages {
        let name = names::mapping_of(mappings, &p.range).map(names::row);
        let size = name.as_ref().and_then(|n| sizes.get(n).copied());
        let name = name.map_or_else(|| names::addresses(&p.range), Cow::into_owned);
        parts.entry(name).or_insert((size.unwrap_or(p.range.len()), Vec::new())).1.push(&p.ages);
    }
    let mut uses: Vec<MappingUse> = parts
        .into_iter()
        .map(|(name, (bytes, ages))| MappingUse { name, bytes, pages: resident(&ages, within_ns) })
        .collect();
    uses.sort_by_key(|u| Reverse((u.pages.cold, u.pages.resident)));
    uses
}

fn resident(ages: &[&PageAges], within_ns: u64) -> ResidentPages {
    PageFigures::of(ages.iter().copied()).map(|f| f.divided(within_ns)).unwrap_or_else(|| {
        let sum = |f: fn(&PageAges) -> u64| bytes(ages.iter().map(|a| f(a)).sum());
        let (resident, not_observable) = (sum(|a| a.resident), sum(|a| a.unobservable));
        let not_resolved = resident.saturating_sub(not_observable);
        ResidentPages { resident, not_resolved, not_observable, ..ResidentPages::default() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, ages, mapping};
    use isotherm_core::addr::AddrRange;
    use isotherm_core::mapping::MappingKind;

    #[test]
    fn anonymous_memory_is_listed_by_mapping_and_files_by_name() {
        let (lib, anon) = (MappingKind::File, MappingKind::Anon);
        let mappings = [
            mapping(0, 64 * MIB, anon, ""),
            mapping(64 * MIB, 80 * MIB, anon, ""),
            mapping(100 * MIB, 101 * MIB, lib, "/lib/x.so"),
            mapping(101 * MIB, 103 * MIB, lib, "/lib/x.so"),
        ];
        let pages = |m: &Mapping, ages| MappingPages { range: m.range, ages };
        let uses = mapping_uses(
            &[
                pages(&mappings[0], ages(1000, &[900; 4], 0)),
                pages(&mappings[1], ages(3000, &[2000; 4], 0)),
                pages(&mappings[3], ages(10, &[1; 4], 2)),
                MappingPages { range: AddrRange::new(200 * MIB, 201 * MIB), ages: ages(5, &[], 0) },
            ],
            &mappings,
            10_000_000_000,
        );
        let reported: Vec<_> = uses
            .iter()
            .map(|u| (u.name.as_str(), u.bytes / MIB, u.pages.resident / 4096, u.pages.cold / 4096))
            .collect();
        assert_eq!(
            reported,
            [
                ("4000000-5000000", 16, 3000, 2000),
                ("0-4000000", 64, 1000, 900),
                ("/lib/x.so", 3, 12, 1),
                ("c800000-c900000", 1, 5, 0)
            ]
        );
        assert_eq!(uses[3].pages.not_resolved, 5 * 4096);
    }
}
