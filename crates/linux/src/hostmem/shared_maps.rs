//! Where a process has files mapped shared: from its own addresses to places in files.

use super::ram_file::RamFile;
use crate::proc::maps::MapsLine;
use crate::proc::{ProcessDir, ProcessError};
use isotherm_core::addr::AddrRange;

/// The shared, writable mappings of a process at one moment, by address.
#[derive(Debug, Default)]
pub struct SharedMaps(Vec<Mapped>);

#[derive(Debug)]
struct Mapped {
    range: AddrRange,
    offset: u64,
    inode: u64,
    name: String,
}

impl SharedMaps {
    /// Those of process `pid`.
    pub fn of_process(pid: u32) -> Result<Self, ProcessError> {
        let mut maps = Vec::new();
        ProcessDir::live(pid).read("maps", &mut maps)?;
        Ok(Self::parse(&maps))
    }

    fn parse(maps: &[u8]) -> Self {
        let lines = maps.split(|byte| *byte == b'\n').filter_map(MapsLine::parse);
        let shared = lines.filter(|line| line.is_shared() && line.perms[1] == b'w' && line.inode != 0);
        let mapped = shared.map(|line| Mapped {
            range: line.range,
            offset: line.offset,
            inode: line.inode,
            name: String::from_utf8_lossy(line.name).trim_end_matches(" (deleted)").to_owned(),
        });
        Self(mapped.collect())
    }

    /// Where in `file` the `len` bytes are that the process sees at `addr`; `None` unless all of them are that file's,
    /// one after another.
    pub fn offset_of(&self, file: &RamFile, addr: u64, len: u64) -> Option<u64> {
        self.find(file.identity.1, &file.name, addr, len)
    }

    fn find(&self, inode: u64, name: &str, addr: u64, len: u64) -> Option<u64> {
        let end = addr.checked_add(len).filter(|end| *end > addr)?;
        let first = self.0.partition_point(|mapped| mapped.range.end <= addr);
        let (mut at, mut found) = (addr, None);
        // A mapping may be in several lines: part of it is locked, or on another node.
        for mapped in self.0[first..].iter().take_while(|mapped| mapped.range.start < end) {
            if mapped.range.start > at || mapped.inode != inode || mapped.name != name {
                return None;
            }
            let offset = mapped.offset.checked_add(at - mapped.range.start)?;
            let begin = *found.get_or_insert(offset);
            if offset != begin + (at - addr) {
                return None;
            }
            at = mapped.range.end;
        }
        found.filter(|_| at >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
7f0000000000-7f0000200000 rw-s 00000000 00:01 7                      /memfd:memory-backend-memfd (deleted)
7f0000200000-7f0000400000 rw-s 00200000 00:01 7                      /memfd:memory-backend-memfd (deleted)
7f0000400000-7f0000600000 rw-s 00000000 00:01 8                      /memfd:memory-backend-memfd (deleted)
7f0000800000-7f0000a00000 rw-p 00000000 00:01 9                      /memfd:memory-backend-memfd (deleted)
7f0000a00000-7f0000c00000 rw-s 00400000 00:01 7                      /memfd:memory-backend-memfd (deleted)
7f0000c00000-7f0000e00000 rw-s 00000000 00:01 7                      /memfd:memory-backend-memfd (deleted)
";

    #[test]
    fn places_in_files_are_found_or_refused() {
        let maps = SharedMaps::parse(MAPS);
        let at = |inode, addr: u64, len| maps.find(inode, "/memfd:memory-backend-memfd", 0x7f00_0000_0000 + addr, len);
        assert_eq!(at(7, 0, 0x40_0000), Some(0), "in two lines");
        assert_eq!(at(7, 0x10_0000, 0x20_0000), Some(0x10_0000));
        assert_eq!(at(7, 0xa0_0000, 0x1000), Some(0x40_0000));
        assert_eq!(at(8, 0x40_0000, 0x20_0000), Some(0));
        assert_eq!(at(7, 0x40_0000, 0x1000), None, "another file's");
        assert_eq!(at(7, 0x30_0000, 0x20_0000), None, "partly another file's");
        assert_eq!(at(8, 0x40_0000, 0x20_1000), None, "beyond its end");
        assert_eq!(at(9, 0x80_0000, 0x1000), None, "private");
        assert_eq!(at(7, 0xa0_0000, 0x40_0000), None, "not one after another");
        assert_eq!(at(7, 0x60_0000, 0x1000), None, "nothing is there");
        assert_eq!((at(7, 0, 0), at(7, 0, u64::MAX)), (None, None));
        assert_eq!(maps.find(7, "/memfd:other", 0x7f00_0000_0000, 1), None);
    }
}
