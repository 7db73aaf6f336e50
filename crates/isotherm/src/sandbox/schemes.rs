//! What `schemes`, `reclaim`, `thp` and `tier` need.

use super::LOOKS_INTO_PROCESSES;
use crate::args::monitor::SourceName;
use isotherm_linux::confine::{Calls, CapabilitySet, Files, Needs};

/// What they do, as far as it matters.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// How accesses are seen.
    pub source: SourceName,
    /// Whether a command of ours is the target, which may be another user's meanwhile.
    pub command: bool,
    /// Whether nothing is acted upon.
    pub dry_run: bool,
}

/// What it takes. Schemes can be changed while they run, so every action counts.
pub fn needs(work: Work) -> Needs {
    // Processes of all users are looked at, and their files in /proc belong to them.
    let mut needs = Needs::new(Files::Any(LOOKS_INTO_PROCESSES))
        .capabilities(CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_OVERRIDE)
        .calls([Calls::Serve, Calls::Processes]);
    needs = match work.source {
        // CAP_PERFMON takes loading the programs alone.
        SourceName::Pagetable | SourceName::Auto => {
            needs.capabilities(CapabilitySet::BPF | CapabilitySet::SYS_NICE).calls([Calls::RunBpf, Calls::Advise])
        }
        // The kernel tells page frames to nobody else.
        SourceName::Idle => needs.capabilities(CapabilitySet::SYS_ADMIN),
        SourceName::Refs => needs,
        // Its ring is larger than what users may lock.
        SourceName::Damon => needs.capabilities(CapabilitySet::PERFMON | CapabilitySet::IPC_LOCK).calls([Calls::Perf]),
    };
    if !work.dry_run {
        needs = needs.capabilities(CapabilitySet::SYS_NICE).calls([Calls::Advise, Calls::Fork, Calls::Inject]);
    }
    if work.command {
        needs = needs.capabilities(CapabilitySet::KILL);
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: SourceName, command: bool, dry_run: bool) -> Needs {
        needs(Work { source, command, dry_run })
    }

    #[test]
    fn the_usual_set_is_that_of_the_unit() {
        let unit = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/isotherm@.service"));
        let unit = unit.unwrap();
        let line = unit.lines().find_map(|l| l.strip_prefix("CapabilityBoundingSet=")).unwrap();
        let mut kept: Vec<&str> = line.split(' ').collect();
        // What setting up takes in addition.
        let all = of(SourceName::Auto, false, false).wanted_capabilities() | CapabilitySet::PERFMON;
        let mut declared = isotherm_linux::confine::names(all);
        kept.sort_unstable();
        declared.sort_unstable();
        assert_eq!(kept, declared);
    }

    #[test]
    fn who_only_watches_may_not_act() {
        let dry = of(SourceName::Refs, false, true);
        for calls in [Calls::Advise, Calls::Inject, Calls::Fork, Calls::RunBpf] {
            assert!(!dry.wanted_calls().contains(&calls), "{calls:?}");
            assert_eq!(of(SourceName::Refs, false, false).wanted_calls().contains(&calls), calls != Calls::RunBpf);
        }
        assert!(!dry.wanted_capabilities().intersects(CapabilitySet::SYS_NICE | CapabilitySet::BPF));
    }

    #[test]
    fn only_what_needs_it_keeps_the_large_capabilities() {
        for source in [SourceName::Auto, SourceName::Pagetable, SourceName::Refs, SourceName::Damon, SourceName::Idle] {
            let kept = of(source, true, false).wanted_capabilities();
            assert_eq!(kept.contains(CapabilitySet::SYS_ADMIN), source == SourceName::Idle);
            assert!(kept.contains(CapabilitySet::KILL));
            assert!(!kept.intersects(CapabilitySet::SYS_MODULE | CapabilitySet::SETUID | CapabilitySet::SETPCAP));
            assert!(!of(source, false, false).wanted_capabilities().contains(CapabilitySet::KILL));
        }
    }
}
