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

    /// The next connection, the guest's context id, and the port there that it comes from: up to
    /// [`LAST_RESERVED`](vsock::LAST_RESERVED) it is one that not every user of the guest may take.
    pub fn accept(&self) -> io::Result<(OwnedFd, u32, u32)> {
        let (socket, address) = acceptfrom_with(&self.0, SocketFlags::CLOEXEC)?;
        let (cid, port) = address.as_ref().and_then(vsock::machine_and_port).ok_or(io::ErrorKind::InvalidData)?;
        Ok((socket, cid, port))
    }

    /// The socket, to be shut down by another thread.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_an_address_is_read() {
        // That nobody else has, and above those that need a privilege.
        let port = 0x4000_0000 + std::process::id();
        let Ok(listener) = VsockListener::bind(port) else {
            eprintln!("skipped: the kernel has no vsock");
            return;
        };
        let address = rustix::net::getsockname(&listener.0).unwrap();
        assert_eq!(vsock::machine_and_port(&address), Some((libc::VMADDR_CID_ANY, port)));
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(vsock::machine_and_port(&rustix::net::getsockname(&other).unwrap()), None);
    }
}
