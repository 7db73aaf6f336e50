//! The figures on the screen.

use crate::heat::map::HeatMap;
use crate::summary::cost::Cost;
use crate::summary::idle::Idle;
use crate::summary::mappings::MappingHeat;
use crate::summary::pages::PageFigures;
use isotherm_core::addr::AddrRange;
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Orders of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By bytes times rate.
    Heat,
    Size,
    /// By accessed bytes.
    Accessed,
    /// By cold bytes.
    Cold,
    Name,
}

impl Order {
    /// The one that follows.
    pub fn next(self) -> Self {
        match self {
            Self::Heat => Self::Size,
            Self::Size => Self::Accessed,
            Self::Accessed => Self::Cold,
            Self::Cold => Self::Name,
            Self::Name => Self::Heat,
        }
    }

    /// Its name in the footer.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heat => "heat",
            Self::Size => "size",
            Self::Accessed => "accessed",
            Self::Cold => "cold",
            Self::Name => "name",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its figures over the last second.
    pub heat: MappingHeat,
    /// Bytes of it idle for more than ten seconds.
    pub cold: u64,
    /// Where it is: mappings of its name that touch are one. Sorted; empty where no mapping is known.
    pub pieces: Vec<AddrRange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// How many.
    pub targets: usize,
    /// Whether shared pages count once.
    pub once: bool,
    /// Their pages.
    pub figures: PageFigures,
}

/// The working set's size, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkingSetNow {
    pub last: u64,
    /// Median since the begin.
    pub p50: u64,
    /// 95th percentile since the begin.
    pub p95: u64,
}

/// What one target looks like now.
#[derive(Debug)]
pub struct Model {
    /// Title of the target.
    pub title: String,
    /// Position among the targets and their number.
    pub position: (usize, usize),
    /// Time watched, ns.
    pub watched_ns: u64,
    /// Whether the target has exited.
    pub exited: bool,
    /// Working set of the last second (of the last interval, where only regions are known), bytes; `None`: not known yet.
    pub working_set: Option<WorkingSetNow>,
    pub curve: VecDeque<u64>,
    /// Resident memory, where it is known.
    pub rss: Option<u64>,
    pub idle: Idle,
    /// All targets that live, if there are several.
    pub total: Option<Total>,
    /// The monitor's cost of late.
    pub cost: Option<Cost>,
    pub rows: Vec<Row>,
    /// The heatmap; `None` while there is nothing to draw.
    pub heatmap: Option<HeatMap>,
    /// The only mapping that the heatmap shows.
    pub zoomed_to: Option<String>,
}

impl Model {
    pub fn sort(&mut self, order: Order) {
        let heat = |r: &Row| (r.heat.accessed as f64 * r.heat.rate) as u64;
        self.rows.sort_by(|a, b| a.heat.name.cmp(&b.heat.name));
        match order {
            Order::Heat => self.rows.sort_by_key(|r| Reverse((heat(r), r.heat.bytes))),
            Order::Size => self.rows.sort_by_key(|r| Reverse(r.heat.bytes)),
            Order::Accessed => self.rows.sort_by_key(|r| Reverse(r.heat.accessed)),
            Order::Cold => self.rows.sort_by_key(|r| Reverse(r.cold)),
            Order::Name => {}
        }
    }
}
