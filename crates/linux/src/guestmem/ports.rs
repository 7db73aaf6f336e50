//! Virtio-serial ports by the name that the host gave them; no udev is asked.

use crate::roots::Roots;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The device of the port called `name`; `None` where there is none (yet).
pub fn port_by_name(roots: &Roots, name: &str) -> Option<PathBuf> {
    const PORTS: &str = "/sys/class/virtio-ports";
    let called = |port: &String| roots.line(format!("{PORTS}/{port}/name")).as_deref() == Some(name);
    let port = roots.names(PORTS).into_iter().find(called)?;
    Some(roots.path(format!("/dev/{port}")))
}

/// Opens a port so that nothing waits. One program at a time can.
///
/// Reading gives 0 bytes while nobody is connected on the other side.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Makes reading and writing of an open file return at once.
pub fn set_nonblocking(file: &File) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn a_port_is_found_by_its_name() {
        let t = tree(&[
            ("sys/class/virtio-ports/vport0p1/name", "org.qemu.guest_agent.0\n"),
            ("sys/class/virtio-ports/vport2p1/name", "isotherm.hint\n"),
            ("sys/class/virtio-ports/vport2p2/dev", "1:2\n"),
        ]);
        assert_eq!(port_by_name(&t.roots, "isotherm.hint"), Some(t.roots.path("/dev/vport2p1")));
        assert_eq!(port_by_name(&t.roots, "other"), None);
    }
}
