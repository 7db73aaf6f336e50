//! The loop of `lru run` with generations of our own.

use super::Args;
use super::domain::Domain;
use super::gauge::Gauge;
use super::stats::Stats;
use crate::commands::lru::live::Live;
use crate::exit::{Unsupported, Usage};
use isotherm_core::clock::Wake;
use isotherm_core::source::AccessSource;
use isotherm_core::target::TargetId;
use isotherm_core::units::format_size;
use isotherm_core::units::nanos;
use isotherm_linux::clock::{monotonic_ns, process_cpu_ns};
use isotherm_linux::lru::memcg::Memcgs;

/// How often new processes are looked for, ns.
const POLL_NS: u64 = 500_000_000;
/// How often statistics are written, ns.
const STATS_NS: u64 = 1_000_000_000;

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // What can fail comes before a command is started.
    let mut stats = Stats::open(args.stats.as_ref())?;
    let mut live = Live::for_many_walks(&args.target)?;
    let mut domains = domains(args, &mut live.groups)?;
    let result = watch(args, &mut live, &mut domains, &mut stats);
    let mut written = Ok(());
    for domain in &mut domains {
        let line = domain.line();
        written = written.and(stats.write(&line));
        if !args.quiet {
            let refaults = line.refaulted as f64 / line.evicted.max(1) as f64 * 100.0;
            eprintln!(
                "{}: {} evicted, {refaults:.0} % came back; {} walks; CPU: {:.2} s for walks, {:.2} s for evictions",
                line.domain,
                format_size(line.evicted),
                line.walks,
                (line.walk_ns + line.target_ns) as f64 / 1e9,
                line.evict_ns as f64 / 1e9
            );
        }
    }
    // Stopped processes go on before anything else can fail.
    drop(domains);
    let finished = live.finish();
    result?;
    written?;
    finished
}

/// The limits: one on all targets together, or those that the control groups have.
fn domains(args: &Args, groups: &mut Memcgs) -> anyhow::Result<Vec<Domain>> {
    let target = &args.target;
    if target.cgroups.is_empty() {
        let Some(limit) = args.limit else {
            return Err(
                Usage("processes have no limit of their own: give --limit SIZE, or --cgroup PATH".into()).into()
            );
        };
        let gauge = Gauge::Processes(Default::default());
        return Ok(vec![Domain::new("all targets".into(), gauge, limit, Vec::new(), args)]);
    }
    let mount = groups.mount().map(std::path::Path::to_path_buf).unwrap_or_default();
    let mut found = Vec::new();
    for path in &target.cgroups {
        let group = groups.open(&path.to_string_lossy());
        let group = group.map_err(|e| Unsupported(format!("the memory of {} is not told: {e}", path.display())))?;
        let inside = group.folder().strip_prefix(&mount).unwrap_or(group.folder());
        found.push((format!("/{}", inside.display()), group));
    }
    if let Some(limit) = args.limit {
        let (names, groups): (Vec<String>, Vec<_>) = found.into_iter().unzip();
        return Ok(vec![Domain::new(names.join(", "), Gauge::of_groups(groups), limit, names, args)]);
    }
    let mut domains = Vec::new();
    for (name, group) in found {
        let limit = group.limit().map_err(|e| anyhow::anyhow!("the limit of {name} cannot be read: {e}"))?;
        let Some(limit) = limit else {
            return Err(Usage(format!("{name} has no memory limit: give --limit SIZE, or set one")).into());
        };
        domains.push(Domain::new(name.clone(), Gauge::of_groups(vec![limit.group]), limit.bytes, vec![name], args));
    }
    Ok(domains)
}

fn watch(args: &Args, live: &mut Live, domains: &mut [Domain], stats: &mut Stats) -> anyhow::Result<()> {
    let begin = monotonic_ns();
    let end = args.duration.map(|d| begin.saturating_add(nanos(d)));
    let (mut next_poll, mut next_stats, mut checked) = (begin, begin + STATS_NS, false);
    loop {
        let now = monotonic_ns();
        if now >= next_poll {
            next_poll = now + POLL_NS;
            let new = live.poll()?;
            let targets: Vec<TargetId> = new.iter().map(|(target, _)| *target).collect();
            for (target, member) in new {
                if let Some(at) = domains.iter().position(|d| d.takes(&member.memcg)) {
                    domains[at].add(target, &member, args.target.cgroups.is_empty());
                }
            }
            if !checked && !targets.is_empty() {
                checked = true;
                refuse(live, &targets)?;
            }
            if domains.iter().all(|d| d.len() == 0) && !live.source.may_gain_targets() {
                return Ok(());
            }
        }
        let mut wake = next_poll;
        for domain in &mut *domains {
            wake = wake.min(domain.turn(live));
        }
        let now = monotonic_ns();
        if now >= next_stats {
            next_stats = now + STATS_NS;
            if stats.wanted() {
                for domain in &mut *domains {
                    stats.write(&domain.line())?;
                }
            }
        }
        if end.is_some_and(|end| now >= end) {
            return Ok(());
        }
        if live.wait(wake.min(end.unwrap_or(u64::MAX)).min(next_stats)) == Wake::Interrupted {
            if !args.quiet {
                let share = process_cpu_ns() as f64 / (monotonic_ns() - begin) as f64 * 100.0;
                eprintln!("interrupted; {share:.1} % of one core used");
            }
            return Ok(());
        }
    }
}

/// Where nothing may be evicted of any of the first targets, there is no point in beginning.
fn refuse(live: &mut Live, targets: &[TargetId]) -> anyhow::Result<()> {
    let obstacles: Option<Vec<String>> = targets.iter().map(|&t| live.out.obstacle(t)).collect();
    match obstacles.and_then(|all| all.into_iter().next()) {
        Some(why) => Err(Unsupported(format!("nothing can be evicted: {why}")).into()),
        None => Ok(()),
    }
}
