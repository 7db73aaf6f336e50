//! The server under every kind of client.

use crate::client;
use crate::http::HttpRequest;
use crate::openmetrics::{Exposition, Labels};
use crate::server::{MOST_CONNECTIONS, MetricsPort, Server, TRANSFER_TIME};
use crate::service::{Answer, Ask, Door, Refusal, Route, Service, Status, route};
use crate::socket::BoundSocket;
use isotherm_core::figures;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

figures! {
    /// How the instance of these tests stands.
    #[derive(Debug, Serialize, Deserialize)]
    pub struct Counter {
        asked: u64 = Counter Count, "Questions asked.";
    }
}

impl Status for Counter {
    fn write_metrics(&self, out: &mut Exposition) {
        out.figures("test_", &[(Labels::new(), self)]);
    }
}

/// Can be asked for a number; 9 is refused.
struct Numbers;

impl Service for Numbers {
    type Question = u64;
    type Status = Counter;
    const QUESTIONS: &'static [&'static str] = &["/number"];

    fn read(&self, _: &str, body: &[u8]) -> Result<u64, Refusal> {
        let text = std::str::from_utf8(body).map_err(|_| Refusal::new(400, "no text in UTF-8"))?;
        text.trim().parse().map_err(|_| Refusal::new(400, format!("{text:?} is no number")))
    }
}

/// A server whose queue is emptied by a thread that counts what it was asked.
struct Live {
    folder: tempfile::TempDir,
    ended: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    loop_thread: Option<JoinHandle<()>>,
}

impl Live {
    fn start(metrics: Option<TcpListener>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = BoundSocket::bind(&folder.path().join("s")).unwrap();
        let metrics = metrics.map(|listener| MetricsPort { listener, names: vec!["node1".into()] });
        let server = Server::start(Some(socket), metrics, Numbers).unwrap();
        let (ended, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (end, count) = (Arc::clone(&ended), Arc::clone(&asked));
        let loop_thread = std::thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                while let Some((ask, responder)) = server.try_next() {
                    let asked = count.fetch_add(1, Ordering::SeqCst) + 1;
                    responder.send(match ask {
                        Ask::Status => Ok(Answer::Status(Box::new(Counter { asked }))),
                        Ask::Question(9) => Err(Refusal::new(404, "no 9")),
                        other => Ok(Answer::Done(format!("{other:?}"))),
                    });
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { folder, ended, asked, loop_thread: Some(loop_thread) }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("s")
    }

    fn call(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let r = client::call(&self.path(), method, path, body.as_bytes()).unwrap();
        (r.status, String::from_utf8(r.body).unwrap())
    }

    /// Sends bytes as they are and reads what comes until the end.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.path()).unwrap();
        // A refusal may come before all is sent.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let ended = self.loop_thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
            assert!(!self.path().exists(), "the socket is gone");
        }
    }
}

#[test]
fn every_path_answers() {
    let live = Live::start(None);
    let (status, body) = live.call("GET", "/status", "");
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Counter>(&body).unwrap().asked, 1);
    let (status, body) = live.call("GET", "/metrics", "");
    assert!(status == 200 && body.contains("isotherm_test_asked_total 2") && body.ends_with("# EOF\n"), "{body}");
    assert!(live.call("POST", "/number", "2").1.contains("Question(2)"));
    assert!(live.call("POST", "/stop", "").1.contains("Stop"));
    let asked = live.asked.load(Ordering::SeqCst);
    for (method, path, body, expected) in [
        ("GET", "/", "", 404),
        ("GET", "/status/", "", 404),
        ("POST", "/status", "", 405),
        ("DELETE", "/metrics", "", 405),
        ("GET", "/stop", "", 405),
        ("GET", "/number", "", 405),
        ("POST", "/number", "what", 400),
        ("POST", "/another", "1", 404),
    ] {
        let (status, body) = live.call(method, path, body);
        assert_eq!(status, expected, "{method} {path}: {body}");
        let error: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert!(!error["error"].as_str().unwrap().is_empty());
    }
    assert_eq!(live.asked.load(Ordering::SeqCst), asked, "the loop is not asked for nonsense");
    assert_eq!(live.call("POST", "/number", "9").0, 404);
    assert!(live.raw(b"POST /number HTTP/1.1\r\nContent-Length: 2\r\n\r\n\xff\xfe").contains("UTF-8"));
    let head = live.raw(b"HEAD /status HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn what_is_malformed_is_refused_and_harms_nobody() {
    let live = Live::start(None);
    let long = [b"GET /".as_slice(), &vec![b'a'; 1 << 20], b" HTTP/1.1\r\n\r\n"].concat();
    let large =
        [b"POST /number HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n".as_slice(), &vec![b'1'; 3_000_000]].concat();
    for (bytes, status) in [
        (&b"\0\0\0\0"[..], 400),
        (b"\r\n\r\n\x80", 400),
        (b"GET /status HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET /status", 400),
        (&long, 431),
        (&large, 413),
    ] {
        let answer = live.raw(bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains("{\"error\":\""), "{answer}");
        assert!(answer.contains("Connection: close"), "{answer}");
    }
    assert_eq!(live.raw(b""), "");
    assert_eq!(live.call("GET", "/status", "").0, 200);
}

