//! Connections between a virtual machine and its host (AF_VSOCK).

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, socket_with};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// The host, as seen from any guest.
pub const HOST: u32 = libc::VMADDR_CID_HOST;

/// Connects to `port` of the machine `cid`. The kernel gives up after 2 s if nobody answers.
pub fn connect(cid: u32, port: u32) -> io::Result<File> {
    let socket = socket()?;
    rustix::net::connect(&socket, &Address::new(cid, port))?;
    Ok(File::from(socket))
}

pub(crate) fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::VSOCK, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// The machine that an address names.
pub(crate) fn cid(address: &SocketAddrAny) -> Option<u32> {
    let whole = address.addr_len() as usize >= size_of::<libc::sockaddr_vm>();
    // SAFETY: it has the length of a sockaddr_vm at least, whose fields are integers; the storage is aligned for any
    // address.
    (whole && address.address_family() == AddressFamily::VSOCK)
        .then(|| unsafe { address.as_ptr().cast::<libc::sockaddr_vm>().read() }.svm_cid)
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
