//! `isotherm hint host` with processes that hold memory as a VMM does, and agents that behave or do not. No privilege
//! needed.

use crate::common::vmm::{Agent, HostSide, MIB, RAM, Vmm, hello, memory_map, ranges};
use crate::common::{self, isotherm, text, wait_until};
use isotherm_core::addr::AddrRange;
use isotherm_hint::protocol::{ErrorCode, MemoryArea, MemoryKind, Message, Verdict};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A folder, a socket in it that a VMM would listen on, and the `--guest` for it.
struct Port {
    folder: tempfile::TempDir,
    listener: UnixListener,
    spec: String,
}

fn port(vmm: &Vmm) -> Port {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("port");
    let listener = UnixListener::bind(&path).unwrap();
    let spec = format!("pid={},socket={},name=g{}", vmm.pid(), text(&path), vmm.pid());
    Port { folder, listener, spec }
}

#[test]
fn what_is_reported_comes_back_and_nothing_else() {
    let mut vmm = Vmm::start();
    let port = port(&vmm);
    let host = HostSide::start(port.folder.path(), &["--guest", &port.spec]);
    let mut agent = Agent::accept(&port.listener);
    agent.greet(hello(1));
    assert_eq!(vmm.resident(), RAM);
    assert_eq!(agent.report(1, &[(2, 10), (20, 22), (62, 64)]), [Verdict::Dropped; 3]);
    assert_eq!(vmm.resident(), RAM - 12 * MIB);
    let status = host.guest(0);
    assert_eq!((status["connected"].as_bool(), status["agent"].as_str()), (Some(true), Some("test agent")));
    assert_eq!((status["ram"].as_u64(), status["resident"].as_u64()), (Some(RAM), Some(RAM - 12 * MIB)));
    assert_eq!((status["dropped"].as_u64(), status["returned"].as_u64()), (Some(12 * MIB), Some(12 * MIB)));
    // All of it in the last ten seconds, unless this machine is that slow.
    assert!(status["rate"].as_u64().is_some_and(|rate| rate <= 12 * MIB / 10), "{status}");
    // Reading fills holes with zeros, so the kept parts are looked at first.
    for (from, to) in [(0, 2), (10, 20), (22, 62)] {
        assert!(vmm.holds(from * MIB, (to - from) * MIB, 0x5a), "{from}-{to} MiB was changed");
    }
    assert!(vmm.holds(2 * MIB, 8 * MIB, 0) && vmm.holds(20 * MIB, 2 * MIB, 0));
    let words = isotherm(["hint", "status", "--socket", text(&host.socket)]);
    words.expect(0, &[]);
    assert!(words.stdout.contains("12.0 MiB") && words.stdout.contains("here"), "{}", words.stdout);
    let same = isotherm(["ctl", "--socket", text(&host.socket), "status"]);
    assert!(same.stdout.contains("hint host") && same.stdout.contains("12.0 MiB"), "{}", same.stdout);
    let socket = host.socket.clone();
    host.end("TERM").expect(0, &["12.0 MiB"]);
    assert!(!socket.exists());
    // The end is reported, so that the guest knows that nothing is on its way any more.
    assert!(matches!(agent.receive(), Some(Message::Bye(_))));
    assert_eq!(agent.receive(), None);
}

#[test]
fn bad_ranges_change_nothing() {
    let mut vmm = Vmm::start();
    let port = port(&vmm);
    let _host = HostSide::start(port.folder.path(), &["--guest", &port.spec]);
    let mut agent = Agent::accept(&port.listener);
    agent.greet(hello(1));
    use Verdict::{Dropped, Misaligned, Outside, Overlapping};
    let verdicts = agent.report(1, &[(1, 3), (0, 2), (62, 66), (4096, 4098), (8, 12), (10, 14), (8, 10)]);
    assert_eq!(verdicts, [Misaligned, Outside, Outside, Outside, Dropped, Overlapping, Overlapping]);
    assert_eq!(vmm.resident(), RAM - 4 * MIB);
    assert!(vmm.holds(0, 8 * MIB, 0x5a) && vmm.holds(12 * MIB, 52 * MIB, 0x5a));
}

