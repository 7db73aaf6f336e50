//! TCP connections whose other side has gone without a word.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Ends a connection whose other side answers nothing: after `idle` without a byte the kernel asks `count` times,
/// `every` apart. Reading then ends with an error.
pub fn set(stream: &TcpStream, idle: Duration, every: Duration, count: u32) -> io::Result<()> {
    let seconds = |time: Duration| libc::c_int::try_from(time.as_secs().max(1)).unwrap_or(libc::c_int::MAX);
    let count = libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX);
    for (level, name, value) in [
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds(idle)),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds(every)),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, count),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    ] {
        let len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: an open socket, and an integer of `len` bytes that lives over the call.
        if unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), len) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
