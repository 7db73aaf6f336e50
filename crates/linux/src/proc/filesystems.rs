//! Which device numbers belong to memory file systems (tmpfs, hugetlbfs), as the target's mount table tells.

use super::dir::ProcessDir;

/// A kind of file system whose pages are memory rather than a disk's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFs {
    /// tmpfs and ramfs: shared memory that can be swapped (tmpfs) or not.
    Tmpfs,
    Hugetlbfs,
}

/// The memory file systems in one process's mount table, by device number (major, minor).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filesystems {
    devices: Vec<((u32, u32), MemoryFs)>,
}

impl Filesystems {
    /// Parses `/proc/PID/mountinfo`; lines that are not understood are left out.
    pub fn parse(mountinfo: &[u8]) -> Self {
        let devices = mountinfo.split(|&b| b == b'\n').filter_map(parse_line).collect();
        Self { devices }
    }

    /// Reads the mount table of a process; empty if it cannot be read.
    pub fn read(dir: &ProcessDir) -> Self {
        let mut buf = Vec::new();
        if dir.read("mountinfo", &mut buf).is_err() {
            return Self::default();
        }
        Self::parse(&buf)
    }

    /// The memory file system with this device number, if it is one.
    pub fn get(&self, device: (u32, u32)) -> Option<MemoryFs> {
        self.devices.iter().find(|(d, _)| *d == device).map(|(_, fs)| *fs)
    }
}

/// `36 35 98:0 /root /mount opts [tag...] - fstype source superopts`
fn parse_line(line: &[u8]) -> Option<((u32, u32), MemoryFs)> {
    let line = std::str::from_utf8(line).ok()?;
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    let fs = match line.split_once(" - ")?.1.split(' ').next()? {
        "tmpfs" | "ramfs" => MemoryFs::Tmpfs,
        "hugetlbfs" => MemoryFs::Hugetlbfs,
        _ => return None,
    };
    Some(((major.parse().ok()?, minor.parse().ok()?), fs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_file_systems_are_found_with_and_without_tags() {
        let fs = Filesystems::parse(
            b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
              26 22 0:24 / /dev/shm rw,nosuid shared:4 master:1 - tmpfs tmpfs rw\n\
              31 22 0:30 / /dev/hugepages rw - hugetlbfs hugetlbfs rw,pagesize=2M\nbroken line\n",
        );
        assert_eq!(fs.get((0, 24)), Some(MemoryFs::Tmpfs));
        assert_eq!(fs.get((0, 30)), Some(MemoryFs::Hugetlbfs));
        assert_eq!(fs.get((254, 0)), None);
    }
}