#[test]
fn slow_and_silent_clients_keep_nobody_out() {
    let live = Live::start(None);
    let mut slow = Vec::new();
    let begin = Instant::now();
    for round in 0..4 * MOST_CONNECTIONS {
        let mut stream = UnixStream::connect(live.path()).unwrap();
        if round % 2 == 0 {
            // It may have had to give way already.
            let _ = stream.write_all(b"POST /number HTTP/1.1\r\nContent-Le");
        }
        slow.push(stream);
        assert_eq!(live.call("GET", "/status", "").0, 200, "{round} before it");
    }
    assert!(begin.elapsed() < TRANSFER_TIME * 2, "it did not wait for them");
    // The oldest gave way.
    assert_eq!(slow[0].read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn who_asks_amid_a_burst_of_silent_clients_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    for round in 0..50 {
        let socket = BoundSocket::bind(&path).unwrap();
        // All stand in the queue before the first is let in, as they do when the server had no processor for a while.
        let mut asking: Vec<_> = (0..MOST_CONNECTIONS / 2).map(|_| UnixStream::connect(&path).unwrap()).collect();
        asking.iter_mut().for_each(|stream| stream.write_all(b"GET /status HTTP/1.1\r\n\r\n").unwrap());
        let silent: Vec<_> = (0..3 * MOST_CONNECTIONS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let server = Server::start(Some(socket), None, Numbers).unwrap();
        let reading = std::thread::spawn(move || {
            let read = |mut stream: UnixStream| {
                let mut answer = String::new();
                let _ = stream.read_to_string(&mut answer);
                answer
            };
            asking.into_iter().map(read).collect::<Vec<_>>()
        });
        while !reading.is_finished() {
            if let Some((_, responder)) = server.try_next() {
                responder.send(Ok(Answer::Status(Box::new(Counter { asked: 1 }))));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let answers = reading.join().unwrap();
        assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")), "round {round}: {answers:?}");
        drop(silent);
    }
}

#[test]
fn who_has_asked_does_not_give_way_and_there_are_only_so_many() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let server = Server::start(Some(BoundSocket::bind(&path).unwrap()), None, Numbers).unwrap();
    let call =
        |path: std::path::PathBuf| std::thread::spawn(move || client::call(&path, "GET", "/status", b"").unwrap());
    let asking: Vec<_> = (0..MOST_CONNECTIONS).map(|_| call(path.clone())).collect();
    let mut waiting = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while waiting.len() < MOST_CONNECTIONS {
        waiting.extend(server.try_next());
        assert!(Instant::now() < deadline, "{} requests came", waiting.len());
        std::thread::sleep(Duration::from_millis(1));
    }
    let refused = client::call(&path, "GET", "/status", b"").unwrap();
    assert_eq!(refused.status, 503);
    assert!(String::from_utf8(refused.body).unwrap().contains("too many connections"));
    for (_, responder) in waiting {
        responder.send(Ok(Answer::Status(Box::new(Counter { asked: 1 }))));
    }
    assert!(asking.into_iter().all(|thread| thread.join().unwrap().status == 200));
    let mut last = call(path.clone());
    loop {
        if let Some((_, responder)) = server.try_next() {
            responder.send(Ok(Answer::Done("late".into())));
        }
        if last.is_finished() {
            if last.join().unwrap().status == 200 {
                return;
            }
            last = call(path.clone());
        }
        assert!(Instant::now() < deadline, "their places do not become free");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn slow_clients_of_the_metrics_lock_nobody_out_of_the_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let live = Live::start(Some(listener));
    let slow: Vec<TcpStream> = (0..2 * MOST_CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(addr).unwrap();
            // Those beyond the limit are closed.
            let _ = stream.write_all(b"GET /met");
            stream
        })
        .collect();
    for _ in 0..10 {
        assert_eq!(live.call("GET", "/status", "").0, 200);
    }
    drop(slow);
}

#[test]
fn a_port_gives_metrics_and_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let live = Live::start(Some(listener));
    let get = |request: &[u8]| {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    // What a page reads that has its own name resolve to this machine.
    let foreign = get(b"GET /metrics HTTP/1.1\r\nHost: evil.example:9190\r\n\r\n");
    assert!(foreign.starts_with("HTTP/1.1 421 ") && foreign.contains("--metrics-host"), "{foreign}");
    let metrics = get(b"GET /metrics HTTP/1.1\r\nHost: node1\r\n\r\n");
    assert!(metrics.contains("application/openmetrics-text") && metrics.ends_with("# EOF\n"), "{metrics}");
    for request in [&b"GET /status HTTP/1.1\r\n\r\n"[..], b"POST /stop HTTP/1.1\r\nContent-Length: 0\r\n\r\n"] {
        assert!(get(request).starts_with("HTTP/1.1 404 "));
    }
    drop(live);
    assert!(TcpStream::connect(addr).is_err(), "nobody listens any more");
}

#[test]
fn whoever_waits_at_the_end_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let server = Server::start(Some(BoundSocket::bind(&path).unwrap()), None, Numbers).unwrap();
    let asking = std::thread::spawn(move || client::call(&path, "GET", "/status", b"").unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    let waiting = loop {
        if let Some(next) = server.try_next() {
            break next;
        }
        assert!(Instant::now() < deadline, "no request came");
        std::thread::sleep(Duration::from_millis(1));
    };
    drop(waiting);
    drop(server);
    let answer = asking.join().unwrap();
    assert_eq!(answer.status, 503);
    assert!(String::from_utf8(answer.body).unwrap().contains("ending"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_request_makes_a_route_panic(
        path in "/(number|stop|status|metrics|[ -~]{0,9})",
        body in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        for method in ["GET", "POST", "PUT"] {
            let request = HttpRequest { method: method.into(), path: path.clone(), host: None, body: body.clone() };
            for door in [Door::Control, Door::MetricsOnly] {
                let routed = route(&request, door, &[], &Numbers);
                prop_assert!(door == Door::Control || !matches!(routed, Route::Ask(_)));
            }
        }
    }
}
