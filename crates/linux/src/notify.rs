//! Telling the service manager that a service is ready, alive, or stopping: systemd's protocol of datagrams, see
//! sd_notify(3).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The way to the service manager; does nothing where there is none.
///
/// It is opened once, so that it works after a sandbox forbids new sockets.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// What the environment of a service says (`NOTIFY_SOCKET`, `WATCHDOG_USEC`). Fails where there is such a socket
    /// and it cannot be reached.
    pub fn from_env() -> io::Result<Self> {
        let text = |name| std::env::var(name).ok();
        let is_ours = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        Self::new(text("NOTIFY_SOCKET").as_deref(), text("WATCHDOG_USEC").as_deref().filter(|_| is_ours))
    }

    fn new(path: Option<&str>, watchdog_us: Option<&str>) -> io::Result<Self> {
        let Some(path) = path.filter(|path| !path.is_empty()) else { return Ok(Self::default()) };
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_nonblocking(true)?;
        let watchdog = watchdog_us.and_then(|us| us.parse().ok()).filter(|us| *us > 0).map(Duration::from_micros);
        Ok(Self { socket: Some(socket), watchdog })
    }

    /// How often [`alive`](Self::alive) is to be called: half of what the manager waits for. `None`: it does not watch.
    pub fn watchdog_every(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// Set-up is done.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// It still works.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// The end has begun.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // A manager that has gone, or that does not read, is no reason to stop.
            let _ = socket.send(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn the_manager_hears_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::new(path.to_str(), Some("3000000")).unwrap();
        assert_eq!(notify.watchdog_every(), Some(Duration::from_millis(1500)));
        notify.ready();
        notify.alive();
        notify.stopping();
        assert_eq!([(); 3].map(|()| received(&manager)), ["READY=1", "WATCHDOG=1", "STOPPING=1"]);
        drop(manager);
        notify.alive();
    }

    #[test]
    fn an_abstract_socket_is_reached() {
        let name = format!("isotherm-notify-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notify::new(Some(&format!("@{name}")), None).unwrap().ready();
        assert_eq!(received(&manager), "READY=1");
    }

    #[test]
    fn without_a_manager_nothing_is_told_and_a_wrong_one_is_an_error() {
        for path in [None, Some("")] {
            let notify = Notify::new(path, Some("1")).unwrap();
            assert_eq!(notify.watchdog_every(), None);
            notify.ready();
        }
        assert!(Notify::new(Some("/does/not/exist"), None).is_err());
        let notify = Notify::new(None, Some("x")).unwrap();
        assert_eq!(notify.watchdog_every(), None);
    }
}
