//! Generations of control groups, kept by page-table walks: what the commands do to them, and what is shown.

use super::command::{Command, Swappiness, Verb};
use super::machine::Machine;
use crate::errno::Errno;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::keeper::MIN_GENS;
use isotherm_core::keeper::address_space::Walked;
use isotherm_core::keeper::creation_times::CreationTimes;
use isotherm_core::keeper::lru_gen::{full_node_lines, memcg_line, node_lines};
use isotherm_core::keeper::memory::{Generation, Memory};
use isotherm_core::target::TargetId;
use isotherm_linux::cgroup::list::ListedGroup;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most generations that are shown, as in the kernel.
const MAX_GENS: u64 = 4;
/// The only node: generations do not tell nodes apart.
const NODE: u32 = 0;
/// Groups of which generations are kept at most. Of more, the one that no command was given for longest is dropped.
const MOST_GROUPS: usize = 4096;
/// For how long a read looks at what is in memory now, ns. Groups for which that is not enough are shown as of the last
/// time, and come first next time.
const LOOK_NS: u64 = 100_000_000;

/// The most swappiness that lets files go as well, in the engine's terms.
const MOST_OF_BOTH: u8 = 199;
/// Only anonymous memory goes.
const ANON_ONLY: u8 = 200;

/// The generations of all groups.
pub(crate) struct Generations {
    machine: Box<dyn Machine>,
    kept: BTreeMap<u32, Kept>,
    /// Which group a target is in.
    owners: HashMap<TargetId, u32>,
    /// When generations began to be kept: those of a group without any command are said to be as old as that.
    begun_ns: u64,
    on: bool,
    walks: bool,
}

/// A group for which a command was given.
struct Kept {
    path: String,
    memory: Memory,
    /// The oldest generation that is shown; what is older counts with it.
    min_seq: u64,
    /// Its processes, by pid.
    targets: BTreeMap<u32, TargetId>,
    /// What the last walk found.
    walked: Option<Walked>,
    looked_ns: u64,
    commanded_ns: u64,
}

impl Kept {
    fn new(path: String, begun_ns: u64) -> Self {
        Self {
            path,
            memory: CreationTimes::restore(MAX_GENS - 1, vec![begun_ns; MAX_GENS as usize])
                .map(Memory::restore)
                .unwrap_or_default(),
            min_seq: 0,
            targets: BTreeMap::new(),
            walked: None,
            looked_ns: 0,
            commanded_ns: 0,
        }
    }

    fn max_seq(&self) -> u64 {
        self.memory.created().map_or(MAX_GENS - 1, CreationTimes::max_seq)
    }

    /// Whether what a process has in memory is known from walks.
    fn knows(&self, pid: u32) -> bool {
        self.targets.get(&pid).is_some_and(|target| self.memory.spaces.contains_key(target))
    }

    /// The last four generations, the oldest first, with the sizes of those before `min_seq` in that.
    fn generations(&self, now_ns: u64) -> Vec<Generation> {
        let mut all = self.memory.generations(None, MAX_GENS as usize, now_ns);
        let gone = all.iter().take_while(|g| g.seq < self.min_seq).count().min(all.len().saturating_sub(1));
        for i in 0..gone {
            let Generation { anon_bytes, file_bytes, .. } = all[i];
            (all[i].anon_bytes, all[i].file_bytes) = (0, 0);
            all[gone].anon_bytes += anon_bytes;
            all[gone].file_bytes += file_bytes;
        }
        all
    }
}

impl Generations {
    pub(crate) fn new(machine: Box<dyn Machine>) -> Self {
        let begun_ns = machine.now_ns();
        Self { machine, kept: BTreeMap::new(), owners: HashMap::new(), begun_ns, on: true, walks: true }
    }

    /// Keeps generations, or drops them: their numbers stay, as in the kernel, and commands go on counting them.
    /// Without `walks` new ones are created, but nobody looks what was used.
    pub(crate) fn switch(&mut self, on: bool, walks: bool) {
        self.walks = walks;
        if on == self.on {
            return;
        }
        self.on = on;
        for kept in self.kept.values_mut() {
            kept.memory.spaces.clear();
            kept.walked = None;
            kept.targets.clear();
        }
        let targets: Vec<TargetId> = self.owners.drain().map(|(target, _)| target).collect();
        self.machine.forget(&targets);
    }

