//! Keeps the list of watched processes up to date.

use super::command::Command;
use super::elsewhere::{WatchedElsewhere, watched_elsewhere};
use super::error::TargetError;
use super::exits::Exits;
use super::listed::Listed;
use super::spec::TargetSpec;
use crate::limits::{open_files, raise_open_files};
use crate::proc::children::ChildFinder;
use crate::proc::pidfd::share_memory;
use crate::proc::stat::Stat;
use crate::proc::{Process, ProcessDir, ProcessError};
use crate::roots::Roots;
use isotherm_core::source::Refused;
use isotherm_core::target::TargetId;
use isotherm_core::target::TargetInfo;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Descriptors that stay open for each target: its pidfd and its maps.
const FILES_EACH: u64 = 2;
/// Descriptors that are left for all else.
const FILES_LEFT: u64 = 128;
/// Ended targets whose pids are known.
const REMEMBERED: usize = 4096;

/// A process that belongs to the targets but cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("not watching pid {pid}: {why}")]
pub struct Skipped {
    pub pid: u32,
    /// Why.
    pub why: ProcessError,
}

/// Follows what a [`TargetSpec`] asks for by polling: new processes get the next free [`TargetId`], which is never
/// given twice.
///
/// Limits of polling: a process that comes and goes between two polls is not seen, and neither is one whose
/// parent exited before the poll (see [`ChildFinder`]). Our own process is watched only if its pid is given,
/// not as a child, as a member of a control group, by its name or as one of all: watching makes memory accesses of its
/// own.
#[derive(Debug)]
pub struct TargetTracker {
    membership: Membership,
    /// Those that have not ended. Nothing is kept of the others but the pids of the last: where processes come and go
    /// all the time, memory stays as it is.
    targets: BTreeMap<TargetId, Process>,
    /// The last that ended, and their pids.
    ended: VecDeque<(TargetId, u32)>,
    closed: u64,
    /// Id of the next target.
    next: TargetId,
    by_pid: HashMap<u32, TargetId>,
    exits: Exits,
    /// Opened by `new`, announced by the first poll.
    unannounced: Vec<Process>,
    on_skip: Tell<Skipped>,
    on_watched_elsewhere: Tell<WatchedElsewhere>,
    /// Pids reported as skipped, and whether that was for lack of rights; not tried again while they last.
    refused: HashMap<u32, bool>,
}

type Callback<T> = dyn FnMut(&T) + Send;

/// Who is to be called, if anybody.
struct Tell<T>(Option<Box<Callback<T>>>);

impl<T> std::fmt::Debug for Tell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tell").field(&self.0.is_some()).finish()
    }
}

#[derive(Debug)]
enum Membership {
    Fixed,
    Family { finder: ChildFinder, deferred: Vec<u32> },
    Listed { listed: Listed, last: Vec<u32> },
    Command { command: Command, children: bool },
}

impl Membership {
    const fn listed(listed: Listed) -> Self {
        Self::Listed { listed, last: Vec::new() }
    }

    fn family(children: bool) -> Self {
        if !children {
            return Self::Fixed;
        }
        Self::Family { finder: ChildFinder::new(Roots::system()), deferred: Vec::new() }
    }
}

