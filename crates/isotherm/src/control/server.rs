//! The server: threads that turn connections into requests, and a queue that the engine empties when it has time.
//!
//! Nothing that a client does or fails to do makes the engine wait: requests are read, and texts in them parsed, in the
//! connection's own thread; the engine hands its answer over and goes on. Connections, their bytes and their time are
//! bounded.

use super::http::{HttpError, HttpResponse, Timed, UntilDeadline, read_request};
use super::request::{Answer, Door, Readers, Refusal, Request, Route, respond, route};
use super::socket::BoundSocket;
use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Connections at a time.
const MOST_CONNECTIONS: usize = 16;
/// For a request to come in whole, and for its answer to be taken.
const TRANSFER_TIME: Duration = Duration::from_secs(10);
/// For the engine to answer. Sources that cannot be interrupted answer between aggregation intervals.
pub const ANSWER_TIME: Duration = Duration::from_secs(30);
/// How long the answers to the last requests may take to leave, at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Bytes of a refused request that are read and thrown away, so that the refusal arrives.
const MOST_LEFTOVER: u64 = 4 << 20;

#[derive(Debug)]
pub struct Responder(SyncSender<Result<Answer, Refusal>>);

impl Responder {
    /// Hands the answer over; whether anybody still waits for it is no matter.
    pub fn send(self, reply: Result<Answer, Refusal>) {
        let _ = self.0.try_send(reply);
    }
}

type Queued = (Request, Responder);

/// What the threads share.
#[derive(Debug)]
struct Shared {
    queue: SyncSender<Queued>,
    readers: Readers,
    connections: Mutex<usize>,
    fewer: Condvar,
    ending: AtomicBool,
}

/// A listening control server.
#[derive(Debug)]
pub struct ControlServer {
    queue: Option<Receiver<Queued>>,
    socket: Option<BoundSocket>,
    listeners: Vec<(OwnedFd, JoinHandle<()>)>,
    shared: Arc<Shared>,
}

impl ControlServer {
    /// Serves on a Unix socket, a TCP port for metrics, or both.
    pub fn start(socket: Option<BoundSocket>, metrics: Option<TcpListener>, readers: Readers) -> io::Result<Self> {
        let (sender, queue) = sync_channel(MOST_CONNECTIONS);
        let shared = Arc::new(Shared {
            queue: sender,
            readers,
            connections: Mutex::new(0),
            fewer: Condvar::new(),
            ending: AtomicBool::new(false),
        });
        let mut server = Self { queue: Some(queue), socket: None, listeners: Vec::new(), shared };
        if let Some(socket) = socket {
            server.listen(socket.listener.try_clone()?, Door::Control)?;
            server.socket = Some(socket);
        }
        if let Some(listener) = metrics {
            server.listen(listener, Door::MetricsOnly)?;
        }
        Ok(server)
    }

    fn listen<L: Listener>(&mut self, listener: L, door: Door) -> io::Result<()> {
        let handle = listener.duplicate()?;
        let shared = Arc::clone(&self.shared);
        let thread = Builder::new().name("control".into()).spawn(move || accept(&listener, door, &shared))?;
        self.listeners.push((handle, thread));
        Ok(())
    }

    /// The next request, if one waits.
    pub fn try_next(&self) -> Option<(Request, Responder)> {
        self.queue.as_ref()?.try_recv().ok()
    }

    /// Where the Unix socket is.
    pub fn path(&self) -> Option<&Path> {
        self.socket.as_ref().map(BoundSocket::path)
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        // The file first: whoever comes now is told that nobody is there.
        self.socket = None;
        for (listener, thread) in self.listeners.drain(..) {
            // Ends accept, in the other thread too; it is the same socket. Of a TCP listener as well: the call does not
            // ask what kind of socket it is.
            let _ = UnixStream::from(listener).shutdown(Shutdown::Both);
            let _ = thread.join();
        }
        // Requests that wait are answered by that.
        self.queue = None;
        let connections = self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.shared.fewer.wait_timeout_while(connections, LAST_WORDS, |n| *n > 0);
    }
}

/// A listener of either kind.
trait Listener: Send + 'static {
    type Stream: Stream;
    fn accept_one(&self) -> io::Result<Self::Stream>;
    fn duplicate(&self) -> io::Result<OwnedFd>;
}

/// A connection of either kind.
trait Stream: Timed + Send + 'static {
    /// Tells the peer that nothing more comes.
    fn finish_writing(&self);
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn accept_one(&self) -> io::Result<UnixStream> {
        self.accept().map(|(stream, _)| stream)
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.try_clone().map(OwnedFd::from)
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn accept_one(&self) -> io::Result<TcpStream> {
        self.accept().map(|(stream, _)| stream)
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.try_clone().map(OwnedFd::from)
    }
}

impl Stream for UnixStream {
    fn finish_writing(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Stream for TcpStream {
    fn finish_writing(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

fn accept<L: Listener>(listener: &L, door: Door, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept_one();
        if shared.ending.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = accepted else {
            // Out of descriptors, say: it passes, and trying at once again would only burn time.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = Place::take(shared) else {
            let mut stream = UntilDeadline::new(stream, Duration::from_millis(100));
            let _ = HttpResponse::error(503, "too many connections at a time").write(&mut stream, true);
            continue;
        };
        // Where no thread can be had, the connection closes.
        let _ = Builder::new().name("control client".into()).spawn(move || serve(stream, door, &place.0));
    }
}

/// One of the places for connections.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let mut connections = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if *connections >= MOST_CONNECTIONS {
            return None;
        }
        *connections += 1;
        Some(Self(Arc::clone(shared)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.connections.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.fewer.notify_all();
    }
}

fn serve<S: Stream>(stream: S, door: Door, shared: &Shared) {
    let mut stream = UntilDeadline::new(stream, TRANSFER_TIME);
    let (response, with_body) = match read_request(&mut stream) {
        Err(HttpError::Gone) => return,
        Err(HttpError::Refused(status, text)) => (HttpResponse::error(status, &text), true),
        Ok(request) => (answer(route(&request, door, &shared.readers), shared), request.method != "HEAD"),
    };
    stream.extend(TRANSFER_TIME);
    if response.write(&mut stream, with_body).is_ok() {
        // Closing with something unread would throw away the answer on its way.
        stream.get().finish_writing();
        stream.extend(Duration::from_secs(1));
        let _ = io::copy(&mut (&mut stream).take(MOST_LEFTOVER), &mut io::sink());
    }
}

fn answer(route: Route, shared: &Shared) -> HttpResponse {
    match route {
        Route::Answer(response) => response,
        Route::Ask(request) => respond(ask(request, shared), false),
        Route::Metrics => respond(ask(Request::Status, shared), true),
    }
}

fn ask(request: Request, shared: &Shared) -> Result<Answer, Refusal> {
    let (sender, reply) = sync_channel(1);
    match shared.queue.try_send((request, Responder(sender))) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => return Err(Refusal::new(503, "too many requests wait already")),
        Err(TrySendError::Disconnected(_)) => return Err(Refusal::new(503, ENDING)),
    }
    match reply.recv_timeout(ANSWER_TIME) {
        Ok(reply) => reply,
        Err(RecvTimeoutError::Disconnected) => Err(Refusal::new(503, ENDING)),
        Err(RecvTimeoutError::Timeout) => {
            let text = format!("no answer within {} s; the request may still be fulfilled", ANSWER_TIME.as_secs());
            Err(Refusal::new(504, text))
        }
    }
}

const ENDING: &str = "isotherm is ending";

#[cfg(test)]
mod tests;
