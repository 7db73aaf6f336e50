//! Mounts that only we and what we start can see.

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;

/// Gives the calling thread, and the threads and processes that it starts from now on, mounts of their own: what is
/// mounted there later is not seen outside, and what is mounted outside later is not seen there. They go with the last
/// process that has them.
pub fn private_mounts() -> io::Result<()> {
    // SAFETY: file descriptors stay shared; only mounts, and with them root and working folder, become our own.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Else what is mounted in a shared folder would be mounted outside, too.
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, mount};

    #[test]
    fn root_what_is_mounted_in_private_is_not_seen_outside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let seen_inside = std::thread::spawn(move || {
            private_mounts().unwrap();
            mount("none", &path, "tmpfs", MountFlags::empty(), None).unwrap();
            std::fs::write(path.join("inside"), "").unwrap();
            path.join("inside").exists()
        });
        assert!(seen_inside.join().unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
