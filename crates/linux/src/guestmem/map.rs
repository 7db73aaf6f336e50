//! Which physical addresses are memory: `/proc/iomem`.

use crate::roots::Roots;
use isotherm_core::addr::{AddrRange, normalize};
use isotherm_core::hinter::{MemoryArea, MemoryKind};
use std::fs::File;
use std::io::{self, Read, Seek};

/// The areas, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryMap {
    /// RAM and what the firmware keeps, by address, without overlaps.
    pub areas: Vec<MemoryArea>,
}

/// `/proc/iomem`, held open: who had CAP_SYS_ADMIN when it was opened is shown addresses also without it.
#[derive(Debug)]
pub struct MemoryMapFile(File);

impl MemoryMapFile {
    /// Opens it.
    pub fn open(roots: &Roots) -> io::Result<Self> {
        File::open(roots.path("/proc/iomem")).map(Self)
    }

    /// Reads it anew. Where it was opened without CAP_SYS_ADMIN every address reads as zero, which is an error here.
    pub fn read(&mut self) -> io::Result<MemoryMap> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        let map = MemoryMap::parse(&text);
        if map.ram().is_empty() {
            let why = "/proc/iomem shows no memory; reading its addresses takes root (CAP_SYS_ADMIN)";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(map)
    }
}

impl MemoryMap {
    /// Reads it once.
    pub fn read(roots: &Roots) -> io::Result<Self> {
        MemoryMapFile::open(roots)?.read()
    }

    fn parse(text: &str) -> Self {
        let mut areas: Vec<MemoryArea> = text.lines().filter_map(area).collect();
        areas.sort_unstable_by_key(|a| a.range);
        // Lines that are not indented never overlap; a kernel that thinks otherwise must not confuse a host.
        let mut end = 0;
        areas.retain(|a| {
            let fits = a.range.start >= end;
            if fits {
                end = a.range.end;
            }
            fits
        });
        Self { areas }
    }

    /// The RAM, by address; what touches is joined.
    pub fn ram(&self) -> Vec<AddrRange> {
        let ram = self.areas.iter().filter(|a| a.kind == MemoryKind::Ram);
        let mut ranges: Vec<AddrRange> = ram.map(|a| a.range).collect();
        normalize(&mut ranges);
        ranges
    }
}

/// An area from a line such as `00100000-1ffdffff : System RAM`. Indented lines are parts of the one above.
fn area(line: &str) -> Option<MemoryArea> {
    if line.starts_with(' ') {
        return None;
    }
    let (range, name) = line.split_once(" : ")?;
    let kind = match name.trim() {
        "System RAM" => MemoryKind::Ram,
        // Hot-added memory is `System RAM (virtio_mem)` and the like.
        other if other.starts_with("System RAM (") => MemoryKind::Ram,
        "Reserved" | "ACPI Tables" | "ACPI Non-volatile Storage" => MemoryKind::Reserved,
        _ => return None,
    };
    let (first, last) = range.split_once('-')?;
    let start = u64::from_str_radix(first, 16).ok()?;
    let end = u64::from_str_radix(last, 16).ok()?.checked_add(1)?;
    // What an unprivileged reader sees.
    (start < end && end != 1).then_some(MemoryArea { range: AddrRange { start, end }, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    const Q35: &str = "\
00000000-00000fff : Reserved
00001000-0009fbff : System RAM
0009fc00-0009ffff : Reserved
000a0000-000bffff : PCI Bus 0000:00
000f0000-000fffff : Reserved
  000f0000-000fffff : System ROM
00100000-7ffdefff : System RAM
  01000000-01e00ea6 : Kernel code
7ffdf000-7fffffff : Reserved
80000000-afffffff : PCI Bus 0000:00
feffc000-feffffff : Reserved
100000000-17fffffff : System RAM
180000000-187ffffff : System RAM (virtio_mem)
";

    #[test]
    fn a_guest_of_4_gib() {
        let t = tree(&[("proc/iomem", Q35)]);
        let map = MemoryMap::read(&t.roots).unwrap();
        assert_eq!(map.areas.len(), 9);
        let ram = map.ram();
        assert_eq!(ram[1], AddrRange::new(0x10_0000, 0x7ffd_f000));
        assert_eq!(ram[2], AddrRange::new(0x1_0000_0000, 0x1_8800_0000));
        assert!(isotherm_core::addr::total_len(&ram) > 4 << 30);
    }

    #[test]
    fn memory_that_comes_shows_in_the_open_file() {
        let t = tree(&[("proc/iomem", Q35)]);
        let mut file = MemoryMapFile::open(&t.roots).unwrap();
        let before = file.read().unwrap();
        std::fs::write(t.roots.path("/proc/iomem"), format!("{Q35}188000000-18fffffff : System RAM\n")).unwrap();
        let after = file.read().unwrap();
        assert_eq!((before.areas.len(), after.areas.len()), (9, 10));
    }

    #[test]
    fn without_privilege_it_is_an_error_and_odd_lines_are_passed_over() {
        let t = tree(&[("proc/iomem", "00000000-00000000 : System RAM\n00000000-00000000 : Reserved\n")]);
        assert_eq!(MemoryMap::read(&t.roots).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let odd = "zz-1 : System RAM\n10-5 : System RAM\n1-ffffffffffffffff : System RAM\n\n1000-1fff : System RAM\n\
            1800-2fff : Reserved\n";
        assert_eq!(MemoryMap::parse(odd).areas.len(), 1, "what overlaps the one before is left out");
        assert!(MemoryMap::parse("").ram().is_empty());
    }
}
