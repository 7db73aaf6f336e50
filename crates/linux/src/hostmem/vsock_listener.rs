//! Guests that call over vsock: the kernel tells which guest it is.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

#[derive(Debug)]
pub struct VsockListener(OwnedFd);

impl VsockListener {
    /// Listens for all guests on a port. Fails where the kernel has no vsock.
    pub fn bind(port: u32) -> io::Result<Self> {
        // SAFETY: integers only.
        let fd = unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor; nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let address = libc::sockaddr_vm {
            svm_family: libc::AF_VSOCK as libc::sa_family_t,
            svm_port: port,
            svm_cid: libc::VMADDR_CID_ANY,
            // SAFETY: plain data; the remaining fields are reserved and must be zero.
            ..unsafe { std::mem::zeroed() }
        };
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is a whole sockaddr_vm that lives over the call, `len` its length.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
        // SAFETY: an open descriptor and an integer.
        if bound != 0 || unsafe { libc::listen(socket.as_raw_fd(), 16) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(socket))
    }

    /// The next connection, and the guest's context id.
    pub fn accept(&self) -> io::Result<(OwnedFd, u32)> {
        // SAFETY: plain data for which zeros are valid.
        let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` and `len` live over the call, and `len` tells how long `address` is.
        let fd = unsafe { libc::accept4(self.0.as_raw_fd(), (&raw mut address).cast(), &mut len, libc::SOCK_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor; nobody else owns it.
        Ok((unsafe { OwnedFd::from_raw_fd(fd) }, address.svm_cid))
    }

    /// The socket, to be shut down by another thread.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}
