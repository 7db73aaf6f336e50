//! The machine: its processes and control groups by what they hold, and all of them together.

mod json;
mod table;
mod tree;

pub use json::write as write_json;
pub use table::{Columns, write as write_table};
pub use tree::{Tree, TreeLine};

use crate::summary::cost::Cost;
use crate::summary::pages::{PageFigures, ResidentPages};
use crate::summary::total::Shared;
use isotherm_core::event::{Event, MonitorStats, RunInfo, Subscriber, SubscriberError};
#[cfg(doc)]
use isotherm_core::history::frame::PageFrame;
use isotherm_core::history::frame::{PageAges, bytes, sum};
use isotherm_core::history::times::AGES_NS;
use isotherm_core::history::together_frame::{Owned, TogetherFrame};
use isotherm_core::target::{Footprint, TargetEnd};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the row of those processes is called whose group is not known.
const UNKNOWN: &str = "unknown";
/// Stands before a figure whose ends are far apart.
pub(crate) const ESTIMATED: &str = "~";
/// One page in so many may be one of which nobody knows for how long it has been idle.
const OPEN_PART: u64 = 50;
/// And one process in so many may not be watched yet.
const NEW_PART: usize = 20;
/// And so many may only be estimated.
const ESTIMATED_PART: u64 = 10;

/// Collects what is known of each process that is there. Those that end are left out from then on.
#[derive(Debug, Default)]
pub struct MachineBuilder {
    run: Option<RunInfo>,
    processes: BTreeMap<u32, Known>,
    together: Option<TogetherFrame>,
    stats: Option<(MonitorStats, MonitorStats)>,
    /// Whether any process has been looked at.
    looks: bool,
}

#[derive(Debug)]
struct Known {
    pid: u32,
    name: String,
    ages: Option<PageAges>,
    /// When they were walked last, ns of CLOCK_MONOTONIC.
    walked_ns: u64,
    /// For how long they have been watched, ns.
    watched_ns: u64,
    footprint: Option<Footprint>,
    /// See [`PageFrame::forked`].
    forked: bool,
    /// It, or the program that it runs, came when others had been looked at already.
    late: bool,
}

impl Subscriber for MachineBuilder {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        match event {
            Event::Run(run) => self.run = Some(run.clone()),
            Event::Target(info) => {
                if let Some(pid) = info.pid {
                    let known = Known {
                        pid,
                        name: info.name.clone(),
                        ages: None,
                        walked_ns: 0,
                        watched_ns: 0,
                        footprint: None,
                        forked: false,
                        late: self.looks,
                    };
                    self.processes.insert(info.target, known);
                }
            }
            Event::Pages(frame) => {
                self.looks = true;
                if let Some(known) = self.processes.get_mut(&frame.target) {
                    (known.ages, known.forked) = (Some(frame.total()), frame.forked);
                    known.walked_ns = frame.time_ns;
                    known.watched_ns = frame.time_ns.saturating_sub(frame.begin_ns);
                }
            }
            Event::Together(frame) => self.together = Some(frame.clone()),
            Event::Footprint(footprint) => {
                if let Some(known) = self.processes.get_mut(&footprint.target) {
                    known.footprint = Some(*footprint);
                }
            }
            Event::Stats(stats) => self.stats = Some((self.stats.map_or(*stats, |(first, _)| first), *stats)),
            Event::End { target, why: TargetEnd::Exited, .. } => drop(self.processes.remove(target)),
            Event::End { target, why: TargetEnd::Replaced, .. } => {
                // Nothing is known of the new program yet; what was the old one's own has gone.
                if let Some(together) = &mut self.together {
                    together.owned.retain(|owned| owned.target != *target);
                }
                if let Some(known) = self.processes.get_mut(target) {
                    (known.ages, known.watched_ns, known.forked, known.late) = (None, 0, false, true);
                }
            }
            Event::Snapshot(_) | Event::Mappings { .. } => {}
        }
        Ok(())
    }
}

impl MachineBuilder {
    /// What is watched with.
    pub fn source(&self) -> Option<&str> {
        self.run.as_ref().map(|run| run.source.as_str())
    }

