//! The parameters of the kernel's ready-made modules, `/sys/module/damon_{reclaim,lru_sort,stat}/parameters`.
//!
//! The kernel's watch physical memory; these watch all processes of the machine, page by page, within Isotherm's budget.

mod idle;
mod inputs;
mod parameters;

use crate::admin::MOST_WRITTEN;
use crate::errno::Errno;
use crate::files::{Files, written_text};
use crate::folder::Folder;
use crate::held::held;
use crate::kdamond::{Kdamond, Observer, Starter};
use crate::refused::Refused;
use crate::schema::{Entry, FileKind};
use crate::settings::Settings;
use crate::tree::{Attr, Inode, Listed, ROOT, Tree};
use crate::value::Form;
use idle::Idle;
use isotherm_core::scheme::stats::SchemeStats;
use std::sync::{Mutex, MutexGuard};

/// Which module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// `damon_reclaim`: pages out what is cold.
    Reclaim,
    /// `damon_lru_sort`: lets the kernel reclaim first what is cold.
    LruSort,
    /// `damon_stat`: watches.
    Stat,
}

impl Which {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reclaim, Self::LruSort, Self::Stat];

    /// The module's name, which its folder in `/sys/module` has.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reclaim => "damon_reclaim",
            Self::LruSort => "damon_lru_sort",
            Self::Stat => "damon_stat",
        }
    }

    const fn entries(self) -> &'static [Entry] {
        match self {
            Self::Reclaim => &parameters::RECLAIM,
            Self::LruSort => &parameters::LRU_SORT,
            Self::Stat => &parameters::STAT,
        }
    }

    /// The files that show what its scheme has done: regions and bytes tried and applied, quotas used up.
    const fn figures(self) -> Option<[&'static str; 5]> {
        match self {
            Self::Reclaim => Some([
                "nr_reclaim_tried_regions",
                "bytes_reclaim_tried_regions",
                "nr_reclaimed_regions",
                "bytes_reclaimed_regions",
                "nr_quota_exceeds",
            ]),
            Self::LruSort => Some([
                "nr_lru_sort_tried_cold_regions",
                "bytes_lru_sort_tried_cold_regions",
                "nr_lru_sorted_cold_regions",
                "bytes_lru_sorted_cold_regions",
                "nr_cold_quota_exceeds",
            ]),
            Self::Stat => None,
        }
    }
}

/// A module's files with the kdamond behind them.
pub struct Module {
    which: Which,
    /// Inodes of the folder of parameters, and of those that do something when they are written.
    parameters: Inode,
    enabled: Inode,
    commit_inputs: Option<Inode>,
    state: Mutex<State>,
    starter: Box<dyn Starter>,
    idle: Idle,
}

struct State {
    tree: Tree,
    kdamond: Option<Box<dyn Kdamond>>,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("which", &self.which).finish_non_exhaustive()
    }
}

impl State {
    fn is_on(&self) -> bool {
        self.kdamond.as_ref().is_some_and(|kdamond| kdamond.is_running())
    }
}

