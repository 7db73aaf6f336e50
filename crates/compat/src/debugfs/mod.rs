//! The files that DAMON had in debugfs: those of the patch set that it began as (the version in which targets are
//! `target_ids`), and the longer lines of `schemes` that kernels took until debugfs was given up.
//!
//! One context; its kdamond is like those behind sysfs, also in how it draws regions: by the rules of v12, by which an age
//! ends where borders have moved, hardly any region of a program at work gets old enough for a scheme.

mod record;
mod schemes;
mod words;

use crate::errno::Errno;
use crate::files::{Files, written_text};
use crate::held::held;
use crate::kdamond::{Kdamond, Starter};
use crate::refused::Refused;
use crate::schema::DEBUGFS;
use crate::scheme::Goals;
use crate::settings::{KdamondTargets, Settings, TargetRanges, WatchedProcess, watched_ranges};
use crate::tree::{Attr, Inode, Listed, ROOT, Tree};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::monitor::config::{Algorithm, DamonRules};
use isotherm_core::scheme::stats::SchemeStats;
use schemes::SchemeLine;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use words::Words;

/// What these files are called where somebody asks what runs behind them.
const NAME: &str = "debug/damon";
/// Targets that are taken; the rest is left out.
const MOST_TARGETS: usize = 32;
/// Smallest and largest buffer of a record; 0: there is no record.
const BUFFER: std::ops::RangeInclusive<u32> = 1024..=4 << 20;
/// A record's path is shorter.
const PATH_LEN: usize = 256;

/// The files with the kdamond behind them.
pub struct Debugfs {
    tree: Tree,
    state: Mutex<State>,
    starter: Box<dyn Starter>,
}

impl std::fmt::Debug for Debugfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Debugfs").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum File {
    Attrs,
    InitRegions,
    MonitorOn,
    Record,
    Schemes,
    TargetIds,
}

const FILES: [(&str, File); 6] = [
    ("attrs", File::Attrs),
    ("init_regions", File::InitRegions),
    ("monitor_on", File::MonitorOn),
    ("record", File::Record),
    ("schemes", File::Schemes),
    ("target_ids", File::TargetIds),
];

struct State {
    /// Sampling, aggregation and update interval in us, least and most regions.
    attrs: [u64; 5],
    targets: Vec<Target>,
    schemes: Vec<SchemeLine>,
    /// What the schemes have done; kept after the end.
    done: Vec<SchemeStats>,
    /// The record's buffer in bytes, and its path.
    record: (u32, String),
    kdamond: Option<Box<dyn Kdamond>>,
}

struct Target {
    id: u64,
    regions: Vec<(u64, u64)>,
}

impl Debugfs {
    /// Nothing runs at first, and the files hold what they held after boot.
    pub fn new(starter: Box<dyn Starter>) -> Self {
        let state = State {
            attrs: [5_000, 100_000, 1_000_000, 10, 1_000],
            targets: Vec::new(),
            schemes: Vec::new(),
            done: Vec::new(),
            record: (1 << 20, "/damon.data".to_owned()),
            kdamond: None,
        };
        Self { tree: Tree::of(&DEBUGFS), state: Mutex::new(state), starter }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What was written is taken in whole or not at all, so it stays usable.
        held(&self.state)
    }

    fn file(&self, inode: Inode) -> Result<File, Errno> {
        let found = FILES.iter().find(|(name, _)| self.tree.lookup(ROOT, name) == Ok(inode));
        found.map(|&(_, file)| file).ok_or(Errno::Invalid)
    }

    fn switch(&self, text: &str) -> Result<(), Errno> {
        match Words(text).word().ok_or(Errno::Invalid)? {
            "on" => {
                let mut state = self.state();
                if state.is_on() {
                    return Err(Errno::Busy);
                }
                let started = self.start(&state);
                let kdamond = started.map_err(|refused| {
                    self.starter.refused(NAME, &refused);
                    Errno::Invalid
                })?;
                state.done = Vec::new();
                state.kdamond = Some(kdamond);
                Ok(())
            }
            "off" => {
                let mut state = self.state();
                if !state.is_on() {
                    return Err(Errno::NotPermitted);
                }
                state.refresh();
                let kdamond = state.kdamond.take();
                // Whose record may be anywhere, even here.
                drop(state);
                if let Some(mut kdamond) = kdamond {
                    kdamond.stop();
                }
                Ok(())
            }
            _ => Err(Errno::Invalid),
        }
    }

