//! Sizes and costs.

use serde::Serialize;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const US: u64 = 1000;
const MS: u64 = 1_000_000;

/// What is simulated. Those with "figure" come from measurements under QEMU (docs/hint.md), those with "reference" from
/// the tests in the cover letter of the page hinting patches, version 10, whose machine had 15 GB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Params {
    /// Memory of the host, bytes (reference).
    pub host_memory: u64,
    /// What the host itself uses of it, bytes (assumed).
    pub host_own: u64,
    /// What a VMM takes beside its guest's memory, bytes (figure: 70 to 80 MiB under emulation).
    pub vmm_own: u64,
    /// What a guest's system uses from its start on, bytes (assumed: a system and its page cache).
    pub guest_own: u64,
    /// Memory of a guest in the test of how many fit, bytes (reference).
    pub guest_memory: u64,
    /// What the program in it allocates, touches and frees, bytes (reference).
    pub program: u64,
    /// Guests to start at most.
    pub most_guests: usize,
    /// From the end of a program to the start of the next guest, ns (assumed: a guest's boot).
    pub between_ns: u64,
    /// Memory of each of the guests with memhog, bytes (reference).
    pub memhog_guest_memory: u64,
    /// What memhog touches, bytes (what fits; the reference says 6 GB, which its guest does not have free).
    pub memhog: u64,
    /// A page touched for the first time, in the guest and the host together, ns (reference: 32 s for 6 GB).
    pub touch_ns: u64,
    /// A page written to swap, ns (fitted to the reference without hints, 6 min 38 s: a disk, not an SSD).
    pub swap_out_ns: u64,
    /// A page read from swap, ns (the same disk).
    pub swap_in_ns: u64,
    /// How often the agent looks for free blocks, ns.
    pub look_ns: u64,
    /// What a look costs for each block, ns (figure: 0.5 ms for 256 blocks).
    pub look_block_ns: u64,
    /// Isolating and returning a huge page that the host backs, ns (figure: 0.37 to 0.56 ms under emulation, where all
    /// is slow). One that it has dropped is touched in addition.
    pub isolate_ns: u64,
    /// Size of a memory block, bytes (x86-64; 2 GiB on machines with 64 GiB and more).
    pub memory_block: u64,
    /// Taking a free memory block offline and online again, ns (assumed: some milliseconds).
    pub offline_ns: u64,
    /// From a report to its answer, ns, without dropping (assumed: a socket and a port).
    pub answer_ns: u64,
    /// Dropping a block, in the host, ns (assumed: 512 pages).
    pub drop_ns: u64,
    /// Memory that the agent leaves free, bytes.
    pub reserve: u64,
    /// Between passes of the kernel's own reporting, ns (mm/page_reporting.c: 2 s).
    pub reporting_ns: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            host_memory: 15 * GIB,
            host_own: GIB,
            vmm_own: 80 * MIB,
            guest_own: 700 * MIB,
            guest_memory: 5 * GIB,
            program: 4 * GIB,
            most_guests: 64,
            between_ns: 10_000 * MS,
            memhog_guest_memory: 6 * GIB,
            memhog: 5 * GIB,
            touch_ns: 20 * US,
            swap_out_ns: 420 * US,
            swap_in_ns: 420 * US,
            look_ns: 1000 * MS,
            look_block_ns: 2 * US,
            isolate_ns: 400 * US,
            memory_block: 128 * MIB,
            offline_ns: 10 * MS,
            answer_ns: 200 * US,
            drop_ns: 100 * US,
            reserve: 64 * MIB,
            reporting_ns: 2000 * MS,
        }
    }
}

/// How the host learns of free memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hints {
    /// Not at all.
    None,
    Isotherm,
    /// Free page reporting of the guest's kernel through a balloon device.
    Reporting,
}

impl Hints {
    pub const ALL: [Self; 3] = [Self::None, Self::Isotherm, Self::Reporting];

    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "without hints",
            Self::Isotherm => "isotherm",
            Self::Reporting => "balloon reporting",
        }
    }
}
