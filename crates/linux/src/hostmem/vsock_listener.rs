//! Guests that call over vsock: the kernel tells which guest it is.

use crate::vsock;
use rustix::net::{SocketFlags, acceptfrom_with, bind, listen};
use std::io;
use std::os::fd::OwnedFd;

#[derive(Debug)]
pub struct VsockListener(OwnedFd);

impl VsockListener {
    /// Listens for all guests on a port. Fails where the kernel has no vsock.
    pub fn bind(port: u32) -> io::Result<Self> {
        let socket = vsock::socket()?;
        bind(&socket, &vsock::Address::new(libc::VMADDR_CID_ANY, port))?;
        listen(&socket, 16)?;
        Ok(Self(socket))
    }

    /// The next connection, and the guest's context id.
    pub fn accept(&self) -> io::Result<(OwnedFd, u32)> {
        let (socket, address) = acceptfrom_with(&self.0, SocketFlags::CLOEXEC)?;
        let cid = address.as_ref().and_then(vsock::cid).ok_or(io::ErrorKind::InvalidData)?;
        Ok((socket, cid))
    }

    /// The socket, to be shut down by another thread.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}
