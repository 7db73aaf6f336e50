//! Descriptions of machines: `NAME:KEY=VALUE,...`, for example `zram:ratio=2.5,tasks=8,work=20us`.

use crate::machine::device::{FAULT_NS, RECLAIM_NS, SCAN_NS, SlowTier, SwapDevice};
use isotherm_core::units::{parse_percent, parse_time_ns};

/// A machine: what its parts cost, ns. docs/sim-lru.md tells where the defaults come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// The name it was asked for by.
    pub name: &'static str,
    /// Tasks that make requests.
    pub tasks: u32,
    /// What a request takes when its page is there.
    pub work: u64,
    /// A fault, without waiting for the page.
    pub fault: u64,
    /// Bringing an anonymous page back.
    pub read: u64,
    /// Putting an anonymous page away.
    pub write: u64,
    /// Reading a page of a file.
    pub file_read: u64,
    /// Reads that a device does at once; none: each task does them itself.
    pub channels: Option<u32>,
    /// How much smaller anonymous pages become that are put away into memory; none: they take no memory.
    pub ratio: Option<f64>,
    /// Reclaiming a page, without writing and without looking for it.
    pub reclaim: u64,
    /// Looking at a page in search of one to reclaim.
    pub scan: u64,
    /// Reading an entry of a page table, in thousandths of a ns.
    pub pte_ps: u64,
    /// The share of memory that background reclaim keeps free.
    pub headroom: f64,
}

/// A description that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("'{spec}' describes no machine: {why}")]
pub struct MachineError {
    spec: String,
    why: String,
}

/// How a machine's memory is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Pages for the policy.
    pub resident: u32,
    /// Pages kept free.
    pub headroom: u32,
}

/// Reads that an NVMe drive does at once: 490,000 a second of 85 us each (data sheet of Intel's P4500, 2 TB).
const CHANNELS: u32 = 40;
const MOST_TASKS: u64 = 4096;
/// Longest time for anything, ns: a minute.
const LONGEST: u64 = 60_000_000_000;

impl Machine {
    /// With swap on a device, as the simulated machine has it.
    fn swapping(device: SwapDevice) -> Self {
        Self {
            name: device.name,
            tasks: 1,
            work: 1_000,
            fault: FAULT_NS,
            read: device.read_ns,
            write: device.write_ns,
            file_read: SwapDevice::SSD.read_ns,
            channels: (device == SwapDevice::SSD).then_some(CHANNELS),
            ratio: device.ratio,
            reclaim: RECLAIM_NS,
            scan: SCAN_NS,
            pte_ps: 700,
            headroom: 0.002,
        }
    }

    /// Slower memory, to and from which pages are moved.
    fn tier() -> Self {
        let (read, write) = (SlowTier::CXL.move_ns, SlowTier::CXL.move_ns);
        Self { name: "tier", read, write, channels: None, ..Self::swapping(SwapDevice::SSD) }
    }

    pub fn parse(spec: &str) -> Result<Self, MachineError> {
        let fail = |why: String| MachineError { spec: spec.to_owned(), why };
        let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
        let mut machine = match name {
            "tier" => Self::tier(),
            _ => Self::swapping(SwapDevice::named(name).ok_or_else(|| {
                let known: Vec<_> = SwapDevice::ALL.iter().map(|d| d.name).collect();
                fail(format!("known are {} and tier", known.join(", ")))
            })?),
        };
        let mut given: Vec<&str> = Vec::new();
        for pair in rest.split(',').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| fail(format!("'{pair}' is not KEY=VALUE")))?;
            if given.contains(&key) {
                return Err(fail(format!("{key} is given twice")));
            }
            given.push(key);
            machine.set(key, value, &fail)?;
        }
        Ok(machine)
    }

    /// Sets what `key` names; `fail` makes an error of what is wrong.
    fn set(&mut self, key: &str, value: &str, fail: &dyn Fn(String) -> MachineError) -> Result<(), MachineError> {
        let time = || {
            let ns = parse_time_ns(value).ok().filter(|&ns| ns <= LONGEST);
            ns.ok_or_else(|| {
                fail(format!("{key} must be a time such as 500ns, 3us or 0.1ms, at most a minute, not '{value}'"))
            })
        };
        let whole = || {
            let number = value.parse().ok().filter(|n| (1..=MOST_TASKS).contains(n));
            let number =
                number.ok_or_else(|| fail(format!("{key} must be a number from 1 to {MOST_TASKS}, not '{value}'")))?;
            Ok::<u32, MachineError>(number as u32)
        };
        match key {
            "tasks" => self.tasks = whole()?,
            "work" => self.work = time()?.max(1),
            "fault" => self.fault = time()?,
            "read" => self.read = time()?,
            "write" => self.write = time()?,
            "file_read" => self.file_read = time()?,
            "reclaim" => self.reclaim = time()?,
            "scan" => self.scan = time()?,
            "channels" if self.channels.is_some() => self.channels = Some(whole()?),
            "ratio" if self.ratio.is_some() => {
                let ratio = value.parse().ok().filter(|r: &f64| (1.01..=1000.0).contains(r));
                self.ratio =
                    Some(ratio.ok_or_else(|| fail(format!("ratio must lie between 1.01 and 1000, not '{value}'")))?);
            }
            "headroom" => {
                let share = parse_percent(value).ok().filter(|s| (0.0..=0.9).contains(s));
                self.headroom =
                    share.ok_or_else(|| fail(format!("headroom must be a share up to 90%, not '{value}'")))?;
            }
            _ => return Err(fail(format!("{} knows no '{key}'", self.name))),
        }
        Ok(())
    }

    /// How `size` pages of memory are divided, if `pages` different pages are used of which `anon` are anonymous. What
    /// is put away into memory takes its place there; all that is not resident is taken to have been put away. `None`:
    /// it does not fit.
    pub fn resident(&self, size: u32, pages: u32, anon: u32) -> Option<Room> {
        let memory = f64::from(size);
        let fits = match self.ratio {
            Some(ratio) if pages > size => {
                // resident + anon * (1 - resident / pages) / ratio = size
                let packed = f64::from(anon) / ratio;
                (memory - packed) / (1.0 - packed / f64::from(pages))
            }
            _ => memory,
        };
        if fits < 1.0 {
            return None;
        }
        // A little more for the sake of what should have been whole.
        let fits = (fits + 1e-6).floor() as u32;
        let headroom = ((memory * self.headroom) as u32).min(fits - 1);
        Some(Room { resident: fits - headroom, headroom })
    }
}