    fn start(&self, state: &State) -> Result<Box<dyn Kdamond>, Refused> {
        let settings = state.settings()?;
        let (buffer, path) = &state.record;
        let observer = match *buffer {
            0 => None,
            // Paths are the kernel's, which has no working directory.
            buffer => {
                let file = record::create(&Path::new("/").join(path))
                    .map_err(|e| Refused::new(format_args!("{path} cannot be written: {e}")))?;
                Some(record::observer(file, path, buffer as usize))
            }
        };
        self.starter.start(NAME, settings, observer)
    }
}

impl State {
    fn is_on(&self) -> bool {
        self.kdamond.as_ref().is_some_and(|kdamond| kdamond.is_running())
    }

    /// Brings what the schemes have done up to date; after a kdamond's end it stays as it was last known.
    fn refresh(&mut self) {
        if let Some(Ok(done)) = self.kdamond.as_mut().map(|kdamond| kdamond.stats()) {
            self.done = done;
        }
    }

    fn settings(&self) -> Result<Settings, Refused> {
        let [sample_us, aggr_us, update_us, min, max] = self.attrs;
        let nr = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let update_us = update_us.max(aggr_us);
        let attrs = MonitorAttrs { sample_us, aggr_us, update_us, min_regions: nr(min), max_regions: nr(max) };
        attrs.validate().map_err(Refused::new)?;
        let process = |t: &Target| {
            let no_process = || Refused::new(format_args!("target {} is no process; give pids", t.id));
            let pid = u32::try_from(t.id).ok().filter(|&pid| pid > 0).ok_or_else(no_process)?;
            let ranges = watched_ranges(&t.regions)?;
            Ok(WatchedProcess {
                pid,
                space: if ranges.is_empty() { TargetRanges::Mapped } else { TargetRanges::First(ranges) },
            })
        };
        let processes = self.targets.iter().map(process).collect::<Result<Vec<_>, Refused>>()?;
        if processes.is_empty() {
            return Err(Refused::new("there is no target; write pids to target_ids"));
        }
        let schemes =
            self.schemes.iter().enumerate().map(|(index, line)| {
                line.scheme(&attrs).map_err(|e| Refused::new(format_args!("scheme {index}: {e}")))
            });
        Ok(Settings {
            attrs,
            algorithm: Algorithm::Damon(DamonRules::Mainline),
            intervals_goal: None,
            watched: KdamondTargets::Processes(processes),
            schemes: schemes.collect::<Result<_, _>>()?,
            goals: vec![Goals::default(); self.schemes.len()],
        })
    }

    fn show(&mut self, file: File) -> Result<String, Errno> {
        let mut text = String::new();
        match file {
            File::Attrs => {
                let [sample, aggr, update, min, max] = self.attrs;
                text = format!("{sample} {aggr} {update} {min} {max}\n");
            }
            File::InitRegions if self.is_on() => return Err(Errno::Busy),
            File::InitRegions => {
                for target in &self.targets {
                    for (start, end) in &target.regions {
                        let _ = writeln!(text, "{} {start} {end}", target.id);
                    }
                }
            }
            File::MonitorOn => text.push_str(if self.is_on() { "on\n" } else { "off\n" }),
            File::Record => text = format!("{} {}\n", self.record.0, self.record.1),
            File::Schemes => {
                self.refresh();
                let none = SchemeStats::default();
                let done = self.done.iter().chain(std::iter::repeat(&none));
                text = self.schemes.iter().zip(done).map(|(line, done)| line.show(done)).collect();
            }
            File::TargetIds => {
                let ids: Vec<String> = self.targets.iter().map(|target| target.id.to_string()).collect();
                text = ids.join(" ") + "\n";
            }
        }
        Ok(text)
    }

