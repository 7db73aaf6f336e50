//! The other side: one request to a running instance.

use crate::deadline::UntilDeadline;
use crate::http::parse_response;
use crate::server::ANSWER_TIME;
use isotherm_linux::unix_socket::connect;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a request and its answer may take: longer than the server gives the engine, so that its reason arrives.
const PATIENCE: Duration = Duration::from_secs(ANSWER_TIME.as_secs() + 5);
/// Bytes of an answer, at most.
const MOST_ANSWER: u64 = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no isotherm listens at {}; `isotherm ctl status` tells of those that run", .0.display())]
    Nobody(PathBuf),
    /// Somebody else's.
    #[error("may not talk to the isotherm at {}: it belongs to another user; run as that user, or as root", .0.display())]
    Denied(PathBuf),
    /// It does not answer.
    #[error("the isotherm at {} did not answer in time; is it stopped?", .0.display())]
    Silent(PathBuf),
    /// What came is no answer.
    #[error("no whole answer came from {}: {why}", path.display())]
    Broken { path: PathBuf, why: String },
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

/// Asks the instance that listens at `socket`.
pub fn call(socket: &Path, method: &str, path: &str, body: &[u8]) -> Result<Response, ClientError> {
    call_within(PATIENCE, socket, method, path, body)
}

/// The same, with less patience.
pub fn call_within(
    patience: Duration,
    socket: &Path,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Response, ClientError> {
    let error = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::Nobody(socket.to_owned()),
        io::ErrorKind::PermissionDenied => ClientError::Denied(socket.to_owned()),
        io::ErrorKind::TimedOut => ClientError::Silent(socket.to_owned()),
        _ => ClientError::Broken { path: socket.to_owned(), why: e.to_string() },
    };
    let begun = Instant::now();
    let stream = connect(socket, patience).map_err(error)?;
    let mut stream = UntilDeadline::new(stream, patience.saturating_sub(begun.elapsed()));
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: isotherm\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // A server that refuses early stops reading: then its answer says why, not our failure to write.
    let written = stream.write_all(&[head.as_bytes(), body].concat());
    let mut answer = Vec::new();
    match (&mut stream).take(MOST_ANSWER).read_to_end(&mut answer) {
        Err(e) if answer.is_empty() => return Err(error(written.err().unwrap_or(e))),
        _ => {}
    }
    let (status, body) =
        parse_response(&answer).map_err(|why| ClientError::Broken { path: socket.to_owned(), why: why.to_string() })?;
    Ok(Response { status, body: body.to_vec() })
}
