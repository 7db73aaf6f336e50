//! `--group NAME:max=S,low=S,min=S,soft=S`: bounds of the groups that a trace names.

use super::Size;
use crate::exit::Usage;
use isotherm_sim::policy::kernel_lru::machine::{Bounds, Fairness};
use isotherm_sim::replay::Groups;
use isotherm_sim::trace::Trace;

/// Bounds of one group, as they were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSpec {
    name: String,
    bounds: Vec<(Bound, Size)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Min,
    Low,
    Soft,
    Max,
}

/// Who is reclaimed when all groups together fill the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FairnessName {
    /// Linux's LRU of memories
    MemcgLru,
    /// Each in turn, from where the last reclaim ended
    RoundRobin,
    /// Each in turn, always from the first on
    InOrder,
}

/// Parses `NAME:KEY=SIZE,...`.
pub fn group(text: &str) -> Result<GroupSpec, Usage> {
    // Names of control groups may hold colons; bounds do not.
    let (name, rest) = text.rsplit_once(':').ok_or("write a group and its bounds, for example web:max=10%,low=1000")?;
    let mut bounds = Vec::new();
    for pair in rest.split(',') {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("'{pair}' is not KEY=SIZE"))?;
        let bound = match key {
            "min" => Bound::Min,
            "low" => Bound::Low,
            "soft" => Bound::Soft,
            "max" => Bound::Max,
            _ => return Err(format!("'{key}' is no bound: known are min, low, soft and max").into()),
        };
        if bounds.iter().any(|(b, _)| *b == bound) {
            return Err(format!("{key} is given twice").into());
        }
        bounds.push((bound, super::size(value)?));
    }
    Ok(GroupSpec { name: name.to_owned(), bounds })
}

/// The bounds of all groups of the trace.
pub fn resolve(specs: &[GroupSpec], fairness: FairnessName, trace: &Trace, footprint: u64) -> Result<Groups, Usage> {
    let names = trace.groups().names();
    let mut bounds = vec![Bounds::default(); names.len()];
    let mut given = vec![false; names.len()];
    for spec in specs {
        let Some(at) = names.iter().position(|n| *n == spec.name) else {
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(Usage(format!("--group {}: the trace has no such group; it has: {known}", spec.name)));
        };
        if std::mem::replace(&mut given[at], true) {
            return Err(Usage(format!("--group {} is given twice", spec.name)));
        }
        for &(bound, size) in &spec.bounds {
            let pages = u64::from(size.pages(footprint));
            let of_group = &mut bounds[at];
            match bound {
                Bound::Min => of_group.min = pages,
                Bound::Low => of_group.low = pages,
                Bound::Soft => of_group.soft = pages,
                Bound::Max => of_group.max = pages,
            }
        }
    }
    let fairness = match fairness {
        FairnessName::MemcgLru => Fairness::MemcgLru,
        FairnessName::RoundRobin => Fairness::RoundRobin,
        FairnessName::InOrder => Fairness::InOrder,
    };
    Ok(Groups { bounds, fairness })
}
