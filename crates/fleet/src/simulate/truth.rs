//! What a simulated fleet adds up to, counted while it is written and not by the queries that are to find it.

use isotherm_core::history::times::IDLE_NS;
use isotherm_record::parquet::window::{ByIdle, GroupWindow};
use serde::Serialize;

/// Sums over all rows; what is not known adds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Truth {
    pub files: u64,
    pub hosts: u64,
    pub rows: u64,
    pub sums: Sums,
}

/// Named as the columns are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    pub resident_bytes: u64,
    pub unobservable_bytes: u64,
    pub accessed_bytes: u64,
    pub cold_bytes: [u64; IDLE_NS.len()],
    pub promoted_bytes: [u64; IDLE_NS.len()],
}

impl Truth {
    pub fn add_row(&mut self, row: &GroupWindow) {
        let list = |sums: &mut [u64; IDLE_NS.len()], list: &ByIdle| {
            sums.iter_mut().zip(list).for_each(|(sum, bytes)| *sum += bytes.unwrap_or(0));
        };
        self.rows += 1;
        self.sums.resident_bytes += row.resident_bytes.unwrap_or(0);
        self.sums.unobservable_bytes += row.unobservable_bytes.unwrap_or(0);
        self.sums.accessed_bytes += row.accessed_bytes.unwrap_or(0);
        list(&mut self.sums.cold_bytes, &row.cold_bytes);
        list(&mut self.sums.promoted_bytes, &row.promoted_bytes);
    }

    pub fn add(&mut self, other: &Self) {
        let list = |sums: &mut [u64], more: &[u64]| sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        self.files += other.files;
        self.hosts += other.hosts;
        self.rows += other.rows;
        self.sums.resident_bytes += other.sums.resident_bytes;
        self.sums.unobservable_bytes += other.sums.unobservable_bytes;
        self.sums.accessed_bytes += other.sums.accessed_bytes;
        list(&mut self.sums.cold_bytes, &other.sums.cold_bytes);
        list(&mut self.sums.promoted_bytes, &other.sums.promoted_bytes);
    }
}
