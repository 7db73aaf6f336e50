//! Guests that call over TCP, and their keys.

use crate::common::vmm::{Agent, HostSide, MIB, RAM, Vmm, hello, key, key_file, ranges};
use crate::common::{isotherm, text};
use isotherm_hint::protocol::{ErrorCode, Message, Verdict};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

const KEY: &str = "correct horse battery";

#[test]
fn guests_call_over_tcp_with_their_key() {
    let mut vmm = Vmm::start();
    let folder = tempfile::tempdir().unwrap();
    let file = key_file(folder.path(), KEY);
    // Let the kernel choose a port, and hope that nobody takes it in between: the host side cannot tell which it got.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let spec = format!("pid={},key={}", vmm.pid(), text(&file));
    let host = HostSide::start(folder.path(), &["--guest", &spec, "--listen", &format!("tcp:{address}")]);
    let call = || Agent::new(OwnedFd::from(TcpStream::connect(address).unwrap()).into());
    for wrong in ["correct horse batterx", "correct horse batt"] {
        let mut agent = call();
        assert!(agent.prove(&key(wrong)));
        match agent.receive() {
            Some(Message::Error { code: ErrorCode::Denied, text }) => assert!(text.contains("no guest has this key")),
            other => panic!("{other:?}"),
        }
        assert_eq!(agent.receive(), None);
    }
    let served = || {
        let mut agent = call();
        assert!(agent.prove(&key(KEY)));
        agent.greet(hello(1));
        agent
    };
    let mut agent = served();
    assert_eq!(agent.report(1, &[(2, 4)]), [Verdict::Dropped]);
    assert_eq!(vmm.resident(), RAM - 2 * MIB);
    // A second connection takes over; over the first nothing counts any more.
    let mut second = served();
    assert!(matches!(agent.receive(), Some(Message::Bye(_))), "the host side says that it closes what was replaced");
    assert_eq!(agent.receive(), None);
    let late = Message::Report { token: agent.token, batch: 2, ranges: ranges(&[(8, 10)]) };
    let late = agent.frame(&late);
    let _ = agent.stream.write_all(&late);
    assert_eq!(second.report(1, &[(10, 12)]), [Verdict::Dropped]);
    assert_eq!(vmm.resident(), RAM - 4 * MIB);
    assert!(vmm.holds(8 * MIB, 2 * MIB, 0x5a));
    // Somebody on the way changes a report: 12 MiB become 8.
    let report = Message::Report { token: second.token, batch: 2, ranges: ranges(&[(12, 14)]) };
    let mut frame = second.frame(&report);
    let at = frame.windows(8).position(|part| part == (12 * MIB).to_le_bytes()).unwrap();
    frame[at..at + 8].copy_from_slice(&(8 * MIB).to_le_bytes());
    second.stream.write_all(&frame).unwrap();
    match second.receive() {
        Some(Message::Error { code: ErrorCode::Malformed, text }) => assert!(text.contains("seal"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(second.receive(), None);
    let status = host.guest(0);
    assert_eq!((status["forged"].as_u64(), status["closed"].as_u64()), (Some(1), Some(1)), "{status}");
    assert!(vmm.holds(8 * MIB, 2 * MIB, 0x5a) && vmm.holds(12 * MIB, 2 * MIB, 0x5a));
    host.end("TERM").expect(0, &["the seal of a frame is wrong"]);
}

/// Somebody who has seen all of a session says the same again.
#[test]
fn a_recorded_session_is_of_no_use() {
    let mut vmm = Vmm::start();
    let folder = tempfile::tempdir().unwrap();
    let file = key_file(folder.path(), KEY);
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let spec = format!("pid={},key={}", vmm.pid(), text(&file));
    let host = HostSide::start(folder.path(), &["--guest", &spec, "--listen", &format!("tcp:{address}")]);
    let tap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to_tap = TcpStream::connect(tap.local_addr().unwrap()).unwrap();
    let recorder = std::thread::spawn(move || {
        let guest = tap.accept().unwrap().0;
        let host = TcpStream::connect(address).unwrap();
        let (mut back, mut to_guest) = (host.try_clone().unwrap(), guest.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut to_guest));
        let (mut from_guest, mut to_host, mut all) = (guest, host, Vec::new());
        let mut part = [0; 4096];
        while let Ok(n @ 1..) = from_guest.read(&mut part) {
            all.extend_from_slice(&part[..n]);
            to_host.write_all(&part[..n]).unwrap();
        }
        let _ = to_host.shutdown(std::net::Shutdown::Both);
        all
    });
    let mut agent = Agent::new(OwnedFd::from(to_tap).into());
    assert!(agent.prove(&key(KEY)));
    agent.greet(hello(1));
    assert_eq!(agent.report(1, &[(2, 6)]), [Verdict::Dropped]);
    drop(agent);
    let recorded = recorder.join().unwrap();
    assert!(!recorded.windows(KEY.len()).any(|part| part == KEY.as_bytes()), "the key itself is not said");
    vmm.fill(2 * MIB, 4 * MIB, 7);
    let mut again = Agent::new(OwnedFd::from(TcpStream::connect(address).unwrap()).into());
    again.stream.write_all(&recorded).unwrap();
    loop {
        match again.receive() {
            Some(Message::Challenge { .. }) => {}
            Some(Message::Error { code: ErrorCode::Denied, .. }) | None => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(vmm.holds(2 * MIB, 4 * MIB, 7));
    let reported = host.status()["problem"].clone();
    assert!(reported.as_str().is_some_and(|reported| reported.contains("no guest has this key")), "{reported}");
}

#[test]
fn keys_that_others_can_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = key_file(folder.path(), KEY);
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let spec = format!("pid={},key={}", std::process::id(), text(&file));
    let remedy = format!("chmod 600 {}", text(&file));
    isotherm(["hint", "host", "--guest", &spec, "--listen", "tcp:127.0.0.1:0"]).expect(2, &[&remedy, "640"]);
}