impl Module {
    /// The module's files, all at their defaults; it is off.
    pub fn new(which: Which, starter: Box<dyn Starter>) -> Self {
        let tree = Tree::of(which.entries());
        let find = |path: &str| tree.find(ROOT, path);
        let parameters = find("parameters").unwrap_or(ROOT);
        let enabled = find("parameters/enabled").unwrap_or(ROOT);
        let commit_inputs = find("parameters/commit_inputs").ok();
        let state = Mutex::new(State { tree, kdamond: None });
        Self { which, parameters, enabled, commit_inputs, state, starter, idle: Idle::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No method of the tree leaves it half changed where it panics, so it stays usable.
        held(&self.state)
    }

    fn settings(&self, tree: &Tree) -> Result<Settings, Refused> {
        let parameters = Folder::new(tree, self.parameters);
        match self.which {
            Which::Reclaim => inputs::reclaim(&parameters),
            Which::LruSort => inputs::lru_sort(&parameters),
            Which::Stat => Ok(inputs::stat()),
        }
    }

    fn observer(&self) -> Option<Observer> {
        let idle = self.idle.clone();
        (self.which == Which::Stat).then(|| -> Observer { Box::new(move || Box::new(idle)) })
    }

    fn tell(&self, refused: &Refused) {
        self.starter.refused(self.which.name(), refused);
    }

    fn enable(&self, state: &mut State, on: bool) -> Result<(), Errno> {
        if on == state.is_on() {
            return Ok(());
        }
        if !on {
            self.refresh(state);
            if let Some(mut kdamond) = state.kdamond.take() {
                kdamond.stop();
            }
            return Ok(());
        }
        let settings = self.settings(&state.tree);
        let started = settings.and_then(|settings| self.starter.start(self.which.name(), settings, self.observer()));
        state.kdamond = Some(started.map_err(|refused| {
            self.tell(&refused);
            Errno::Invalid
        })?);
        // It has just read all of them.
        self.committed(state);
        Ok(())
    }

    /// Has a running one read its parameters again; where they cannot be, it ends, as in the kernel.
    fn commit(&self, state: &mut State) {
        let settings = self.settings(&state.tree);
        let Some(kdamond) = state.kdamond.as_mut().filter(|kdamond| kdamond.is_running()) else { return };
        if let Err(refused) = settings.and_then(|settings| kdamond.commit(settings)) {
            self.tell(&refused);
            kdamond.stop();
        }
        self.committed(state);
    }

    fn committed(&self, state: &mut State) {
        if let Some(commit_inputs) = self.commit_inputs {
            let _ = state.tree.set(commit_inputs, "N".to_owned());
        }
    }

    /// Shows what has been seen and done; what has ended shows its last.
    fn refresh(&self, state: &mut State) {
        let on = state.is_on();
        let show = |tree: &mut Tree, name: &str, text: String| {
            if let Ok(inode) = tree.lookup(self.parameters, name) {
                let _ = tree.set(inode, text);
            }
        };
        show(&mut state.tree, "enabled", if on { "Y" } else { "N" }.to_owned());
        let pid = state.kdamond.as_ref().filter(|_| on).map_or(-1, |kdamond| kdamond.tid());
        show(&mut state.tree, "kdamond_pid", pid.to_string());
        match self.which.figures() {
            Some(names) => {
                let done = state.kdamond.as_mut().map(|kdamond| kdamond.stats());
                let Some(Ok(done)) = done else { return };
                let Some(&SchemeStats { nr_tried, sz_tried, nr_applied, sz_applied, qt_exceeds, .. }) = done.first()
                else {
                    return;
                };
                for (name, value) in names.into_iter().zip([nr_tried, sz_tried, nr_applied, sz_applied, qt_exceeds]) {
                    show(&mut state.tree, name, value.to_string());
                }
            }
            None => {
                let figures = self.idle.figures();
                let percentiles: Vec<String> = figures.percentiles.iter().map(u64::to_string).collect();
                show(&mut state.tree, "memory_idle_ms_percentiles", percentiles.join(","));
                show(&mut state.tree, "estimated_memory_bandwidth", figures.bandwidth.to_string());
                show(&mut state.tree, "aggr_interval_us", figures.aggr_us.to_string());
            }
        }
    }
}

impl Files for Module {
    fn lookup(&self, parent: Inode, name: &str) -> Result<Inode, Errno> {
        self.state().tree.lookup(parent, name)
    }

    fn list(&self, inode: Inode) -> Result<Vec<Listed>, Errno> {
        self.state().tree.list(inode)
    }

    fn attr(&self, inode: Inode) -> Result<Attr, Errno> {
        self.state().tree.attr(inode)
    }

    fn read(&self, inode: Inode) -> Result<Vec<u8>, Errno> {
        let mut state = self.state();
        let attr = state.tree.attr(inode)?;
        if attr.mode & 0o200 == 0 || inode == self.enabled {
            self.refresh(&mut state);
        }
        Ok((state.tree.value(inode)? + "\n").into_bytes())
    }

    fn write(&self, inode: Inode, data: &[u8]) -> Result<usize, Errno> {
        let taken = &data[..data.len().min(MOST_WRITTEN)];
        if taken.is_empty() {
            return Ok(0);
        }
        let text = written_text(taken)?;
        let mut state = self.state();
        if !matches!(state.tree.kind(inode)?, FileKind::Value(_)) || state.tree.attr(inode)?.mode & 0o200 == 0 {
            return Err(Errno::Invalid);
        }
        if inode == self.enabled {
            let on = Form::Flag.parse(text)? == "Y";
            self.enable(&mut state, on)?;
        } else if Some(inode) == self.commit_inputs {
            state.tree.write(inode, text)?;
            if state.tree.value(inode)? == "Y" {
                self.commit(&mut state);
            }
        } else {
            let addr_unit = state.tree.lookup(self.parameters, "addr_unit");
            if addr_unit == Ok(inode) && Form::Ulong.parse(text)? == "0" {
                return Err(Errno::Invalid);
            }
            state.tree.write(inode, text)?;
        }
        Ok(taken.len())
    }

    fn stop(&self) {
        let kdamond = self.state().kdamond.take();
        if let Some(mut kdamond) = kdamond {
            kdamond.stop();
        }
    }
}

#[cfg(test)]
mod tests;