    /// The process that a target is; `None`: it has ended.
    pub fn pid_of(&self, target: u32) -> Option<u32> {
        self.processes.get(&target).map(|known| known.pid)
    }

    /// Whether all other processes have ended.
    pub fn is_last(&self, target: u32) -> bool {
        self.processes.keys().eq([&target])
    }

    /// Whether anybody is watched.
    pub fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Whether nearly all processes have been watched for so long, ns, and it is known for this age what all hold together, with
    /// shared pages counted once, and little of it is still open or estimated: neither of that, nor of what single processes hold.
    /// (Of pages that several map, one of them may know more than the others.) Who came later is not waited for: where programs
    /// come and go all the time, some always have.
    pub fn is_known_for(&self, age_ns: u64) -> bool {
        // Pages are counted by some times only.
        let counted_ns = AGES_NS.into_iter().rfind(|&age| age <= age_ns).unwrap_or(AGES_NS[0]);
        let open = |ages: &PageAges| {
            let idle = ages.idle_for(counted_ns)?;
            let estimated = idle.most.saturating_sub(idle.least);
            Some([idle.unresolved, estimated, ages.resident.saturating_sub(ages.unobservable)])
        };
        let is_little = |[unresolved, estimated, seen]: [u64; 3]| {
            unresolved * OPEN_PART <= seen && estimated * ESTIMATED_PART <= seen
        };
        let add = |sum: [u64; 3], one: [u64; 3]| std::array::from_fn(|i| sum[i] + one[i]);
        let is_waited_for = |target: &u32| self.processes.get(target).is_some_and(|known| !known.late);
        let waited_for = || self.processes.values().filter(|known| !known.late);
        let long = waited_for().filter(|known| known.watched_ns >= age_ns).count();
        let all = waited_for().filter_map(|known| open(known.ages.as_ref()?)).fold([0; 3], add);
        let counted_once = match &self.together {
            Some(together) if self.processes.len() > 1 => {
                let owned = together.owned.iter().filter(|owned| is_waited_for(&owned.target));
                let once = owned.filter_map(|owned| open(&owned.ages)).fold([0; 3], add);
                once[2] > 0 && is_little(once)
            }
            _ => self.processes.len() < 2 && all[2] > 0,
        };
        let waited_for = waited_for().count();
        long > 0 && (waited_for - long) * NEW_PART <= waited_for && counted_once && is_little(all)
    }

    /// Of each process, how old the pages are that are its own; those of which nothing is known are left out.
    fn own_ages(&self) -> BTreeMap<u32, PageAges> {
        let owned: BTreeMap<u32, &Owned> =
            self.together.iter().flat_map(|t| t.owned.iter().map(|owned| (owned.target, owned))).collect();
        let own = |(target, known): (&u32, &Known)| {
            let ages = match (owned.get(target), &known.ages) {
                // Most of its pages are its parent's, and have been counted there.
                (None, _) if known.forked && !owned.is_empty() => None,
                // Who came after pages were last counted together has none that are known to be others'.
                (None, ages) => ages.clone(),
                (Some(owned), Some(later)) if known.walked_ns > owned.walked_ns => Some(owned.of_later(later)),
                (Some(owned), _) => Some(owned.ages.clone()),
            };
            Some((*target, ages?))
        };
        self.processes.iter().filter_map(own).collect()
    }