#[test]
fn a_report_that_comes_twice_is_acted_upon_once() {
    let mut vmm = Vmm::start();
    let port = port(&vmm);
    let _host = HostSide::start(port.folder.path(), &["--guest", &port.spec]);
    let mut agent = Agent::accept(&port.listener);
    agent.greet(hello(1));
    let batch = [(4, 8)];
    assert_eq!(agent.report(1, &batch), [Verdict::Dropped]);
    // Acknowledged, so the guest uses it again; then the doubled and the delayed one arrive.
    vmm.fill(4 * MIB, 4 * MIB, 7);
    assert_eq!(agent.report(1, &batch), [Verdict::Dropped]);
    agent.report(2, &[(8, 10)]);
    agent.send(&Message::Report { token: agent.token, batch: 1, ranges: ranges(&batch) });
    agent.ping();
    assert!(vmm.holds(4 * MIB, 4 * MIB, 7));
}

#[test]
fn a_host_that_dies_forgets_what_was_on_its_way() {
    let mut vmm = Vmm::start();
    let port = port(&vmm);
    let host = HostSide::start(port.folder.path(), &["--guest", &port.spec]);
    let mut agent = Agent::accept(&port.listener);
    agent.greet(hello(1));
    let old = agent.token;
    assert_eq!(agent.report(1, &[(2, 4)]), [Verdict::Dropped]);
    host.running.as_ref().unwrap().signal("KILL");
    assert_eq!(agent.receive(), None, "the guest sees the end");
    drop(host);
    vmm.fill(2 * MIB, 2 * MIB, 9);
    let host = HostSide::start(port.folder.path(), &["--guest", &port.spec]);
    let mut agent = Agent::accept(&port.listener);
    // Half a frame and a report of the time before wait in the port.
    let late = Message::Report { token: old, batch: 2, ranges: ranges(&[(2, 4), (40, 60)]) }.encode().unwrap();
    agent.stream.write_all(&late[20..]).unwrap();
    agent.stream.write_all(&late).unwrap();
    agent.greet(hello(2));
    agent.send(&Message::Report { token: old, batch: 3, ranges: ranges(&[(2, 4)]) });
    agent.ping();
    assert_eq!(vmm.resident(), RAM);
    assert_eq!(agent.report(1, &[(30, 32)]), [Verdict::Dropped]);
    assert_eq!(vmm.resident(), RAM - 2 * MIB);
    assert!(vmm.holds(2 * MIB, 2 * MIB, 9));
    drop(host);
}

#[test]
fn half_a_frame_does_not_hide_the_greeting() {
    let vmm = Vmm::start();
    let port = port(&vmm);
    let _host = HostSide::start(port.folder.path(), &["--guest", &port.spec]);
    let mut agent = Agent::accept(&port.listener);
    // A long report cut off in its middle: the greeting after it looks like the rest of it.
    let many: Vec<(u64, u64)> = (1..500).map(|i| (4 * i, 4 * i + 2)).collect();
    let cut = Message::Report { token: 1, batch: 2, ranges: ranges(&many) }.encode().unwrap();
    agent.stream.write_all(&cut[..cut.len() / 2]).unwrap();
    agent.greet(hello(1));
}