    /// Carries out a command. `min_ttl_ms`: what was used within that time is not evicted.
    pub(crate) fn run(&mut self, command: Command, min_ttl_ms: u32) -> Result<(), Errno> {
        if command.node != NODE {
            return Err(Errno::Invalid);
        }
        let group = self.machine.find(command.memcg).ok_or(Errno::Invalid)?;
        match command.verb {
            Verb::Age { force } => self.age(&group, command.seq, force),
            Verb::Evict { pages } => {
                let swappiness = match command.swappiness {
                    None => self.machine.swappiness(group.id).min(MOST_OF_BOTH),
                    Some(Swappiness::Of(swappiness)) => swappiness.min(MOST_OF_BOTH),
                    Some(Swappiness::AnonOnly) => ANON_ONLY,
                };
                self.evict(&group, command.seq, swappiness, pages, u64::from(min_ttl_ms) * 1_000_000)
            }
        }
    }

    fn age(&mut self, group: &ListedGroup, seq: u64, force: bool) -> Result<(), Errno> {
        let kept = self.keep(group);
        let (max_seq, min_seq) = (kept.max_seq(), kept.min_seq);
        if seq < max_seq {
            return Ok(());
        }
        if seq > max_seq {
            return Err(Errno::Invalid);
        }
        if !force && min_seq + MAX_GENS <= max_seq + 1 {
            return Err(Errno::Range);
        }
        let walks = self.on && self.walks;
        if walks {
            self.machine.open().map_err(|why| {
                tracing::error!("no generation of {} can be created: {why}", group.path);
                Errno::Invalid
            })?;
            self.join(group.id);
        }
        let now = self.machine.now_ns();
        let Some(kept) = self.kept.get_mut(&group.id) else { return Err(Errno::Invalid) };
        match self.machine.tools().filter(|_| walks) {
            Some((source, _)) => match kept.memory.age(source, now) {
                Ok(walked) => kept.walked = Some(walked),
                // Of one process; the others were walked.
                Err(error) => tracing::warn!("a part of {} was not walked: {error}", group.path),
            },
            None => kept.memory.create_generation(now),
        }
        kept.min_seq = kept.min_seq.max((kept.max_seq() + 1).saturating_sub(MAX_GENS));
        kept.looked_ns = now;
        Ok(())
    }

    fn evict(
        &mut self,
        group: &ListedGroup,
        seq: u64,
        swappiness: u8,
        pages: u64,
        min_ttl_ns: u64,
    ) -> Result<(), Errno> {
        let kept = self.keep(group);
        let max_seq = kept.max_seq();
        if seq.saturating_add(MIN_GENS) > max_seq {
            return Err(Errno::Invalid);
        }
        if seq < kept.min_seq || pages == 0 {
            return Ok(());
        }
        if !kept.memory.spaces.is_empty() {
            self.join(group.id);
        }
        let now = self.machine.now_ns();
        let Some(kept) = self.kept.get_mut(&group.id) else { return Err(Errno::Invalid) };
        let idle = kept.memory.created().and_then(|created| created.age_idle_for(min_ttl_ns, now));
        let least_age = idle.map_or(u64::MAX, u64::from).max(max_seq - seq);
        let Some(oldest_spared) = max_seq.checked_sub(least_age) else { return Ok(()) };
        let bytes = pages.saturating_mul(PAGE_SIZE);
        let Some((source, out)) = self.machine.tools() else { return Ok(()) };
        let evicted = kept.memory.evict_generations(source, out, oldest_spared, swappiness, bytes);
        let evicted = evicted.map_err(|error| {
            tracing::error!("{} cannot be evicted: {error}", group.path);
            Errno::Invalid
        })?;
        if let Some(why) = &evicted.error {
            tracing::warn!("a part of {} stays in memory: {why}", group.path);
        }
        let all = evicted.error.is_none() && evicted.out < bytes && oldest_spared == seq;
        if all && (1..=MOST_OF_BOTH).contains(&swappiness) {
            // What stayed for other reasons has become younger, as in the kernel.
            kept.min_seq = seq + 1;
        }
        kept.looked_ns = now;
        Ok(())
    }

