//! One limit, and the memories below it.

use super::gauge::Gauge;
use super::rate::FillRate;
use super::react::{Candidate, Reaction};
use super::stats::{Line, MemoryLine};
use super::{Args, SHORTEST_INTERVAL};
use crate::commands::lru::live::{Live, Member};
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::keeper::memory::{Evicted, Memory};
use isotherm_core::keeper::pace::{WalkPace, Watermarks};
use isotherm_core::keeper::plan::Plan;
use isotherm_core::keeper::space::Walked;
use isotherm_core::keeper::thrash::ThrashWatch;
use isotherm_core::keeper::turns::Turns;
use isotherm_core::source::AccessSource;
use isotherm_core::target::TargetId;
use isotherm_core::units::format_time;
use isotherm_core::units::nanos;
use isotherm_linux::clock::{monotonic_ns, thread_cpu_ns};
use isotherm_linux::proc::ProcRoot;
use isotherm_linux::proc::stat::Stat;
use std::collections::BTreeMap;

/// Time to the second walk; later ones follow what walks find.
const FIRST_INTERVAL_NS: u64 = 500_000_000;
/// One step evicts at most so much, so that the loop stays responsive.
const STEP: u64 = 4 << 20;
/// With less than this share of the limit in use there is no hurry to walk.
const AT_EASE: f64 = 0.8;
/// The first walks are not put off: there is much to learn.
const FIRST_WALKS: u64 = 4;
/// How long to wait after nothing could be done, ns.
const REST_NS: u64 = 1_000_000_000;
/// Of pages in constant use one part in 2^this is cleared by each walk at least; the rest is taken to be in use meanwhile.
const MOST_LEVEL: u8 = 5;
/// The plan is for so many times what is needed now.
const AHEAD: u64 = 8;
/// It is walked early if so large a part of memory was exchanged since the last walk.
const EXCHANGED: f64 = 0.2;

/// A limit and who is below it.
pub struct Domain {
    name: String,
    gauge: Gauge,
    marks: Watermarks,
    /// Members' groups lie at or below one of these paths; empty: all belong here.
    prefixes: Vec<String>,
    memories: Vec<(String, Memory, Plan, u64)>,
    /// Pid, index of the memory, major faults when it came (if they could be read).
    members: BTreeMap<TargetId, (u32, usize, Option<u64>)>,
    turns: Turns,
    pace: WalkPace,
    most_level: u8,
    thrash: ThrashWatch,
    reaction: Reaction,
    swappiness: u8,
    next_walk_ns: u64,
    rest_until_ns: u64,
    rate: FillRate,
    evicted_since_walk: u64,
    sum: Line,
}

impl Domain {
    /// A limit of `limit` bytes on what `gauge` measures.
    pub fn new(name: String, gauge: Gauge, limit: u64, prefixes: Vec<String>, args: &Args) -> Self {
        // Three walks within the time to live, so that it can be told whether something is older.
        let most = if args.min_ttl.is_zero() {
            nanos(args.max_interval)
        } else {
            nanos(args.max_interval).min(nanos(args.min_ttl) / 3)
        };
        Self {
            sum: Line { domain: name.clone(), engine: "user", limit, ..Line::default() },
            name,
            gauge,
            marks: Watermarks::new(limit, args.headroom),
            prefixes,
            memories: Vec::new(),
            members: BTreeMap::new(),
            turns: Turns::new(1),
            pace: WalkPace::new(FIRST_INTERVAL_NS, nanos(SHORTEST_INTERVAL), most, args.cpu_budget.0),
            most_level: 0,
            thrash: ThrashWatch::new(nanos(args.min_ttl)),
            reaction: Reaction::new(args.on_thrash, args.freeze_time),
            swappiness: args.swappiness,
            next_walk_ns: 0,
            rest_until_ns: 0,
            rate: FillRate::default(),
            evicted_since_walk: 0,
        }
    }

    /// Whether a process of this control group belongs here.
    pub fn takes(&self, memcg: &str) -> bool {
        let inside =
            |p: &String| memcg == p || memcg.strip_prefix(p.trim_end_matches('/')).is_some_and(|r| r.starts_with('/'));
        self.prefixes.is_empty() || self.prefixes.iter().any(inside)
    }

