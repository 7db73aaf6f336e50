//! What a read shows and what a write does.

mod kdamonds;

use crate::errno::Errno;
use crate::files::{Files, written_text};
use crate::held::held;
use crate::kdamond::{Kdamond, Starter};
use crate::refused::Refused;
use crate::schema::FileKind;
use crate::settings::Settings;
use crate::tree::{Attr, Inode, Listed, Tree};
use crate::value::streq;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::snapshot::RegionInfo;
use kdamonds::Kdamonds;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The most bytes that one write hands over, as in the kernel: a page. The rest is another write's.
pub const MOST_WRITTEN: usize = 4096;

/// The files with the kdamonds behind them.
pub struct Admin {
    tree: Mutex<Tree>,
    kdamonds: Kdamonds,
    starter: Box<dyn Starter>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("tree", &self.tree).finish_non_exhaustive()
    }
}

/// A command to a kdamond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    On,
    Off,
    Commit,
    CommitQuotaGoals,
    UpdateStats,
    UpdateTriedRegions,
    UpdateTriedBytes,
    ClearTriedRegions,
    UpdateEffectiveQuotas,
    UpdateTunedIntervals,
}

const COMMANDS: [(&str, Command); 10] = [
    ("on", Command::On),
    ("off", Command::Off),
    ("commit", Command::Commit),
    ("commit_schemes_quota_goals", Command::CommitQuotaGoals),
    ("update_schemes_stats", Command::UpdateStats),
    ("update_schemes_tried_regions", Command::UpdateTriedRegions),
    ("update_schemes_tried_bytes", Command::UpdateTriedBytes),
    ("clear_schemes_tried_regions", Command::ClearTriedRegions),
    ("update_schemes_effective_quotas", Command::UpdateEffectiveQuotas),
    ("update_tuned_intervals", Command::UpdateTunedIntervals),
];

impl Admin {
    /// A tree in which nothing runs.
    pub fn new(tree: Tree, starter: Box<dyn Starter>) -> Self {
        Self { tree: Mutex::new(tree), kdamonds: Kdamonds::default(), starter }
    }

    /// The entry at a path of names separated by slashes.
    pub fn find(&self, from: Inode, path: &str) -> Result<Inode, Errno> {
        self.tree().find(from, path)
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        // No method of the tree leaves it half changed where it panics, so it stays usable.
        held(&self.tree)
    }

    /// A count is written: not while a command is carried out, and not that of kdamonds while one runs.
    fn count(&self, inode: Inode, text: &str) -> Result<(), Errno> {
        let mut kdamonds = self.kdamonds.all()?;
        let mut tree = self.tree();
        let parent = tree.parent(inode)?;
        if tree.lookup(parent, "nr_kdamonds") == Ok(inode) && kdamonds.values().any(|e| e.kdamond.is_running()) {
            return Err(Errno::Busy);
        }
        let written = tree.write(inode, text);
        kdamonds.retain(|&folder, _| tree.attr(folder).is_ok());
        written
    }

    fn command(&self, folder: Inode, command: Command) -> Result<(), Errno> {
        let mut kdamonds = match command {
            Command::Off => self.kdamonds.begin_off(folder)?,
            _ => self.kdamonds.begin(folder)?,
        };
        if command == Command::On {
            if kdamonds.get(&folder).is_some_and(|e| e.kdamond.is_running()) {
                return Err(Errno::Busy);
            }
            let settings = Settings::read(&self.tree(), folder);
            let started = settings.and_then(|settings| self.starter.start(&self.name(folder), settings, None));
            let kdamond = started.map_err(|refused| self.tell(folder, &refused))?;
            self.show_running(folder, Some(kdamond.tid()));
            kdamonds.started(kdamond);
            return Ok(());
        }
        let is_asked = kdamonds.is_asked;
        let Some(entry) = kdamonds.get_mut(&folder) else { return Err(Errno::Invalid) };
        if !entry.kdamond.is_running() && !is_asked {
            return Err(if command == Command::Off { Errno::NotPermitted } else { Errno::Invalid });
        }
        let done = self.carry_out(folder, command, entry.kdamond.as_mut());
        done.map_err(|refused| self.tell(folder, &refused))
    }

    /// The folder's place in `admin`.
    fn name(&self, folder: Inode) -> String {
        let tree = self.tree();
        let siblings = tree.parent(folder).and_then(|kdamonds| tree.list(kdamonds)).unwrap_or_default();
        let own = siblings.into_iter().find(|listed| listed.inode == folder);
        own.map_or_else(String::new, |listed| format!("kdamonds/{}", listed.name))
    }

