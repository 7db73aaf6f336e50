//! The loop of `lru run` through the kernel's own generations.

use super::rate::FillRate;
use super::stats::{Line, Stats};
use super::{Args, OnThrash};
use crate::commands::lru::engine::KernelTarget;
use crate::commands::lru::kernel::{Place, has_swap, places};
use crate::exit::{Unsupported, Usage};
use anyhow::Context;
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::clock::{Clock, Wake};
use isotherm_core::keeper::MIN_GENS;
use isotherm_core::keeper::pace::Watermarks;
use isotherm_core::keeper::turns::Turns;
use isotherm_core::units::format_size;
use isotherm_core::units::nanos;
use isotherm_linux::clock::{MonotonicClock, monotonic_ns, thread_cpu_ns};
use isotherm_linux::lru::kernel::KernelLru;
use isotherm_linux::lru::memcg::{Memcg, Memcgs};
use isotherm_linux::roots::Roots;
use isotherm_linux::signals::StopSignals;

/// Time to the next look where nothing could be done, ns: reading the kernel's file takes locks of all memories.
const REST_NS: u64 = 100_000_000;
/// How often statistics are written, ns.
const STATS_NS: u64 = 1_000_000_000;
/// Generations are created no faster, ns.
const AGE_NS: u64 = 500_000_000;

/// Puts the machine's `min_ttl_ms` back.
struct MinTtl<'a>(&'a KernelLru, u64);

impl Drop for MinTtl<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.0.set_min_ttl(self.1) {
            eprintln!("isotherm: {e}; it was {}", self.1);
        }
    }
}

/// Runs it.
pub fn run(kernel: &KernelTarget, args: &Args) -> anyhow::Result<()> {
    if !args.min_ttl.is_zero() && args.on_thrash != OnThrash::Kill {
        let text =
            "with --engine kernel, --min-ttl is the kernel's own, which kills: give --on-thrash kill, or --engine user";
        return Err(Usage(text.into()).into());
    }
    if !has_swap() && args.swappiness > 0 {
        return Err(Unsupported("nothing can be evicted: there is no swap; add some, for example zram".into()).into());
    }
    let mut stats = Stats::open(args.stats.as_ref())?;
    let signals = StopSignals::catch().context("cannot catch signals")?;
    let mut groups = Memcgs::new(&Roots::system());
    let mut limits = Vec::new();
    for path in &kernel.paths {
        let group = groups.open(path).map_err(|e| Unsupported(format!("the memory of {path} is not told: {e}")))?;
        limits.push((path.clone(), group));
    }
    let mut domains = Vec::new();
    if let Some(limit) = args.limit {
        let (names, groups): (Vec<_>, Vec<_>) = limits.into_iter().unzip();
        domains.push(Domain::new(names, groups, limit, args));
    } else {
        for (name, group) in limits {
            let limit = group.limit().with_context(|| format!("the limit of {name} cannot be read"))?;
            let limit =
                limit.ok_or_else(|| Usage(format!("{name} has no memory limit: give --limit SIZE, or set one")))?;
            domains.push(Domain::new(vec![name], vec![limit.group], limit.bytes, args));
        }
    }
    let ttl = (!args.min_ttl.is_zero()).then(|| args.min_ttl.as_millis().min(u64::MAX.into()) as u64);
    let _restore = match ttl {
        Some(ms) => Some(MinTtl(&kernel.lru, kernel.lru.set_min_ttl(ms).map_err(anyhow::Error::msg)?)),
        None => None,
    };
    let result = watch(kernel, args, &signals, &mut domains, &mut stats);
    for domain in &mut domains {
        stats.write(&domain.line())?;
        if !args.quiet {
            eprintln!("{}: about {} evicted by the kernel", domain.sum.domain, format_size(domain.sum.evicted));
        }
    }
    result
}

struct Domain {
    paths: Vec<String>,
    groups: Vec<Memcg>,
    marks: Watermarks,
    turns: Turns,
    rate: FillRate,
    rest_until_ns: u64,
    aged_ns: u64,
    sum: Line,
}

impl Domain {
    fn new(paths: Vec<String>, groups: Vec<Memcg>, limit: u64, args: &Args) -> Self {
        let sum = Line { domain: paths.join(", "), engine: "kernel", limit, ..Line::default() };
        Self {
            paths,
            groups,
            marks: Watermarks::new(limit, args.headroom),
            turns: Turns::new(1),
            rate: FillRate::default(),
            rest_until_ns: 0,
            aged_ns: 0,
            sum,
        }
    }

    fn used(&self) -> Option<u64> {
        let figures: Vec<u64> = self.groups.iter().filter_map(|g| g.used().ok()).collect();
        (!figures.is_empty()).then(|| figures.iter().sum())
    }