    /// A process has come.
    pub fn add(&mut self, target: TargetId, member: &Member, by_process: bool) {
        let name = if by_process { format!("pid {}", member.pid) } else { member.memcg.clone() };
        let at = self.memories.iter().position(|m| m.0 == name).unwrap_or_else(|| {
            self.memories.push((name, Memory::learning(), Plan::default(), 0));
            self.memories.len() - 1
        });
        self.turns.add(at as u32);
        self.memories[at].1.add(target);
        self.members.insert(target, (member.pid, at, major_faults(member.pid)));
        self.gauge.add(member.pid);
    }

    /// How many processes there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Does what is due; when to be called again. What fails is told in the statistics: it must not end the care for the rest.
    pub fn turn(&mut self, live: &mut Live) -> u64 {
        let now = monotonic_ns();
        if self.reaction.thaw_in_time(now) {
            self.thrash.reset();
        }
        let Some(used) = self.gauge.used(now) else {
            // Nothing is left to limit. A walk finds out who has ended, so that the run can end when all have.
            self.walk(live, 0);
            self.sum.idle_reason = Some("nothing is left below this limit".into());
            return now + REST_NS;
        };
        self.sum.used = Some(used);
        self.rate.note(used + self.sum.evicted, now);
        if now >= self.next_walk_ns || self.is_walk_early(now) {
            self.walk(live, used);
        }
        let need = self.marks.need(used);
        if need > 0 && now >= self.rest_until_ns {
            let evicted = self.evict(live, need.min(STEP));
            if evicted.out > 0 {
                self.sum.idle_reason = None;
                return if need > STEP { monotonic_ns() } else { monotonic_ns() + self.patience(used) };
            }
            self.rest_until_ns = monotonic_ns() + if evicted.error.is_some() { REST_NS } else { self.patience(used) };
            self.sum.idle_reason = Some(match evicted.error {
                Some(why) => why,
                None if self.len() == 0 => "no process is in it whose memory could be evicted".into(),
                None => "everything was used since the last walk, or cannot be evicted".into(),
            });
            if evicted.spared > 0 {
                // What was planned has been used: the walk is too old.
                self.next_walk_ns = self.next_walk_ns.min(now + self.pace.affordable_ns() as u64);
            }
        }
        let wake = monotonic_ns() + self.patience(used);
        wake.min(self.next_walk_ns).max(if need > 0 { self.rest_until_ns } else { 0 })
    }

    fn patience(&self, used: u64) -> u64 {
        self.marks.look_again_ns(used, self.rate.per_second())
    }

    /// So much was exchanged that the last walk says little about what is in memory.
    fn is_walk_early(&self, now: u64) -> bool {
        let since = now.saturating_sub(self.next_walk_ns.saturating_sub(self.pace.interval_ns()));
        let present = self.sum.present as f64;
        self.evicted_since_walk as f64 > EXCHANGED * present
            && present > 0.0
            && since as f64 > self.pace.affordable_ns()
    }

    fn walk(&mut self, live: &mut Live, used: u64) {
        let before = (thread_cpu_ns(), live.source.cost().target_ns);
        let now = monotonic_ns();
        let (mut walked, mut failed) = (Walked::default(), None);
        for (_, memory, plan, _) in &mut self.memories {
            memory.set_most_level(self.most_level);
            match memory.age(&mut live.source, now) {
                Ok(one) => walked.add(&one),
                Err(e) => failed = Some(e),
            }
            *plan = Plan::default();
        }
        self.forget_ended();
        let cpu = thread_cpu_ns() - before.0;
        let lost = live.source.cost().target_ns - before.1;
        self.pace.learn(&walked, cpu + lost);
        let sum = &mut self.sum;
        sum.walks += 1;
        sum.walk_ns += cpu;
        sum.target_ns += lost;
        sum.present = walked.present * PAGE_SIZE;
        sum.refaulted += walked.back * PAGE_SIZE;
        sum.tables_read += walked.tables;
        sum.used_share = (walked.present > 0).then(|| walked.used as f64 / walked.present as f64);
        let interval = self.pace.interval_ns();
        sum.interval_ns = interval;
        sum.over_budget = self.pace.is_short_of_budget();
        // What is in constant use is cleared ever more seldom, so that walks become cheap enough.
        let level = if sum.over_budget { self.most_level + 1 } else { self.most_level.saturating_sub(1) };
        self.most_level = level.min(MOST_LEVEL);
        let at_ease = (used as f64) < AT_EASE * self.marks.high as f64 || self.evicted_since_walk == 0;
        // Where nothing had to go, what is used need not be known so exactly.
        let at_ease = at_ease && self.thrash.ttl_ns() == 0 && self.sum.walks > FIRST_WALKS;
        self.next_walk_ns = monotonic_ns() + if at_ease { interval.max(REST_NS) } else { interval };
        self.judge_thrashing(live, used, now, interval);
        self.evicted_since_walk = 0;
        if let Some(e) = failed {
            self.sum.idle_reason = Some(e.to_string());
        }
    }

