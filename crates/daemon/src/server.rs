//! The server: threads that turn connections into questions, and a queue that the instance's loop empties when it has
//! time.
//!
//! Nothing that a client does or fails to do makes the loop wait: requests are read, and texts in them parsed, in the
//! connection's own thread; the loop hands its answer over and goes on. Connections, their bytes and their time are
//! bounded, for each door apart: whoever reaches the metrics cannot lock out whoever may control.

use crate::deadline::UntilDeadline;
use crate::http::{HttpError, HttpResponse, read_request};
use crate::service::{Answer, Ask, Door, Refusal, Route, Service, Status, StatusOnly, respond, route};
use crate::socket::BoundSocket;
use isotherm_linux::ready::{Interest, wait};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Connections at a time, at each door.
pub(crate) const MOST_CONNECTIONS: usize = 16;
/// For a request to come in whole, and for its answer to be taken.
pub(crate) const TRANSFER_TIME: Duration = Duration::from_secs(10);
/// For the loop to answer. Sources that cannot be interrupted answer between aggregation intervals.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(30);
/// How long the answers to the last requests may take to leave, at the end.
const LAST_ANSWERS_TIME: Duration = Duration::from_secs(1);
/// How long a new connection may wait for the threads of others to read what these have sent: longer than a thread of
/// a busy machine waits for a processor.
const FIRST_READ_TIME: Duration = Duration::from_secs(1);
/// How often it looks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Bytes of a refused request that are read and thrown away, so that the refusal arrives.
const MOST_LEFTOVER: u64 = 4 << 20;

type Reply<S> = Result<Answer<<S as Service>::Status>, Refusal>;
type Queued<S> = (Ask<<S as Service>::Question>, Responder<S>);

/// Answers one request.
pub struct Responder<S: Service>(SyncSender<Reply<S>>);

impl<S: Service> std::fmt::Debug for Responder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Responder")
    }
}

impl<S: Service> Responder<S> {
    /// Hands the answer over; whether anybody still waits for it is no matter.
    pub fn send(self, reply: Reply<S>) {
        let _ = self.0.try_send(reply);
    }
}

/// What the threads share.
struct Shared<S: Service> {
    queue: SyncSender<Queued<S>>,
    service: S,
    /// What this machine may be called at the port for metrics.
    names: Vec<String>,
    /// Connections at the control door, and at that for metrics, the oldest first.
    connections: Mutex<[Vec<Present>; 2]>,
    next_number: AtomicU64,
    fewer: Condvar,
    ending: AtomicBool,
}

/// A TCP port for metrics.
#[derive(Debug)]
pub struct MetricsPort {
    pub listener: TcpListener,
    /// What clients may call this machine, beside its addresses and localhost.
    pub names: Vec<String>,
}

/// A listening server.
pub struct Server<S: Service> {
    queue: Option<Receiver<Queued<S>>>,
    socket: Option<BoundSocket>,
    listeners: Vec<(OwnedFd, JoinHandle<()>)>,
    shared: Arc<Shared<S>>,
}

impl<S: Service> std::fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl<S: Service> Server<S> {
    /// Serves on a Unix socket, a TCP port for metrics, or both.
    pub fn start(socket: Option<BoundSocket>, metrics: Option<MetricsPort>, service: S) -> io::Result<Self> {
        let (listener, names) = metrics.map(|port| (port.listener, port.names)).unzip();
        let (sender, queue) = sync_channel(2 * MOST_CONNECTIONS);
        let shared = Arc::new(Shared {
            queue: sender,
            service,
            names: names.unwrap_or_default(),
            connections: Mutex::default(),
            next_number: AtomicU64::new(0),
            fewer: Condvar::new(),
            ending: AtomicBool::new(false),
        });
        let mut server = Self { queue: Some(queue), socket: None, listeners: Vec::new(), shared };
        if let Some(socket) = socket {
            let listener = socket.listener.try_clone()?;
            let handle = socket.listener.try_clone()?.into();
            server.listen(Door::Control, handle, move || listener.accept().map(|(stream, _)| stream))?;
            server.socket = Some(socket);
        }
        if let Some(listener) = listener {
            let handle = listener.try_clone()?.into();
            // From here on it is a stream as others: no call that is made on it asks for its family.
            server.listen(Door::MetricsOnly, handle, move || Ok(OwnedFd::from(listener.accept()?.0).into()))?;
        }
        Ok(server)
    }

