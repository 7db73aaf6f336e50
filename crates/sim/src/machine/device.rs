//! Where memory can go, and what that costs: swap devices and a slower tier, as plain data.
//!
//! Every figure can be replaced; the defaults say where they come from. They are orders of magnitude of common hardware, not
//! of yours: `isotherm doctor` and the meter `target_stall` measure what a fault costs on a machine at hand.

/// Trap, page allocation and mapping around whatever a device does, ns; assumed. In a virtual machine (Linux 6.18) a page that is
/// half random bytes and half zeros comes back from zram with lzo-rle in 2.1 us in all (median; mean 4.6 us on a busy machine).
pub const FAULT_NS: u64 = 1_000;

/// A place that pages are swapped out to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwapDevice {
    /// Its name on the command line.
    pub name: &'static str,
    /// Reading one page, without [`FAULT_NS`], ns.
    pub read_ns: u64,
    /// Writing one page, compression and the kernel's bookkeeping included, as work of whoever pages out, ns.
    pub write_ns: u64,
    /// Bytes of data per byte of main memory that they take there; `None`: none at all, as on a disk.
    pub ratio: Option<f64>,
}

impl SwapDevice {
    /// zram with lzo-rle, the kernel's default.
    ///
    /// Reading and ratio: fio on zram filled with memory of a desktop (the widely quoted table of u/VenditatioDelendaEst, page
    /// cluster 0). Writing: `MADV_PAGEOUT` takes 7 to 10 us a page (measured in a virtual machine, Linux 6.18); copying a file
    /// system to zram takes 15 us a page (LinuxReviews).
    pub const ZRAM: Self = Self { name: "zram", read_ns: 2_235, write_ns: 10_000, ratio: Some(2.74) };
    /// zram with lz4: the same table; written as fast as with lzo-rle.
    pub const ZRAM_LZ4: Self = Self { name: "zram-lz4", read_ns: 1_708, write_ns: 10_000, ratio: Some(2.63) };
    /// zram with zstd: the same table; LinuxReviews has it write at 0.57 of lzo-rle's speed.
    pub const ZRAM_ZSTD: Self = Self { name: "zram-zstd", read_ns: 5_714, write_ns: 17_700, ratio: Some(3.37) };
    /// An NVMe drive: 90 us are what data sheets of drives with TLC flash state for a random read of 4 KiB; writes are queued
    /// and cost the processor about 3 us a page.
    pub const SSD: Self = Self { name: "ssd", read_ns: 90_000, write_ns: 3_000, ratio: None };

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

    /// Main memory that `bytes` of pages take on the device.
    pub fn memory_for(&self, bytes: u64) -> u64 {
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
    /// (arXiv 2409.14317); 250 ns are in the middle. Moving a page means unmapping, copying 4 KiB and mapping: about 2 us.
    pub const CXL: Self = Self { extra_ns: 150.0, move_ns: 2_000 };
}

/// Part of the time of a touch that goes if the page lies in a huge page: with dependent accesses all over 512 MiB runtime fell
/// from 28.7 s to 20.6 s (`make bench-thp`, Linux 6.18).
pub const HUGE_GAIN: f64 = 0.28;

/// Making one huge page: allocating and clearing 2 MiB and copying what is there, ns. 2 MiB at about 10 GB/s, twice; assumed.
pub const COLLAPSE_NS: u64 = 400_000;

/// A fault on a page that was never there: trap, allocation, clearing, mapping, ns; assumed.
pub const FIRST_TOUCH_NS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_name_and_make_sense() {
        for d in SwapDevice::ALL {
            assert_eq!(SwapDevice::named(d.name), Some(d));
            assert!(d.fault_ns() > FAULT_NS && d.write_ns > 0 && d.ratio.is_none_or(|r| r > 1.0), "{d:?}");
        }
        assert_eq!(SwapDevice::named("tape"), None);
    }

    #[test]
    fn compressed_pages_take_memory_and_those_on_a_drive_do_not() {
        assert_eq!(SwapDevice::ZRAM.memory_for(274), 100);
        assert_eq!(SwapDevice::SSD.memory_for(1 << 40), 0);
    }
}
