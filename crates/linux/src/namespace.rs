//! Mounts that only we and what we start can see.

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Gives the calling thread, and the threads and processes that it starts from now on, mounts of their own: what is
/// mounted there later is not seen outside, and what is mounted outside later is not seen there. They go with the last
/// process that has them.
pub fn private_mounts() -> io::Result<()> {
    // SAFETY: file descriptors stay shared; only mounts, and with them root and working folder, become our own.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Else what is mounted in a shared folder would be mounted outside, too.
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Lets a folder or file of private mounts stand at `place`, too, be there something or not. Where nothing can be made,
/// as in /sys, a folder of our own is mounted over the parent, with everything in it that was there before.
pub fn mount_at(from: &Path, place: &Path) -> io::Result<()> {
    make_room(place, from.is_dir())?;
    Ok(mount_bind_recursive(from, place)?)
}

fn make_room(place: &Path, is_folder: bool) -> io::Result<()> {
    if place.symlink_metadata().is_ok() {
        return Ok(());
    }
    let Some(parent) = place.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    make_room(parent, true)?;
    let make = || if is_folder { fs::create_dir(place) } else { File::create_new(place).map(drop) };
    match make() {
        // Folders of the kernel's that are there to be mounted on say that there is no such thing.
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotFound
            ) =>
        {
            cover(parent)?;
            make()
        }
        done => done,
    }
}

/// Mounts a folder of our own over `folder` in which there is what was in it.
fn cover(folder: &Path) -> io::Result<()> {
    let below = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // What is mounted over it does not hide it from the descriptor.
    let below = PathBuf::from(format!("/proc/self/fd/{}", below.as_raw_fd()));
    let entries: Vec<fs::DirEntry> = fs::read_dir(&below)?.collect::<Result<_, _>>()?;
    mount("isotherm", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=755"))?;
    for entry in entries {
        let (from, to, kind) = (below.join(entry.file_name()), folder.join(entry.file_name()), entry.file_type()?);
        if kind.is_symlink() {
            symlink(fs::read_link(from)?, to)?;
            continue;
        }
        if kind.is_dir() { fs::create_dir(&to) } else { File::create_new(&to).map(drop) }?;
        match mount_bind_recursive(from, &to) {
            // It has gone meanwhile: modules come and go.
            Err(rustix::io::Errno::NOENT) => {}
            mounted => mounted?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_things_stand_where_nothing_can_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().to_owned();
        fs::create_dir(from.join("sub")).unwrap();
        fs::write(from.join("sub/file"), "text").unwrap();
        let place = Path::new("/sys/module/isotherm_test/sub");
        let before: Vec<_> = fs::read_dir("/sys/module").unwrap().map(|e| e.unwrap().file_name()).collect();
        let (shown, listed) = std::thread::spawn(move || {
            private_mounts().unwrap();
            mount_at(&from.join("sub"), place).unwrap();
            mount_at(&from.join("sub/file"), Path::new("/sys/module/isotherm_test/file")).unwrap();
            // Over what is there.
            mount_at(&from.join("sub"), place).unwrap();
            let listed: Vec<_> = fs::read_dir("/sys/module").unwrap().map(|e| e.unwrap().file_name()).collect();
            let files = [place.join("file"), place.with_file_name("file")];
            (files.map(|file| fs::read_to_string(file).unwrap()), listed)
        })
        .join()
        .unwrap();
        assert_eq!(shown, ["text", "text"]);
        assert!(before.iter().all(|name| listed.contains(name)), "what was there is there");
        assert_eq!(listed.len(), before.len() + 1);
        assert!(!place.exists(), "nothing has changed for others");
    }

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