    /// The next question, if one waits.
    pub fn try_next(&self) -> Option<(Ask<S::Question>, Responder<S>)> {
        self.queue.as_ref()?.try_recv().ok()
    }

    /// Where the Unix socket is.
    pub fn path(&self) -> Option<&Path> {
        self.socket.as_ref().map(BoundSocket::path)
    }

    /// `listener`: what `next` waits at.
    fn listen(
        &mut self,
        door: Door,
        listener: OwnedFd,
        next: impl Fn() -> io::Result<UnixStream> + Send + 'static,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = Builder::new().name("control".into()).spawn(move || accept(&next, door, &shared))?;
        self.listeners.push((listener, thread));
        Ok(())
    }
}

impl<S: Status> Server<StatusOnly<S>> {
    /// Answers what was asked: with `status`, and that it is about to stop; whether it was asked to.
    pub fn answer(&self, status: impl Fn(&Self) -> S) -> bool {
        let mut stop = false;
        while let Some((ask, responder)) = self.try_next() {
            responder.send(Ok(match ask {
                Ask::Status => Answer::Status(Box::new(status(self))),
                Ask::Stop => {
                    stop = true;
                    Answer::Done("stopping".into())
                }
                Ask::Question(never) => match never {},
            }));
        }
        stop
    }
}

impl<S: Service> Drop for Server<S> {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        // The file first: whoever comes now learns that nobody is there.
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
        let _ = self
            .shared
            .fewer
            .wait_timeout_while(connections, LAST_ANSWERS_TIME, |n| n.iter().any(|door| !door.is_empty()));
    }
}

fn accept<S: Service>(next: &impl Fn() -> io::Result<UnixStream>, door: Door, shared: &Arc<Shared<S>>) {
    loop {
        let accepted = next();
        if shared.ending.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = accepted else {
            // Out of descriptors, say: it passes, and trying at once again would only burn time.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(admitted) = stream.try_clone().ok().and_then(|handle| Admitted::at(door, shared, handle)) else {
            let mut stream = UntilDeadline::new(stream, Duration::from_millis(100));
            let _ = HttpResponse::error(503, "too many connections at a time").write(&mut stream, true);
            continue;
        };
        // Where no thread can be had, the connection closes.
        let _ = Builder::new().name("control client".into()).spawn(move || serve(stream, &admitted));
    }
}

/// A connection at a door.
#[derive(Debug)]
struct Present {
    number: u64,
    handle: UnixStream,
    stage: Stage,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its request has not come in whole, as far as its thread has read.
    Asks,
    /// Its thread looks at what has come.
    Reads,
    /// Its request has come in whole and is not answered yet.
    Waits,
    /// It has its answer.
    Answered,
}

impl Present {
    /// Whether it may give way: it has its answer, or has said nothing that is not yet read.
    fn is_idle(&self) -> bool {
        let has_unread = || wait(&[(self.handle.as_fd(), Interest::Read)], Some(Duration::ZERO)).is_ok_and(|r| r[0]);
        match self.stage {
            Stage::Asks => !has_unread(),
            Stage::Reads | Stage::Waits => false,
            Stage::Answered => true,
        }
    }
}

/// A connection that is counted at its door until it ends.
struct Admitted<S: Service> {
    shared: Arc<Shared<S>>,
    door: Door,
    number: u64,
}