#[test]
fn a_memory_map_that_does_not_fit_is_refused() {
    let mut vmm = Vmm::start();
    let port = port(&vmm);
    let host = HostSide::start(port.folder.path(), &["--guest", &port.spec]);
    let mut agent = Agent::accept(&port.listener);
    let mut lie = hello(1);
    lie.memory = memory_map(RAM + 2 * MIB);
    agent.send(&Message::Hello(lie));
    match agent.receive() {
        Some(Message::Error { code: ErrorCode::Memory, text }) => assert!(text.contains("qmp"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(agent.receive(), None);
    wait_until("the status tells", || host.guest(0)["problem"].as_str().is_some_and(|p| p.contains("memory map")));
    assert_eq!(vmm.resident(), RAM);
    // It is called again, and what was wrong is over once it says what fits.
    Agent::accept(&port.listener).greet(hello(2));
    wait_until("the status tells no more", || host.guest(0)["problem"].is_null());
}

/// A VMM's answers on its QMP socket, to one conversation after the other. `mapped`: where it has a guest's address, if
/// it tells.
fn play_qmp(listener: &UnixListener, tree: &str, backends: &[&str], mapped: impl Fn(u64) -> Option<u64>) {
    let monitor = |command: &str| match command.strip_prefix("gpa2hva 0x") {
        None => tree.to_owned(),
        Some(hex) => match mapped(u64::from_str_radix(hex, 16).unwrap()) {
            Some(address) => format!("Host virtual address for 0x{hex} (m) is {address:#x}\r\n"),
            None => "unknown command: 'gpa2hva'\r\n".to_owned(),
        },
    };
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        let mut out = stream.try_clone().unwrap();
        writeln!(out, r#"{{"QMP": {{"version": {{}}, "capabilities": []}}}}"#).unwrap();
        for line in BufReader::new(stream).lines() {
            let question: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            let answer = match question["execute"].as_str().unwrap() {
                "human-monitor-command" => {
                    serde_json::json!(monitor(question["arguments"]["command-line"].as_str().unwrap()))
                }
                "query-memdev" => {
                    let backend = |id: &&str| serde_json::json!({ "id": id, "size": RAM, "share": true });
                    backends.iter().map(backend).collect()
                }
                _ => serde_json::json!({}),
            };
            // Events come whenever they like.
            writeln!(out, r#"{{"event": "RESUME"}}"#).unwrap();
            writeln!(out, "{}", serde_json::json!({ "return": answer })).unwrap();
        }
    }
}

#[test]
fn the_vmms_own_map_is_believed() {
    // By its size, where the VMM has only one of that size.
    check_vmms_map(&["m"], |_, _| None);
}

#[test]
fn a_file_is_the_one_that_is_mapped_where_the_vmm_says() {
    check_vmms_map(&["m", "alike"], |base, address| match address {
        0 => Some(base),
        _ => Some(base + 32 * MIB),
    });
}

fn check_vmms_map(backends: &'static [&str], mapped: fn(u64, u64) -> Option<u64>) {
    let mut vmm = Vmm::start();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", vmm.pid())).unwrap();
    let line = maps.lines().find(|line| line.contains("/memfd:memory-backend-memfd")).unwrap();
    let base = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let port = port(&vmm);
    let qmp = port.folder.path().join("qmp");
    let listener = UnixListener::bind(&qmp).unwrap();
    // 32 MiB below 4 GiB, 32 MiB above, as no PC has it: the guest's own map would be refused.
    let tree = "FlatView #1\r\n AS \"memory\", root: system\r\n Root memory region: system\r\n  \
        0000000000000000-0000000001ffffff (prio 0, ram): m\r\n  \
        0000000200000000-0000000201ffffff (prio 0, ram): m @0000000002000000\r\n";
    std::thread::spawn(move || play_qmp(&listener, tree, backends, |address| mapped(base, address)));
    let spec = format!("{},qmp={}", port.spec, text(&qmp));
    let _host = HostSide::start(port.folder.path(), &["--guest", &spec]);
    let mut agent = Agent::accept(&port.listener);
    let mut hello = hello(1);
    let high = MemoryArea { range: AddrRange::new(8192 * MIB, 8224 * MIB), kind: MemoryKind::Ram };
    hello.memory = [memory_map(32 * MIB), vec![high]].concat();
    agent.greet(hello);
    let verdicts = agent.report(1, &[(8192, 8194), (30, 34), (4, 6), (8222, 8224)]);
    assert_eq!(verdicts, [Verdict::Dropped, Verdict::Outside, Verdict::Dropped, Verdict::Dropped]);
    assert_eq!(vmm.resident(), RAM - 6 * MIB);
    for (from, to) in [(0, 4), (6, 32), (34, 62)] {
        assert!(vmm.holds(from * MIB, (to - from) * MIB, 0x5a), "{from}-{to} MiB was changed");
    }
}

#[test]
fn memory_of_a_vmm_that_has_ended_is_let_go() {
    let vmm = Vmm::start();
    let port = port(&vmm);
    let host = HostSide::start(port.folder.path(), &["--guest", &port.spec]);
    let mut agent = Agent::accept(&port.listener);
    agent.greet(hello(1));
    let held = || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", host.pid())).unwrap();
        let links = fds.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        links.filter(|link| link.to_string_lossy().contains("memory-backend-memfd")).count()
    };
    assert!(held() > 0);
    drop(vmm);
    // Nobody calls, nobody asks: it is done all the same.
    wait_until("the host side lets go", || held() == 0);
    let reported = host.guest(0);
    assert!(reported["ram"].is_null() && reported["resident"].is_null(), "{reported}");
}

#[test]
fn one_host_side_a_guest() {
    let vmm = Vmm::start();
    let port = port(&vmm);
    let _host = HostSide::start(port.folder.path(), &["--guest", &port.spec]);
    let _agent = Agent::accept(&port.listener);
    isotherm(["hint", "host", "--guest", &port.spec]).expect(1, &["already", &vmm.pid().to_string()]);
}

/// Calls as guests that misbehave, each way once and again, at full speed until the host has had enough.
fn flood_host(listener: &UnixListener, stop: &AtomicBool, rounds: &AtomicU64) {
    listener.set_nonblocking(true).unwrap();
    let far = Message::Report { token: 0, batch: 1, ranges: ranges(&[(0, 1 << 20)]) }.encode().unwrap();
    while !stop.load(Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let mut hostile = Agent::new(stream);
        let round = rounds.fetch_add(1, Relaxed);
        if !round.is_multiple_of(3) {
            hostile.greet(hello(round));
        }
        let report = |batch| Message::Report {
            token: hostile.token,
            batch,
            ranges: ranges(&[(0, 4), (1, 3), (63, 70), (8, 10), (9, 11), (1 << 20, 1 << 30)]),
        };
        let flood: Vec<u8> = match round % 3 {
            0 => (0..64u32 << 10).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect(),
            1 => (1..100).flat_map(|batch| report(batch).encode().unwrap()).collect(),
            _ => far.repeat(100),
        };
        while !stop.load(Relaxed) && hostile.stream.write_all(&flood).is_ok() {}
    }
}

#[test]
fn a_hostile_guest_harms_nobody_else() {
    let (mut bad, mut good) = (Vmm::start(), Vmm::start());
    let (bad_port, good_port) = (port(&bad), port(&good));
    let host = HostSide::start(bad_port.folder.path(), &["--guest", &bad_port.spec, "--guest", &good_port.spec]);
    let rss = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    let mut agent = Agent::accept(&good_port.listener);
    agent.greet(hello(1));
    let before = rss();
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let flood = std::thread::spawn({
        let (stop, rounds, listener) = (stop.clone(), rounds.clone(), bad_port.listener);
        move || flood_host(&listener, &stop, &rounds)
    });
    // Meanwhile the other one is served as ever. A failure here leaves the thread behind instead of waiting for it for
    // ever.
    let begin = Instant::now();
    let mut batch = 0;
    while batch < 50 || rounds.load(Relaxed) < 4 {
        assert!(begin.elapsed() < Duration::from_secs(300), "{rounds:?} rounds, {batch} reports");
        batch += 1;
        assert_eq!(agent.report(batch, &[(30, 32)]), [Verdict::Dropped], "report {batch}, {rounds:?} rounds");
        good.fill(30 * MIB, 2 * MIB, 0x5a);
        // Well below what a guest may report: one at full speed is asked to wait.
        std::thread::sleep(Duration::from_millis(10));
    }
    stop.store(true, Relaxed);
    flood.join().unwrap();
    let grown = rss().saturating_sub(before);
    assert!(grown < 16 * MIB, "the host side grew by {grown} bytes");
    assert_eq!(good.resident(), RAM);
    assert!(good.holds(0, RAM, 0x5a));
    // Its own memory it may lose, where it is its own to lose; what it may not name is there.
    assert!(bad.holds(0, 8 * MIB, 0x5a) && bad.holds(10 * MIB, 54 * MIB, 0x5a));
    let status = host.guest(0);
    assert!(status["closed"].as_u64() > Some(0) && status["refused"].as_u64() > Some(0), "{status}");
    assert_eq!(host.guest(1)["closed"].as_u64(), Some(0));
}

#[test]
fn zeros_are_found_without_an_agent() {
    let mut vmm = Vmm::start();
    // Freed memory that the guest's kernel has cleared, and a block with one byte that is not.
    vmm.fill(10 * MIB, 20 * MIB, 0);
    vmm.fill(21 * MIB, 1, 1);
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("pid={}", vmm.pid());
    let host = HostSide::start(folder.path(), &["--guest", &spec, "--scan-zero", "--scan-every", "50ms"]);
    wait_until("the zeros are found", || host.guest(0)["scan"]["dropped"].as_u64() == Some(18 * MIB));
    assert_eq!(vmm.resident(), RAM - 18 * MIB);
    assert!(vmm.holds(0, 10 * MIB, 0x5a) && vmm.holds(21 * MIB, 1, 1) && vmm.holds(30 * MIB, 34 * MIB, 0x5a));
    let scan = host.guest(0)["scan"].clone();
    assert!(scan["pauses"].as_u64() > Some(0) && scan["longest_pause_ns"].as_u64() > Some(0), "{scan}");
    host.end("TERM").expect(0, &[]);
    assert_ne!(common::state(vmm.pid()), Some('t'), "nobody is left stopped");
}

#[test]
fn a_host_that_is_killed_within_a_pause_leaves_no_guest_stopped() {
    let mut vmm = Vmm::start();
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("pid={}", vmm.pid());
    for round in 0..8 {
        vmm.fill(10 * MIB, 40 * MIB, 0);
        let host = HostSide::start(folder.path(), &["--guest", &spec, "--scan-zero", "--scan-every", "1ms"]);
        wait_until("the guard is there", || children(host.pid()).len() == 1);
        let guard = children(host.pid())[0];
        wait_until("it has a session of its own", || session(guard) == Some(guard));
        if round % 2 == 0 {
            wait_until("it pauses", || {
                // A pause lasts a millisecond or two, and after a few all is dropped.
                vmm.fill(10 * MIB, 40 * MIB, 0);
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(50) {
                    if common::state(vmm.pid()) == Some('t') {
                        return true;
                    }
                }
                false
            });
        }
        host.end("KILL");
        wait_until("the guest goes on", || common::state(vmm.pid()) != Some('t'));
        wait_until("the guard ends", || session(guard).is_none());
    }
    vmm.fill(0, RAM, 1);
    assert!(vmm.holds(0, RAM, 1));
}

/// Field `number` (counted as in proc(5)) of a process's stat file.
fn stat_field(pid: u32, number: usize) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(number - 3)?.parse().ok()
}

fn session(pid: u32) -> Option<u32> {
    stat_field(pid, 6).filter(|_| !matches!(common::state(pid), Some('Z')))
}

fn children(of: u32) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat_field(*pid, 4) == Some(of)).collect()
}

