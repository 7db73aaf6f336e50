//! The little of HTTP/1.1 that an instance speaks: one request a connection, everything bounded.

mod host;
mod response;

use std::io::{self, Read, Write};

pub(crate) use host::names_us;
pub(crate) use response::HttpResponse;
pub(crate) use response::parse_response;

/// Bytes of a request's first line and headers, at most.
pub(crate) const MOST_HEAD: usize = 16 << 10;
/// Bytes of a request's body, at most.
pub const MOST_BODY: usize = 1 << 20;
/// Headers, at most.
const MOST_HEADERS: usize = 64;

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpRequest {
    /// `GET`, `POST`, ...
    pub method: String,
    /// The path, without a query.
    pub path: String,
    /// The name that the client asked by, with a port if it gave one.
    pub host: Option<String>,
    /// The body; empty where there is none.
    pub body: Vec<u8>,
}

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum HttpError {
    /// The peer closed without sending anything, or went away: nobody is there to answer to.
    Gone,
    /// To be answered with a status and a text.
    Refused(u16, String),
}

fn refused<T>(status: u16, text: impl Into<String>) -> Result<T, HttpError> {
    Err(HttpError::Refused(status, text.into()))
}

fn read_error(e: io::Error) -> HttpError {
    match e.kind() {
        io::ErrorKind::TimedOut => HttpError::Refused(408, "the request did not come in time".into()),
        _ => HttpError::Gone,
    }
}

/// What the head says of the rest.
struct Head {
    method: String,
    path: String,
    host: Option<String>,
    len: usize,
    body_len: usize,
    expects_continue: bool,
}

/// Reads one request. Where the client waits for leave to send its body (curl does), it is given.
pub(crate) fn read_request(stream: &mut (impl Read + Write)) -> Result<HttpRequest, HttpError> {
    let mut bytes = Vec::new();
    let mut chunk = [0u8; 4096];
    let head = loop {
        if let Some(head) = parse_head(&bytes)? {
            break head;
        }
        if bytes.len() >= MOST_HEAD {
            return refused(431, format!("the headers exceed {MOST_HEAD} bytes"));
        }
        match stream.read(&mut chunk) {
            Ok(0) if bytes.is_empty() => return Err(HttpError::Gone),
            Ok(0) => return refused(400, "the request ends in its headers"),
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(read_error(e)),
        }
    };
    let mut body = bytes.split_off(head.len);
    if head.expects_continue && body.len() < head.body_len {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(read_error)?;
    }
    while body.len() < head.body_len {
        match stream.read(&mut chunk) {
            Ok(0) => return refused(400, format!("the body ends after {} of {} bytes", body.len(), head.body_len)),
            Ok(n) => body.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(read_error(e)),
        }
    }
    // What follows would be a second request; there is one a connection.
    body.truncate(head.body_len);
    Ok(HttpRequest { method: head.method, path: head.path, host: head.host, body })
}