    /// The error number can only say that it cannot be.
    fn tell(&self, folder: Inode, refused: &Refused) -> Errno {
        self.starter.refused(&self.name(folder), refused);
        Errno::Invalid
    }

    fn carry_out(&self, folder: Inode, command: Command, kdamond: &mut dyn Kdamond) -> Result<(), Refused> {
        match command {
            Command::On => {}
            Command::Off => kdamond.stop(),
            Command::Commit => {
                let settings = Settings::read_for_commit(&self.tree(), folder)?;
                kdamond.commit(settings)?;
            }
            Command::CommitQuotaGoals => {
                let goals = Settings::read_goals(&self.tree(), folder)?;
                kdamond.commit_goals(goals)?;
            }
            Command::UpdateStats => {
                let stats = kdamond.stats()?;
                self.show_stats(folder, &stats);
            }
            Command::UpdateEffectiveQuotas => {
                let stats = kdamond.stats()?;
                self.show_effective(folder, &stats);
            }
            Command::UpdateTriedRegions => {
                let tried = kdamond.tried()?;
                self.show_tried(folder, &tried, true);
            }
            Command::UpdateTriedBytes => {
                let tried = kdamond.tried()?;
                self.show_tried(folder, &tried, false);
            }
            Command::ClearTriedRegions => self.clear_tried(folder),
            Command::UpdateTunedIntervals => {
                let attrs = kdamond.attrs()?;
                self.show_intervals(folder, &attrs);
            }
        }
        Ok(())
    }

    /// Where `refresh_ms` of the kdamond is set, figures that are older are brought up to date before they are read: as
    /// if it had been done every so often.
    fn refresh(&self, inode: Inode) -> Result<(), Errno> {
        let Some((folder, every)) = self.refreshed_by(inode)? else { return Ok(()) };
        let Ok(mut kdamonds) = self.kdamonds.all() else { return Ok(()) };
        let Some(entry) = kdamonds.get_mut(&folder).filter(|e| e.kdamond.is_running()) else { return Ok(()) };
        if entry.refreshed.is_some_and(|at| at.elapsed() < every) {
            return Ok(());
        }
        entry.refreshed = Some(Instant::now());
        for command in [Command::UpdateStats, Command::UpdateEffectiveQuotas, Command::UpdateTunedIntervals] {
            // It may end meanwhile; then the figures stay as they are.
            let _ = self.carry_out(folder, command, entry.kdamond.as_mut());
        }
        Ok(())
    }

    /// The kdamond's folder and how often it refreshes the file; `None`: it does not.
    fn refreshed_by(&self, inode: Inode) -> Result<Option<(Inode, Duration)>, Errno> {
        let tree = self.tree();
        let mut at = inode;
        loop {
            let parent = tree.parent(at)?;
            if parent == at {
                return Ok(None);
            }
            at = parent;
            if let Ok(file) = tree.lookup(at, "refresh_ms") {
                // The file itself says how often.
                let ms = if file == inode { 0 } else { tree.value(file)?.parse().unwrap_or(0) };
                return Ok((ms > 0).then(|| (at, Duration::from_millis(ms))));
            }
        }
    }

    /// Calls `f` with each scheme's folder that is there, and what belongs to it. Folders may have come or gone since
    /// the kdamond took its schemes.
    fn each_scheme<T>(&self, folder: Inode, of: &[T], mut f: impl FnMut(&mut Tree, Inode, &T)) {
        let mut tree = self.tree();
        for (index, one) in of.iter().enumerate() {
            if let Ok(scheme) = tree.find(folder, &format!("contexts/0/schemes/{index}")) {
                f(&mut tree, scheme, one);
            }
        }
    }

    /// Has `state` and `pid` tell which thread monitors, if one does.
    fn show_running(&self, folder: Inode, tid: Option<i32>) {
        let mut tree = self.tree();
        let state = if tid.is_some() { "on" } else { "off" };
        for (file, text) in [("state", state.to_owned()), ("pid", tid.unwrap_or(-1).to_string())] {
            if let Ok(inode) = tree.lookup(folder, file) {
                let _ = tree.set(inode, text);
            }
        }
    }

