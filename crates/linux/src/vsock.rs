//! Connections between a virtual machine and its host (AF_VSOCK).

use crate::random;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, bind, socket_with};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// The host, as seen from any guest.
pub const HOST: u32 = libc::VMADDR_CID_HOST;

/// Ports up to this one are for whoever has [`RESERVED_CAPABILITY`].
pub const LAST_RESERVED: u32 = 1023;
/// Of these, the ones that a connection may come from: lower ones may be meant for services.
const FIRST_SOURCE: u32 = 512;
/// What it takes to use a reserved port.
pub const RESERVED_CAPABILITY: &str = "CAP_NET_BIND_SERVICE";

/// A connection to another machine.
#[derive(Debug)]
pub struct Connection {
    /// The stream.
    pub stream: File,
    /// Whether it comes from a reserved port, which shows the other side that no unprivileged user of this machine
    /// calls. False where [`RESERVED_CAPABILITY`] is missing.
    pub reserved: bool,
}

/// Connects to `port` of the machine `cid`, from a reserved port where that is allowed. The kernel gives up after 2 s if
/// nobody answers.
pub fn connect(cid: u32, port: u32) -> io::Result<Connection> {
    let socket = socket()?;
    let any = |port| Ok(bind(&socket, &Address::new(libc::VMADDR_CID_ANY, port))?);
    // By chance: after a restart of this machine the other side may still have the connection from the port that was used before,
    // and would not answer a new one from there.
    let reserved = take_reserved(random::number()?, any)?;
    rustix::net::connect(&socket, &Address::new(cid, port))?;
    Ok(Connection { stream: File::from(socket), reserved })
}

/// Has `bind` take a reserved port, from one that `chance` chooses on downwards, past those in use. False if none may be
/// taken.
fn take_reserved(chance: u64, mut bind: impl FnMut(u32) -> io::Result<()>) -> io::Result<bool> {
    const COUNT: u32 = LAST_RESERVED + 1 - FIRST_SOURCE;
    let first = (chance % u64::from(COUNT)) as u32;
    for i in 0..COUNT {
        match bind(LAST_RESERVED - (first + i) % COUNT) {
            Ok(()) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            Err(e) => return Err(e),
        }
    }
    let why = format!("all vsock ports from {FIRST_SOURCE} to {LAST_RESERVED} are in use");
    Err(io::Error::new(io::ErrorKind::AddrInUse, why))
}

pub(crate) fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::VSOCK, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// The machine and the port that an address names.
pub(crate) fn machine_and_port(address: &SocketAddrAny) -> Option<(u32, u32)> {
    let whole = address.addr_len() as usize >= size_of::<libc::sockaddr_vm>();
    // SAFETY: it has the length of a sockaddr_vm at least, whose fields are integers; the storage is aligned for any
    // address.
    let vm = || unsafe { address.as_ptr().cast::<libc::sockaddr_vm>().read() };
    (whole && address.address_family() == AddressFamily::VSOCK).then(vm).map(|vm| (vm.svm_cid, vm.svm_port))
}

/// What rustix does not have: the address of a port of a machine.
pub(crate) struct Address(libc::sockaddr_vm);

impl Address {
    pub(crate) fn new(cid: u32, port: u32) -> Self {
        Self(libc::sockaddr_vm {
            svm_family: libc::AF_VSOCK as libc::sa_family_t,
            svm_reserved1: 0,
            svm_port: port,
            svm_cid: cid,
            svm_zero: [0; 4],
        })
    }
}

// SAFETY: the closure gets a whole sockaddr_vm, which outlives it, and its length.
unsafe impl SocketAddrArg for Address {
    unsafe fn with_sockaddr<R>(&self, call: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        call((&raw const self.0).cast(), size_of_val(&self.0) as SocketAddrLen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_USE: i32 = libc::EADDRINUSE;

    #[test]
    fn a_connection_comes_from_a_port_that_only_the_privileged_have() {
        let mut tried = Vec::new();
        let taken = take_reserved(510, |port| {
            tried.push(port);
            if tried.len() < 4 { Err(io::Error::from_raw_os_error(IN_USE)) } else { Ok(()) }
        });
        assert!(taken.unwrap());
        assert_eq!(tried, [513, 512, 1023, 1022]);
        for chance in [0, 511, 512, u64::MAX] {
            let error = take_reserved(chance, |port| {
                assert!((512..1024).contains(&port), "{port}");
                Err(io::Error::from_raw_os_error(IN_USE))
            });
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn who_may_have_no_such_port_does_without() {
        let mut asked = 0;
        let taken = take_reserved(0, |_| {
            asked += 1;
            Err(io::Error::from_raw_os_error(libc::EACCES))
        });
        assert_eq!((taken.unwrap(), asked), (false, 1));
        assert!(take_reserved(0, |_| Err(io::Error::from_raw_os_error(libc::EINVAL))).is_err());
    }
}
