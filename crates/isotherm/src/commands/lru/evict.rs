//! `isotherm lru evict`.

use super::engine::EngineName;
use super::live::{Member, Processes};
use crate::args::target::TargetArgs;
use crate::args::units;
use crate::exit::Usage;
use isotherm_core::keeper::MIN_GENS;
use isotherm_core::keeper::creation_times::CreationTimes;
use isotherm_core::keeper::memory::{Evicted, Memory};
use isotherm_core::keeper::plan::Plan;
use isotherm_core::target::TargetId;
use isotherm_core::units::format_size;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes that are evicted between two looks whether a signal has come.
const STEP: u64 = 16 << 20;

/// Evict whole generations, or an amount of the coldest memory.
///
/// The second of the two commands of the kernel's control file. The two youngest generations of each process are never
/// evicted. It works on what `lru age` and `lru report` kept; without that it first watches for --duration. What was
/// used since is spared.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Evict all generations up to this number, as `lru report` shows them. Give --min-gen, --bytes, or both
    #[arg(long, value_name = "N")]
    min_gen: Option<u64>,
    /// Evict so much at most, the coldest first; with --min-gen only of those generations
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    bytes: Option<u64>,
    /// What anonymous memory is worth against files: 0 (only files go) to 200 (only anonymous memory goes)
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u8).range(..=200))]
    swappiness: u8,
    /// How long to watch where nothing is known yet
    #[arg(long, value_name = "T", default_value = "3s", value_parser = units::time)]
    duration: Duration,
    /// Time between two walks of that
    #[arg(long, value_name = "T", default_value = "1s", value_parser = units::time)]
    interval: Duration,
    /// Who keeps the generations
    #[arg(long, value_enum, default_value = "auto")]
    engine: EngineName,
    #[command(flatten)]
    target: TargetArgs,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if args.min_gen.is_none() && args.bytes.is_none() {
        return Err(Usage("it does not say what to evict: give --min-gen, --bytes, or both".into()).into());
    }
    if args.bytes == Some(0) {
        return Err(Usage("--bytes 0 evicts nothing; leave it out, or give a size".into()).into());
    }
    if args.interval.is_zero() {
        return Err(Usage("--interval must not be 0".into()).into());
    }
    if let Some(kernel) = args.engine.kernel(&args.target)? {
        return super::kernel::evict(&kernel, args.min_gen, args.bytes, args.swappiness);
    }
    let mut processes = Processes::open(&args.target)?;
    if args.swappiness == 0 {
        processes.live.out.files_only();
    }
    let targets: Vec<_> = processes.all.keys().copied().collect();
    if let Err(refused) = processes.live.refuse_obstacles(targets) {
        // What is known stays known.
        processes.finish()?;
        return Err(refused);
    }
    if !processes.known {
        processes.watch(args.interval, args.duration)?;
    }
    let result = evict(&mut processes, &args);
    let finished = processes.finish();
    let evicted = result?;
    say!(
        "{} evicted of {} chosen; {} were spared, because they had been used meanwhile",
        format_size(evicted.out),
        format_size(evicted.planned),
        format_size(evicted.spared)
    );
    match evicted.error {
        Some(error) if evicted.out == 0 => Err(anyhow::anyhow!(error)),
        Some(error) => {
            tracing::warn!("a part was refused: {error}");
            finished
        }
        None => finished,
    }
}

fn evict(processes: &mut Processes, args: &Args) -> anyhow::Result<Evicted> {
    let mut sum = Evicted::default();
    if let Some(seq) = args.min_gen {
        let max_seq =
            processes.all.values().filter_map(|(_, m)| m.created().map(CreationTimes::max_seq)).max().unwrap_or(0);
        if seq.saturating_add(MIN_GENS) > max_seq {
            return Err(Usage(format!(
                "generation {seq} is one of the two youngest (up to {max_seq}), which are never evicted; create one with \
                 `isotherm lru age` first"
            ))
            .into());
        }
        let mut left = args.bytes.unwrap_or(u64::MAX);
        for (_, memory) in processes.all.values_mut() {
            let live = &mut processes.live;
            let mut plan = memory.plan_generations(seq, args.swappiness);
            while !plan.is_empty() && left > 0 && !live.interrupted() {
                let one = memory.evict(&mut live.source, &mut live.out, &mut plan, left.min(STEP))?;
                left -= one.out.min(left);
                sum.add(one);
            }
        }
        return Ok(sum);
    }
    let wanted = args.bytes.unwrap_or(0);
    let live = &mut processes.live;
    as_one(&mut processes.all, |whole| {
        let mut plan = Plan::default();
        while sum.out < wanted && !live.interrupted() {
            if plan.is_empty() {
                plan = whole.plan(args.swappiness, (wanted - sum.out).saturating_mul(2), MIN_GENS as u8);
                if plan.is_empty() {
                    break;
                }
            }
            let one = whole.evict(&mut live.source, &mut live.out, &mut plan, (wanted - sum.out).min(STEP))?;
            let stuck = one.out == 0 && one.error.is_some();
            sum.add(one);
            if stuck {
                break;
            }
        }
        Ok(sum)
    })
}

/// Does `work` with all processes as one memory, so that the coldest pages of all come first. Each has its own back
/// afterwards, also where that fails: what is known of it is kept for the next command.
fn as_one<T>(all: &mut BTreeMap<TargetId, (Member, Memory)>, work: impl FnOnce(&mut Memory) -> T) -> T {
    let mut whole = Memory::default();
    all.values_mut().for_each(|(_, memory)| whole.spaces.append(&mut memory.spaces));
    let done = work(&mut whole);
    for (target, (_, memory)) in all {
        if let Some(space) = whole.spaces.remove(target) {
            memory.spaces.insert(*target, space);
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_memory_back_where_evicting_fails() {
        let member = |pid| Member { pid, name: String::new(), memcg: String::new() };
        let mut all: BTreeMap<TargetId, (Member, Memory)> =
            (0..3).map(|target| (target, (member(target + 1), Memory::default()))).collect();
        all.iter_mut().for_each(|(target, (_, memory))| memory.add(*target));
        let failed: Result<(), &str> = as_one(&mut all, |whole| {
            assert_eq!(whole.spaces.len(), 3);
            // One has ended.
            whole.spaces.remove(&1);
            Err("the tables cannot be read")
        });
        assert!(failed.is_err());
        let left: Vec<Vec<TargetId>> = all.values().map(|(_, m)| m.spaces.keys().copied().collect()).collect();
        assert_eq!(left, [vec![0], vec![], vec![2]]);
    }
}
