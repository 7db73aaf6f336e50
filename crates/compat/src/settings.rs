//! What a kdamond is to do, as its files say it.

use crate::folder::Folder;
use crate::refused::Refused;
use crate::scheme::{self, Goals};
use crate::tree::{Inode, Tree};
use isotherm_core::addr::{AddrRange, PAGE_SIZE, normalize};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::monitor::config::{Algorithm, DamonRules};
use isotherm_core::monitor::intervals::IntervalsGoal;
use isotherm_core::scheme::Scheme;

/// What a kdamond is to do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Intervals and region limits.
    pub attrs: MonitorAttrs,
    /// How regions are drawn.
    pub algorithm: Algorithm,
    /// How the intervals are tuned; `None`: not.
    pub intervals_goal: Option<IntervalsGoal>,
    /// What is watched.
    pub watched: KdamondTargets,
    /// Schemes, in the order of their folders.
    pub schemes: Vec<Scheme>,
    /// Goals of each scheme with the values that programs push.
    pub goals: Vec<Goals>,
}

/// What a kdamond watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KdamondTargets {
    /// These processes, in this order; one may come several times.
    Processes(Vec<WatchedProcess>),
    /// All processes of the machine, now and later, but our own.
    All,
}

/// A process that is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedProcess {
    /// The process.
    pub pid: u32,
    /// Which of its memory.
    pub space: TargetRanges,
}

/// Which memory of a process is watched. Ranges are sorted, disjoint and page aligned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetRanges {
    /// What is mapped.
    Mapped,
    /// These ranges for an update interval, then what is mapped.
    First(Vec<AddrRange>),
    /// These ranges.
    Fixed(Vec<AddrRange>),
}

impl TargetRanges {
    /// The operations in DAMON's words.
    pub const fn operations(&self) -> &'static str {
        match self {
            Self::Mapped | Self::First(_) => "vaddr",
            Self::Fixed(_) => "fvaddr",
        }
    }
}

/// Where the memory of processes ends: there is nothing above to be accessed.
const USER_END: u64 = 1 << 47;

/// Ranges as they are watched: whole pages below [`USER_END`]. They must be in order, and none end before it begins.
pub(crate) fn watched_ranges(ranges: &[(u64, u64)]) -> Result<Vec<AddrRange>, Refused> {
    if ranges.iter().any(|(start, end)| start > end) || ranges.windows(2).any(|w| w[0].1 > w[1].0) {
        return Err(Refused::new("regions must be in the order of their addresses, and not overlap"));
    }
    let whole = |&(start, end): &(u64, u64)| {
        let end = end.min(USER_END).next_multiple_of(PAGE_SIZE);
        AddrRange::new((start - start % PAGE_SIZE).min(end), end)
    };
    let mut watched: Vec<AddrRange> = ranges.iter().filter(|(start, end)| start < end).map(whole).collect();
    normalize(&mut watched);
    Ok(watched)
}

impl Settings {
    /// Reads the files of a kdamond's folder for its start.
    pub fn read(tree: &Tree, kdamond: Inode) -> Result<Self, Refused> {
        Self::read_all(tree, kdamond, false)
    }

    /// The same for a commit, which leaves out targets that are marked as obsolete.
    pub fn read_for_commit(tree: &Tree, kdamond: Inode) -> Result<Self, Refused> {
        Self::read_all(tree, kdamond, true)
    }

    fn read_all(tree: &Tree, kdamond: Inode, but_obsolete: bool) -> Result<Self, Refused> {
        let context = context(tree, kdamond)?;
        let is_fixed = match context.text("operations")?.as_str() {
            "paddr" => {
                let why = "operations is paddr, but physical memory cannot be watched from user space";
                return Err(Refused::new(format_args!("{why}; use vaddr or fvaddr with the processes of interest")));
            }
            operations => operations == "fvaddr",
        };
        if context.flag("pause")? {
            return Err(Refused::new("pause is not served; write off, and on again later"));
        }
        if !context.numbered("monitoring_attrs/probes")?.is_empty() {
            return Err(Refused::new("what kind of memory was accessed cannot be seen here; write 0 to nr_probes"));
        }
        let (attrs, intervals_goal) = attrs(&context)?;
        let watched = KdamondTargets::Processes(processes(&context, is_fixed, but_obsolete)?);
        let folders = context.numbered("schemes")?;
        let at = |index: usize| move |e: Refused| Refused::new(format_args!("scheme {index}: {e}"));
        let schemes = folders.iter().enumerate().map(|(i, f)| scheme::read(f, &attrs).map_err(at(i)));
        let schemes = schemes.collect::<Result<_, _>>()?;
        let algorithm = Algorithm::Damon(DamonRules::Mainline);
        Ok(Self { attrs, algorithm, intervals_goal, watched, schemes, goals: goals(&folders)? })
    }