impl TargetTracker {
    /// Opens the processes, or finds the control groups. A pid that cannot be watched is an error here, and so is a
    /// name that nobody has; a control group may be empty.
    pub fn new(spec: TargetSpec) -> Result<Self, TargetError> {
        let mut unannounced: Vec<Process> = Vec::new();
        let membership = match spec {
            TargetSpec::Pids { pids, children } => {
                if pids.is_empty() {
                    return Err(TargetError::Nothing);
                }
                for pid in pids {
                    if unannounced.iter().all(|p| p.pid() != pid) {
                        unannounced.push(open(pid, unannounced.len())?);
                    }
                }
                Membership::family(children)
            }
            TargetSpec::Each(pids) => {
                if pids.is_empty() {
                    return Err(TargetError::Nothing);
                }
                unannounced = (0..).zip(pids).map(|(others, pid)| open(pid, others)).collect::<Result<_, _>>()?;
                Membership::Fixed
            }
            TargetSpec::Cgroups(paths) => Membership::listed(Listed::cgroups(&paths)?),
            TargetSpec::Names(names) => Membership::listed(Listed::names(names)?),
            TargetSpec::All => Membership::listed(Listed::all()),
            TargetSpec::OneByOne => Membership::Fixed,
            TargetSpec::Command { command, children } => Membership::Command { command, children },
        };
        Ok(Self {
            membership,
            targets: BTreeMap::new(),
            ended: VecDeque::new(),
            closed: 0,
            next: 0,
            by_pid: HashMap::new(),
            exits: Exits::new().map_err(TargetError::Exits)?,
            unannounced,
            on_skip: Tell(None),
            on_watched_elsewhere: Tell(None),
            refused: HashMap::new(),
        })
    }

    /// Watches these processes from now on and no others, which the next poll tells: those that are watched stay the
    /// targets that they are, new ones get the next ids; one that is given several times is as many targets. The ids of
    /// all, in the order of `pids`. Where one cannot be watched, nothing changes.
    pub fn replace(&mut self, pids: &[u32]) -> Result<Vec<TargetId>, TargetError> {
        if pids.is_empty() {
            return Err(TargetError::Nothing);
        }
        self.close_ended()?;
        let mut left: Vec<(TargetId, u32)> = self.targets.iter().map(|(&id, process)| (id, process.pid())).collect();
        let mut new: Vec<Process> = Vec::new();
        let mut ids = Vec::new();
        for &pid in pids {
            match left.iter().position(|&(_, watched)| watched == pid) {
                Some(at) => ids.push(left.remove(at).0),
                None => {
                    ids.push(self.next + new.len() as TargetId);
                    new.push(open(pid, self.targets.len() + new.len())?);
                }
            }
        }
        left.into_iter().for_each(|(target, _)| self.close(target));
        self.unannounced = new;
        self.membership = Membership::Fixed;
        Ok(ids)
    }

    /// Targets that have come since the last call; ended ones are closed. The first call starts a command and fails if
    /// it cannot be executed.
    pub fn poll(&mut self) -> Result<Vec<TargetInfo>, TargetError> {
        let mut new = Vec::new();
        for process in std::mem::take(&mut self.unannounced) {
            new.push(self.announce(process));
        }
        if let Membership::Command { command, children } = &self.membership {
            let (command, children) = (command.clone(), *children);
            command.start()?;
            self.membership = Membership::family(children);
            // A short command may have ended already.
            new.extend(self.admit(command.pid()));
        }
        for pid in self.candidates()? {
            new.extend(self.admit(pid));
        }
        self.close_ended()?;
        if let Some(mut tell) = self.on_watched_elsewhere.0.take() {
            watched_elsewhere(&Roots::system(), |pid| self.by_pid.contains_key(&pid)).iter().for_each(&mut tell);
        }
        Ok(new)
    }

    /// Whether more targets may come although none is left: a control group that still exists, a name, or what the
    /// first poll has not announced yet.
    pub fn may_gain_targets(&self) -> bool {
        match &self.membership {
            Membership::Command { .. } => true,
            Membership::Listed { listed, .. } => listed.may_gain(),
            Membership::Fixed | Membership::Family { .. } => !self.unannounced.is_empty(),
        }
    }

    /// The process of a target; [`ProcessError::Exited`] once it has ended (with pid 0 if that was long ago).
    pub fn process(&mut self, target: TargetId) -> Result<&mut Process, ProcessError> {
        let pid = || self.ended.iter().rev().find(|(id, _)| *id == target).map_or(0, |(_, pid)| *pid);
        self.targets.get_mut(&target).ok_or_else(|| ProcessError::Exited { pid: pid() })
    }

    /// Whether a target has not ended, as far as it was found out.
    pub(crate) fn is_running(&self, target: TargetId) -> bool {
        self.targets.contains_key(&target)
    }

