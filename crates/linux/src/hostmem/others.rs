//! Who else uses a VMM's memory: hardware that has it pinned, and other processes that have it mapped.

use super::ram_file::{identity_of, is_shared_and_writable};
use crate::proc::maps::MapsLine;
use crate::proc::{ProcessDir, ProcessError};
use crate::roots::Roots;
use std::collections::BTreeMap;

/// Device and inode of a file.
pub type FileIdentity = (u64, u64);

/// A process that has memory pinned for hardware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinner {
    pub pid: u32,
    /// The device that it has open for that.
    pub device: String,
}

/// What the descriptors of a process link to. One that is gone meanwhile is none.
pub(super) fn links(dir: &ProcessDir) -> Result<impl Iterator<Item = String>, ProcessError> {
    let entries = std::fs::read_dir(dir.file("fd")).map_err(|e| dir.error("fd", e))?;
    Ok(entries.flatten().filter_map(|e| std::fs::read_link(e.path()).ok()?.into_os_string().into_string().ok()))
}

/// A device through which process `pid` has memory pinned for hardware, if it holds one open: what is dropped under it
/// is still what the hardware reads and writes, while the guest gets new memory.
pub fn pinning_device(pid: u32) -> Result<Option<String>, ProcessError> {
    Ok(links(&ProcessDir::live(pid))?.find(|link| pins(link)))
}

fn pins(link: &str) -> bool {
    link.starts_with("/dev/vfio/") || link == "/dev/iommu" || link.starts_with("/dev/vhost-vdpa")
}

/// The files that processes have mapped shared which hold a device open that pins memory, each with one of them: a
/// backend with hardware of its own (vhost-user over VFIO) has the memory of its guests pinned as well. Processes that
/// cannot be looked at are passed over.
///
/// Looks at the descriptors of all processes, unless no hardware of this machine can be used in that way.
pub fn pinned_files(roots: &Roots) -> BTreeMap<FileIdentity, Pinner> {
    let mut files = BTreeMap::new();
    if !hardware_may_pin(roots) {
        return files;
    }
    let mut maps = Vec::new();
    for pid in roots.pids().unwrap_or_default() {
        let dir = ProcessDir::of(roots, pid);
        let Some(device) = links(&dir).ok().and_then(|mut links| links.find(|link| pins(link))) else { continue };
        if dir.read("maps", &mut maps).is_err() {
            continue;
        }
        let lines = maps.split(|byte| *byte == b'\n').filter_map(MapsLine::parse);
        // Hardware may read what it does not write: that would miss what the guest writes.
        for line in lines.filter(|line| line.is_shared() && line.inode != 0) {
            if let Ok(Some(identity)) = identity_of(&dir, &line) {
                files.entry(identity).or_insert_with(|| Pinner { pid, device: device.clone() });
            }
        }
    }
    files
}

/// Whether a device is bound to VFIO or vDPA, so that a process can have memory pinned for it. Classes of devices are the
/// same in every container, unlike `/dev`.
fn hardware_may_pin(roots: &Roots) -> bool {
    let has_some = |folder| std::fs::read_dir(roots.path(folder)).is_ok_and(|mut entries| entries.next().is_some());
    !roots.exists("/sys/class")
        || roots.exists("/sys/class/misc/iommu")
        || ["/sys/class/vfio", "/sys/class/vfio-dev", "/sys/bus/vdpa/devices"].into_iter().any(has_some)
}

/// What else than process `pid` writes to its files, if anything: devices that were passed through to it, the kernel's
/// vhost threads, another process that has mapped one of them (vhost-user). Processes that cannot be looked at are
/// passed over.
pub fn other_writer(pid: u32, files: &[FileIdentity]) -> Option<String> {
    let writes = |link: &String| link.starts_with("/dev/vhost-") || pins(link);
    if let Some(device) = links(&ProcessDir::live(pid)).ok()?.find(writes) {
        return Some(device);
    }
    let mut maps = Vec::new();
    for other in Roots::system().pids().ok()?.into_iter().filter(|other| *other != pid) {
        let dir = ProcessDir::live(other);
        if dir.read("maps", &mut maps).is_err() {
            continue;
        }
        let is_ours = |line: &MapsLine<'_>| {
            files.iter().any(|file| file.1 == line.inode)
                && matches!(identity_of(&dir, line), Ok(Some(id)) if files.contains(&id))
        };
        let mut lines = maps.split(|byte| *byte == b'\n').filter_map(MapsLine::parse).filter(is_shared_and_writable);
        if lines.any(|line| is_ours(&line)) {
            return Some(format!("process {other}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::{Tree, tree};
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn devices_that_pin_are_known() {
        assert!(["/dev/vfio/vfio", "/dev/vfio/12", "/dev/iommu", "/dev/vhost-vdpa-0"].into_iter().all(pins));
        // The kernel's vhost follows the page table, so that it sees new memory.
        assert!(!["/dev/vhost-net", "/dev/kvm", "/memfd:/dev/vfio/"].into_iter().any(pins));
        assert_eq!(pinning_device(std::process::id()).unwrap(), None);
        assert!(pinning_device(u32::MAX).is_err());
    }

    /// A process that has the file `memory` mapped at 4096, with these permissions, and something open.
    fn add_process(tree: &Tree, pid: u32, perms: &str, open: &str) {
        let dir = tree.roots.path(format!("/proc/{pid}"));
        for folder in ["fd", "map_files"] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
        }
        symlink(open, dir.join("fd/7")).unwrap();
        symlink(tree.roots.path("/memory"), dir.join("map_files/1000-2000")).unwrap();
        let ino = identity(tree).1;
        std::fs::write(dir.join("maps"), format!("1000-2000 {perms} 00000000 00:01 {ino}   /memfd:m\n")).unwrap();
    }

    fn identity(tree: &Tree) -> FileIdentity {
        let meta = std::fs::metadata(tree.roots.path("/memory")).unwrap();
        (meta.dev(), meta.ino())
    }

    #[test]
    fn memory_that_another_process_has_pinned_is_found() {
        let pins_in = |perms, open, device: &str| {
            let tree = tree(&[("memory", ""), ("sys/class/net", ""), (device, "")]);
            add_process(&tree, 41, "rw-s", "/dev/kvm");
            add_process(&tree, 42, perms, open);
            pinned_files(&tree.roots).remove(&identity(&tree))
        };
        let (vfio, bound) = ("/dev/vfio/12", "sys/class/vfio/12");
        assert_eq!(pins_in("rw-s", vfio, bound), Some(Pinner { pid: 42, device: vfio.into() }));
        assert!(pins_in("r--s", vfio, bound).is_some(), "hardware that reads");
        assert!(pins_in("rw-s", "/dev/iommu", "sys/class/misc/iommu").is_some());
        assert_eq!(pins_in("rw-p", vfio, bound), None, "its own copy");
        assert_eq!(pins_in("rw-s", "/dev/null", bound), None, "nothing is pinned");
        assert_eq!(pins_in("rw-s", vfio, "sys/class/net2"), None, "no device is bound: nobody is looked at");
    }
}
