//! Who is at the other end of a Unix socket.

use crate::proc::{PidFd, ProcessDir};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// From Linux 6.5 on; <asm-generic/socket.h>.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process that connected, or that listened when we connected.
#[derive(Debug)]
pub struct Peer {
    pub process: PidFd,
    /// As whom it did so.
    pub uid: u32,
}

/// Fails if the process has ended. The kernel notes it when it connects or listens, and it cannot change that; a
/// socket can outlive it in another process, though, and its number can become another's.
pub fn process(socket: &impl AsFd) -> io::Result<Peer> {
    // Not through rustix, whose pid cannot be 0.
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    option(socket, libc::SO_PEERCRED, &mut cred)?;
    // 0: of another pid namespace; not of a process at all.
    let pid = u32::try_from(cred.pid).ok().filter(|pid| *pid > 0).ok_or(io::ErrorKind::NotFound)?;
    let mut fd: libc::c_int = -1;
    let process = match option(socket, SO_PEERPIDFD, &mut fd) {
        Ok(()) => {
            // SAFETY: the kernel has just returned this descriptor; nobody else owns it.
            let process = PidFd::from_fd(unsafe { OwnedFd::from_raw_fd(fd) }).map_err(|_| ended(pid))?;
            if process.has_exited() {
                return Err(ended(pid));
            }
            process
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => of_number(pid, cred.uid)?,
        // The kernel has no descriptor for who has ended.
        Err(_) => return Err(ended(pid)),
    };
    Ok(Peer { process, uid: cred.uid })
}

/// Process `pid`, which is taken for the one that connected if it runs as the same user. An older kernel does not tell
/// more: the number may be that of a later process of that user, who may look into that as well.
fn of_number(pid: u32, uid: u32) -> io::Result<PidFd> {
    let process = PidFd::open(pid).map_err(|_| ended(pid))?;
    let status = std::fs::read_to_string(ProcessDir::live(pid).file("status")).map_err(|_| ended(pid))?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let is_its = uids.split_whitespace().any(|number| number.parse() == Ok(uid));
    if is_its && !process.has_exited() { Ok(process) } else { Err(ended(pid)) }
}

fn ended(pid: u32) -> io::Error {
    let why = format!("process {pid}, which opened the other end of the connection, has ended; give the VMM's pid=N");
    io::Error::new(io::ErrorKind::NotFound, why)
}

fn option<T>(socket: &impl AsFd, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` and `len` live over the call, and `len` tells how long `value` is; both callers pass the plain
    // data that the option is documented to fill.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, name, (&raw mut *value).cast(), &mut len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_pair_of_ours_is_ours() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = process(&a).unwrap();
        assert_eq!(peer.process.pid(), std::process::id());
        assert!(!peer.process.has_exited());
    }

    #[test]
    fn a_number_is_not_enough() {
        let (a, _b) = UnixStream::pair().unwrap();
        let uid = process(&a).unwrap().uid;
        assert_eq!(of_number(std::process::id(), uid).unwrap().pid(), std::process::id());
        assert!(of_number(std::process::id(), uid + 12_345).is_err(), "another user's");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(of_number(pid, uid).unwrap_err().to_string().contains(&pid.to_string()));
    }
}
