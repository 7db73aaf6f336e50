//! Connections to other programs of this machine (AF_UNIX).

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to who listens at `path`. One that is stopped lets connections queue up; where no place comes free within `limit`, this fails with
/// [`io::ErrorKind::TimedOut`], while std's own would wait without an end. What is written to the stream may wait for as long.
pub fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(socket.into()),
        Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    #[test]
    fn a_full_queue_is_not_waited_for_without_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert_eq!(connect(&path, Duration::from_secs(1)).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert_eq!(connect(&path, Duration::from_secs(1)).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        listen(&listener, 0).unwrap();
        let _queued = connect(&path, Duration::from_secs(1)).unwrap();
        assert_eq!(connect(&path, Duration::from_millis(1)).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