    fn take_in(&mut self, file: File, text: &str) -> Result<(), Errno> {
        let is_on = self.is_on();
        let busy = || if is_on { Err(Errno::Busy) } else { Ok(()) };
        let mut words = Words(text);
        match file {
            // Carried out without the lock held.
            File::MonitorOn => return Err(Errno::Invalid),
            File::Attrs => {
                let mut attrs = [0; 5];
                for number in &mut attrs {
                    *number = words.number().ok_or(Errno::Invalid)?;
                }
                busy()?;
                let [.., min, max] = attrs;
                if min < 3 || min > max {
                    return Err(Errno::Invalid);
                }
                self.attrs = attrs;
            }
            File::InitRegions => {
                busy()?;
                self.targets.iter_mut().for_each(|target| target.regions.clear());
                let set = self.init_regions(words);
                if set.is_err() {
                    self.targets.iter_mut().for_each(|target| target.regions.clear());
                }
                return set;
            }
            File::Record => {
                let (buffer, path) = (words.number(), words.word());
                let (Some(buffer), Some(path)) = (buffer, path) else { return Err(Errno::Invalid) };
                busy()?;
                if (buffer != 0 && !BUFFER.contains(&buffer)) || path.len() >= PATH_LEN {
                    return Err(Errno::Invalid);
                }
                self.record = (buffer, path.to_owned());
            }
            File::Schemes => {
                let schemes = schemes::parse(text)?;
                busy()?;
                (self.schemes, self.done) = (schemes, Vec::new());
            }
            File::TargetIds => {
                let mut ids = words.numbers();
                if ids.is_empty() && !words.is_empty() {
                    // Of later versions: physical memory, and references to descriptors of the writer.
                    let word = words.word().unwrap_or_default();
                    if ["paddr", "pidfd"].iter().any(|later| word.starts_with(later)) {
                        tracing::warn!("EINVAL for target_ids: only pids can be targets");
                        return Err(Errno::Invalid);
                    }
                }
                if is_on {
                    return Err(Errno::Invalid);
                }
                ids.truncate(MOST_TARGETS);
                self.targets = ids.into_iter().map(|id| Target { id, regions: Vec::new() }).collect();
            }
        }
        Ok(())
    }

    /// Up to the first text that is no region.
    fn init_regions(&mut self, mut words: Words) -> Result<(), Errno> {
        while let (Some(id), Some(start), Some(end)) = (words.number::<u64>(), words.number(), words.number()) {
            let mut of_id = self.targets.iter_mut().filter(|target| target.id == id).peekable();
            if start >= end || of_id.peek().is_none() {
                return Err(Errno::Invalid);
            }
            for target in of_id {
                if target.regions.last().is_some_and(|&(_, last)| last > start) {
                    return Err(Errno::Invalid);
                }
                target.regions.push((start, end));
            }
        }
        Ok(())
    }
}

impl Files for Debugfs {
    fn lookup(&self, parent: Inode, name: &str) -> Result<Inode, Errno> {
        self.tree.lookup(parent, name)
    }

    fn list(&self, inode: Inode) -> Result<Vec<Listed>, Errno> {
        self.tree.list(inode)
    }

    fn attr(&self, inode: Inode) -> Result<Attr, Errno> {
        self.tree.attr(inode).map(Attr::of_debugfs)
    }

    fn read(&self, inode: Inode) -> Result<Vec<u8>, Errno> {
        let file = self.file(inode)?;
        Ok(self.state().show(file)?.into_bytes())
    }

    fn write(&self, inode: Inode, data: &[u8]) -> Result<usize, Errno> {
        let file = self.file(inode)?;
        if data.is_empty() {
            return Ok(0);
        }
        let text = written_text(data)?;
        match file {
            File::MonitorOn => self.switch(text)?,
            _ => self.state().take_in(file, text)?,
        }
        Ok(data.len())
    }

    /// A write does not go on with the one before.
    fn write_at(&self, inode: Inode, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        if offset == 0 { self.write(inode, data) } else { Err(Errno::Invalid) }
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
