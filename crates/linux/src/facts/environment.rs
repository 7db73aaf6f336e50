//! Facts about the machine that explain why something works or does not.

use super::pressure;
use super::{HugePages, KernelDamon, bracketed};
use crate::cgroup::CgroupSetup;
use crate::proc::status::Status;
use crate::roots::Roots;
use std::fmt;
use std::path::Path;

/// The kernel's lockdown mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lockdown {
    /// Off, or not built in.
    None,
    /// The default under Secure Boot; reading page tables by eBPF still works.
    Integrity,
    /// Refuses the eBPF helper that reads kernel memory.
    Confidentiality,
    /// Its file (in securityfs) is not there: not built in, or not mounted.
    Unknown,
}

impl fmt::Display for Lockdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Integrity => "integrity",
            Self::Confidentiality => "confidentiality",
            Self::Unknown => "unknown (securityfs is not mounted or lockdown is not built in)",
        })
    }
}

/// A swap device or file in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapArea {
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Used, bytes.
    pub used: u64,
}

/// Virtualisation as seen from here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hypervisor {
    /// The hypervisor that this system runs on; `None`: none was seen.
    pub below: Option<String>,
    /// Processes here that hold a KVM guest. What their guests access through second-stage page tables does not show in
    /// the process's own page table.
    pub guests: Vec<u32>,
}

/// Why pressure is not measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoPressure(pub(crate) String);

/// What was read. `None` means that the kernel does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    pub kernel: String,
    /// Levels of the page table in use: 4 or 5.
    pub page_table_levels: Option<u8>,
    /// Size of the kernel's type information (BTF), bytes.
    pub btf_bytes: Option<u64>,
    pub lockdown: Lockdown,
    pub capabilities: Option<u64>,
    pub cgroup: CgroupSetup,
    /// Whether pressure is measured for memory.
    pub psi: Result<(), NoPressure>,
    /// Transparent huge pages; `None`: not built in.
    pub thp: Option<HugePages>,
    pub swap: Vec<SwapArea>,
    /// Bits of the multi-generational LRU's switch; 0: built in and off.
    pub mglru: Option<u32>,
    /// State of the kernel's DAMON.
    pub damon: KernelDamon,
    pub hypervisor: Hypervisor,
    /// Whether idle page tracking is built in.
    pub idle_page_tracking: bool,
    /// NUMA nodes that have memory.
    pub memory_nodes: Vec<u32>,
}

impl Environment {
    /// Reads all of it.
    pub fn read(roots: &Roots) -> Self {
        let lru_gen = roots.line("/sys/kernel/mm/lru_gen/enabled");
        Self {
            kernel: roots.line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            page_table_levels: roots.read("/proc/cpuinfo").ok().and_then(|t| page_table_levels(&t)),
            btf_bytes: std::fs::metadata(roots.path("/sys/kernel/btf/vmlinux")).ok().map(|m| m.len()),
            lockdown: lockdown(roots.line("/sys/kernel/security/lockdown").as_deref()),
            capabilities: roots.read("/proc/self/status").ok().and_then(|t| Status::parse(t.as_bytes()).capabilities),
            cgroup: CgroupSetup::read(roots),
            psi: psi(roots),
            thp: HugePages::read(roots),
            swap: Self::read_swap(roots),
            mglru: lru_gen.and_then(|t| u32::from_str_radix(t.trim_start_matches("0x"), 16).ok()),
            damon: KernelDamon::read(roots),
            hypervisor: Hypervisor { below: hypervisor_below(roots), guests: kvm_processes(roots) },
            idle_page_tracking: roots.exists("/sys/kernel/mm/page_idle/bitmap"),
            memory_nodes: Self::read_memory_nodes(roots),
        }
    }

    /// Swap in use now.
    pub fn read_swap(roots: &Roots) -> Vec<SwapArea> {
        roots.read("/proc/swaps").map(|t| swaps(&t)).unwrap_or_default()
    }

    /// NUMA nodes that have memory now.
    pub(crate) fn read_memory_nodes(roots: &Roots) -> Vec<u32> {
        roots.line("/sys/devices/system/node/has_memory").map(|t| id_list(&t)).unwrap_or_default()
    }

    /// Whether we hold a capability (its number in linux/capability.h).
    pub(crate) fn has_capability(&self, number: u32) -> bool {
        self.capabilities.is_some_and(|c| c >> number & 1 == 1)
    }

    /// Names of the capabilities that Isotherm has a use for and that we lack.
    pub fn missing_capabilities(&self) -> Vec<&'static str> {
        let has = |number| {
            // Who may write any file may read it.
            self.has_capability(number) || number == DAC_READ_SEARCH && self.has_capability(DAC_OVERRIDE)
        };
        CAPABILITIES.iter().filter(|(number, _)| !has(*number)).map(|(_, name)| *name).collect()
    }
}

const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;