/// The head, if `bytes` hold all of it.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>, HttpError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return refused(431, format!("more than {MOST_HEADERS} headers")),
        Err(httparse::Error::Version) => return refused(505, "speak HTTP/1.0 or HTTP/1.1"),
        Err(e) => return refused(400, format!("this is no HTTP request: {e}")),
    };
    if len > MOST_HEAD {
        return refused(431, format!("the headers exceed {MOST_HEAD} bytes"));
    }
    let method = request.method.unwrap_or_default().to_owned();
    let target = request.path.unwrap_or_default();
    let path = target.split(['?', '#']).next().unwrap_or_default().to_owned();
    let mut length = None;
    let mut host = None;
    let mut expects_continue = false;
    for header in request.headers.iter() {
        let value = || std::str::from_utf8(header.value).map(str::trim).unwrap_or_default();
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return refused(501, "send a Content-Length instead of a Transfer-Encoding");
        } else if header.name.eq_ignore_ascii_case("content-length") {
            let digits = !value().is_empty() && value().bytes().all(|b| b.is_ascii_digit());
            let Some(n) = value().parse::<u64>().ok().filter(|_| digits) else {
                return refused(400, "the Content-Length is not a number");
            };
            if length.is_some_and(|l| l != n) {
                return refused(400, "two different Content-Lengths");
            }
            length = Some(n);
        } else if header.name.eq_ignore_ascii_case("host") {
            if host.replace(value().to_owned()).is_some() {
                return refused(400, "two Host headers");
            }
        } else if header.name.eq_ignore_ascii_case("expect") {
            if !value().eq_ignore_ascii_case("100-continue") {
                return refused(417, "only 100-continue can be expected");
            }
            expects_continue = true;
        }
    }
    // A request without a length has no body (RFC 9112, 6.3).
    let body_len = match length {
        Some(n) => match usize::try_from(n) {
            Ok(n) if n <= MOST_BODY => n,
            _ => return refused(413, format!("the body exceeds {MOST_BODY} bytes")),
        },
        None => 0,
    };
    Ok(Some(Head { method, path, host, len, body_len, expects_continue }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that come in pieces, and what is written back.
    struct Pieces<'a> {
        pieces: Vec<&'a [u8]>,
        written: Vec<u8>,
    }

    impl<'a> Pieces<'a> {
        fn new(bytes: &'a [u8], size: usize) -> Self {
            Self { pieces: bytes.chunks(size).rev().collect(), written: Vec::new() }
        }
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let Some(piece) = self.pieces.pop() else { return Ok(0) };
            let n = piece.len().min(buf.len());
            buf[..n].copy_from_slice(&piece[..n]);
            if n < piece.len() {
                self.pieces.push(&piece[n..]);
            }
            Ok(n)
        }
    }

    impl Write for Pieces<'_> {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.written.extend_from_slice(buf);
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The request, or the status it is refused with; 0: gone.
    fn read(bytes: &[u8], size: usize) -> Result<HttpRequest, u16> {
        read_request(&mut Pieces::new(bytes, size)).map_err(|e| match e {
            HttpError::Gone => 0,
            HttpError::Refused(status, text) => {
                assert!(!text.is_empty());
                status
            }
        })
    }

    #[test]
    fn a_request_is_read_however_it_is_cut() {
        let bytes = b"POST /tune?x=1 HTTP/1.1\r\nHost: a\r\ncontent-LENGTH: 5\r\n\r\nhello";
        for size in [1, 2, 7, 1000] {
            let request = read(bytes, size).unwrap();
            assert_eq!(
                (request.method.as_str(), request.path.as_str(), request.host.as_deref(), &request.body[..]),
                ("POST", "/tune", Some("a"), &b"hello"[..])
            );
        }
        assert_eq!(read(b"GET / HTTP/1.0\r\n\r\n", 9).unwrap().body, b"");
        assert_eq!(read(b"POST /stop HTTP/1.1\r\n\r\n", 9).unwrap().body, b"");
        let mut two = Pieces::new(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n\r\n", 1000);
        assert_eq!(read_request(&mut two).unwrap().body, b"ab");
    }

    #[test]
    fn a_client_that_waits_for_leave_gets_it() {
        let mut stream = Pieces::new(b"POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\nab", 60);
        assert_eq!(read_request(&mut stream).unwrap().body, b"ab");
        assert_eq!(stream.written, b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    #[test]
    fn bad_requests_are_refused() {
        let long = [b"GET /".as_slice(), &[b'a'; MOST_HEAD], b" HTTP/1.1\r\n\r\n"].concat();
        let many = [b"GET / HTTP/1.1\r\n".as_slice(), &b"a: b\r\n".repeat(MOST_HEADERS + 1), b"\r\n"].concat();
        for (bytes, status) in [
            (&b""[..], 0),
            (b"GET", 400),
            (b"\0\0\0\0", 400),
            (b"GET / HTTP/2.0\r\n\r\n", 505),
            (b"\x16\x03\x01\x02\x00\x01\x00", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", 400),
            (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\na", 400),
            (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
            (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n", 413),
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
            (b"GET / HTTP/1.1\r\nExpect: more\r\n\r\n", 417),
            (&long, 431),
            (&many, 431),
        ] {
            assert_eq!(read(bytes, 1000).unwrap_err(), status, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn answers_are_read_back() {
        let mut bytes = Vec::new();
        HttpResponse::error(404, "no \"such\" thing").write(&mut bytes, true).unwrap();
        let (status, body) = parse_response(&bytes).unwrap();
        assert_eq!(status, 404);
        assert_eq!(serde_json::from_slice::<serde_json::Value>(body).unwrap()["error"], "no \"such\" thing");
        assert!(parse_response(&bytes[..bytes.len() - 1]).is_err(), "cut off");
        assert!(parse_response(b"SSH-2.0\r\n").is_err());
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), size in 1usize..700) {
            let _ = read(&bytes, size);
            let _ = parse_response(&bytes);
        }

        #[test]
        fn what_is_nearly_a_request_is_read_the_same_in_pieces(
            method in "(GET|POST|HEAD|[a-z \r]{0,4})",
            path in "/[ -~]{0,20}",
            headers in prop::collection::vec("(Content-Length: [0-9+]{0,3}|Expect: 100-continue|[ -~\r\n]{0,30})", 0..5),
            body in prop::collection::vec(any::<u8>(), 0..40),
            size in 1usize..50,
        ) {
            let mut bytes = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
            headers.iter().for_each(|h| bytes.extend_from_slice(format!("{h}\r\n").as_bytes()));
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(&body);
            prop_assert_eq!(read(&bytes, size), read(&bytes, usize::MAX >> 1));
        }

        #[test]
        fn whole_requests_are_read_back(path in "/[a-z]{0,20}", body in prop::collection::vec(any::<u8>(), 0..3000), size in 1usize..5000) {
            let mut bytes = format!("POST {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
            bytes.extend_from_slice(&body);
            prop_assert_eq!(read(&bytes, size), Ok(HttpRequest { method: "POST".into(), path, host: None, body }));
        }
    }
}
