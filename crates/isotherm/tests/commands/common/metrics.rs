//! What a node says at `/metrics`.

use isotherm_daemon::openmetrics_check::checked;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

/// All samples by their names with labels; the text must be OpenMetrics. `None`: nobody answers at this port.
pub fn metrics(port: u16) -> Option<BTreeMap<String, f64>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (_, body) = text.split_once("\r\n\r\n")?;
    Some(checked(body).into_iter().collect())
}
