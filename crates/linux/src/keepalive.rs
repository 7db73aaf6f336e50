//! TCP connections whose other side has gone without a word.

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// Ends a connection whose other side answers nothing: after `idle` without a byte the kernel asks `count` times,
/// `every` apart. Reading then ends with an error.
pub fn set(stream: &TcpStream, idle: Duration, every: Duration, count: u32) -> io::Result<()> {
    let least = Duration::from_secs(1);
    set_tcp_keepidle(stream, idle.max(least))?;
    set_tcp_keepintvl(stream, every.max(least))?;
    set_tcp_keepcnt(stream, count)?;
    Ok(set_socket_keepalive(stream, true)?)
}
