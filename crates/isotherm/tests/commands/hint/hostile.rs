//! Guests, VMMs and strangers that keep `isotherm hint host` from serving others, or try to. No privilege needed.

use crate::common::vmm::{self, Agent, HostSide, MIB, RAM, Vmm, hello, ranges};
use crate::common::{text, wait_until};
use isotherm_hint::protocol::{Message, Verdict};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// A host side for a guest that calls over TCP with its key.
struct Called {
    _folder: tempfile::TempDir,
    host: HostSide,
    address: SocketAddr,
}

const KEY: &str = "correct horse battery";

fn called(vmm: &Vmm) -> Called {
    let folder = tempfile::tempdir().unwrap();
    let key = vmm::key_file(folder.path(), KEY);
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let spec = format!("pid={},key={}", vmm.pid(), text(&key));
    let host = HostSide::start(folder.path(), &["--guest", &spec, "--listen", &format!("tcp:{address}")]);
    Called { _folder: folder, host, address }
}

impl Called {
    fn call(&self) -> Agent {
        Agent::new(OwnedFd::from(TcpStream::connect(self.address).unwrap()).into())
    }
}

#[test]
fn who_says_nothing_keeps_nobody_out() {
    let vmm = Vmm::start();
    let called = called(&vmm);
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(called.address).unwrap()).collect();
    wait_until("the status tells", || {
        called.host.status()["problem"].as_str().is_some_and(|p| p.contains("127.0.0.1") && p.contains("32"))
    });
    // The guest calls again and again, as agents do, while all of the others stay.
    let mut served = None;
    wait_until("the guest is served", || {
        let mut agent = called.call();
        // Both fail where the host side has closed at once.
        if agent.prove(&vmm::key(KEY))
            && let greeting = agent.frame(&Message::Hello(hello(1)))
            && agent.stream.write_all(&greeting).is_ok()
            && let Some(token) = agent.welcome()
        {
            agent.token = token;
            served = Some(agent);
        }
        served.is_some()
    });
    assert_eq!(served.unwrap().report(1, &[(2, 4)]), [Verdict::Dropped]);
    drop(silent);
}

#[test]
fn a_stranger_costs_little() {
    let vmm = Vmm::start();
    let called = called(&vmm);
    let late = Message::Report { token: 0, batch: 1, ranges: ranges(&[(0, 2)]) }.encode().unwrap().repeat(1000);
    let garbage = vec![0x49; 64 << 10];
    for flood in [late, garbage] {
        let mut stranger = called.call();
        // The host side closes; it does not listen for ever to somebody who has no key.
        let (begin, mut sent) = (Instant::now(), 0);
        while stranger.stream.write_all(&flood).is_ok() {
            sent += flood.len();
            assert!(begin.elapsed() < Duration::from_secs(40), "{sent} bytes were taken");
        }
    }
    wait_until("the status tells", || {
        called.host.status()["problem"].as_str().is_some_and(|p| p.contains("127.0.0.1"))
    });
}

/// A VMM that takes calls on its QMP socket and sends a byte now and then, but never a line.
fn never_answer(listener: UnixListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                while stream.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
    });
}

#[test]
fn a_vmm_that_does_not_answer_keeps_nobody_waiting() {
    let (slow, mut good) = (Vmm::start(), Vmm::start());
    let folder = tempfile::tempdir().unwrap();
    let [port, good_port, qmp] = ["port", "good", "qmp"].map(|name| folder.path().join(name));
    let [listener, good_listener] = [&port, &good_port].map(|path| UnixListener::bind(path).unwrap());
    never_answer(UnixListener::bind(&qmp).unwrap());
    let slow_spec = format!("pid={},socket={},qmp={},name=slow", slow.pid(), text(&port), text(&qmp));
    let good_spec = format!("pid={},socket={},name=good", good.pid(), text(&good_port));
    let host = HostSide::start(folder.path(), &["--guest", &slow_spec, "--guest", &good_spec]);
    let mut good_agent = Agent::accept(&good_listener);
    good_agent.greet(hello(1));
    let mut agent = Agent::accept(&listener);
    agent.send(&Message::Hello(hello(2)));
    // The VMM is being asked now, and for seconds to come; the present status and all others are reported meanwhile.
    let begin = Instant::now();
    let mut asked = 0;
    while begin.elapsed() < Duration::from_secs(3) {
        let before = Instant::now();
        assert_eq!(host.guest(0)["connected"].as_bool(), Some(false));
        assert!(before.elapsed() < Duration::from_secs(3), "the status took {:?}", before.elapsed());
        asked += 1;
    }
    assert!(asked > 1);
    assert_eq!(good_agent.report(1, &[(2, 4)]), [Verdict::Dropped]);
    assert_eq!(good.resident(), RAM - 2 * MIB);
    // It is given up in time, and the operator learns which socket it was.
    let problem = || host.guest(0)["problem"].as_str().map(str::to_owned).unwrap_or_default();
    wait_until("the VMM is given up", || problem().contains(text(&qmp)));
    // The guest is not: it has no business with the host's files.
    match agent.receive() {
        Some(Message::Error { text, .. }) => assert!(!text.contains('/') && text.contains("hint status"), "{text}"),
        other => panic!("{other:?}"),
    }
    // Asked once more, the end does not wait for the answer.
    drop(agent);
    let mut agent = Agent::accept(&listener);
    agent.send(&Message::Hello(hello(3)));
    std::thread::sleep(Duration::from_millis(500));
    let before = Instant::now();
    host.end("TERM").expect(0, &[]);
    assert!(before.elapsed() < Duration::from_secs(10), "the end took {:?}", before.elapsed());
}

/// A VMM with a number that another process had; `None` where this user cannot choose, or others are quicker.
fn vmm_with_pid(pid: u32) -> Option<Vmm> {
    (0..20).find_map(|_| {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        Some(Vmm::start()).filter(|vmm| vmm.pid() == pid)
    })
}

#[test]
fn a_reused_number_is_another_vmm() {
    let first = Vmm::start();
    let pid = first.pid();
    let folder = tempfile::tempdir().unwrap();
    let port = folder.path().join("port");
    let listener = UnixListener::bind(&port).unwrap();
    let host = HostSide::start(folder.path(), &["--guest", &format!("pid={pid},socket={}", text(&port))]);
    let mut agent = Agent::accept(&listener);
    agent.greet(hello(1));
    drop(first);
    let Some(mut other) = vmm_with_pid(pid) else {
        eprintln!("not tested: no process can be given the number {pid} again (root can write ns_last_pid)");
        return;
    };
    // Over the old connection, and over a new one.
    agent.send(&Message::Report { token: agent.token, batch: 1, ranges: ranges(&[(2, 4)]) });
    let answer = agent.receive();
    assert!(!matches!(&answer, Some(Message::Ack { verdicts, .. }) if verdicts == &[Verdict::Dropped]), "{answer:?}");
    drop(agent);
    let mut agent = Agent::accept(&listener);
    let _ = agent.stream.write_all(&Message::Hello(hello(2)).encode().unwrap());
    let answer = agent.receive();
    assert!(matches!(answer, None | Some(Message::Error { .. })), "{answer:?}");
    wait_until("the status tells", || {
        host.guest(0)["problem"].as_str().is_some_and(|p| p.contains(&format!("process {pid} has ended")))
    });
    assert_eq!(other.resident(), RAM);
}