    fn show_stats(&self, folder: Inode, stats: &[SchemeStats]) {
        self.each_scheme(folder, stats, |tree, scheme, stats| {
            for (name, value) in [
                ("nr_tried", stats.nr_tried),
                ("sz_tried", stats.sz_tried),
                ("nr_applied", stats.nr_applied),
                ("sz_applied", stats.sz_applied),
                // What filters of pages keep is not tried.
                ("sz_ops_filter_passed", stats.sz_tried),
                ("qt_exceeds", stats.qt_exceeds),
                ("nr_snapshots", stats.nr_snapshots),
            ] {
                show(tree, scheme, &format!("stats/{name}"), value);
            }
        });
    }

    fn show_effective(&self, folder: Inode, stats: &[SchemeStats]) {
        self.each_scheme(folder, stats, |tree, scheme, stats| {
            show(tree, scheme, "quotas/effective_bytes", stats.effective_quota.unwrap_or(0));
        });
    }

    fn show_tried(&self, folder: Inode, tried: &[Vec<RegionInfo>], each: bool) {
        self.each_scheme(folder, tried, |tree, scheme, regions| {
            let Ok(at) = tree.find(scheme, "tried_regions") else { return };
            show(tree, at, "total_bytes", regions.iter().map(RegionInfo::len).sum());
            if !each || tree.renumber(at, regions.len()).is_err() {
                return;
            }
            for (index, region) in regions.iter().enumerate() {
                let Ok(at) = tree.lookup(at, &index.to_string()) else { return };
                show(tree, at, "start", region.start);
                show(tree, at, "end", region.end);
                show(tree, at, "nr_accesses", region.nr_accesses.into());
                show(tree, at, "age", region.age.into());
                show(tree, at, "sz_filter_passed", region.len());
            }
        });
    }

    fn clear_tried(&self, folder: Inode) {
        let mut tree = self.tree();
        for index in 0.. {
            let Ok(at) = tree.find(folder, &format!("contexts/0/schemes/{index}/tried_regions")) else { return };
            show(&mut tree, at, "total_bytes", 0);
            // Fewer folders always fit.
            let _ = tree.renumber(at, 0);
        }
    }

    fn show_intervals(&self, folder: Inode, attrs: &MonitorAttrs) {
        let mut tree = self.tree();
        let Ok(intervals) = tree.find(folder, "contexts/0/monitoring_attrs/intervals") else { return };
        show(&mut tree, intervals, "sample_us", attrs.sample_us);
        show(&mut tree, intervals, "aggr_us", attrs.aggr_us);
    }
}

impl Files for Admin {
    fn lookup(&self, parent: Inode, name: &str) -> Result<Inode, Errno> {
        self.tree().lookup(parent, name)
    }

    fn list(&self, inode: Inode) -> Result<Vec<Listed>, Errno> {
        self.tree().list(inode)
    }

    fn attr(&self, inode: Inode) -> Result<Attr, Errno> {
        self.tree().attr(inode)
    }

    fn read(&self, inode: Inode) -> Result<Vec<u8>, Errno> {
        let kind = self.tree().kind(inode)?;
        if let FileKind::State | FileKind::Pid = kind {
            let folder = self.tree().parent(inode)?;
            // A command that is under way may take long: until it is done, what was before holds.
            if let Ok(kdamonds) = self.kdamonds.all() {
                let running = kdamonds.get(&folder).filter(|e| e.kdamond.is_running());
                self.show_running(folder, running.map(|e| e.kdamond.tid()));
            }
        } else {
            self.refresh(inode)?;
        }
        Ok((self.tree().value(inode)? + "\n").into_bytes())
    }

    fn write(&self, inode: Inode, data: &[u8]) -> Result<usize, Errno> {
        let taken = &data[..data.len().min(MOST_WRITTEN)];
        if taken.is_empty() {
            return Ok(0);
        }
        let text = written_text(taken)?;
        let kind = self.tree().kind(inode)?;
        match kind {
            FileKind::State => {
                let (_, command) = COMMANDS.iter().find(|(word, _)| streq(text, word)).ok_or(Errno::Invalid)?;
                let folder = self.tree().parent(inode)?;
                self.command(folder, *command)?;
            }
            FileKind::Count { .. } => self.count(inode, text)?,
            _ => self.tree().write(inode, text)?,
        }
        Ok(taken.len())
    }

    fn stop(&self) {
        self.kdamonds.end();
    }
}

/// Sets a figure, where its file still is.
fn show(tree: &mut Tree, folder: Inode, path: &str, value: u64) {
    if let Ok(inode) = tree.find(folder, path) {
        let _ = tree.set(inode, value.to_string());
    }
}

#[cfg(test)]
mod tests;
