//! The core workloads of the Yahoo! Cloud Serving Benchmark (Cooper et al., SoCC'10), a page per record.
//!
//! A: half reads, half updates; B: 95 % reads; C: reads alone; D: 95 % reads of the latest records, 5 % inserts; E: 95
//! % scans of up to 100 records, 5 % inserts; F: half reads, half read-modify-writes (two requests). Records are chosen
//! by a Zipf distribution (theta 0.99) and spread over the pages. Inserts wrap around: pages are as many as were asked
//! for.

use super::super::TraceError;
use crate::workload::sweep::Sweep;
use crate::workload::zipf::Zipf;

/// Which of the workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    A,
    B,
    C,
    D,
    E,
    F,
}

impl Workload {
    pub fn parse(letter: &str) -> Option<Self> {
        Some(match letter {
            "a" => Self::A,
            "b" => Self::B,
            "c" => Self::C,
            "d" => Self::D,
            "e" => Self::E,
            "f" => Self::F,
            _ => return None,
        })
    }

    /// Share of operations that only read.
    const fn reads(self) -> f64 {
        match self {
            Self::A | Self::F => 0.5,
            Self::B | Self::D | Self::E => 0.95,
            Self::C => 1.0,
        }
    }
}

const THETA: f64 = 0.99;
const LONGEST_SCAN: u64 = 100;

/// Yields requests (page, whether it writes) until the sink says `false`.
pub fn run(
    workload: Workload,
    pages: u64,
    rng: &mut fastrand::Rng,
    sink: &mut dyn FnMut(u64, bool) -> Result<bool, TraceError>,
) -> Result<(), TraceError> {
    let zipf = Zipf::new(pages, THETA);
    let spread = Sweep::scattered(pages);
    // Inserts append; D and E begin with half of the pages in use.
    let mut newest = pages / 2;
    let mut more = true;
    while more {
        let read = rng.f64() < workload.reads();
        let rank = zipf.draw(|| rng.f64());
        let mut one = |page: u64, write: bool| sink(page, write);
        more = match (workload, read) {
            (Workload::D, true) => one((newest + pages - rank % pages) % pages, false)?,
            (Workload::D | Workload::E, false) => {
                newest = (newest + 1) % pages;
                one(newest, true)?
            }
            (Workload::E, true) => {
                let start = spread.page_at(rank);
                let mut go_on = true;
                for i in 0..rng.u64(1..=LONGEST_SCAN).min(pages) {
                    go_on = go_on && one((start + i) % pages, false)?;
                }
                go_on
            }
            (Workload::F, false) => {
                let page = spread.page_at(rank);
                one(page, false)? && one(page, true)?
            }
            (_, read) => one(spread.page_at(rank), !read)?,
        };
    }
    Ok(())
}
