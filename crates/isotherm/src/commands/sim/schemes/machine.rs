//! The simulated machine's parts, as options.

use crate::args::units;
use crate::args::workload::YesNo;
use crate::exit::Usage;
use clap::ValueEnum;
use isotherm_core::units::nanos;
use isotherm_sim::machine::device::{HUGE_GAIN, SlowTier, SwapDevice};
use isotherm_sim::machine::{Hardware, Thp};
use std::time::Duration;

/// Where pages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SwapName {
    /// Compressed memory, lzo-rle
    Zram,
    /// Compressed memory, lz4
    ZramLz4,
    /// Compressed memory, zstd
    ZramZstd,
    /// An NVMe drive
    Ssd,
    /// Nowhere
    None,
}

/// The kernel's setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ThpName {
    /// Huge pages on request only (collapse)
    Never,
    /// Where it was advised (hugepage)
    Madvise,
    /// Wherever it was not forbidden
    Always,
}

/// The machine.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineArgs {
    /// Main memory; where that is less than the workload needs, the kernel reclaims [default: twice the workload's
    /// size]
    #[arg(long, value_name = "S", value_parser = units::size)]
    memory: Option<u64>,
    /// Where pages are swapped out to
    #[arg(long, value_enum, default_value = "zram")]
    swap: SwapName,
    /// What fits there [default: plenty]
    #[arg(long, value_name = "S", value_parser = units::size)]
    swap_size: Option<u64>,
    /// Reading a page from swap, instead of the device's figure
    #[arg(long, value_name = "T", value_parser = units::time)]
    swap_read: Option<Duration>,
    /// Writing a page to swap, instead of the device's figure
    #[arg(long, value_name = "T", value_parser = units::time)]
    swap_write: Option<Duration>,
    /// How well pages compress, instead of the device's figure: bytes of data per byte of memory
    #[arg(long, value_name = "X")]
    ratio: Option<f64>,
    /// Give the machine a second memory node, number 1, of this size: slower, and empty at first
    #[arg(long, value_name = "S", value_parser = units::size)]
    slow_node: Option<u64>,
    /// What a touch takes longer on that node
    #[arg(long, value_name = "T", default_value = "150ns", value_parser = units::time)]
    slow_extra: Duration,
    /// Huge pages without anybody's request
    #[arg(long, value_enum, default_value = "never")]
    thp: ThpName,
    /// Part of a touch's time that a huge page saves
    #[arg(long, value_name = "P", value_parser = units::percent)]
    huge_gain: Option<f64>,
    /// All memory is there at the start; otherwise pages come with their first touch
    #[arg(long, value_enum, default_value = "yes", value_name = "YES|NO")]
    prefault: YesNo,
}

impl MachineArgs {
    /// The machine for a workload of `size` bytes.
    pub fn hardware(&self, size: u64) -> Result<Hardware, Usage> {
        let roomy = Hardware::roomy(size);
        let memory = self.memory.unwrap_or(roomy.memory);
        if memory < 16 << 20 {
            return Err(Usage("--memory must be at least 16M".into()));
        }
        let huge_gain = self.huge_gain.unwrap_or(HUGE_GAIN);
        if !(0.0..0.99).contains(&huge_gain) {
            return Err(Usage("--huge-gain must be at least 0% and below 99%".into()));
        }
        let tier = SlowTier { extra_ns: nanos(self.slow_extra) as f64, ..SlowTier::CXL };
        Ok(Hardware {
            memory,
            swap: self.device()?,
            swap_size: self.swap_size.unwrap_or(roomy.swap_size),
            slow: self.slow_node.map(|size| (tier, size)),
            thp: match self.thp {
                ThpName::Never => Thp::Never,
                ThpName::Madvise => Thp::Madvise,
                ThpName::Always => Thp::Always,
            },
            huge_gain,
            prefault: self.prefault == YesNo::Yes,
            ..roomy
        })
    }

    fn device(&self) -> Result<Option<SwapDevice>, Usage> {
        let mut device = match self.swap {
            SwapName::Zram => SwapDevice::ZRAM,
            SwapName::ZramLz4 => SwapDevice::ZRAM_LZ4,
            SwapName::ZramZstd => SwapDevice::ZRAM_ZSTD,
            SwapName::Ssd => SwapDevice::SSD,
            SwapName::None => return Ok(None),
        };
        if let Some(ratio) = self.ratio {
            if !(ratio.is_finite() && ratio >= 1.0) {
                return Err(Usage("--ratio must be a number of at least 1".into()));
            }
            if device.ratio.is_none() {
                return Err(Usage(format!("--ratio has no meaning with --swap {}: pages leave memory", device.name)));
            }
            device.ratio = Some(ratio);
        }
        // A second for a page is beyond any device, and keeps sums from overflowing.
        let cost = |given: Option<Duration>, default: u64, what: &str| match given {
            Some(t) if t > Duration::from_secs(1) => Err(Usage(format!("{what} must be at most 1s"))),
            given => Ok(given.map_or(default, |t| t.as_nanos() as u64)),
        };
        device.read_ns = cost(self.swap_read, device.read_ns, "--swap-read")?;
        device.write_ns = cost(self.swap_write, device.write_ns, "--swap-write")?;
        Ok(Some(device))
    }
}
