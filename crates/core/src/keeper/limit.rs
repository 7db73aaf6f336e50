//! One limit, kept by walking page tables: when to walk, what to evict, and when the working set does not fit.

use super::address_space::Walked;
use super::figures::{LimitFigures, MemoryFigures};
use super::fill_rate::FillRate;
use super::left_to_kernel::{KernelReclaim, LeftToKernel};
use super::memcg_lru::MemcgLru;
use super::memory::{Evicted, Memory, PageOut};
use super::pace::{WalkPace, Watermarks};
use super::plan::Plan;
use super::thrash::ThrashWatch;
use crate::addr::PAGE_SIZE;
use crate::clock::CpuClock;
use crate::memcg::is_below;
use crate::source::AccessSource;
use crate::target::TargetId;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// Time to the second walk; later ones follow what walks find.
const FIRST_INTERVAL_NS: u64 = 500_000_000;
/// Shortest time between two walks, ns.
pub const SHORTEST_INTERVAL_NS: u64 = 50_000_000;
/// One step evicts at most so much, so that the loop stays responsive.
const STEP: u64 = 4 << 20;
/// With less than this share of the limit in use there is no hurry to walk.
const AT_EASE: f64 = 0.8;
/// The first walks are not put off: there is much to learn.
const FIRST_WALKS: u64 = 4;
/// How long to wait after nothing could be done, ns.
const REST_NS: u64 = 1_000_000_000;
/// Of pages in constant use one part in 2^this is cleared by each walk at least; the rest is taken to be in use
/// meanwhile.
const MOST_LEVEL: u8 = 5;
/// The plan is for so many times what is needed now.
const AHEAD: u64 = 8;
/// It is walked early if so large a part of memory was exchanged since the last walk.
const EXCHANGED: f64 = 0.2;

/// How a limit is kept.
#[derive(Debug, Clone, Copy)]
pub struct LimitConfig {
    /// Bytes that must not be reached at first: see [`LimitKeeper::set_limit`].
    pub limit: u64,
    /// Share of the limit that is kept free.
    pub headroom: f64,
    /// What anonymous memory is worth against files: 0 (only files go) to 200 (only anonymous memory goes).
    pub swappiness: u8,
    /// A working set of so long must stay in memory, ns; 0: whether it can is not looked at.
    pub min_ttl_ns: u64,
    /// Longest time between two walks, ns.
    pub max_interval_ns: u64,
    /// Share of one core that walks may cost, the targets' losses counted; `None`: unlimited.
    pub cpu_budget: Option<f64>,
}

/// What a limit is kept with.
pub struct System<'a> {
    /// Sees which pages are used.
    pub source: &'a mut dyn AccessSource,
    /// Evicts.
    pub out: &'a mut dyn PageOut,
    /// Tells the time, and what work costs.
    pub clock: &'a dyn CpuClock,
}

impl fmt::Debug for System<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("source", &self.source.name()).finish_non_exhaustive()
    }
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// When the next turn is due, ns.
    pub wake_ns: u64,
    /// It has become certain that the working set does not fit: the processes that could give way, the largest first.
    pub thrashing: Option<Vec<Candidate>>,
}

/// A process that could give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its target.
    pub target: TargetId,
    /// Its id.
    pub pid: u32,
    /// What it has in memory, bytes.
    pub bytes: u64,
}

/// A memory below the limit.
#[derive(Debug)]
struct Kept {
    name: String,
    memory: Memory,
    plan: Plan,
    evicted: u64,
    /// [`Memory::old_bytes`] at the last walk less what was to be evicted since; `None`: to be counted. Counting takes a
    /// look at all tables, too much for every step.
    old: Option<u64>,
}

impl Kept {
    fn old_bytes(&mut self) -> u64 {
        let memory = &self.memory;
        *self.old.get_or_insert_with(|| memory.old_bytes())
    }

