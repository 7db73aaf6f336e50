use super::*;
use crate::control::{client, testing};
use proptest::prelude::*;
use std::io::Write;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// A server whose queue is emptied by a thread that answers with [`testing::status`] and counts what it was asked.
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
        let server = ControlServer::start(Some(socket), metrics, testing::readers()).unwrap();
        let (ended, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (end, count) = (Arc::clone(&ended), Arc::clone(&asked));
        let loop_thread = std::thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                while let Some((request, responder)) = server.try_next() {
                    count.fetch_add(1, Ordering::SeqCst);
                    responder.send(match request {
                        Request::Status => Ok(Answer::Status(Box::new(testing::status()))),
                        Request::Feedback { scheme: 9, .. } => Err(Refusal::new(404, "no scheme 9")),
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
    let read: crate::control::status::Status = serde_json::from_str(&body).unwrap();
    assert_eq!(read.schemes[0].stats.sz_tried, 8192);
    let (status, body) = live.call("GET", "/metrics", "");
    assert!(status == 200 && body.ends_with("# EOF\n"));
    assert!(live.call("POST", "/tune", "2").1.contains("Tune"));
    assert!(live.call("POST", "/goal", r#"{"scheme":0,"value":7}"#).1.contains("value: 7"));
    assert!(live.call("POST", "/goal", r#"{"scheme":0,"goals":["psi=1%"]}"#).1.contains("psi=1%"));
    assert!(live.call("POST", "/stop", "").1.contains("Stop"));
    let asked = live.asked.load(Ordering::SeqCst);
    for (method, path, body, expected) in [
        ("GET", "/", "", 404),
        ("GET", "/status/", "", 404),
        ("POST", "/status", "", 405),
        ("DELETE", "/metrics", "", 405),
        ("GET", "/stop", "", 405),
        ("GET", "/tune", "", 405),
        ("POST", "/tune", "what", 400),
        ("POST", "/tune", "0", 400),
        ("POST", "/goal", "", 400),
        ("POST", "/goal", r#"{"scheme":0}"#, 400),
        ("POST", "/goal", r#"{"scheme":0,"value":1,"goals":[]}"#, 400),
        ("POST", "/goal", r#"{"scheme":-1,"value":1}"#, 400),
        ("POST", "/goal", r#"{"scheme":0,"value":1,"more":2}"#, 400),
    ] {
        let (status, body) = live.call(method, path, body);
        assert_eq!(status, expected, "{method} {path}: {body}");
        let error: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert!(!error["error"].as_str().unwrap().is_empty());
    }
    assert_eq!(live.asked.load(Ordering::SeqCst), asked, "the engine is not asked for nonsense");
    assert_eq!(live.call("POST", "/goal", r#"{"scheme":9,"value":7}"#).0, 404);
    assert!(live.raw(b"POST /tune HTTP/1.1\r\nContent-Length: 2\r\n\r\n\xff\xfe").contains("UTF-8"));
    let head = live.raw(b"HEAD /status HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn what_is_malformed_is_refused_and_harms_nobody() {
    let live = Live::start(None);
    let long = [b"GET /".as_slice(), &vec![b'a'; 1 << 20], b" HTTP/1.1\r\n\r\n"].concat();
    let large = [b"POST /tune HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n".as_slice(), &vec![b'1'; 3_000_000]].concat();
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
fn slow_clients_keep_nobody_waiting_and_there_are_only_so_many() {
    let live = Live::start(None);
    let slow: Vec<UnixStream> = (1..MOST_CONNECTIONS)
        .map(|_| {
            let mut stream = UnixStream::connect(live.path()).unwrap();
            stream.write_all(b"POST /tune HTTP/1.1\r\nContent-Le").unwrap();
            stream
        })
        .collect();
    let begin = Instant::now();
    assert_eq!(live.call("GET", "/status", "").0, 200);
    assert!(begin.elapsed() < TRANSFER_TIME, "it did not wait for them");
    // The thread of the last call may still be on its way out, so the first free place may be either.
    let more: Vec<UnixStream> = (0..2).map(|_| UnixStream::connect(live.path()).unwrap()).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut last = 0;
    while last != 503 && Instant::now() < deadline {
        last = client::call(&live.path(), "GET", "/status", b"").map_or(503, |r| r.status);
    }
    assert_eq!(last, 503);
    drop((slow, more));
    while last != 200 && Instant::now() < deadline {
        last = client::call(&live.path(), "GET", "/status", b"").map_or(503, |r| r.status);
    }
    assert_eq!(last, 200, "their places are free again");
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
    let metrics = get(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
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
    let server = ControlServer::start(Some(BoundSocket::bind(&path).unwrap()), None, testing::readers()).unwrap();
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
    fn no_body_makes_a_route_panic(
        path in "/(tune|goal|stop|status|metrics|[ -~]{0,9})",
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            "\\{\"scheme\":[0-9-]{0,22},\"(value|goals)\":[0-9\\[\\]\"{}-]{0,22}\\}".prop_map(String::into_bytes),
        ],
    ) {
        for method in ["GET", "POST", "PUT"] {
            let request = crate::control::http::HttpRequest { method: method.into(), path: path.clone(), body: body.clone() };
            for door in [Door::Control, Door::MetricsOnly] {
                let routed = route(&request, door, &testing::readers());
                prop_assert!(door == Door::Control || !matches!(routed, Route::Ask(_)));
            }
        }
    }
}
