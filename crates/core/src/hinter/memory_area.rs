//! Parts of a guest's physical address space, as both the guest and its host speak of them.

use crate::addr::AddrRange;

/// What a part of the guest-physical address space is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// `System RAM` of /proc/iomem.
    Ram,
    /// What the firmware keeps for itself: `Reserved`, `ACPI Tables`, `ACPI Non-volatile Storage`. Its ends tell the
    /// host where RAM ends that the guest does not get to see.
    Reserved,
}

/// A part of the guest-physical address space: a line of /proc/iomem that is not indented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryArea {
    /// Where it is, bytes.
    pub range: AddrRange,
    /// What it is.
    pub kind: MemoryKind,
}