    /// Takes note of an eviction.
    fn note(&mut self, done: &Evicted) {
        self.evicted += done.out;
        // Where nothing went, a process may have ended; and without old pages, the others count.
        self.old = self.old.filter(|_| done.out > 0).map(|old| old.saturating_sub(done.planned)).filter(|&old| old > 0);
    }
}

/// A process below the limit.
#[derive(Debug, Clone, Copy)]
struct Member {
    pid: u32,
    /// Index of its memory.
    memory: usize,
}

/// Keeps the processes below one limit.
#[derive(Debug)]
pub struct LimitKeeper {
    config: LimitConfig,
    marks: Watermarks,
    /// Members' groups lie at or below one of these paths; empty: all belong here.
    groups: Vec<String>,
    memories: Vec<Kept>,
    members: BTreeMap<TargetId, Member>,
    turns: MemcgLru,
    pace: WalkPace,
    most_level: u8,
    thrash: ThrashWatch,
    thaw_at_ns: Option<u64>,
    /// When the first walk was.
    watched_since_ns: Option<u64>,
    next_walk_ns: u64,
    rest_until_ns: u64,
    rate: FillRate,
    left: LeftToKernel,
    evicted_since_walk: u64,
    sum: LimitFigures,
}

impl LimitKeeper {
    /// Nobody is below the limit yet. `groups`: only processes of control groups at or below these paths will be;
    /// empty: all.
    pub fn new(name: String, groups: Vec<String>, config: LimitConfig) -> Self {
        // Three walks within the time to live, so that it is known whether something is older.
        let most = match config.min_ttl_ns {
            0 => config.max_interval_ns,
            ttl => config.max_interval_ns.min(ttl / 3),
        };
        Self {
            sum: LimitFigures {
                domain: name,
                engine: "user".into(),
                limit: Some(config.limit),
                ..LimitFigures::default()
            },
            marks: Watermarks::new(config.limit, config.headroom),
            groups,
            memories: Vec::new(),
            members: BTreeMap::new(),
            turns: MemcgLru::new(1),
            pace: WalkPace::new(FIRST_INTERVAL_NS, SHORTEST_INTERVAL_NS, most, config.cpu_budget),
            most_level: 0,
            thrash: ThrashWatch::new(config.min_ttl_ns),
            thaw_at_ns: None,
            watched_since_ns: None,
            next_walk_ns: 0,
            rest_until_ns: 0,
            rate: FillRate::default(),
            left: LeftToKernel::default(),
            evicted_since_walk: 0,
            config,
        }
    }

    /// What the limit is on.
    pub fn name(&self) -> &str {
        &self.sum.domain
    }

    /// The limit is so many bytes from now on; `None`: there is none for the time being.
    pub fn set_limit(&mut self, bytes: Option<u64>) {
        self.marks = Watermarks::new(bytes.unwrap_or(u64::MAX), self.config.headroom);
        self.sum.limit = bytes;
    }

