//! The kernel's tracepoints, by their files in tracefs.

use crate::roots::Roots;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The kind of a tracepoint's events for perf_event_open(2).
pub(crate) const TYPE_TRACEPOINT: u32 = 2;

/// Where tracefs is mounted usually.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The text of a file of an event (`events/mmap/vm_unmapped_area`), from the mounted tracefs or one that is mounted for us alone and
/// gone when this returns.
pub(crate) fn read_event(roots: &Roots, event: &str, file: &str) -> io::Result<String> {
    match MOUNTS.iter().map(|m| roots.path(m).join(event)).find(|p| p.exists()) {
        Some(folder) => std::fs::read_to_string(folder.join(file)),
        None if roots.is_system() => read_at(&detached_tracefs()?, &format!("{event}/{file}")),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Mounts tracefs where nobody else sees it; unmounted when the descriptor is closed.
fn detached_tracefs() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

fn read_at(folder: &OwnedFd, path: &str) -> io::Result<String> {
    // A detached mount is reached through its descriptor.
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(path);
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}
