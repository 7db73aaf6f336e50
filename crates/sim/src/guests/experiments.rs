//! The tests of the page hinting patches, version 10, at their size: how many guests can be started one after the other
//! before the host swaps, memhog in three guests in turn; and how soon memory comes back.

use super::params::{Hints, Params};
use super::world::World;
use isotherm_core::units::NS_PER_S;
use serde::Serialize;

const MEMHOGS: usize = 3;

/// How many guests fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// How the host learns of free memory.
    pub way: Hints,
    /// Guests that were started and whose program ran before the host swapped.
    pub guests: usize,
    /// Whether that is the most that were to be tried.
    pub all: bool,
    /// What the host backed at the end, bytes.
    pub resident: u64,
    /// CPU time in the guests for telling, s.
    pub guest_cpu: f64,
}

/// A run of memhog.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Memhog {
    /// How long it took, s.
    pub seconds: f64,
    /// In swap after it, bytes.
    pub swapped: u64,
    /// Written to swap meanwhile, bytes.
    pub swap_out: u64,
}

/// memhog in guests in turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Memhogs {
    /// How the host learns of free memory.
    pub way: Hints,
    /// In the order of guests.
    pub runs: Vec<Memhog>,
}

/// How soon freed memory comes back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Return {
    /// How the host learns of free memory.
    pub way: Hints,
    /// What the guest had freed, bytes.
    pub freed: u64,
    /// What of that was back after so many seconds, bytes.
    pub back: Vec<(u64, u64)>,
    /// Until nine tenths of it were back, s; `null`: not within two minutes.
    pub seconds_to_90: Option<f64>,
    /// CPU time in the guest for that, s.
    pub guest_cpu: f64,
}

/// Starts guests until the host swaps.
pub fn fit(params: Params, way: Hints) -> Fit {
    let mut world = World::new(params, way);
    let mut guests = 0;
    while guests < params.most_guests {
        let guest = world.start(params.guest_memory);
        world.run(guest, params.program);
        if world.host.stats().swap_outs > 0 {
            break;
        }
        guests += 1;
        world.pass(params.between_ns);
    }
    Fit {
        way,
        guests,
        all: guests == params.most_guests,
        resident: world.host.stats().resident * 4096,
        guest_cpu: seconds(world.guests.iter().map(|guest| guest.cpu_ns).sum()),
    }
}

/// Runs memhog in guests in turn.
pub fn memhogs(params: Params, way: Hints) -> Memhogs {
    let mut world = World::new(params, way);
    let guests: Vec<usize> = (0..MEMHOGS).map(|_| world.start(params.memhog_guest_memory)).collect();
    world.pass(params.between_ns);
    let mut runs = Vec::new();
    for guest in guests {
        let before = world.host.stats();
        let ran = world.run(guest, params.memhog);
        let after = world.host.stats();
        runs.push(Memhog {
            seconds: seconds(ran.took_ns),
            swapped: after.swapped * 4096,
            swap_out: (after.swap_outs - before.swap_outs) * 4096,
        });
        world.pass(params.between_ns);
    }
    Memhogs { way, runs }
}

/// Lets a guest free its memory and looks when it comes back.
pub fn comes_back(params: Params, way: Hints) -> Return {
    let mut world = World::new(params, way);
    let guest = world.start(params.guest_memory);
    let idle = world.host.backed(guest);
    world.run(guest, params.program);
    let full = world.host.backed(guest);
    let freed = (full - idle) * 4096;
    let cpu_before = world.guests[guest].cpu_ns;
    let (begin_ns, mut back, mut to_90) = (world.now_ns, Vec::new(), None);
    for tenth in 1..=1200u64 {
        world.pass(NS_PER_S / 10);
        let now = (full - world.host.backed(guest).min(full)) * 4096;
        if to_90.is_none() && now * 10 >= freed * 9 {
            to_90 = Some(seconds(world.now_ns - begin_ns));
        }
        if [10, 50, 300, 1200].contains(&tenth) {
            back.push((tenth / 10, now));
        }
    }
    let guest_cpu = seconds(world.guests[guest].cpu_ns - cpu_before);
    Return { way, freed, back, seconds_to_90: to_90, guest_cpu }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sixteenth of the size, so that it is quick; the figures of the full size are in docs/hint.md. Looks are as many in a
    /// program's run: what it uses and frees between two of them is missed for a minute.
    fn small() -> Params {
        let p = Params::default();
        Params {
            host_memory: p.host_memory / 16,
            host_own: p.host_own / 16,
            vmm_own: p.vmm_own / 16,
            guest_own: p.guest_own / 16,
            guest_memory: p.guest_memory / 16,
            program: p.program / 16,
            look_ns: p.look_ns / 16,
            memhog_guest_memory: p.memhog_guest_memory / 16,
            memhog: p.memhog / 16,
            reserve: p.reserve / 16,
            memory_block: p.memory_block / 16,
            offline_ns: p.offline_ns / 16,
            ..p
        }
    }

    #[test]
    fn more_guests_fit_with_hints() {
        let [none, ours, reporting] = Hints::ALL.map(|way| fit(small(), way).guests);
        assert!((2..=3).contains(&none), "{none}");
        assert!(ours >= 2 * none && reporting >= 2 * none, "{none} {ours} {reporting}");
    }

    #[test]
    fn the_third_memhog_does_not_wait_for_the_disk() {
        let none = memhogs(small(), Hints::None).runs;
        let ours = memhogs(small(), Hints::Isotherm).runs;
        assert!(none[2].swap_out > 0 && none[2].seconds > 5.0 * none[0].seconds, "{none:?}");
        assert!(ours.iter().all(|run| run.swap_out == 0), "{ours:?}");
        assert!(ours[2].seconds < 1.1 * ours[0].seconds, "{ours:?}");
    }

    #[test]
    fn memory_comes_back_within_seconds() {
        let ours = comes_back(small(), Hints::Isotherm);
        assert!(ours.seconds_to_90.is_some_and(|s| s < 5.0), "{ours:?}");
        // Each block is isolated once: looking goes on, but it costs little.
        assert!(ours.guest_cpu < 1.0, "{ours:?}");
        assert!(comes_back(small(), Hints::None).seconds_to_90.is_none());
    }
}
