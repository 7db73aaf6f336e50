//! Which device numbers belong to memory file systems (tmpfs, hugetlbfs), as the target's mount table tells.

use super::dir::ProcessDir;
use std::sync::OnceLock;

/// A kind of file system whose pages are memory rather than a disk's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFs {
    /// tmpfs and ramfs: shared memory that can be swapped (tmpfs) or not.
    Tmpfs,
    Hugetlbfs,
}

type Devices = Vec<((u32, u32), MemoryFs)>;

/// The memory file systems in one process's mount table, by device number (major, minor). The table is read when it is needed for the
/// first time: most programs map files of disks alone.
#[derive(Debug, Default)]
pub struct Filesystems {
    dir: Option<ProcessDir>,
    devices: OnceLock<Devices>,
}

impl Filesystems {
    /// Parses `/proc/PID/mountinfo`; lines that are not understood are left out.
    pub fn parse(mountinfo: &[u8]) -> Self {
        Self { dir: None, devices: parse(mountinfo).into() }
    }

    /// Those of a process; none if its mount table cannot be read.
    pub fn of(dir: &ProcessDir) -> Self {
        Self { dir: Some(dir.clone()), devices: OnceLock::new() }
    }

    /// The memory file system with this device number, if it is one.
    pub fn get(&self, device: (u32, u32)) -> Option<MemoryFs> {
        // What has no disk has major number 0 (the kernel's UNNAMED_MAJOR).
        if device.0 != 0 {
            return None;
        }
        let devices = self.devices.get_or_init(|| {
            let mut buf = Vec::new();
            let read = self.dir.as_ref().is_some_and(|dir| dir.read("mountinfo", &mut buf).is_ok());
            if read { parse(&buf) } else { Vec::new() }
        });
        devices.iter().find(|(d, _)| *d == device).map(|(_, fs)| *fs)
    }
}

fn parse(mountinfo: &[u8]) -> Devices {
    mountinfo.split(|&b| b == b'\n').filter_map(parse_line).collect()
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
    use crate::roots::Roots;

    #[test]
    fn the_mount_table_is_read_when_something_without_a_disk_is_mapped() {
        let root = tempfile::tempdir().unwrap();
        let dir = ProcessDir::of(&Roots::captured(root.path()), 7);
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let filesystems = Filesystems::of(&dir);
        assert_eq!(filesystems.get((254, 1)), None);
        std::fs::write(dir.file("mountinfo"), "26 22 0:24 / /dev/shm rw - tmpfs tmpfs rw\n").unwrap();
        assert_eq!(filesystems.get((0, 24)), Some(MemoryFs::Tmpfs));
        std::fs::remove_file(dir.file("mountinfo")).unwrap();
        assert_eq!(filesystems.get((0, 24)), Some(MemoryFs::Tmpfs));
        assert_eq!(Filesystems::of(&dir).get((0, 24)), None);
    }

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