    /// The group's generations, begun where there are none yet.
    fn keep(&mut self, group: &ListedGroup) -> &mut Kept {
        // A number that another group has got by now.
        if self.kept.get(&group.id).is_some_and(|kept| kept.path != group.path) {
            self.drop_group(group.id);
        }
        if !self.kept.contains_key(&group.id) && self.kept.len() >= MOST_GROUPS {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.commanded_ns).map(|(&id, _)| id);
            oldest.into_iter().for_each(|id| self.drop_group(id));
        }
        let kept = self.kept.entry(group.id).or_insert_with(|| Kept::new(group.path.clone(), self.begun_ns));
        kept.commanded_ns = self.machine.now_ns();
        kept
    }

    fn drop_group(&mut self, id: u32) {
        let Some(kept) = self.kept.remove(&id) else { return };
        let targets: Vec<TargetId> = kept.targets.into_values().collect();
        self.let_go(&targets);
    }

    fn let_go(&mut self, targets: &[TargetId]) {
        targets.iter().for_each(|target| _ = self.owners.remove(target));
        self.machine.forget(targets);
    }

    /// Takes in the processes that are in a group now, and lets go of those that have left it.
    fn join(&mut self, id: u32) {
        let pids = self.machine.pids(id);
        let targets: BTreeMap<u32, TargetId> =
            pids.into_iter().filter_map(|pid| Some((pid, self.machine.watch(pid)?))).collect();
        let here: BTreeSet<TargetId> = targets.values().copied().collect();
        for &target in &here {
            // It came from another group.
            if let Some(before) = self.owners.insert(target, id).filter(|&before| before != id)
                && let Some(other) = self.kept.get_mut(&before)
            {
                other.memory.spaces.remove(&target);
                other.targets.retain(|_, of| *of != target);
            }
        }
        let Some(kept) = self.kept.get_mut(&id) else { return };
        for target in &here {
            if !kept.memory.spaces.contains_key(target) {
                kept.memory.add(*target);
            }
        }
        let before = std::mem::replace(&mut kept.targets, targets).into_values();
        let left: Vec<TargetId> = before.filter(|target| !here.contains(target)).collect();
        left.iter().for_each(|target| _ = kept.memory.spaces.remove(target));
        self.let_go(&left);
    }

    /// Lets go of the processes that have left a group, of which these are.
    fn leave(&mut self, id: u32, pids: &[u32]) {
        let Some(kept) = self.kept.get_mut(&id) else { return };
        let here: BTreeSet<u32> = pids.iter().copied().collect();
        let mut left = Vec::new();
        kept.targets.retain(|pid, target| {
            let stays = here.contains(pid);
            if !stays {
                left.push(*target);
            }
            stays
        });
        left.iter().for_each(|target| _ = kept.memory.spaces.remove(target));
        self.let_go(&left);
    }

    /// What `lru_gen` shows, or `lru_gen_full`.
    pub(crate) fn text(&mut self, full: bool) -> String {
        let groups = self.machine.groups();
        let there: HashMap<u32, &str> = groups.iter().map(|group| (group.id, &*group.path)).collect();
        let gone = |(id, kept): (&u32, &Kept)| (there.get(id) != Some(&&*kept.path)).then_some(*id);
        let gone: Vec<u32> = self.kept.iter().filter_map(gone).collect();
        gone.into_iter().for_each(|id| self.drop_group(id));
        self.look();
        let now = self.machine.now_ns();
        let mut text = String::new();
        for group in &groups {
            text += &memcg_line(group.id, &group.path);
            self.show(group.id, now, full, &mut text);
        }
        text
    }

    /// Looks at what is in memory now, the groups first that were looked at longest ago.
    fn look(&mut self) {
        let begun = self.machine.now_ns();
        let mut order: Vec<(u64, u32)> = self.kept.iter().map(|(&id, kept)| (kept.looked_ns, id)).collect();
        order.sort_unstable();
        for (_, id) in order {
            let now = self.machine.now_ns();
            if now.saturating_sub(begun) > LOOK_NS {
                return;
            }
            let (Some(kept), Some((source, _))) = (self.kept.get_mut(&id), self.machine.tools()) else { return };
            if let Err(error) = kept.memory.refresh(source) {
                tracing::warn!("what {} has in memory is not known: {error}", kept.path);
            }
            kept.looked_ns = now;
        }
    }

    fn show(&mut self, id: u32, now: u64, full: bool, text: &mut String) {
        let pids = if self.on { self.machine.pids(id) } else { Vec::new() };
        self.leave(id, &pids);
        let fresh;
        let kept = match self.kept.get(&id) {
            Some(kept) => kept,
            None => {
                fresh = Kept::new(String::new(), self.begun_ns);
                &fresh
            }
        };
        let mut generations = kept.generations(now);
        if let Some(youngest) = generations.last_mut() {
            // Nobody knows of what age it is, so it is young, as new memory is in the kernel.
            let unknown = pids.iter().filter(|&&pid| !kept.knows(pid)).filter_map(|&pid| self.machine.resident(pid));
            for resident in unknown {
                youngest.anon_bytes += resident.anon * PAGE_SIZE;
                youngest.file_bytes += resident.file * PAGE_SIZE;
            }
        }
        if full {
            let walked = kept.walked.map(|walked| (walked.present, walked.used));
            *text += &full_node_lines(&generations, kept.min_seq, NODE, walked);
        } else {
            generations.retain(|g| g.seq >= kept.min_seq);
            *text += &node_lines(&generations, NODE);
        }
    }
}