    /// Reads the goals of a kdamond's schemes alone.
    pub fn read_goals(tree: &Tree, kdamond: Inode) -> Result<Vec<Goals>, Refused> {
        goals(&context(tree, kdamond)?.numbered("schemes")?)
    }
}

fn context(tree: &Tree, kdamond: Inode) -> Result<Folder<'_>, Refused> {
    let contexts = Folder::new(tree, kdamond).numbered("contexts")?;
    contexts.into_iter().next().ok_or_else(|| Refused::new("the kdamond has no context; write 1 to nr_contexts"))
}

fn goals(schemes: &[Folder]) -> Result<Vec<Goals>, Refused> {
    schemes.iter().map(|folder| scheme::goals(&folder.folder("quotas")?)).collect()
}

fn attrs(context: &Folder) -> Result<(MonitorAttrs, Option<IntervalsGoal>), Refused> {
    let intervals = context.folder("monitoring_attrs/intervals")?;
    let aggr_us = intervals.number("aggr_us")?;
    let nr_regions = context.folder("monitoring_attrs/nr_regions")?;
    let attrs = MonitorAttrs {
        sample_us: intervals.number("sample_us")?,
        aggr_us,
        // The kernel takes a shorter one, and then reads mappings anew after every aggregation, too.
        update_us: intervals.number::<u64>("update_us")?.max(aggr_us),
        min_regions: nr_regions.number("min")?,
        max_regions: nr_regions.number("max")?,
    };
    attrs.validate().map_err(Refused::new)?;
    let goal = intervals.folder("intervals_goal")?;
    let goal = IntervalsGoal {
        access_bp: goal.number("access_bp")?,
        aggrs: goal.number("aggrs")?,
        min_sample_us: goal.number("min_sample_us")?,
        max_sample_us: goal.number("max_sample_us")?,
    };
    if goal.aggrs == 0 {
        return Ok((attrs, None));
    }
    if goal.access_bp == 0 || goal.min_sample_us > goal.max_sample_us {
        return Err(Refused::new("intervals_goal needs an access_bp above 0, and min_sample_us up to max_sample_us"));
    }
    if !(goal.min_sample_us..=goal.max_sample_us).contains(&attrs.sample_us) {
        return Err(Refused::new("sample_us must lie between min_sample_us and max_sample_us of intervals_goal"));
    }
    Ok((attrs, Some(goal)))
}

/// The targets; `but_obsolete`: without those that are marked so.
fn processes(context: &Folder, is_fixed: bool, but_obsolete: bool) -> Result<Vec<WatchedProcess>, Refused> {
    let mut processes = Vec::new();
    for (index, target) in context.numbered("targets")?.into_iter().enumerate() {
        if but_obsolete && target.flag("obsolete_target")? {
            continue;
        }
        let pid: i32 = target.number("pid_target")?;
        let pid = u32::try_from(pid).ok().filter(|&pid| pid > 0);
        let pid = pid.ok_or_else(|| Refused::new("a target has no process; write its pid to pid_target"))?;
        let regions = target.numbered("regions")?;
        let range = |region: &Folder| Ok((region.number("start")?, region.number("end")?));
        let ranges = regions.iter().map(range).collect::<Result<Vec<_>, Refused>>()?;
        let ranges = watched_ranges(&ranges).map_err(|e| Refused::new(format_args!("target {index}: {e}")))?;
        let space = match ranges.is_empty() {
            _ if is_fixed => TargetRanges::Fixed(ranges),
            true => TargetRanges::Mapped,
            false => TargetRanges::First(ranges),
        };
        processes.push(WatchedProcess { pid, space });
    }
    if processes.is_empty() {
        return Err(Refused::new("there is no target; write how many there are to nr_targets"));
    }
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_watched_in_whole_pages_of_user_memory() {
        let watched = |ranges: &[(u64, u64)]| -> Vec<(u64, u64)> {
            watched_ranges(ranges).unwrap().iter().map(|r| (r.start, r.end)).collect()
        };
        assert_eq!(watched(&[]), []);
        assert_eq!(watched(&[(4096, 8192), (20480, 24576)]), [(4096, 8192), (20480, 24576)]);
        assert_eq!(watched(&[(5000, 6000), (8192, 8193), (9000, 9000)]), [(4096, 12288)]);
        assert_eq!(watched(&[(0, 1), (u64::MAX - 1, u64::MAX)]), [(0, 4096)]);
        assert_eq!(watched(&[(0, u64::MAX)]), [(0, 1 << 47)]);
        for wrong in [&[(2, 1)][..], &[(0, 10), (9, 20)], &[(8192, 12288), (0, 4096)]] {
            assert!(watched_ranges(wrong).is_err(), "{wrong:?}");
        }
    }
}
