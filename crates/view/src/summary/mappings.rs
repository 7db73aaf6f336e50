//! Which mappings the accesses fall on.

use crate::names;
use crate::summary::idle::present_bytes;
use crate::units::age_ns;
use isotherm_core::addr::AddrRange;
use isotherm_core::mapping::Mapping;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use serde::Serialize;
use std::collections::HashMap;

/// How hot the mappings of one name were, on average over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MappingHeat {
    /// Name in full; `?` for memory that no mapping is known for.
    pub name: String,
    /// Observed bytes.
    pub bytes: u64,
    /// Bytes of regions that were accessed.
    pub accessed: u64,
    /// Mean access rate of the bytes accessed, fraction of one; 0 if there were none.
    pub rate: f64,
    /// Bytes that could not be observed; not in `bytes`.
    pub not_observable: u64,
    /// Bytes that nobody had looked at yet; not in `bytes`.
    pub not_visited: u64,
}

impl MappingHeat {
    /// Where nothing of it was seen: its bytes, and why.
    pub fn unseen(&self) -> Option<(u64, &'static str)> {
        match (self.bytes, self.not_observable, self.not_visited) {
            (0, 0, 0) => None,
            (0, 0, bytes) => Some((bytes, "not looked at yet")),
            (0, bytes, more) => Some((bytes + more, "not observable")),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct Sums {
    bytes: f64,
    accessed: f64,
    heat: f64,
    blind: f64,
    unvisited: f64,
}

#[derive(Debug, Default)]
pub(crate) struct MappingHeatBuilder {
    by_name: HashMap<String, Sums>,
    /// Whether anonymous memory without a name is named by its addresses.
    apart: bool,
    time: f64,
}

impl MappingHeatBuilder {
    /// Tells each anonymous mapping without a name from others.
    pub fn by_mapping() -> Self {
        Self { apart: true, ..Self::default() }
    }

    /// Adds a snapshot with the mappings in force, sorted.
    pub fn add(&mut self, snapshot: &Snapshot, mappings: &[Mapping]) {
        let time = snapshot.end_ns.saturating_sub(snapshot.start_ns) as f64 / 1e9;
        let max = snapshot.max_nr_accesses;
        self.time += time;
        let mut first = 0;
        for r in &snapshot.regions {
            while mappings.get(first).is_some_and(|m| m.range.end <= r.start) {
                first += 1;
            }
            let mut unnamed = r.len();
            let range = AddrRange::new(r.start, r.end);
            for m in mappings[first..].iter().take_while(|m| m.range.start < r.end) {
                let Some(common) = m.range.intersect(&range) else { continue };
                unnamed -= common.len();
                let name = if self.apart { names::row(m) } else { names::full(m).into() };
                let sums = self.sums(&name);
                sums.add(common.len(), time, r, max);
            }
            if unnamed > 0 && mappings.is_empty() {
                self.sums("?").add(unnamed, time, r, max);
            }
        }
    }

    fn sums(&mut self, name: &str) -> &mut Sums {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.to_owned(), Sums::default());
        }
        self.by_name.entry(name.to_owned()).or_default()
    }

    /// Means over time, hottest first: by bytes times rate.
    pub fn finish(self) -> Vec<MappingHeat> {
        let time = self.time.max(1e-9);
        let mut all: Vec<(f64, MappingHeat)> = self
            .by_name
            .into_iter()
            .map(|(name, s)| {
                let mean = |sum: f64| (sum / time).round() as u64;
                let rate = if s.accessed > 0.0 { (s.heat / s.accessed).min(1.0) } else { 0.0 };
                let heat = MappingHeat {
                    name,
                    bytes: mean(s.bytes),
                    accessed: mean(s.accessed),
                    rate,
                    not_observable: mean(s.blind),
                    not_visited: mean(s.unvisited),
                };
                (s.heat, heat)
            })
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.bytes.cmp(&a.1.bytes)).then(a.1.name.cmp(&b.1.name)));
        all.into_iter().map(|(_, heat)| heat).collect()
    }
}

