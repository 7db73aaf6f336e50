//! What a kdamond is to do, as its files say it.

use crate::errno::Errno;
use crate::kdamond::Refused;
use crate::scheme;
use crate::tree::{Inode, Tree};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::monitor::intervals::IntervalsGoal;
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::goal::Goal;
use std::str::FromStr;

/// What a kdamond is to do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Intervals and region limits.
    pub attrs: MonitorAttrs,
    /// How the intervals are tuned; `None`: not.
    pub intervals_goal: Option<IntervalsGoal>,
    /// Processes, in the order of their folders.
    pub pids: Vec<u32>,
    /// Schemes, in the order of their folders.
    pub schemes: Vec<Scheme>,
    /// Goals of each scheme with the values that programs push.
    pub goals: Vec<Goals>,
}

/// Goals of a scheme.
#[derive(Debug, Clone, Default)]
pub struct Goals {
    /// The goals.
    pub goals: Vec<Goal>,
    /// The last value that was pushed for those that wait for one.
    pub pushed: Option<u64>,
}

/// A folder whose files are read as numbers, flags and words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Folder<'a> {
    tree: &'a Tree,
    inode: Inode,
}

/// A file that the schema does not have cannot be asked for but by mistake; one that was removed meanwhile can.
impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::new(format_args!("the files changed while they were read: {error}"))
    }
}

impl<'a> Folder<'a> {
    pub(crate) const fn new(tree: &'a Tree, inode: Inode) -> Self {
        Self { tree, inode }
    }

    pub(crate) fn folder(&self, path: &str) -> Result<Self, Refused> {
        Ok(Self { inode: self.tree.find(self.inode, path)?, ..*self })
    }

    pub(crate) fn text(&self, path: &str) -> Result<String, Refused> {
        Ok(self.tree.value(self.tree.find(self.inode, path)?)?)
    }

    pub(crate) fn number<T: FromStr>(&self, path: &str) -> Result<T, Refused> {
        let text = self.text(path)?;
        text.parse().map_err(|_| Refused::new(format_args!("{path} is {text}, which is too large here")))
    }

    pub(crate) fn flag(&self, path: &str) -> Result<bool, Refused> {
        Ok(self.text(path)? == "Y")
    }

    /// The numbered folders in a folder, in the order of their numbers.
    pub(crate) fn numbered(&self, path: &str) -> Result<Vec<Self>, Refused> {
        let folder = self.folder(path)?;
        (0..self.tree.numbers(folder.inode)?).map(|number| folder.folder(&number.to_string())).collect()
    }
}

impl Settings {
    /// Reads the files of a kdamond's folder.
    pub fn read(tree: &Tree, kdamond: Inode) -> Result<Self, Refused> {
        let context = context(tree, kdamond)?;
        let operations = context.text("operations")?;
        if operations != "vaddr" {
            let why = match operations.as_str() {
                "paddr" => "physical memory cannot be watched from user space",
                _ => "explicit ranges are not served yet",
            };
            return Err(Refused::new(format_args!("operations is {operations}, but {why}; use vaddr")));
        }
        let (attrs, intervals_goal) = attrs(&context)?;
        let pids = pids(&context)?;
        let folders = context.numbered("schemes")?;
        let at = |index: usize| move |e: Refused| Refused::new(format_args!("scheme {index}: {e}"));
        let schemes = folders.iter().enumerate().map(|(i, f)| scheme::read(f, &attrs).map_err(at(i)));
        let schemes = schemes.collect::<Result<_, _>>()?;
        Ok(Self { attrs, intervals_goal, pids, schemes, goals: goals(&folders)? })
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

fn pids(context: &Folder) -> Result<Vec<u32>, Refused> {
    let mut pids = Vec::new();
    for target in context.numbered("targets")? {
        let pid: i32 = target.number("pid_target")?;
        let pid = u32::try_from(pid).ok().filter(|&pid| pid > 0);
        let pid = pid.ok_or_else(|| Refused::new("a target has no process; write its pid to pid_target"))?;
        if pids.contains(&pid) {
            return Err(Refused::new(format_args!("pid {pid} is a target twice")));
        }
        if !target.numbered("regions")?.is_empty() {
            // As in the kernel, where they only last until mappings are read for the first time.
            tracing::info!("initial regions of pid {pid} are left out: vaddr follows the mappings");
        }
        pids.push(pid);
    }
    if pids.is_empty() {
        return Err(Refused::new("there is no target; write how many there are to nr_targets"));
    }
    Ok(pids)
}
