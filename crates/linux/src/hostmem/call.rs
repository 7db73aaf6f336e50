//! Calls to a Unix socket that end in time.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to the socket at `path`. Whoever listens there and takes nobody, so that others queue up, is given up
/// after `patience`.
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    // SAFETY: integers only.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor; nobody else owns it.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // That of writing is that of connecting, too.
    stream.set_write_timeout(Some(patience))?;
    // SAFETY: sockaddr_un is plain data for which all zeros is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays 0.
    if bytes.is_empty() || bytes.contains(&0) || bytes.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a valid sockaddr_un of `len` bytes that lives over the call.
    if unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), len) } != 0 {
        let error = io::Error::last_os_error();
        return Err(if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error });
    }
    stream.set_write_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn nobody_is_waited_for_without_end() {
        let path = std::env::temp_dir().join(format!("isotherm-call-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match connect(&path, Duration::from_millis(50)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(!waiting.is_empty());
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(connect(&path, Duration::from_secs(1)).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(connect(Path::new(&"x".repeat(200)), Duration::from_secs(1)).is_err());
    }
}