/// Present bytes of each name that have been idle for at least `for_ns`.
pub(crate) fn cold_by_name(snapshot: &Snapshot, mappings: &[Mapping], for_ns: u64) -> HashMap<String, u64> {
    let mut by_name: HashMap<String, u64> = HashMap::new();
    let cold = |r: &&RegionInfo| r.nr_accesses == 0 && !r.is_unseen() && age_ns(r, snapshot) >= for_ns;
    for r in snapshot.regions.iter().filter(cold) {
        let (present, _) = present_bytes(r);
        let range = AddrRange::new(r.start, r.end);
        let first = mappings.partition_point(|m| m.range.end <= r.start);
        for m in mappings[first..].iter().take_while(|m| m.range.start < r.end) {
            let common = m.range.intersect(&range).map_or(0, |c| c.len());
            let share = (u128::from(present) * u128::from(common) / u128::from(r.len().max(1))) as u64;
            *by_name.entry(names::full(m).to_owned()).or_default() += share;
        }
    }
    by_name
}

impl Sums {
    /// Adds `bytes` of a region.
    fn add(&mut self, bytes: u64, time: f64, region: &RegionInfo, max_nr_accesses: u32) {
        let area = bytes as f64 * time;
        let rate = region.access_rate(max_nr_accesses);
        if region.is_blind() {
            self.blind += area;
            return;
        }
        if region.is_unvisited() {
            self.unvisited += area;
            return;
        }
        self.bytes += area;
        if rate > 0.0 {
            self.accessed += area * region.working_set() as f64 / region.len().max(1) as f64;
            self.heat += area * rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, mapping, region, seen, snapshot, unvisited};
    use isotherm_core::mapping::MappingKind;

    #[test]
    fn regions_are_shared_among_mappings() {
        let maps = [mapping(0, 4 * MIB, MappingKind::Anon, "a"), mapping(4 * MIB, 8 * MIB, MappingKind::Anon, "b")];
        let mut b = MappingHeatBuilder::default();
        b.add(&snapshot(0, 0, vec![region(0, 5 * MIB, 10, 0), region(5 * MIB, 8 * MIB, 0, 0)]), &maps);
        b.add(&snapshot(0, 1, vec![region(0, 8 * MIB, 0, 0)]), &maps);
        let heat: Vec<_> =
            b.finish().into_iter().map(|m| (m.name, m.bytes / MIB, m.accessed as f64 / MIB as f64, m.rate)).collect();
        assert_eq!(heat, [("a".to_owned(), 4, 2.0, 0.5), ("b".to_owned(), 4, 0.5, 0.5)]);
    }

    #[test]
    fn cold_bytes_are_shared_among_mappings() {
        let maps = [mapping(0, 4 * MIB, MappingKind::Anon, "a"), mapping(4 * MIB, 8 * MIB, MappingKind::Anon, "b")];
        let cold = seen(region(3 * MIB, 8 * MIB, 0, 200), 5, 0);
        let young = seen(region(0, 3 * MIB, 0, 50), 10, 0);
        let by_name = cold_by_name(&snapshot(0, 0, vec![young, cold]), &maps, 10_000_000_000);
        assert_eq!((by_name.get("a"), by_name.get("b")), (Some(&(MIB / 2)), Some(&(2 * MIB))));
    }

    #[test]
    fn what_nobody_looked_at_is_neither_cold_nor_observed() {
        let maps = [mapping(0, 4 * MIB, MappingKind::Anon, "a")];
        let s =
            snapshot(0, 0, vec![unvisited(region(0, 3 * MIB, 0, 900)), seen(region(3 * MIB, 4 * MIB, 0, 900), 10, 0)]);
        let mut b = MappingHeatBuilder::default();
        b.add(&s, &maps);
        let heat = &b.finish()[0];
        assert_eq!((heat.bytes, heat.not_visited, heat.not_observable), (MIB, 3 * MIB, 0));
        assert_eq!(cold_by_name(&s, &maps, 10_000_000_000).get("a"), Some(&MIB));
    }

    #[test]
    fn without_mappings_there_is_one_row() {
        let mut b = MappingHeatBuilder::default();
        b.add(&snapshot(0, 0, vec![region(0, MIB, 1, 0)]), &[]);
        assert_eq!(b.finish()[0].name, "?");
    }
}
