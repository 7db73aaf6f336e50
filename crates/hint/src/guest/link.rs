//! The stream of bytes to the host: a virtio-serial port, vsock, TCP, or a Unix socket.

use crate::protocol::PORT_NAME;
use isotherm_linux::guestmem::ports;
use isotherm_linux::hostmem::call;
use isotherm_linux::roots::Roots;
use isotherm_linux::vsock;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How long a TCP connection, or one to a Unix socket, may take: signals wait as long.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where the host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The virtio-serial port of the usual name.
    NamedPort,
    /// A virtio-serial port's device.
    Port(PathBuf),
    Vsock(u32, u32),
    /// A host name or address, and a port.
    Tcp(String),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NamedPort => write!(f, "the virtio-serial port {PORT_NAME}"),
            Self::Port(path) => write!(f, "{}", path.display()),
            Self::Vsock(cid, port) => write!(f, "vsock:{cid}:{port}"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an address; write vsock:CID:PORT, tcp:HOST:PORT or unix:PATH")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError(text.to_owned());
        match text.split_once(':') {
            Some(("vsock", rest)) => {
                let (cid, port) = rest.split_once(':').ok_or_else(error)?;
                let cid = if cid == "host" { vsock::HOST } else { cid.parse().map_err(|_| error())? };
                Ok(Self::Vsock(cid, port.parse().map_err(|_| error())?))
            }
            Some(("tcp", rest)) if rest.contains(':') => Ok(Self::Tcp(rest.to_owned())),
            Some(("unix", rest)) if !rest.is_empty() => Ok(Self::Unix(rest.into())),
            _ => Err(error()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// So many bytes.
    Bytes(usize),
    Nothing,
    /// The other side has closed. By the protocol nothing that was sent will be acted upon any more.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Link {
    address: Address,
    stream: Option<File>,
    /// Whether it was said that any user of this guest could call like this.
    warned: bool,
}

impl Link {
    /// One that is not open yet.
    pub const fn new(address: Address) -> Self {
        Self { address, stream: None, warned: false }
    }

    /// Whether it is a port, which stays open while the host comes and goes.
    pub(crate) const fn is_port(&self) -> bool {
        matches!(self.address, Address::NamedPort | Address::Port(_))
    }

    /// Whether it is open.
    pub const fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    pub fn open(&mut self) -> io::Result<()> {
        let warned = &mut self.warned;
        self.stream = Some(open(&self.address, || {
            if !std::mem::replace(warned, true) {
                tracing::warn!("{}", unreserved());
            }
        })?);
        Ok(())
    }

    pub fn close(&mut self) {
        self.stream = None;
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    /// Reads by `fill`, which is given the stream.
    pub fn read(&mut self, fill: impl FnOnce(&mut dyn Read) -> io::Result<usize>) -> io::Result<Incoming> {
        let Some(stream) = &mut self.stream else { return Ok(Incoming::Ended) };
        match fill(stream) {
            Ok(0) => Ok(Incoming::Ended),
            Ok(n) => Ok(Incoming::Bytes(n)),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(Incoming::Nothing)
            }
            Err(e) => Err(e),
        }
    }

    /// Writes what can be written of `out` and takes it off.
    pub fn write(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while !out.is_empty() {
            match stream.write(out) {
                Ok(n) => drop(out.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Opens a stream to there. `unreserved` is called where any user of this guest could open one like it.
fn open(address: &Address, unreserved: impl FnOnce()) -> io::Result<File> {
    let of_socket = |fd: OwnedFd| {
        let file = File::from(fd);
        ports::set_nonblocking(&file).map(|()| file)
    };
    match address {
        Address::NamedPort => {
            let missing = || {
                let why = format!(
                    "no virtio-serial port is called {PORT_NAME}; give the VM one, or name another with --port or --connect"
                );
                io::Error::new(io::ErrorKind::NotFound, why)
            };
            ports::open(&ports::port_by_name(&Roots::system(), PORT_NAME).ok_or_else(missing)?)
        }
        Address::Port(path) => ports::open(path),
        Address::Vsock(cid, port) => {
            let connection = vsock::connect(*cid, *port)?;
            if !connection.reserved {
                unreserved();
            }
            of_socket(connection.stream.into())
        }
        Address::Unix(path) => of_socket(call::connect(path, PATIENCE)?.into()),
        Address::Tcp(text) => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{text} has no address"));
            for address in text.to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, PATIENCE) {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return of_socket(stream.into());
                    }
                    Err(e) => last = e,
                }
            }
            Err(last)
        }
    }
}

/// What is the matter with a connection that any user of this guest could have made.
fn unreserved() -> String {
    format!(
        "the host may refuse this connection: any user of this guest could make one like it, as it does not come from a vsock port \
         up to {}, for want of {}; run the agent with that capability",
        vsock::LAST_RESERVED,
        vsock::RESERVED_CAPABILITY
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!("vsock:2:7482".parse(), Ok(Address::Vsock(2, 7482)));
        assert_eq!("vsock:host:7".parse(), Ok(Address::Vsock(2, 7)));
        assert_eq!("tcp:[::1]:80".parse(), Ok(Address::Tcp("[::1]:80".into())));
        assert_eq!("unix:/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        for bad in ["", "vsock:2", "vsock:x:1", "tcp:host", "unix:", "udp:a:1"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn who_could_be_anybody_is_told_what_is_missing() {
        let text = unreserved();
        assert!(text.contains("CAP_NET_BIND_SERVICE") && text.contains("up to 1023"), "{text}");
    }

    #[test]
    fn who_lets_nobody_in_is_not_waited_for_without_end() {
        let folder = std::env::temp_dir().join(format!("isotherm-link-full-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&folder).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = call::connect(&folder, Duration::from_millis(20)) {
            waiting.push(stream);
        }
        let failed = Link::new(Address::Unix(folder.clone())).open().unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut, "{failed}");
        drop(listener);
        std::fs::remove_file(&folder).unwrap();
    }

    #[test]
    fn a_socket_ends_when_the_other_side_closes() {
        let folder = std::env::temp_dir().join(format!("isotherm-link-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&folder).unwrap();
        let mut link = Link::new(Address::Unix(folder.clone()));
        link.open().unwrap();
        let (mut host, _) = listener.accept().unwrap();
        std::fs::remove_file(&folder).unwrap();
        let mut buf = [0u8; 8];
        assert_eq!(link.read(|s| s.read(&mut buf)).unwrap(), Incoming::Nothing);
        let mut out = b"abc".to_vec();
        link.write(&mut out).unwrap();
        assert!(out.is_empty());
        host.read_exact(&mut buf[..3]).unwrap();
        host.write_all(b"xy").unwrap();
        assert_eq!(link.read(|s| s.read(&mut buf)).unwrap(), Incoming::Bytes(2));
        drop(host);
        assert_eq!(link.read(|s| s.read(&mut buf)).unwrap(), Incoming::Ended);
        link.close();
        assert!(!link.is_open());
    }
}
