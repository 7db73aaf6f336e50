//! `/proc/PID/status`: memory figures, the thread group, and capabilities.

use super::dir::ProcessDir;
use super::error::ProcessError;

/// The lines of `/proc/PID/status` that Isotherm uses. Sizes in bytes; `None` where the kernel does not print the line
/// (an exiting process and a kernel thread have no memory lines).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Thread group leader: the process's pid.
    pub tgid: Option<u32>,
    /// Virtual size.
    pub vm_size: Option<u64>,
    pub vm_rss: Option<u64>,
    pub vm_swap: Option<u64>,
    /// Address space that is locked in memory (mlock): the sizes of the mappings, resident or not.
    pub vm_locked: Option<u64>,
    /// Resident hugetlb memory (not part of `vm_rss`).
    pub hugetlb: Option<u64>,
    /// Effective capabilities, a bit each by its number in linux/capability.h.
    pub capabilities: Option<u64>,
}

impl Status {
    /// Parses the file's content; lines that are not understood are left out.
    pub fn parse(text: &[u8]) -> Self {
        let mut status = Self::default();
        for line in text.split(|&b| b == b'\n') {
            let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
            let value = &line[colon + 1..];
            match &line[..colon] {
                b"Tgid" => status.tgid = number(value).and_then(|n| n.try_into().ok()),
                b"VmSize" => status.vm_size = kilobytes(value),
                b"VmRSS" => status.vm_rss = kilobytes(value),
                b"VmSwap" => status.vm_swap = kilobytes(value),
                b"VmLck" => status.vm_locked = kilobytes(value),
                b"HugetlbPages" => status.hugetlb = kilobytes(value),
                b"CapEff" => status.capabilities = hexadecimal(value),
                _ => {}
            }
        }
        status
    }

    /// Reads the file of one process.
    pub fn read(dir: &ProcessDir, buf: &mut Vec<u8>) -> Result<Self, ProcessError> {
        dir.read("status", buf)?;
        Ok(Self::parse(buf))
    }
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?.trim(), 16).ok()
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Bytes of a value such as `  1234 kB`.
pub(super) fn kilobytes(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    text.strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn figures_come_back_among_any_other_lines(before in "([A-Za-z]{0,8}:[^\n]{0,20}\n){0,5}", rss in 0u64..1 << 50) {
            let text = format!("{before}VmRSS:\t{rss:8} kB\n");
            prop_assert_eq!(Status::parse(text.as_bytes()).vm_rss, Some(rss * 1024));
        }
    }

    #[test]
    fn sizes_are_bytes_and_missing_lines_are_none() {
        let text = b"Name:\tVmRSS: 3 kB\nTgid:\t42\nVmSize:\t    8192 kB\nVmLck:\t       0 kB\nVmRSS:\t    4096 kB\n";
        assert_eq!(
            Status::parse(text),
            Status {
                tgid: Some(42),
                vm_size: Some(8192 << 10),
                vm_rss: Some(4096 << 10),
                vm_locked: Some(0),
                ..Status::default()
            }
        );
        assert_eq!(Status::parse(b"VmRSS: 99999999999999999999 kB\nVmSwap: x kB\nHugetlbPages:"), Status::default());
    }
}
