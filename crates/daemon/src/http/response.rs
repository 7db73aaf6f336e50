//! An answer.

use super::MOST_HEADERS;
use crate::openmetrics;
use std::io::{self, Write};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    pub status: u16,
    /// Type of the body.
    pub content_type: &'static str,
    /// For 405: what is allowed.
    pub allow: Option<&'static str>,
    pub body: Vec<u8>,
}

/// The type of JSON.
pub const JSON: &str = "application/json";

impl HttpResponse {
    /// A body of JSON; a value that cannot be written (none of ours) becomes an error 500.
    pub fn json(status: u16, value: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(mut body) => {
                body.push(b'\n');
                Self { status, content_type: JSON, allow: None, body }
            }
            Err(e) => Self::error(500, &e.to_string()),
        }
    }

    /// A body that is JSON already.
    pub const fn written_json(body: Vec<u8>) -> Self {
        Self { status: 200, content_type: JSON, allow: None, body }
    }

    /// Text in the OpenMetrics form.
    pub fn metrics(text: String) -> Self {
        Self { status: 200, content_type: openmetrics::CONTENT_TYPE, allow: None, body: text.into_bytes() }
    }

    /// `{"error": "..."}`.
    pub fn error(status: u16, text: &str) -> Self {
        let body = format!("{}\n", serde_json::json!({ "error": text })).into_bytes();
        Self { status, content_type: JSON, allow: None, body }
    }

    /// Writes it; `with_body` is false for HEAD.
    pub fn write(&self, out: &mut impl Write, with_body: bool) -> io::Result<()> {
        let mut bytes = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len()
        );
        if let Some(allow) = self.allow {
            bytes += &format!("Allow: {allow}\r\n");
        }
        bytes += "\r\n";
        let mut bytes = bytes.into_bytes();
        if with_body {
            bytes.extend_from_slice(&self.body);
        }
        out.write_all(&bytes)?;
        out.flush()
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

/// Why an answer is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BrokenResponse {
    /// Cut off early.
    #[error("it ended in its headers")]
    Headers,
    /// Another protocol.
    #[error("it is no HTTP: {0}")]
    NoHttp(httparse::Error),
    /// Cut off later.
    #[error("it ended after {got} of {length} bytes")]
    Body {
        /// Bytes that came.
        got: usize,
        /// Bytes that were announced.
        length: usize,
    },
}

/// Splits an answer into status and body.
pub(crate) fn parse_response(bytes: &[u8]) -> Result<(u16, &[u8]), BrokenResponse> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let len = match response.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Err(BrokenResponse::Headers),
        Err(e) => return Err(BrokenResponse::NoHttp(e)),
    };
    let status = response.code.unwrap_or_default();
    let length = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|h| std::str::from_utf8(h.value).ok()?.trim().parse::<usize>().ok());
    let body = &bytes[len..];
    match length {
        Some(length) if length > body.len() => Err(BrokenResponse::Body { got: body.len(), length }),
        Some(length) => Ok((status, &body[..length])),
        None => Ok((status, body)),
    }
}