    /// Does what is due; how long to wait until it is called again, ns.
    fn turn(&mut self, kernel: &KernelTarget, args: &Args) -> u64 {
        self.sum.used = self.used();
        let Some(used) = self.sum.used else {
            self.sum.idle_reason = Some("nothing is left below this limit".into());
            return REST_NS;
        };
        let now = monotonic_ns();
        self.rate.note(used + self.sum.evicted, now);
        let need = self.marks.need(used);
        if need > 0 && now < self.rest_until_ns {
            return self.rest_until_ns - now;
        }
        let evicted = if need > 0 { self.reclaim(kernel, args, used, need) } else { 0 };
        if need > 0 && evicted == 0 {
            self.rest_until_ns = now + REST_NS;
            return REST_NS;
        }
        self.marks.look_again_ns(used.saturating_sub(evicted), self.rate.per_second())
    }

    /// Evicts `need` of the `used` bytes; how many it were.
    fn reclaim(&mut self, kernel: &KernelTarget, args: &Args, used: u64, need: u64) -> u64 {
        let mine = KernelTarget { lru: kernel.lru.clone(), paths: self.paths.clone() };
        let places = match places(&mine) {
            Ok(places) => places,
            Err(e) => {
                self.sum.idle_reason = Some(e.to_string());
                return 0;
            }
        };
        (0..places.len() as u32).for_each(|id| self.turns.add(id));
        self.age(kernel, &places);
        let old = |p: &Place| {
            let evictable = p.generations.iter().filter(|g| g.seq + MIN_GENS <= p.max_seq());
            evictable.map(|g| g.anon_bytes + g.file_bytes).sum::<u64>()
        };
        let sizes: Vec<u64> = places.iter().map(old).collect();
        let shares = self.turns.distribute(need, |id| sizes.get(id as usize).copied().unwrap_or(0));
        self.sum.idle_reason = shares.is_empty().then(|| "all memory is in the two youngest generations".into());
        let begin = thread_cpu_ns();
        for (id, bytes) in shares {
            let Some(place) = places.get(id as usize) else { continue };
            let Some(seq) = place.max_seq().checked_sub(MIN_GENS) else { continue };
            let pages = bytes.div_ceil(PAGE_SIZE);
            if let Err(e) = kernel.lru.evict(place.memcg, place.node, seq, args.swappiness, pages) {
                // A group that has gone meanwhile, say; the others come all the same.
                self.sum.idle_reason = Some(e);
            }
        }
        self.sum.evict_ns += thread_cpu_ns() - begin;
        let evicted = self.used().map_or(0, |now| used.saturating_sub(now));
        self.sum.evicted += evicted;
        evicted
    }

    /// Creates a generation where only two are left, or where the oldest are empty.
    fn age(&mut self, kernel: &KernelTarget, places: &[Place]) {
        let now = monotonic_ns();
        if now < self.aged_ns + AGE_NS {
            return;
        }
        for place in places {
            let old: u64 =
                place.generations.iter().filter(|g| g.seq + MIN_GENS <= place.max_seq()).map(|g| g.anon_bytes).sum();
            if old * 8 > place.bytes() {
                continue;
            }
            self.aged_ns = now;
            let begin = thread_cpu_ns();
            match kernel.lru.age(place.memcg, place.node, place.max_seq()) {
                Ok(()) => self.sum.walks += 1,
                Err(e) => self.sum.idle_reason = Some(e),
            }
            self.sum.walk_ns += thread_cpu_ns() - begin;
        }
    }

    fn line(&mut self) -> Line {
        Line { time_ns: monotonic_ns(), ..self.sum.clone() }
    }
}

fn watch(
    kernel: &KernelTarget,
    args: &Args,
    signals: &StopSignals,
    domains: &mut [Domain],
    stats: &mut Stats,
) -> anyhow::Result<()> {
    let begin = monotonic_ns();
    let end = args.duration.map_or(u64::MAX, |d| begin.saturating_add(nanos(d)));
    let mut next_stats = begin + STATS_NS;
    loop {
        let wait = domains.iter_mut().map(|d| d.turn(kernel, args)).min().unwrap_or(REST_NS);
        if domains.iter().all(|d| d.groups.iter().all(|g| !g.exists())) {
            return Ok(());
        }
        let now = monotonic_ns();
        if now >= next_stats {
            next_stats = now + STATS_NS;
            for domain in &mut *domains {
                stats.write(&domain.line())?;
            }
        }
        if now >= end {
            return Ok(());
        }
        if MonotonicClock::stopped_by(signals).sleep_until_ns((now + wait).min(end)) == Wake::Interrupted {
            return Ok(());
        }
    }
}
