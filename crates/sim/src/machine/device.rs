//! Where memory can go, and what that costs: swap devices and a slower tier, as plain data.
//!
//! Every figure can be replaced; the defaults say where they come from. They are orders of magnitude of common
//! hardware, not of yours: `isotherm doctor` and the meter `target_stall` measure what a fault costs on a machine at
//! hand.

/// Trap, page allocation and mapping around whatever a device does, ns: a first touch of a page, measured (3.6 to 4.3
/// us in a nested virtual machine, Linux 6.18; on bare metal commonly below 1 us).
pub(crate) const FAULT_NS: u64 = 4_000;

/// Reclaiming a page besides writing it: taking it from its list, unmapping and freeing it, ns; an estimate.
pub(crate) const RECLAIM_NS: u64 = 1_000;

/// Looking at a page in search of one to reclaim: a few cache misses, ns; an estimate.
pub(crate) const SCAN_NS: u64 = 100;

/// A place that pages are swapped out to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwapDevice {
    /// Its name on the command line.
    pub name: &'static str,
    /// Bringing one page back, without [`FAULT_NS`], ns.
    pub read_ns: u64,
    /// Putting one page away, without [`RECLAIM_NS`], as work of whoever pages out, ns.
    pub write_ns: u64,
    /// Bytes of data per byte of main memory that they take there; `None`: none at all, as on a disk.
    pub ratio: Option<f64>,
}

impl SwapDevice {
    /// zram with lzo-rle, the kernel's default. Reading and writing measured on the same machine, in random order: 8.6
    /// to 10.3 us for a touch of a page that is away, 8.5 to 10 us for `MADV_PAGEOUT`; pages touched in order, half of
    /// each zeros, come back in 2.1 us in all. The pages of the measurement shrank to a third; 2 to 4 are common.
    pub const ZRAM: Self = Self { name: "zram", read_ns: 6_000, write_ns: 8_000, ratio: Some(3.0) };
    /// zram with lz4: differs from lzo-rle as in fio's figures for memory of a desktop (the widely quoted table of
    /// u/VenditatioDelendaEst, page cluster 0): 1.7 instead of 2.2 us to read, 2.63 instead of 2.74 as ratio.
    pub const ZRAM_LZ4: Self = Self { name: "zram-lz4", read_ns: 5_500, write_ns: 8_000, ratio: Some(2.9) };
    /// zram with zstd: the same table, 5.7 us and 3.37; LinuxReviews has it write at 0.57 of lzo-rle's speed.
    pub const ZRAM_ZSTD: Self = Self { name: "zram-zstd", read_ns: 9_500, write_ns: 14_000, ratio: Some(3.7) };
    /// An NVMe drive, by the data sheet of an Intel P4500: random reads of 4 KiB in 85 us, writes in runs at 1.05 GB/s.
    pub const SSD: Self = Self { name: "ssd", read_ns: 85_000, write_ns: 4_000, ratio: None };

    /// All that have a name.
    pub const ALL: [Self; 4] = [Self::ZRAM, Self::ZRAM_LZ4, Self::ZRAM_ZSTD, Self::SSD];

    /// The device of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name == name)
    }

    /// From the touch of a page that is out until the program goes on, ns.
    pub const fn fault_ns(&self) -> u64 {
        FAULT_NS + self.read_ns
    }

    /// Paging one page out, ns.
    pub(crate) const fn page_out_ns(&self) -> u64 {
        RECLAIM_NS + self.write_ns
    }

    /// Main memory that `bytes` of pages take on the device.
    pub(crate) fn memory_for(&self, bytes: u64) -> u64 {
        self.ratio.map_or(0, |ratio| (bytes as f64 / ratio).round() as u64)
    }
}

/// Memory that is slower than the machine's own: a node of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowTier {
    /// What an access that misses the caches takes longer there, ns.
    pub extra_ns: f64,
    /// Moving one page there or back, ns.
    pub move_ns: u64,
}

impl SlowTier {
    /// Memory behind CXL: real devices answer after 140 to 410 ns, where memory of the own socket takes about 100 ns
    /// (arXiv 2409.14317); 250 ns are in the middle. Moving is an estimate: copying 4 KiB at 10 GB/s takes 0.4 us, the
    /// rest is unmapping, flushing TLBs and mapping.
    pub const CXL: Self = Self { extra_ns: 150.0, move_ns: 3_000 };
}

/// Part of the time of a touch that goes if the page lies in a huge page: with dependent accesses all over 512 MiB
/// runtime fell from 28.7 s to 20.6 s (`make bench-thp`, Linux 6.18).
pub const HUGE_GAIN: f64 = 0.28;

/// Making one huge page: allocating and clearing 2 MiB and copying what is there, ns. 2 MiB at about 10 GB/s, twice;
/// assumed.
pub(crate) const COLLAPSE_NS: u64 = 400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_name_and_make_sense() {
        for d in SwapDevice::ALL {
            assert_eq!(SwapDevice::named(d.name), Some(d));
            assert!(
                d.fault_ns() > FAULT_NS && d.page_out_ns() > RECLAIM_NS && d.ratio.is_none_or(|r| r > 1.0),
                "{d:?}"
            );
        }
        assert_eq!(SwapDevice::named("tape"), None);
    }

    #[test]
    fn compressed_pages_take_memory_and_those_on_a_drive_do_not() {
        assert_eq!(SwapDevice::ZRAM.memory_for(300), 100);
        assert_eq!(SwapDevice::SSD.memory_for(1 << 40), 0);
    }
}
