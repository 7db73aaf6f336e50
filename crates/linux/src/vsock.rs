//! Connections between a virtual machine and its host (AF_VSOCK).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The host, as seen from any guest.
pub const HOST: u32 = libc::VMADDR_CID_HOST;

/// Connects to `port` of the machine `cid`. The kernel gives up after 2 s if nobody answers.
pub fn connect(cid: u32, port: u32) -> io::Result<File> {
    // SAFETY: socket takes three numbers and returns a descriptor or an error.
    let fd = unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor; nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: sockaddr_vm is plain data for which all zeros is valid.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
    address.svm_cid = cid;
    address.svm_port = port;
    let len = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
    // SAFETY: `address` is a valid sockaddr_vm of `len` bytes that lives over the call.
    if unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(File::from(socket))
}