    /// The machine as of now. `group_of` tells the control group of a process. Those of which it is not known are a row
    /// without a path. `swap_of` tells what the group at a path has in swap by the kernel's charge, bytes; `None`: not
    /// known, or its processes are not all watched. The counts of processes lack shared memory, the charge lacks what
    /// another group was charged with before they came: the larger one counts.
    pub fn finish(
        &self,
        mut group_of: impl FnMut(u32) -> Option<String>,
        mut swap_of: impl FnMut(&str) -> Option<u64>,
    ) -> Machine {
        let counted_once = self.processes.len() < 2 || self.together.as_ref().is_some_and(|t| !t.owned.is_empty());
        let own_ages = self.own_ages();
        let (mut processes, mut groups) = (Vec::new(), BTreeMap::<Option<String>, Sum<'_>>::new());
        let mut all = Sum::default();
        for (target, known) in &self.processes {
            let cgroup = group_of(known.pid);
            let own = own_ages.get(target);
            groups.entry(cgroup.clone()).or_default().add(known, own);
            all.add(known, own);
            processes.push(Row {
                pid: Some(known.pid),
                name: known.name.clone(),
                cgroup,
                processes: 1,
                not_watched: usize::from(known.ages.is_none()),
                rss: known.footprint.map(|f| f.rss),
                swap: known.footprint.and_then(|f| f.swap),
                ages: known.ages.clone(),
            });
        }
        let groups = groups.into_iter().map(|(cgroup, mut sum)| {
            sum.swap = sum.swap.max(cgroup.as_deref().and_then(&mut swap_of));
            let name = cgroup.clone().unwrap_or_else(|| UNKNOWN.to_owned());
            sum.row(name, cgroup)
        });
        let groups: Vec<Row> = groups.collect();
        all.swap = groups.iter().filter_map(|row| row.swap).reduce(|a, b| a + b);
        Machine {
            processes,
            groups,
            total: all.row("total".to_owned(), None),
            shared: if counted_once { Shared::CountedOnce } else { Shared::CountedForEachTarget },
            cost: self.stats.and_then(|(first, last)| Cost::between(&first, &last, self.run.as_ref())),
            most_age_ns: None,
        }
    }
}

/// What several processes hold.
#[derive(Debug, Default)]
struct Sum<'a> {
    ages: Vec<&'a PageAges>,
    swap: Option<u64>,
    processes: usize,
    not_watched: usize,
}

impl<'a> Sum<'a> {
    fn add(&mut self, known: &Known, own: Option<&'a PageAges>) {
        self.ages.extend(own);
        self.processes += 1;
        self.not_watched += usize::from(own.is_none());
        if let Some(swap) = known.footprint.and_then(|f| f.swap) {
            *self.swap.get_or_insert(0) += swap;
        }
    }

    fn row(self, name: String, cgroup: Option<String>) -> Row {
        let ages = (!self.ages.is_empty()).then(|| sum(self.ages.into_iter()));
        Row {
            pid: None,
            name,
            cgroup,
            processes: self.processes,
            not_watched: self.not_watched,
            rss: ages.as_ref().map(|ages| bytes(ages.resident)),
            swap: self.swap,
            ages,
        }
    }
}

/// A process, a control group, or all together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `None`: several processes.
    pub pid: Option<u32>,
    /// Command line; path of the group, or what it is called.
    pub name: String,
    /// Path of the group that it is in, or is; `None`: not known, or all together.
    pub cgroup: Option<String>,
    pub processes: usize,
    /// Processes of which nothing is known yet, or that cannot be watched; their memory is in no figure but `swap`.
    pub not_watched: usize,
    /// Resident memory: as the kernel counts it for a process; of several the pages that are their own, each once.
    pub rss: Option<u64>,
    /// In swap, bytes: as the kernel counts it for a process; of groups see [`MachineBuilder::finish`]. `None`: not known.
    pub swap: Option<u64>,
    /// How old its pages are; `None`: not watched yet.
    pub ages: Option<PageAges>,
}

impl Row {
    /// What its pages amount to; `None`: not watched for a second yet.
    pub fn pages(&self) -> Option<PageFigures> {
        PageFigures::of(self.ages.iter())
    }

    /// The same, divided at one of the listed ages, ns; `None`: not watched for so long.
    pub(crate) fn divided(&self, age_ns: u64) -> Option<ResidentPages> {
        Some(self.pages()?.divided(age_ns)).filter(|divided| divided.within_ns == age_ns)
    }

