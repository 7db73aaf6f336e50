//! Where guests call, and who calls.

use super::session::Closing;
use crate::protocol::ErrorCode;
use isotherm_linux::hostmem::peer;
use isotherm_linux::hostmem::vsock_listener::VsockListener;
use isotherm_linux::keepalive;
use isotherm_linux::proc::PidFd;
use isotherm_linux::vsock::{LAST_RESERVED, RESERVED_CAPABILITY};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

/// When a silent TCP connection is asked whether anybody is there, how far apart, and how often.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 6);

/// The first port that any user may call from.
const RESERVED_END: u32 = LAST_RESERVED + 1;

#[derive(Debug)]
pub enum Door {
    /// VMMs connect to a socket; the kernel tells which process it is.
    Unix(UnixListener),
    /// Guests connect over vsock; the kernel tells which context id it is.
    Vsock(VsockListener),
    /// Guests connect over a network, and say their key.
    Tcp(TcpListener),
}

impl Door {
    /// The next connection; who it is can be unknown, of a process that has ended or has no number in this namespace.
    pub(super) fn accept(&self) -> io::Result<(UnixStream, io::Result<Caller>)> {
        Ok(match self {
            Self::Unix(listener) => {
                let stream = listener.accept()?.0;
                let caller = peer::process(&stream)
                    .map(|peer| Caller::Process { process: Arc::new(peer.process), uid: peer.uid });
                (stream, caller)
            }
            Self::Vsock(listener) => {
                let (socket, cid, port) = listener.accept()?;
                (socket.into(), Ok(Caller::Machine { cid, port }))
            }
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                // Both fail only on a connection that has ended already.
                let _ = stream.set_nodelay(true);
                let _ = keepalive::set(&stream, KEEPALIVE.0, KEEPALIVE.1, KEEPALIVE.2);
                // Reading, writing and shutting down are the same for every kind of socket.
                (OwnedFd::from(stream).into(), Ok(Caller::Stranger(address.ip())))
            }
        })
    }

    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(listener) => listener.try_clone().map(OwnedFd::from),
            Self::Vsock(listener) => listener.duplicate(),
            Self::Tcp(listener) => listener.try_clone().map(OwnedFd::from),
        }
    }
}

/// Who calls, as far as the kernel tells.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    Process {
        process: Arc<PidFd>,
        uid: u32,
    },
    /// A guest over vsock, and the port there that it calls from.
    Machine {
        cid: u32,
        port: u32,
    },
    Stranger(IpAddr),
}

impl Caller {
    /// Why it is not even listened to, if it is not: any user of a guest may call over vsock, and the kernel names the
    /// guest alone. A reserved port shows that its administrator lets it.
    pub(super) fn refusal(&self) -> Option<Closing> {
        let Self::Machine { cid, port: port @ RESERVED_END.. } = self else { return None };
        let why = format!(
            "guest CID {cid} called from port {port}, which any user there may use; the agent needs {RESERVED_CAPABILITY}, or is an older one that calls from no reserved port"
        );
        Some(Closing::new(ErrorCode::Denied, why))
    }

    /// Whose connections count together.
    pub(super) fn peer(&self) -> Peer {
        match *self {
            Self::Process { uid, .. } => Peer::User(uid),
            Self::Machine { cid, .. } => Peer::Cid(cid),
            Self::Stranger(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
                // Who has one address of such a network has all of it.
                let [a, b, c, d, ..] = address.segments();
                Peer::Network(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            Self::Stranger(address) => Peer::Address(address.to_canonical()),
        }
    }
}

/// Those who share a limit on connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    User(u32),
    Cid(u32),
    Address(IpAddr),
    Network(Ipv6Addr),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Cid(cid) => write!(f, "vsock number {cid}"),
            Self::Address(address) => write!(f, "address {address}"),
            Self::Network(address) => write!(f, "network {address}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_one_owner_can_choose_from_count_together() {
        let peer = |text: &str| Caller::Stranger(text.parse().unwrap()).peer().to_string();
        assert_eq!(peer("10.0.0.1"), "address 10.0.0.1");
        assert_eq!(peer("::ffff:10.0.0.1"), "address 10.0.0.1");
        assert_eq!(peer("2001:db8:1:2:3:4:5:6"), "network 2001:db8:1:2::/64");
    }

    #[test]
    fn a_guest_that_calls_from_a_port_of_anybody_is_refused() {
        let refusal = |port| Caller::Machine { cid: 3, port }.refusal();
        assert_eq!((refusal(1), refusal(1023)), (None, None));
        for port in [1024, 7482, u32::MAX] {
            let closing = refusal(port).unwrap();
            assert_eq!(closing.code, ErrorCode::Denied);
            assert!(closing.for_guest().contains(&format!("CID 3 called from port {port},")), "{closing:?}");
            assert!(closing.for_guest().contains("CAP_NET_BIND_SERVICE"), "{closing:?}");
        }
        assert_eq!(Caller::Stranger(IpAddr::from([10, 0, 0, 1])).refusal(), None);
    }
}