    /// Whether a process of the control group at `memcg` belongs here.
    pub fn takes(&self, memcg: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|group| is_below(memcg, group))
    }

    /// A process has come. Those with the same `memory` share their generations.
    pub fn add(&mut self, target: TargetId, pid: u32, memory: String) {
        let named = self.memories.iter().position(|kept| kept.name == memory);
        let at = named.unwrap_or_else(|| {
            let new = Kept { name: memory, memory: Memory::learning(), plan: Plan::default(), evicted: 0, old: None };
            // In the place of one whose processes have all ended: processes come and go for as long as the machine runs.
            let empty = self.memories.iter().position(|kept| kept.memory.spaces.is_empty());
            match empty {
                Some(at) => self.memories[at] = new,
                None => self.memories.push(new),
            }
            empty.unwrap_or(self.memories.len() - 1)
        });
        self.turns.add(at as u32);
        self.memories[at].memory.add(target);
        self.memories[at].old = None;
        self.members.insert(target, Member { pid, memory: at });
    }

    /// The processes that are there as of the last walk.
    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.values().map(|member| member.pid)
    }

    /// Those processes' targets.
    pub fn targets(&self) -> impl Iterator<Item = TargetId> + '_ {
        self.members.keys().copied()
    }

    /// A process was stopped until `at_ns`, so that the others have room.
    pub fn stopped_until(&mut self, at_ns: u64) {
        self.thaw_at_ns = Some(at_ns);
    }

    /// Whether it is time for stopped processes to go on; thrashing is judged anew then.
    pub fn is_thaw_due(&mut self, now_ns: u64) -> bool {
        let due = self.thaw_at_ns.take_if(|at| now_ns >= *at).is_some();
        if due {
            self.thrash.reset();
        }
        due
    }

    /// Whether [`count_reclaim`](Self::count_reclaim) is due.
    pub fn wants_reclaim(&self, now_ns: u64) -> bool {
        self.left.is_due(now_ns)
    }

    /// Takes what the kernel has done about the limit so far; `None`: not known. Where that is more than what was evicted ahead of it, of
    /// programs that never sleep, it is left to the kernel for a while.
    pub fn count_reclaim(&mut self, now_ns: u64, kernel: Option<KernelReclaim>) {
        self.left.count(now_ns, kernel, self.sum.evicted);
    }

    /// Does what is due with `used` bytes in use (`None`: nothing is left to measure). What fails is reported in the
    /// figures: it must not end the care for the rest.
    pub fn turn(&mut self, system: &mut System<'_>, used: Option<u64>) -> Turn {
        let now = system.clock.now_ns();
        self.sum.used = used.or(self.sum.used);
        let Some(used) = used else {
            // A walk finds out who has ended, so that the run can end when all have.
            let thrashing = self.walk(system, 0);
            self.sum.idle_reason = Some("nothing is left below this limit".into());
            return Turn { wake_ns: now + REST_NS, thrashing };
        };
        self.rate.note(used + self.sum.evicted, now);
        let is_left = self.left.is_left(now);
        let due = now >= self.next_walk_ns || !is_left && self.is_walk_early(now);
        let thrashing = if due { self.walk(system, used) } else { None };
        if is_left {
            return Turn { wake_ns: now + REST_NS, thrashing };
        }
        Turn { wake_ns: self.make_room(system, used, now), thrashing }
    }

    /// Evicts where there is need, in a turn that began at `now`; when the next is due, ns.
    fn make_room(&mut self, system: &mut System<'_>, used: u64, now: u64) -> u64 {
        let need = self.marks.need(used);
        let patience = self.marks.look_again_ns(used, self.rate.per_second());
        if need > 0 && now >= self.rest_until_ns {
            let evicted = self.evict(system, need.min(STEP));
            let after = system.clock.now_ns();
            if evicted.out > 0 {
                self.sum.idle_reason = None;
                return if need > STEP { after } else { after + patience };
            }
            self.rest_until_ns = after + if evicted.error.is_some() { REST_NS } else { patience };
            self.sum.idle_reason = Some(match evicted.error {
                Some(why) => why,
                None if self.members.is_empty() => "no process is in it whose memory could be evicted".into(),
                None => "everything was used since the last walk, or cannot be evicted".into(),
            });
            if evicted.spared > 0 {
                // What was planned has been used: the walk is too old.
                self.next_walk_ns = self.next_walk_ns.min(now + self.pace.affordable_ns() as u64);
            }
        }
        let wake = system.clock.now_ns() + patience;
        wake.min(self.next_walk_ns).max(if need > 0 { self.rest_until_ns } else { 0 })
    }

    /// So much was exchanged that the last walk says little about what is in memory.
    fn is_walk_early(&self, now: u64) -> bool {
        let since = now.saturating_sub(self.next_walk_ns.saturating_sub(self.pace.interval_ns()));
        let present = self.sum.present.unwrap_or(0) as f64;
        self.evicted_since_walk as f64 > EXCHANGED * present
            && present > 0.0
            && since as f64 > self.pace.affordable_ns()
    }

    /// Walks all page tables. Whom to ask for room, if that turns out to be needed.
    fn walk(&mut self, system: &mut System<'_>, used: u64) -> Option<Vec<Candidate>> {
        let before = (system.clock.cpu_ns(), system.source.cost().target_ns);
        let now = system.clock.now_ns();
        self.watched_since_ns.get_or_insert(now);
        let (mut walked, mut failed) = (Walked::default(), None);
        for kept in &mut self.memories {
            kept.memory.set_most_level(self.most_level);
            match kept.memory.age(system.source, now) {
                Ok(one) => walked.add(&one),
                Err(e) => failed = Some(e),
            }
            (kept.plan, kept.old) = (Plan::default(), None);
        }
        self.members.retain(|target, member| self.memories[member.memory].memory.spaces.contains_key(target));
        let cpu = system.clock.cpu_ns() - before.0;
        let lost = system.source.cost().target_ns - before.1;
        let is_left = self.left.is_left(now);
        if !is_left {
            self.pace.learn(&walked, cpu + lost);
        }
        let sum = &mut self.sum;
        sum.walks += 1;
        sum.walk_ns += cpu;
        *sum.target_ns.get_or_insert(0) += lost;
        sum.present = Some(walked.present * PAGE_SIZE);
        *sum.refaulted.get_or_insert(0) += walked.back * PAGE_SIZE;
        *sum.tables_read.get_or_insert(0) += walked.tables;
        sum.used_share = (walked.present > 0).then(|| walked.used as f64 / walked.present as f64);
        // Only so that it is known who has ended, and what is in memory, where nothing is evicted.
        let interval = if is_left { self.pace.most_ns() } else { self.pace.interval_ns() };
        let over_budget = self.pace.is_short_of_budget();
        (sum.interval_ns, sum.over_budget) = (Some(interval), Some(over_budget));
        // What is in constant use is cleared ever more seldom, so that walks become cheap enough.
        let level = if over_budget { self.most_level + 1 } else { self.most_level.saturating_sub(1) };
        self.most_level = level.min(MOST_LEVEL);
        let at_ease = (used as f64) < AT_EASE * self.marks.high as f64 || self.evicted_since_walk == 0;
        // Where nothing had to go, what is used need not be known so exactly.
        let at_ease = at_ease && self.thrash.ttl_ns() == 0 && self.sum.walks > FIRST_WALKS;
        self.next_walk_ns = system.clock.now_ns() + if at_ease { interval.max(REST_NS) } else { interval };
        let thrashing = self.is_thrashing(used, now, interval).then(|| self.candidates());
        self.sum.reactions += u64::from(thrashing.is_some());
        self.evicted_since_walk = 0;
        if let Some(e) = failed {
            self.sum.idle_reason = Some(e.to_string());
        }
        thrashing
    }

    /// Whether it has just become certain that the working set does not fit.
    fn is_thrashing(&mut self, used: u64, now: u64, interval: u64) -> bool {
        let ttl = self.thrash.ttl_ns();
        if ttl == 0 {
            return false;
        }
        let watched = |limit_ns: &u64| self.watched_since_ns.is_some_and(|since_ns| since_ns <= *limit_ns);
        // What has come since then has been used since then: processes that come all the time do not hold the verdict up.
        let limit_ns = now.checked_sub(ttl).filter(watched);
        let idle = limit_ns.map(|limit_ns| self.memories.iter().map(|kept| kept.memory.idle_bytes(limit_ns)).sum());
        // What had to go lately will have to go again.
        let lately = self.evicted_since_walk.min((self.rate.per_second() * interval as f64 / 1e9) as u64);
        self.thrash.judge(self.marks.need(used).max(lately), idle, now)
    }

    fn candidates(&self) -> Vec<Candidate> {
        let one = |(&target, &Member { pid, memory }): (&TargetId, &Member)| {
            let space = self.memories[memory].memory.spaces.get(&target)?;
            Some(Candidate { target, pid, bytes: space.evictable_bytes(None).0 })
        };
        let mut all: Vec<Candidate> = self.members.iter().filter_map(one).collect();
        all.sort_by_key(|candidate| Reverse(candidate.bytes));
        all
    }

    fn evict(&mut self, system: &mut System<'_>, need: u64) -> Evicted {
        let begin = system.clock.cpu_ns();
        let shares = match &mut self.memories[..] {
            [_] => vec![(0, need)],
            memories => {
                let sizes: Vec<u64> = memories.iter_mut().map(Kept::old_bytes).collect();
                self.turns.distribute(need, |id| sizes[id as usize])
            }
        };
        let mut sum = Evicted::default();
        for (id, bytes) in shares {
            let Some(kept) = self.memories.get_mut(id as usize) else { continue };
            if kept.plan.is_empty() {
                kept.plan = kept.memory.plan(self.config.swappiness, bytes.saturating_mul(AHEAD), 0);
            }
            match kept.memory.evict(system.source, system.out, &mut kept.plan, bytes) {
                Ok(one) => {
                    kept.note(&one);
                    sum.add(one);
                }
                // One process in a strange state (it may be ending) must not end the care for the others.
                Err(e) => {
                    kept.old = None;
                    sum.error = sum.error.take().or(Some(e.to_string()));
                }
            }
        }
        self.sum.evicted += sum.out;
        *self.sum.spared.get_or_insert(0) += sum.spared;
        self.sum.evict_ns += system.clock.cpu_ns() - begin;
        self.evicted_since_walk += sum.out;
        sum
    }

    /// The figures as of `now_ns`, but for those that only the system knows (major faults, who is stopped).
    pub fn figures(&self, now_ns: u64) -> LimitFigures {
        let memories = self.memories.iter().map(|kept| MemoryFigures {
            memcg: kept.name.clone(),
            evicted: kept.evicted,
            evictable: kept.memory.evictable_bytes(),
        });
        LimitFigures {
            time_ns: now_ns,
            thrashing_since_ns: self.thrash.since(),
            memories: memories.collect(),
            idle_reason: self.left.reason(now_ns).or_else(|| self.sum.idle_reason.clone()),
            ..self.sum.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::replay::Toy;
    use super::*;

    #[test]
    fn what_is_old_is_counted_once_a_walk() {
        let toy = Toy::new(1, 1024);
        let mut kept =
            Kept { name: "a".into(), memory: Memory::learning(), plan: Plan::default(), evicted: 0, old: None };
        kept.memory.add(0);
        (0..1024).for_each(|page| _ = toy.access(0, page));
        for now in 1..=4 {
            (0..24).for_each(|page| _ = toy.access(0, page));
            kept.memory.age(&mut toy.clone(), now).unwrap();
        }
        assert_eq!(kept.old_bytes(), 1000 * PAGE_SIZE);
        let mut plan = kept.memory.plan(100, u64::MAX, 2);
        // What was used since the walk is spared, and what cannot go is not tried again: neither is old any more.
        (100..150).for_each(|page| _ = toy.access(0, page));
        toy.pin(200..250);
        for left in [800, 600] {
            let done = kept.memory.evict(&mut toy.clone(), &mut toy.clone(), &mut plan, 200 * PAGE_SIZE).unwrap();
            kept.note(&done);
            assert_eq!((kept.old, kept.memory.old_bytes()), (Some(left * PAGE_SIZE), left * PAGE_SIZE));
        }
        assert_eq!(kept.evicted, 300 * PAGE_SIZE);
        kept.note(&Evicted { planned: PAGE_SIZE, ..Evicted::default() });
        assert_eq!(kept.old, None, "nothing went");
    }
}
