//! One limit, kept with the kernel's own generations: when to create one, and how much of which memory to evict.

use super::MIN_GENS;
use super::figures::LimitFigures;
use super::fill_rate::FillRate;
use super::memcg_lru::MemcgLru;
use super::memory::Generation;
use super::pace::Watermarks;
use crate::addr::PAGE_SIZE;
use crate::clock::CpuClock;
use std::fmt::Display;

/// Time to the next look where nothing could be done, ns: reading the kernel's file takes locks of all memories.
const REST_NS: u64 = 100_000_000;
/// Generations are created no faster, ns.
const AGE_NS: u64 = 500_000_000;

/// A control group's memory on one node, as the kernel keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMemory {
    /// The group's number.
    pub id: u32,
    /// Its path.
    pub path: String,
    /// The node.
    pub node: u32,
    /// Its generations, the oldest first.
    pub generations: Vec<Generation>,
}

impl KernelMemory {
    /// The youngest generation's number.
    pub fn max_seq(&self) -> u64 {
        self.generations.last().map_or(0, |g| g.seq)
    }

    /// Bytes in all generations.
    pub fn bytes(&self) -> u64 {
        self.generations.iter().map(Generation::bytes).sum()
    }

    /// The youngest generation that may be evicted; `None`: there is none.
    pub fn evictable_seq(&self) -> Option<u64> {
        self.max_seq().checked_sub(MIN_GENS)
    }

    /// The generations that may be evicted.
    fn old(&self) -> impl Iterator<Item = &Generation> {
        self.generations.iter().filter(|g| g.seq + MIN_GENS <= self.max_seq())
    }
}

/// The memories below a limit, in the kernel's hands.
pub trait KernelGenerations {
    /// Why the kernel refuses.
    type Error: Display;

    /// Bytes in use; `None` once nothing is left to measure.
    fn used(&mut self) -> Option<u64>;

    /// The memories as they are now.
    fn memories(&mut self) -> Result<Vec<KernelMemory>, Self::Error>;

    /// Creates a generation (the command `+` of the control file).
    fn age(&mut self, memory: &KernelMemory) -> Result<(), Self::Error>;

    /// Evicts generations up to `seq`, at most `pages` pages.
    fn evict(&mut self, memory: &KernelMemory, seq: u64, swappiness: u8, pages: u64) -> Result<(), Self::Error>;
}

/// Keeps the control groups below one limit.
#[derive(Debug)]
pub struct KernelKeeper {
    marks: Watermarks,
    headroom: f64,
    swappiness: u8,
    turns: MemcgLru,
    rate: FillRate,
    rest_until_ns: u64,
    /// Generations are not created before, ns.
    next_age_ns: u64,
    sum: LimitFigures,
}

impl KernelKeeper {
    /// Keeps `headroom` (a share of the limit) free below `limit` bytes.
    pub fn new(name: String, limit: u64, headroom: f64, swappiness: u8) -> Self {
        Self {
            marks: Watermarks::new(limit, headroom),
            headroom,
            swappiness,
            turns: MemcgLru::new(1),
            rate: FillRate::default(),
            rest_until_ns: 0,
            next_age_ns: 0,
            sum: LimitFigures { domain: name, engine: "kernel".into(), limit: Some(limit), ..LimitFigures::default() },
        }
    }

    /// The limit is so many bytes from now on; `None`: there is none for the time being.
    pub fn set_limit(&mut self, bytes: Option<u64>) {
        self.marks = Watermarks::new(bytes.unwrap_or(u64::MAX), self.headroom);
        self.sum.limit = bytes;
    }

    /// Does what is due; when the next turn is, ns. What fails is reported in the figures.
    pub fn turn<K: KernelGenerations>(&mut self, kernel: &mut K, clock: &dyn CpuClock) -> u64 {
        let now = clock.now_ns();
        self.sum.used = kernel.used();
        let Some(used) = self.sum.used else {
            self.sum.idle_reason = Some("nothing is left below this limit".into());
            return now + REST_NS;
        };
        self.rate.note(used + self.sum.evicted, now);
        let need = self.marks.need(used);
        if need > 0 && now < self.rest_until_ns {
            return self.rest_until_ns;
        }
        let evicted = if need > 0 { self.reclaim(kernel, clock, used, need) } else { 0 };
        let now = clock.now_ns();
        if need > 0 && evicted == 0 {
            self.rest_until_ns = now + REST_NS;
            return self.rest_until_ns;
        }
        now + self.marks.look_again_ns(used.saturating_sub(evicted), self.rate.per_second())
    }

    /// Evicts `need` of the `used` bytes; how many it were.
    fn reclaim<K: KernelGenerations>(&mut self, kernel: &mut K, clock: &dyn CpuClock, used: u64, need: u64) -> u64 {
        let memories = match kernel.memories() {
            Ok(memories) => memories,
            Err(e) => {
                self.sum.idle_reason = Some(e.to_string());
                return 0;
            }
        };
        (0..memories.len() as u32).for_each(|id| self.turns.add(id));
        self.age(kernel, clock, &memories);
        let sizes: Vec<u64> = memories.iter().map(|memory| memory.old().map(Generation::bytes).sum()).collect();
        let shares = self.turns.distribute(need, |id| sizes.get(id as usize).copied().unwrap_or(0));
        self.sum.idle_reason = shares.is_empty().then(|| "all memory is in the two youngest generations".into());
        let begin = clock.cpu_ns();
        for (id, bytes) in shares {
            let Some(memory) = memories.get(id as usize) else { continue };
            let Some(seq) = memory.evictable_seq() else { continue };
            if let Err(e) = kernel.evict(memory, seq, self.swappiness, bytes.div_ceil(PAGE_SIZE)) {
                // A group that has gone meanwhile, say; the others come all the same.
                self.sum.idle_reason = Some(e.to_string());
            }
        }
        self.sum.evict_ns += clock.cpu_ns() - begin;
        let evicted = kernel.used().map_or(0, |now| used.saturating_sub(now));
        self.sum.evicted += evicted;
        evicted
    }

    /// Creates a generation where only two are left, or where the oldest are empty.
    fn age<K: KernelGenerations>(&mut self, kernel: &mut K, clock: &dyn CpuClock, memories: &[KernelMemory]) {
        let now = clock.now_ns();
        if now < self.next_age_ns {
            return;
        }
        for memory in memories {
            let old: u64 = memory.old().map(Generation::bytes).sum();
            if old * 8 > memory.bytes() {
                continue;
            }
            self.next_age_ns = now + AGE_NS;
            let begin = clock.cpu_ns();
            match kernel.age(memory) {
                Ok(()) => self.sum.walks += 1,
                Err(e) => self.sum.idle_reason = Some(e.to_string()),
            }
            self.sum.walk_ns += clock.cpu_ns() - begin;
        }
    }

    /// The figures as of `now_ns`.
    pub fn figures(&self, now_ns: u64) -> LimitFigures {
        LimitFigures { time_ns: now_ns, ..self.sum.clone() }
    }
}
