//! `/proc/meminfo` and the same of a memory node.

use crate::roots::Roots;
use std::path::PathBuf;

/// The file for the whole machine.
pub(crate) const FILE: &str = "/proc/meminfo";

/// The file of a node.
pub(crate) fn node_file(node: u32) -> PathBuf {
    format!("/sys/devices/system/node/node{node}/meminfo").into()
}

/// A field in KiB. Lines begin with the field's name and a colon; those of a node with `Node N ` in front.
pub(crate) fn kib(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| {
        let line = line.strip_prefix("Node ").map_or(line, |l| l.split_once(' ').map_or("", |(_, rest)| rest));
        line.strip_prefix(field)?.strip_prefix(':')
    })?;
    value.trim().strip_suffix("kB")?.trim_end().parse().ok()
}

/// Bytes that can be allocated without swapping; `None` where the file does not tell.
pub(crate) fn available(roots: &Roots) -> Option<u64> {
    kib(&roots.read(FILE).ok()?, "MemAvailable")?.checked_mul(1024)
}

/// `part` of `whole` in basis points; `None` where the whole is nothing.
pub(crate) fn basis_points(part: u64, whole: u64) -> Option<u64> {
    u64::try_from(u128::from(part) * 10_000 / (whole != 0).then_some(u128::from(whole))?).ok()
}

/// Free memory as basis points of all.
pub(crate) fn free_rate(text: &str) -> Option<u64> {
    basis_points(kib(text, "MemFree")?, kib(text, "MemTotal")?)
}

/// Used memory as basis points of all: what is not free, as the kernel's own goals count it.
pub(crate) fn used_rate(text: &str) -> Option<u64> {
    let total = kib(text, "MemTotal")?;
    basis_points(total.saturating_sub(kib(text, "MemFree")?), total)
}

/// Basis points of `field` (`Active` or `Inactive`) in both LRU lists together. Where both are empty, it is 0.
pub(crate) fn lru_rate(text: &str, field: &str) -> Option<u64> {
    let sum = kib(text, "Active")?.checked_add(kib(text, "Inactive")?)?;
    basis_points(kib(text, field)?, sum.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    const TEXT: &str = "MemTotal:       24684096 kB\nMemFree:         6171024 kB\nActive:            30 kB\n\
        Inactive:             90 kB\nActive(anon):       2592 kB\nHugePages_Total:       0\n";

    #[test]
    fn fields_of_the_machine_and_of_a_node() {
        assert_eq!(kib(TEXT, "Active"), Some(30));
        assert_eq!(kib(TEXT, "HugePages_Total"), None, "a count is not a size");
        assert_eq!(
            (kib("Node 12 MemFree:   7 kB\n", "MemFree"), kib("Node\nMemFree: x kB", "MemFree")),
            (Some(7), None)
        );
    }

    #[test]
    fn rates() {
        assert_eq!((free_rate(TEXT), used_rate(TEXT)), (Some(2500), Some(7500)));
        assert_eq!((lru_rate(TEXT, "Active"), lru_rate(TEXT, "Inactive")), (Some(2500), Some(7500)));
        assert_eq!(free_rate("MemTotal: 0 kB\nMemFree: 0 kB\n"), None);
        assert_eq!(lru_rate("Active: 0 kB\nInactive: 0 kB\n", "Active"), Some(0));
        assert_eq!(basis_points(u64::MAX, u64::MAX), Some(10_000));
    }

    #[test]
    fn available_memory_may_be_missing_or_odd() {
        let available = |text: &str| available(&tree(&[("proc/meminfo", text)]).roots);
        assert_eq!(available("MemTotal: 5 kB\nMemAvailable:     3 kB\n"), Some(3072));
        assert_eq!(available("MemAvailable: many\n"), None);
        assert_eq!(super::available(&tree(&[]).roots), None);
    }
}