    /// Ids of the targets that have not ended, in order.
    pub fn running(&self) -> impl Iterator<Item = TargetId> + '_ {
        self.targets.keys().copied()
    }

    /// Whether each target may keep `more` descriptors open besides its own, with the limit raised should it be in the way.
    pub(crate) fn has_room_for(&self, more: u64) -> bool {
        let wanted = (FILES_EACH + more) * self.targets.len() as u64;
        let has_room = || open_files().is_none_or(|most| !is_too_many(wanted, most));
        has_room() || raise_open_files() && has_room()
    }

    /// Makes a process a target, unless it is one already or is our own. `None`: it has exited, is one of the kernel's,
    /// or cannot be watched, which is reported as that of group members is.
    pub fn watch(&mut self, pid: u32) -> Option<TargetId> {
        let known = self.by_pid.contains_key(&pid);
        if pid == std::process::id() || (!known && runs_in_parents_memory(pid)) {
            return None;
        }
        self.admit(pid).map(|info| info.target).or_else(|| self.by_pid.get(&pid).copied())
    }

    /// Closes a target that its user found ended.
    pub fn close(&mut self, target: TargetId) {
        let Some(process) = self.targets.remove(&target) else { return };
        self.exits.forget(process.pidfd());
        self.refuse_leaderless(&process);
        let pid = process.pid();
        // It may be another's next, or already.
        if let Membership::Listed { listed, last } = &mut self.membership {
            listed.look_again();
            if let Ok(place) = last.binary_search(&pid) {
                last.remove(place);
            }
        }
        if self.by_pid.get(&pid) == Some(&target) {
            self.by_pid.remove(&pid);
        }
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((target, pid));
        self.closed += 1;
    }

    /// How many targets have been closed so far.
    pub(crate) const fn closed(&self) -> u64 {
        self.closed
    }

    /// Has `tell` called for each process that belongs to the targets but cannot be watched, or not any more although it
    /// runs on, once each.
    pub fn on_skip(&mut self, tell: impl FnMut(&Skipped) + Send + 'static) {
        self.on_skip = Tell(Some(Box::new(tell)));
    }

    /// Has `tell` called for each other Isotherm that watches some of the targets of the first poll, at that poll.
    pub fn on_watched_elsewhere(&mut self, tell: impl FnMut(&WatchedElsewhere) + Send + 'static) {
        self.on_watched_elsewhere = Tell(Some(Box::new(tell)));
    }

    /// Those that belong to the targets and cannot be watched, as of the last poll.
    pub fn refused(&self) -> Refused {
        let not_permitted = self.refused.values().filter(|for_lack_of_rights| **for_lack_of_rights).count() as u64;
        Refused { processes: self.refused.len() as u64, not_permitted }
    }

    fn announce(&mut self, process: Process) -> TargetInfo {
        let target = self.next;
        self.next += 1;
        let pid = process.pid();
        let info = TargetInfo { target, pid: Some(pid), name: process.name() };
        self.by_pid.insert(pid, target);
        // Where the kernel has no room for one more, its end is seen when its memory is looked at.
        let _ = self.exits.watch(target, process.pidfd());
        self.targets.insert(target, process);
        info
    }

    /// Makes a process a target, unless it is one or cannot be.
    fn admit(&mut self, pid: u32) -> Option<TargetInfo> {
        if let Some(&target) = self.by_pid.get(&pid) {
            if self.process(target).is_ok_and(|p| p.is_alive()) {
                return None;
            }
            // Another process under the same pid.
            self.close(target);
        }
        match open(pid, self.targets.len()) {
            Ok(process) => Some(self.announce(process)),
            // It has come and gone; or it is one of the kernel's, which the root control group holds.
            Err(why) if why.is_gone() || matches!(why, ProcessError::KernelThread { .. }) => None,
            Err(why) => {
                self.refuse(pid, why);
                None
            }
        }
    }

    /// Reports, once, a process that belongs to the targets and cannot be watched.
    fn refuse(&mut self, pid: u32, why: ProcessError) {
        if self.refused.insert(pid, matches!(why, ProcessError::Permission { .. })).is_none()
            && let Some(tell) = &mut self.on_skip.0
        {
            tell(&Skipped { pid, why });
        }
    }

    /// Reports a process that was watched, if its main thread has ended and others go on: its memory can be seen no more,
    /// which looks as if it had exited.
    fn refuse_leaderless(&mut self, process: &Process) {
        let lost_leader = process.is_alive() && Stat::read(process.dir()).is_ok_and(|stat| stat.is_zombie());
        if lost_leader && let Err(why @ ProcessError::Leaderless { .. }) = Process::open(process.pid()) {
            self.refuse(process.pid(), why);
        }
    }

    /// Pids that belong to the targets at present and may be new.
    fn candidates(&mut self) -> Result<Vec<u32>, TargetError> {
        let own = std::process::id();
        match &mut self.membership {
            Membership::Fixed | Membership::Command { .. } => Ok(Vec::new()),
            Membership::Family { finder, deferred } => {
                let parents: Vec<u32> = self.by_pid.keys().copied().collect();
                let mut found = std::mem::take(deferred);
                found.extend(
                    finder
                        .poll(&parents)
                        .map_err(|source| TargetError::Io { path: "/proc".into(), source })?
                        .iter()
                        .map(|&(child, _)| child),
                );
                found.retain(|&pid| pid != own);
                let (later, now) = found.into_iter().partition(|&pid| runs_in_parents_memory(pid));
                *deferred = later;
                Ok(now)
            }
            Membership::Listed { listed, last } => {
                let roots = Roots::system();
                if listed.is_as_before(&roots) {
                    return Ok(Vec::new());
                }
                let mut pids = listed.pids(&roots)?;
                pids.retain(|&pid| pid != own);
                self.refused.retain(|pid, _| pids.binary_search(pid).is_ok());
                let mut new: Vec<u32> = pids.iter().copied().filter(|pid| last.binary_search(pid).is_err()).collect();
                let listed_new = new.len();
                new.retain(|&pid| !runs_in_parents_memory(pid));
                // Those left out now are new again next time.
                if new.len() < listed_new {
                    listed.look_again();
                }
                pids.retain(|pid| last.binary_search(pid).is_ok() || new.binary_search(pid).is_ok());
                last.clone_from(&pids);
                // Members that have been moved to another group, or have got another name, are no targets any more.
                let left: Vec<TargetId> =
                    self.by_pid.iter().filter(|(pid, _)| pids.binary_search(pid).is_err()).map(|(_, &id)| id).collect();
                left.into_iter().for_each(|target| self.close(target));
                Ok(new)
            }
        }
    }

    fn close_ended(&mut self) -> Result<(), TargetError> {
        loop {
            let before = self.targets.len();
            self.exits.some().map_err(TargetError::Exits)?.into_iter().for_each(|target| self.close(target));
            if self.targets.len() == before {
                return Ok(());
            }
        }
    }
}

/// Opens a process besides `others`, with the limit of open files raised should it be in the way. Whoever asks for
/// figures must find a descriptor, too: not the last ones are taken.
fn open(pid: u32, others: usize) -> Result<Process, ProcessError> {
    let watched = others as u64;
    let limit = || open_files().filter(|most| is_too_many(FILES_EACH * (watched + 1), *most));
    if limit().is_some() {
        raise_open_files();
        if let Some(most) = limit() {
            return Err(ProcessError::NoRoom { pid, watched, each: FILES_EACH, most });
        }
    }
    match Process::open(pid) {
        Err(e) if e.is_out_of_descriptors() && raise_open_files() => Process::open(pid),
        other => other,
    }
}

/// Whether so many descriptors leave too few of `most` for all else.
fn is_too_many(files: u64, most: u64) -> bool {
    files + FILES_LEFT.min(most / 4) > most
}

/// Between vfork and exec a child runs in its parent's memory: it is no target of its own yet.
fn runs_in_parents_memory(pid: u32) -> bool {
    Stat::read(&ProcessDir::live(pid)).is_ok_and(|stat| stat.forked && share_memory(pid, stat.ppid) == Some(true))
}
