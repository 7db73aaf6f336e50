//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The process that connected, or that listened when we connected. The kernel notes it then, and the process cannot
/// change it; but by now it may be gone, and its number another's.
pub fn pid(socket: &impl AsFd) -> io::Result<u32> {
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
    u32::try_from(cred.pid).ok().filter(|pid| *pid > 0).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_ours_is_ours() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(pid(&a).unwrap(), std::process::id());
    }
}