    /// What stands before its cold memory of one of the listed ages, ns: [`ESTIMATED`] where that is hardly more than a guess, its ends
    /// more than 5 % of what is resident apart, as when the age has just become known; else nothing.
    pub(crate) fn mark(&self, age_ns: u64) -> &'static str {
        let known = self.pages().and_then(|pages| Some((pages.cold(age_ns)?, pages.divided(age_ns).resident)));
        match known {
            Some((cold, resident)) if cold.is_wide(resident) => ESTIMATED,
            _ => "",
        }
    }

    /// What stands in the sums for it, divided at one of the listed ages, ns, whether it was watched for so long or not. `None`: nothing does.
    pub(crate) fn in_sums(&self, age_ns: u64) -> Option<ResidentPages> {
        let ages = self.ages.as_ref()?;
        let idle = ages.within_a_sum(age_ns)?;
        let seen = ages.resident.saturating_sub(ages.unobservable);
        Some(ResidentPages {
            resident: bytes(ages.resident),
            within_ns: age_ns,
            accessed: bytes(seen.saturating_sub(idle.pages + idle.unresolved)),
            cold: bytes(idle.pages),
            not_resolved: bytes(idle.unresolved),
            not_observable: bytes(ages.unobservable),
        })
    }

    /// Known for all ages that `total` is known for, as far as can be.
    fn extend_as(&mut self, total: &Self) {
        let ages = total.ages.as_ref().map_or(0, |ages| ages.idle.len());
        self.ages = self.ages.take().map(|own| own.extended_to(ages));
    }
}

/// All that is watched, at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub processes: Vec<Row>,
    pub groups: Vec<Row>,
    pub total: Row,
    /// How often a page that several processes map counts, in groups and in the total.
    pub shared: Shared,
    /// What watching cost.
    pub cost: Option<Cost>,
    /// Cold memory is told from what is in use by no longer age than this, ns; `None`: by the longest that is known.
    #[serde(skip)]
    pub most_age_ns: Option<u64>,
}

/// What comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Cold,
    WorkingSet,
    Rss,
    Name,
}

impl Machine {
    /// The same for people, who compare rows with each other and with the total: a row is known for all times that the total is known for, as
    /// far as can be. (Whoever goes by how long a group has been watched wants it as it is.)
    #[must_use]
    pub fn extended(mut self) -> Self {
        self.processes.iter_mut().chain(&mut self.groups).for_each(|row| row.extend_as(&self.total));
        self
    }

    /// The longest of the listed ages that is known of any, ns: by that cold memory is told from what is in use.
    pub fn longest_ns(&self) -> Option<u64> {
        self.total.pages()?.longest_ns(self.most_age_ns)
    }

    /// Whether something is known of nearly all processes, with shared pages counted once, and it is still open of little of
    /// their memory for how long it has been idle: when watching begins, that is not so before all have been walked twice.
    pub fn is_of_nearly_all(&self) -> bool {
        let Row { processes, not_watched, ages, .. } = &self.total;
        let counted_once = *processes < 2 || self.shared == Shared::CountedOnce;
        let is_open_of_little = |ages: &PageAges| {
            let seen = ages.resident.saturating_sub(ages.unobservable);
            ages.idle.first().is_some_and(|idle| idle.unresolved * OPEN_PART <= seen)
        };
        counted_once && not_watched * NEW_PART <= *processes && ages.as_ref().is_some_and(is_open_of_little)
    }

    /// Sorts processes and groups; what is not known comes last.
    pub fn sort(&mut self, order: Order) {
        let for_ns = self.longest_ns().unwrap_or(0);
        for rows in [&mut self.processes, &mut self.groups] {
            rows.sort_by(|a, b| order.compare(a, b, for_ns));
        }
    }
}

impl Order {
    /// Which of two rows comes first; `for_ns`: the time that cold and used memory are shown for.
    fn compare(self, a: &Row, b: &Row, for_ns: u64) -> std::cmp::Ordering {
        let by = |f: &dyn Fn(&Row) -> Option<u64>| f(b).cmp(&f(a));
        let first = match self {
            Self::Cold => by(&|row| row.divided(for_ns).map(|divided| divided.cold)),
            Self::WorkingSet => by(&|row| row.divided(for_ns).map(|divided| divided.accessed)),
            Self::Rss => by(&|row| row.rss),
            Self::Name => std::cmp::Ordering::Equal,
        };
        first.then_with(|| a.name.cmp(&b.name)).then_with(|| a.pid.cmp(&b.pid))
    }
}

#[cfg(test)]
mod tests;