/// Capabilities that some part of Isotherm uses.
const CAPABILITIES: [(u32, &str); 8] = [
    (DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (14, "CAP_IPC_LOCK"),
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (23, "CAP_SYS_NICE"),
    (24, "CAP_SYS_RESOURCE"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

fn page_table_levels(cpuinfo: &str) -> Option<u8> {
    // The kernel clears the flag when it runs with four levels on a processor that could do five.
    let flags = cpuinfo.lines().find(|l| l.starts_with("flags"))?;
    Some(if flags.split_whitespace().any(|f| f == "la57") { 5 } else { 4 })
}

fn lockdown(text: Option<&str>) -> Lockdown {
    match text.and_then(bracketed).as_deref() {
        Some("none") => Lockdown::None,
        Some("integrity") => Lockdown::Integrity,
        Some("confidentiality") => Lockdown::Confidentiality,
        _ => Lockdown::Unknown,
    }
}

fn psi(roots: &Roots) -> Result<(), NoPressure> {
    match roots.read(pressure::FILE) {
        Ok(text) if pressure::total(&text, pressure::Share::Some).is_some() => Ok(()),
        Ok(_) => Err(NoPressure(format!("{} has an unknown form", pressure::FILE))),
        Err(e) => Err(NoPressure(pressure::why(Path::new(pressure::FILE), &e))),
    }
}

fn swaps(text: &str) -> Vec<SwapArea> {
    let area = |line: &str| {
        let mut fields = line.split_whitespace();
        let name = fields.next()?.to_owned();
        let kib = |text: Option<&str>| text?.parse::<u64>().ok()?.checked_mul(1024);
        let size = kib(fields.nth(1))?;
        Some(SwapArea { name, size, used: kib(fields.next())? })
    };
    text.lines().skip(1).filter_map(area).collect()
}

/// A kernel list like `0-2,5`. Absurdly long ranges are cut at 1024 entries.
fn id_list(text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            ids.extend((first..=last).take(1024));
        }
    }
    ids
}

fn hypervisor_below(roots: &Roots) -> Option<String> {
    let flagged = roots
        .read("/proc/cpuinfo")
        .ok()?
        .lines()
        .any(|l| l.starts_with("flags") && l.split_whitespace().any(|f| f == "hypervisor"));
    let named = roots
        .line("/sys/hypervisor/type")
        .or_else(|| roots.line("/sys/class/dmi/id/sys_vendor"))
        .filter(|name| !name.is_empty());
    flagged.then(|| named.unwrap_or_else(|| "a hypervisor that gives no name".into()))
}

fn kvm_processes(roots: &Roots) -> Vec<u32> {
    if !roots.exists("/dev/kvm") {
        return Vec::new();
    }
    let holds_guest = |pid: u32| {
        let Ok(fds) = std::fs::read_dir(roots.path(format!("/proc/{pid}/fd"))) else { return false };
        fds.flatten().any(|fd| {
            std::fs::read_link(fd.path()).is_ok_and(|l| l.as_os_str().as_encoded_bytes() == b"anon_inode:kvm-vm")
        })
    };
    roots.names("/proc").iter().filter_map(|n| n.parse().ok()).filter(|&pid| holds_guest(pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn empty_tree_knows_nothing_and_does_not_fail() {
        let e = Environment::read(&tree(&[]).roots);
        assert_eq!((e.page_table_levels, e.btf_bytes, e.capabilities, e.mglru), (None, None, None, None));
        assert_eq!(e.lockdown, Lockdown::Unknown);
        assert_eq!(e.psi, Err(NoPressure("/proc/pressure/memory is missing".into())));
        assert!(e.swap.is_empty() && e.memory_nodes.is_empty() && e.thp.is_none() && !e.idle_page_tracking);
        assert_eq!(e.missing_capabilities().len(), 8);
    }

    #[test]
    fn full_tree() {
        let t = tree(&[
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu la57 hypervisor\n"),
            ("sys/kernel/btf/vmlinux", "0123456789"),
            ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n"),
            ("proc/self/status", "Name:\tx\nCapEff:\t000000c000884000\n"),
            ("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
            ("proc/swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 8388604 1024 100\nbroken\n"),
            ("sys/kernel/mm/lru_gen/enabled", "0x0007\n"),
            ("sys/kernel/mm/page_idle/bitmap", ""),
            ("sys/devices/system/node/has_memory", "0-1,4\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ]);
        let e = Environment::read(&t.roots);
        assert_eq!((e.page_table_levels, e.btf_bytes, e.mglru), (Some(5), Some(10), Some(7)));
        assert_eq!((e.kernel.as_str(), e.lockdown, e.psi.is_ok()), ("6.12.1", Lockdown::Integrity, true));
        assert_eq!(e.missing_capabilities(), ["CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"]);
        assert_eq!(e.thp, Some(HugePages::Never));
        assert_eq!(e.swap, [SwapArea { name: "/dev/zram0".into(), size: 8_388_604 * 1024, used: 1 << 20 }]);
        assert_eq!(e.memory_nodes, [0, 1, 4]);
        assert_eq!(e.hypervisor.below.as_deref(), Some("QEMU"));
        assert!(e.idle_page_tracking);
    }

    #[test]
    fn who_may_write_any_file_does_not_lack_the_right_to_read() {
        let missing = |effective: &str| {
            let t = tree(&[("proc/self/status", &format!("Name:\tx\nCapEff:\t{effective}\n"))]);
            Environment::read(&t.roots).missing_capabilities()
        };
        assert!(missing("000000c000884000").contains(&"CAP_DAC_READ_SEARCH"));
        assert!(missing("000000c001a84004").is_empty());
        assert!(missing("000000c001a84002").is_empty());
    }

    #[test]
    fn unreadable_pressure_says_so() {
        let t = tree(&[("proc/pressure/memory", "")]);
        assert!(Environment::read(&t.roots).psi.is_err());
    }

    #[test]
    fn vm_owner_is_found_by_its_file() {
        let t = tree(&[("dev/kvm", ""), ("proc/7/comm", "qemu\n"), ("proc/8/comm", "sh\n")]);
        let fds = t.roots.path("/proc/7/fd");
        std::fs::create_dir_all(&fds).unwrap();
        std::os::unix::fs::symlink("anon_inode:kvm-vm", fds.join("9")).unwrap();
        assert_eq!(Environment::read(&t.roots).hypervisor.guests, [7]);
    }
}
