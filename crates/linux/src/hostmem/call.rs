//! Calls to a Unix socket that end in time.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connects to the socket at `path`. Whoever listens there and takes nobody, so that others queue up, is given up
/// after `patience`.
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let stream = UnixStream::from(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?);
    if path.as_os_str().is_empty() {
        return Err(invalid());
    }
    let address = SocketAddrUnix::new(path).map_err(|_| invalid())?;
    let deadline = Instant::now() + patience;
    loop {
        // That of writing is that of connecting, too; a zero would be none.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_write_timeout(Some(left))?;
        match rustix::net::connect(&stream, &address) {
            Ok(()) => break,
            // A signal that came meanwhile says nothing of the other side.
            Err(Errno::INTR) if Instant::now() < deadline => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
    stream.set_write_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::os::unix::thread::JoinHandleExt;

    extern "C" fn nothing(_: i32) {}

    #[test]
    fn a_signal_does_not_end_the_call() {
        // SAFETY: sigaction is plain data for which all zeros is a valid value: no flags (so that calls are not restarted) and an
        // empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(i32) = nothing;
        action.sa_sigaction = handler as libc::sighandler_t;
        // SAFETY: `action` is initialised, and its handler does nothing; no other test uses this signal.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()) }, 0);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = connect(&path, Duration::from_secs(1)).unwrap();
        let second = std::thread::spawn(move || connect(&path, Duration::from_secs(60)));
        // Until it has come in a call, and some times more.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            // SAFETY: the thread is not joined yet, so its handle is valid.
            assert_eq!(unsafe { libc::pthread_kill(second.as_pthread_t(), libc::SIGUSR2) }, 0);
        }
        assert!(!second.is_finished(), "there is no room for it, and its time is not over");
        drop(listener.accept().unwrap());
        assert!(second.join().unwrap().is_ok());
        drop(first);
    }

    #[test]
    fn nobody_is_waited_for_without_end() {
        let path = std::env::temp_dir().join(format!("isotherm-call-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 1).unwrap(); // or as many wait as this process may have files open
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
