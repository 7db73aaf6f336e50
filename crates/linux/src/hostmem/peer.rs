//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Process and user that connected, or that listened when we connected. The kernel notes them then, and the process
/// cannot change them; but by now it may be gone, and its number another's.
pub fn credentials(socket: &impl AsFd) -> io::Result<(u32, u32)> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` and `len` live over the call, and `len` tells how long `cred` is.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // 0: of another pid namespace; not of a process at all.
    let pid = u32::try_from(cred.pid).ok().filter(|pid| *pid > 0);
    pid.map(|pid| (pid, cred.uid)).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_ours_is_ours() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(credentials(&a).unwrap().0, std::process::id());
    }
}
