//! Answers to whoever asks how things stand: `isotherm hint status` on a Unix socket, and metrics, also on a port.

use super::{ASK_TIME, Args, metrics};
use crate::control::http::{HttpError, HttpRequest, HttpResponse, Timed, UntilDeadline, read_request};
use crate::control::socket::BoundSocket;
use isotherm_hint::host::server::Host;
use isotherm_hint::host::status::HostStatus;
use isotherm_linux::clock::monotonic_ns;
use std::net::{Shutdown, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What answers are made of.
pub struct Answers<'a> {
    pub host: &'a Host,
    /// What was asked for on the command line.
    pub args: &'a Args,
    /// When it began (CLOCK_MONOTONIC, ns).
    pub begin_ns: u64,
}

impl Answers<'_> {
    /// Answers those who wait at the socket; whether one of them asked for the end.
    pub fn at_socket(&self, control: &BoundSocket) -> bool {
        let mut stop = false;
        while let Ok((stream, _)) = control.listener.accept() {
            if stream.set_nonblocking(false).is_ok() {
                let end = |stream: &UnixStream| stream.shutdown(Shutdown::Write);
                converse(stream, end, |request| self.answer(request, &mut stop));
            }
        }
        stop
    }

    fn answer(&self, request: &HttpRequest, stop: &mut bool) -> HttpResponse {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/status") => HttpResponse::json(200, &self.whole()),
            ("GET" | "HEAD", "/metrics") => HttpResponse::metrics(metrics::write(&self.whole())),
            ("POST", "/stop") => {
                *stop = true;
                HttpResponse::json(200, &serde_json::json!({ "done": "stopping" }))
            }
            _ => HttpResponse::error(404, "no such path; there are GET /status, GET /metrics and POST /stop"),
        }
    }

    /// Serves metrics until the door is shut, one at a time: whoever reaches the port may ask, and keeps nobody else
    /// waiting for long, and those at the socket not at all.
    pub fn at_port(&self, listener: &TcpListener, ending: &AtomicBool) {
        while !ending.load(Ordering::SeqCst) {
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors, say; it passes.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let end = |stream: &std::net::TcpStream| stream.shutdown(Shutdown::Write);
            converse(stream, end, |request| match (request.method.as_str(), request.path.as_str()) {
                ("GET" | "HEAD", "/metrics") => HttpResponse::metrics(metrics::write(&self.whole())),
                _ => HttpResponse::error(404, "no such path; here is GET /metrics alone"),
            });
        }
    }

    fn whole(&self) -> HostStatus {
        HostStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_ns: monotonic_ns().saturating_sub(self.begin_ns),
            listening: self.args.listen.iter().map(ToString::to_string).collect(),
            guests: self.host.status(),
        }
    }
}

/// One question and its answer.
fn converse<S: Timed>(
    stream: S,
    end: impl FnOnce(&S) -> std::io::Result<()>,
    answer: impl FnOnce(&HttpRequest) -> HttpResponse,
) {
    let mut stream = UntilDeadline::new(stream, ASK_TIME);
    let (response, with_body) = match read_request(&mut stream) {
        Err(HttpError::Gone) => return,
        Err(HttpError::Refused(status, text)) => (HttpResponse::error(status, &text), true),
        Ok(request) => (answer(&request), request.method != "HEAD"),
    };
    if response.write(&mut stream, with_body).is_ok() {
        let _ = end(stream.get());
    }
}

/// Shuts the port when dropped, so that whoever serves there ends.
pub struct Shutter<'a> {
    listener: Option<OwnedFd>,
    ending: &'a AtomicBool,
}

impl<'a> Shutter<'a> {
    /// For this port, if there is one.
    pub fn new(listener: Option<&TcpListener>, ending: &'a AtomicBool) -> std::io::Result<Self> {
        let listener = listener.map(TcpListener::try_clone).transpose()?.map(OwnedFd::from);
        Ok(Self { listener, ending })
    }
}

impl Drop for Shutter<'_> {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        if let Some(listener) = self.listener.take() {
            // Ends accept in the other thread; it is the same socket, and the call does not ask of what kind.
            let _ = UnixStream::from(listener).shutdown(Shutdown::Both);
        }
    }
}