    fn forget_ended(&mut self) {
        let memories = &self.memories;
        let gauge = &mut self.gauge;
        self.members.retain(|target, (pid, at, _)| {
            let here = memories[*at].1.spaces.contains_key(target);
            if !here {
                gauge.remove(*pid);
            }
            here
        });
    }

    fn judge_thrashing(&mut self, live: &mut Live, used: u64, now: u64, interval: u64) {
        let ttl = self.thrash.ttl_ns();
        if ttl == 0 {
            return;
        }
        let idle: Option<u64> = self.memories.iter().map(|(_, m, ..)| m.evictable(ttl, now).1).sum();
        // What had to go lately will have to go again.
        let need = self
            .marks
            .need(used)
            .max(self.evicted_since_walk.min((self.rate.per_second() * interval as f64 / 1e9) as u64));
        if self.thrash.judge(need, idle, now) {
            let who: Vec<Candidate> = self.candidates();
            self.reaction.react(&self.name, &format_time(ttl), &who, &mut live.out, now);
            self.sum.reactions += 1;
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let one = |(&target, &(pid, at, _)): (&TargetId, &(u32, usize, Option<u64>))| {
            let space = self.memories[at].1.spaces.get(&target)?;
            Some(Candidate { target, pid, bytes: space.evictable_bytes(None).0 })
        };
        self.members.iter().filter_map(one).collect()
    }

    fn evict(&mut self, live: &mut Live, need: u64) -> Evicted {
        let begin = thread_cpu_ns();
        let shares = match &self.memories[..] {
            [_] => vec![(0, need)],
            memories => {
                let sizes: Vec<u64> = memories.iter().map(|(_, m, ..)| m.old_bytes()).collect();
                self.turns.distribute(need, |id| sizes[id as usize])
            }
        };
        let mut sum = Evicted::default();
        for (id, bytes) in shares {
            let Some((_, memory, plan, evicted)) = self.memories.get_mut(id as usize) else { continue };
            if plan.is_empty() {
                *plan = memory.plan(self.swappiness, bytes.saturating_mul(AHEAD), 0);
            }
            match memory.evict(&mut live.source, &mut live.out, plan, bytes) {
                Ok(one) => {
                    *evicted += one.out;
                    sum.add(one);
                }
                // One process in a strange state (it may be ending) must not end the care for the others.
                Err(e) => sum.error = sum.error.take().or(Some(e.to_string())),
            }
        }
        self.sum.evicted += sum.out;
        self.sum.spared += sum.spared;
        self.sum.evict_ns += thread_cpu_ns() - begin;
        self.evicted_since_walk += sum.out;
        sum
    }

    /// The statistics.
    pub fn line(&mut self) -> Line {
        let now = monotonic_ns();
        let faults =
            |(pid, _, before): &(u32, usize, Option<u64>)| Some(major_faults(*pid)?.saturating_sub((*before)?));
        let figures: Vec<u64> = self.members.values().filter_map(faults).collect();
        let memories = self.memories.iter().map(|(name, memory, _, evicted)| MemoryLine {
            memcg: name.clone(),
            evicted: *evicted,
            evictable: memory.evictable(0, now).0,
        });
        Line {
            time_ns: now,
            major_faults: (!figures.is_empty()).then(|| figures.iter().sum()),
            thrashing_since_ns: self.thrash.since(),
            frozen: self.reaction.frozen(),
            memories: memories.collect(),
            ..self.sum.clone()
        }
    }
}

fn major_faults(pid: u32) -> Option<u64> {
    Stat::read(&ProcRoot::default().process(pid)).ok().map(|s| s.major_faults)
}