#[test]
fn metrics_are_served_on_the_socket_and_on_a_port() {
    let vmm = Vmm::start();
    let port = port(&vmm);
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let host = HostSide::start(port.folder.path(), &["--guest", &port.spec, "--metrics", &address.to_string()]);
    let mut agent = Agent::accept(&port.listener);
    agent.greet(hello(1));
    assert_eq!(agent.report(1, &[(2, 10), (60, 70)]), [Verdict::Dropped, Verdict::Outside]);
    let ask = |mut stream: UnixStream, line: &str| {
        stream.write_all(format!("{line} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let at_port = |line: &str| ask(OwnedFd::from(TcpStream::connect(address).unwrap()).into(), line);
    let guest = format!("{{guest=\"g{0}\",pid=\"{0}\"}}", vmm.pid());
    for answer in [at_port("GET /metrics"), ask(UnixStream::connect(&host.socket).unwrap(), "GET /metrics")] {
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("application/openmetrics-text"), "{answer}");
        assert!(answer.ends_with("# EOF\n"));
        for (name, value) in [
            ("ram_bytes", RAM),
            ("resident_bytes", RAM - 8 * MIB),
            ("returned_bytes_total", 8 * MIB),
            ("dropped_bytes_total", 8 * MIB),
            ("reports_total", 1),
            ("refused_total", 1),
            ("put_off_total", 0),
            ("connected", 1),
        ] {
            let line = format!("isotherm_hint_guest_{name}{guest} {value}\n");
            assert!(answer.contains(&line), "no {line} in {answer}");
        }
        assert!(!answer.contains("_scan"), "nothing is scanned");
    }
    // Whoever reaches the port learns nothing else and stops nothing; one who says nothing keeps nobody waiting.
    let _silent = TcpStream::connect(address).unwrap();
    assert!(at_port("GET /status").starts_with("HTTP/1.1 404 "));
    assert!(at_port("POST /stop").starts_with("HTTP/1.1 4"));
    assert!(at_port("HEAD /metrics").ends_with("\r\n\r\n"));
    assert!(host.guest(0)["connected"].as_bool() == Some(true));
    host.end("TERM").expect(0, &[&format!("metrics at http://{address}/metrics")]);
    isotherm(["hint", "host", "--guest", &port.spec, "--metrics", "nowhere"]).expect(2, &["nowhere", "127.0.0.1:9190"]);
}

#[test]
fn a_guest_that_reports_too_fast_is_told_to_wait() {
    let mut vmm = Vmm::start();
    let port = port(&vmm);
    let _host = HostSide::start(port.folder.path(), &["--guest", &port.spec, "--rate", "1M"]);
    let mut agent = Agent::accept(&port.listener);
    agent.greet(hello(1));
    // What may come at once is 64 MiB, all of its memory; after that, a block takes two seconds.
    assert_eq!(agent.report(1, &[(2, 64)]), [Verdict::Dropped]);
    vmm.fill(2 * MIB, 62 * MIB, 1);
    agent.send(&Message::Report { token: agent.token, batch: 2, ranges: ranges(&[(2, 64)]) });
    match agent.receive() {
        Some(Message::Ack { wait_ms, verdicts, .. }) => {
            assert_eq!(verdicts, [Verdict::NotNow]);
            assert!(wait_ms > 10_000, "{wait_ms}");
        }
        other => panic!("{other:?}"),
    }
    assert!(vmm.holds(2 * MIB, 62 * MIB, 1));
}

#[test]
fn arguments_that_make_no_sense() {
    let host = |args: &[&str]| isotherm([&["hint", "host"], args].concat());
    host(&[]).expect(2, &["--guest"]);
    host(&["--guest", "pid=1,colour=red"]).expect(2, &["colour"]);
    host(&["--guest", "pid=4000000000"]).expect(2, &["socket", "nothing to do"]);
    host(&["--guest", "pid=1,cid=3"]).expect(2, &["vsock"]);
    host(&["--listen", "udp:1"]).expect(2, &["udp"]);
    host(&["--guest", "socket=/a", "--pause", "1ms"]).expect(2, &["--scan-zero"]);
    host(&["--guest", "pid=4000000000", "--scan-zero"]).expect(1, &["4000000000"]);
    // A process without such memory.
    let program = common::Program::sleeper();
    let spec = format!("pid={}", program.pid());
    host(&["--guest", &spec, "--scan-zero"]).expect(1, &["memory-backend-memfd"]);
    isotherm(["hint", "status", "--socket", "/no/such.sock"]).expect(1, &["/no/such.sock", "isotherm ctl status"]);
}
