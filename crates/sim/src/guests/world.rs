//! A host with guests, and time.

use super::guest::Guest;
use super::host::Host;
use super::params::{Hints, Params};

/// Pages that a program touches before others have their turn.
const STEP: usize = 256;

#[derive(Debug)]
pub struct World {
    pub params: Params,
    pub host: Host,
    /// Its guests, in the order in which they came.
    pub guests: Vec<Guest>,
    /// How the host learns of free memory.
    pub way: Hints,
    pub now_ns: u64,
}

/// What a program did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ran {
    /// How long it took, ns.
    pub took_ns: u64,
    /// Pages that the guest did not have for it.
    pub missing: u64,
}

impl World {
    /// A host without guests.
    pub fn new(params: Params, way: Hints) -> Self {
        Self { params, host: Host::new(&params), guests: Vec::new(), way, now_ns: 0 }
    }

    /// Starts a guest, whose system takes what it needs; its number.
    pub fn start(&mut self, memory: u64) -> usize {
        let guest = Guest::start(memory, self.way, &self.params, &mut self.host, self.now_ns);
        self.guests.push(guest);
        let number = self.guests.len() - 1;
        self.touch(number, self.params.guest_own / 4096);
        number
    }

    /// A program in a guest allocates memory page by page, touches it, and exits.
    pub fn run(&mut self, guest: usize, bytes: u64) -> Ran {
        let begin_ns = self.now_ns;
        let pages = self.touch(guest, bytes / 4096);
        let missing = bytes / 4096 - pages.len() as u64;
        // An exit frees in the order of addresses.
        pages.into_iter().for_each(|page| self.guests[guest].buddy.free_pages(page, 0));
        Ran { took_ns: self.now_ns - begin_ns, missing }
    }

    fn touch(&mut self, guest: usize, pages: u64) -> Vec<u32> {
        let mut held = Vec::with_capacity(pages as usize);
        while (held.len() as u64) < pages {
            let mut cost_ns = 0;
            let left = (pages - held.len() as u64).min(STEP as u64);
            for _ in 0..left {
                let Some(page) = self.guests[guest].alloc(&mut self.host, self.now_ns) else { return held };
                cost_ns += self.params.touch_ns + self.host.touch(guest, page);
                held.push(page);
            }
            self.pass(cost_ns);
        }
        held
    }

    /// Time passes, in which hints are given.
    pub fn pass(&mut self, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while let Some((at, guest)) = self
            .guests
            .iter()
            .enumerate()
            .filter_map(|(i, g)| Some((g.wanted_ns()?, i)))
            .min()
            .filter(|(at, _)| *at <= end_ns)
        {
            self.now_ns = self.now_ns.max(at);
            let now_ns = self.now_ns;
            self.guests[guest].hint(&mut self.host, now_ns);
        }
        self.now_ns = end_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn small() -> Params {
        Params {
            host_memory: 400 * MIB,
            host_own: 0,
            vmm_own: 0,
            guest_own: 20 * MIB,
            reserve: 8 * MIB,
            memory_block: 8 * MIB,
            ..Params::default()
        }
    }

    #[test]
    fn freed_memory_stays_with_the_guest_unless_somebody_tells() {
        for way in Hints::ALL {
            let mut world = World::new(small(), way);
            let guest = world.start(256 * MIB);
            world.run(guest, 200 * MIB);
            world.pass(60_000_000_000);
            let backed = world.host.backed(guest) * 4096;
            match way {
                Hints::None => assert_eq!(backed, 220 * MIB),
                _ => assert!((20 * MIB..26 * MIB).contains(&backed), "{way:?}: {} MiB", backed / MIB),
            }
            assert_eq!(world.host.stats().swap_outs, 0);
        }
    }

    #[test]
    fn a_full_host_swaps_what_was_not_touched_longest() {
        let mut world = World::new(small(), Hints::None);
        let first = world.start(256 * MIB);
        world.run(first, 200 * MIB);
        let second = world.start(256 * MIB);
        let quick = Params::default().touch_ns * (200 * MIB / 4096);
        let ran = world.run(second, 200 * MIB);
        assert!(ran.took_ns > quick && ran.missing == 0);
        let stats = world.host.stats();
        assert!(stats.swapped * 4096 >= 40 * MIB && stats.swapped * 4096 <= 44 * MIB, "{stats:?}");
        // What was swapped of its program's old memory is read again when the next one gets it.
        let ran = world.run(first, 200 * MIB);
        assert!(world.host.stats().swap_ins > 0 && ran.took_ns > 0);
    }

    #[test]
    fn memory_in_use_is_never_dropped() {
        let mut world = World::new(small(), Hints::Isotherm);
        let guest = world.start(256 * MIB);
        for round in 0..20 {
            world.run(guest, (50 + 7 * round) * MIB);
            world.pass(300_000_000 * round);
        }
        world.pass(10_000_000_000);
        assert!(world.host.backed(guest) * 4096 >= 20 * MIB, "its own memory is there");
    }
}