impl<S: Service> Admitted<S> {
    /// `None` where there are too many already. The oldest that has not said yet what it wants, or has its
    /// answer, gives way: whoever asks at once gets in however many stand there in silence. Many connections are
    /// accepted before the first of their threads runs, so one with something unread may have asked: its thread is
    /// waited for.
    fn at(door: Door, shared: &Arc<Shared<S>>, handle: UnixStream) -> Option<Self> {
        let mut connections = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + FIRST_READ_TIME;
        while connections[door as usize].len() >= MOST_CONNECTIONS {
            let present = &mut connections[door as usize];
            if let Some(idle) = present.iter().position(Present::is_idle) {
                // Ends its thread.
                let _ = present.remove(idle).handle.shutdown(Shutdown::Both);
            } else if present.iter().any(|p| matches!(p.stage, Stage::Asks | Stage::Reads))
                && Instant::now() < deadline
                && !shared.ending.load(Ordering::SeqCst)
            {
                let waited = shared.fewer.wait_timeout(connections, LOOK_EVERY);
                connections = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                return None;
            }
        }
        let number = shared.next_number.fetch_add(1, Ordering::Relaxed);
        connections[door as usize].push(Present { number, handle, stage: Stage::Asks });
        Some(Self { shared: Arc::clone(shared), door, number })
    }

    fn with_present(&self, work: impl FnOnce(&mut Vec<Present>)) {
        work(&mut self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner)[self.door as usize]);
    }

    fn is_at(&self, stage: Stage) {
        self.with_present(|present| {
            present.iter_mut().filter(|p| p.number == self.number).for_each(|p| p.stage = stage)
        });
    }
}

impl<S: Service> Drop for Admitted<S> {
    fn drop(&mut self) {
        self.with_present(|present| present.retain(|p| p.number != self.number));
        self.shared.fewer.notify_all();
    }
}

/// A stream whose reads others can see coming: what has been taken from the socket and not looked at yet is no silence.
struct Seen<'a, S: Service> {
    stream: UntilDeadline,
    admitted: &'a Admitted<S>,
}

impl<S: Service> Read for Seen<'_, S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.admitted.is_at(Stage::Asks);
        self.stream.wait_for_more()?;
        self.admitted.is_at(Stage::Reads);
        self.stream.read(buf)
    }
}

impl<S: Service> Write for Seen<'_, S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn serve<S: Service>(stream: UnixStream, admitted: &Admitted<S>) {
    let (door, shared) = (admitted.door, &*admitted.shared);
    let mut seen = Seen { stream: UntilDeadline::new(stream, TRANSFER_TIME), admitted };
    let request = read_request(&mut seen);
    let mut stream = seen.stream;
    admitted.is_at(Stage::Waits);
    let (response, with_body) = match request {
        Err(HttpError::Gone) => return,
        Err(HttpError::Refused(status, text)) => (HttpResponse::error(status, &text), true),
        Ok(request) => {
            (answer(route(&request, door, &shared.names, &shared.service), shared), request.method != "HEAD")
        }
    };
    stream.extend(TRANSFER_TIME);
    let sent = response.write(&mut stream, with_body).is_ok();
    admitted.is_at(Stage::Answered);
    if sent {
        // Closing with something unread would throw away the answer on its way.
        let _ = stream.get().shutdown(Shutdown::Write);
        stream.extend(Duration::from_secs(1));
        let _ = io::copy(&mut (&mut stream).take(MOST_LEFTOVER), &mut io::sink());
    }
}

fn answer<S: Service>(route: Route<S::Question>, shared: &Shared<S>) -> HttpResponse {
    match route {
        Route::Answer(response) => response,
        Route::Ask(question) => respond(ask(question, shared), false),
        Route::Metrics => respond(ask(Ask::Status, shared), true),
    }
}

fn ask<S: Service>(question: Ask<S::Question>, shared: &Shared<S>) -> Reply<S> {
    let (sender, reply) = sync_channel(1);
    match shared.queue.try_send((question, Responder(sender))) {
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
