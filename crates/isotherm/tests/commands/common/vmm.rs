//! What the tests of hinting share: a process that holds memory as a VMM does, and an agent that says what it is asked
//! to say to.

use crate::common;
use isotherm_core::addr::AddrRange;
use isotherm_hint::protocol::auth::{Exchange, Key, Seal};
use isotherm_hint::protocol::{Decoder, Hello, MemoryArea, MemoryKind, Message, VERSION, Verdict};
use isotherm_linux::hostmem::shared::SharedMemory;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;
/// Size of every guest here.
pub const RAM: u64 = 64 * MIB;
const PATIENCE: Duration = Duration::from_secs(60);

/// Set in the process that plays a VMM.
const IS_VMM: &str = "ISOTHERM_TEST_VMM";

/// A process with shared memory under QEMU's name: this test program once more, in a test that does nothing otherwise.
pub struct Vmm {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Vmm {
    /// Memory of [`RAM`] bytes, all of it written to.
    pub fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["common::vmm::play_vmm", "--exact", "--nocapture", "--test-threads=1"])
            .env(IS_VMM, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut vmm = Self { child, stdin, stdout };
        vmm.answer();
        vmm.fill(0, RAM, 0x5a);
        vmm
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn fill(&mut self, at: u64, len: u64, byte: u8) {
        writeln!(self.stdin, "fill {at} {len} {byte}").unwrap();
        self.answer();
    }

    /// Whether all of a part has this value. Reading a hole through the mapping fills it.
    pub fn holds(&mut self, at: u64, len: u64, byte: u8) -> bool {
        writeln!(self.stdin, "holds {at} {len} {byte}").unwrap();
        self.answer() == "true"
    }

    /// Bytes that its memory takes.
    pub fn resident(&mut self) -> u64 {
        writeln!(self.stdin, "resident").unwrap();
        self.answer().parse().unwrap()
    }

    /// The test harness says things as well.
    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the VMM has ended");
            if let Some((_, answer)) = line.trim_end().split_once("vmm: ") {
                return answer.to_owned();
            }
        }
    }
}

impl Drop for Vmm {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process's part; returns at once as a test.
#[test]
fn play_vmm() {
    if std::env::var_os(IS_VMM).is_none() {
        return;
    }
    let mut memory = SharedMemory::new("memory-backend-memfd", RAM as usize).unwrap();
    println!("vmm: ready");
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<usize>().unwrap();
        match words[0] {
            "fill" => {
                memory.fill(number(1), number(2), number(3) as u8);
                println!("vmm: done");
            }
            "holds" => {
                let byte = number(3) as u8;
                let all = (number(1)..number(1) + number(2)).all(|at| memory.byte(at) == byte);
                println!("vmm: {all}");
            }
            _ => println!("vmm: {}", memory.file().metadata().unwrap().blocks() * 512),
        }
    }
}

/// The map of a small PC with that much memory.
pub fn memory_map(ram: u64) -> Vec<MemoryArea> {
    let area = |start, end| MemoryArea { range: AddrRange::new(start, end), kind: MemoryKind::Ram };
    vec![area(0x1000, 0xa0000), area(MIB, ram)]
}

/// What an agent sends first.
pub fn hello(session: u64) -> Hello {
    Hello {
        version: VERSION,
        session,
        guest_id: [3; 16],
        page_size: 4096,
        block_size: 2 * MIB,
        memory: memory_map(RAM),
        agent: "test agent".into(),
    }
}

/// A key in a file that others cannot read.
pub fn key_file(folder: &Path, key: &str) -> PathBuf {
    let path = folder.join("key");
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
    writeln!(file, "{key}").unwrap();
    path
}

pub fn key(text: &str) -> Key {
    Key::new(text.into()).unwrap()
}

/// Ranges in MiB.
pub fn ranges(mib: &[(u64, u64)]) -> Vec<AddrRange> {
    mib.iter().map(|(a, b)| AddrRange::new(a * MIB, b * MIB)).collect()
}

/// An agent, as its host sees it.
pub struct Agent {
    pub stream: UnixStream,
    decoder: Decoder,
    /// Seals what is said, where a key was proved.
    pub seal: Option<Seal>,
    pub token: u64,
}

impl Agent {
    /// Takes the host's next call.
    #[track_caller]
    pub fn accept(listener: &UnixListener) -> Self {
        listener.set_nonblocking(true).unwrap();
        let begin = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && begin.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) => panic!("the host does not call: {e}"),
            }
        }
    }

    pub fn new(stream: UnixStream) -> Self {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, decoder: Decoder::new(), seal: None, token: 0 }
    }

    /// Proves to know a key, once the host asks for that; false if the host closes at once.
    pub fn prove(&mut self, key: &Key) -> bool {
        let host = loop {
            match self.decoder.message() {
                Ok(Some(Message::Challenge { version: VERSION, nonce })) => break nonce,
                Ok(None) if self.decoder.fill(&mut self.stream).is_ok_and(|n| n > 0) => {}
                _ => return false,
            }
        };
        let exchange = Exchange { host, guest: isotherm_linux::random::bytes().unwrap() };
        let proof = exchange.proof(key);
        self.send(&Message::Response { version: VERSION, nonce: exchange.guest, proof });
        self.seal = Some(exchange.of_guest(key));
        self.decoder.expect_seals(exchange.of_host(key));
        true
    }

    #[track_caller]
    pub fn send(&mut self, message: &Message) {
        let frame = self.frame(message);
        self.stream.write_all(&frame).unwrap();
    }

    /// What carries the next message.
    #[track_caller]
    pub fn frame(&mut self, message: &Message) -> Vec<u8> {
        message.frame(self.seal.as_mut()).unwrap()
    }

    /// The next message but `Greet`; `None` when the host has closed.
    #[track_caller]
    pub fn receive(&mut self) -> Option<Message> {
        loop {
            match self.decoder.message().unwrap() {
                Some(Message::Greet { .. }) => {}
                Some(message) => return Some(message),
                None => match self.decoder.fill(&mut self.stream) {
                    Ok(0) => return None,
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return None,
                    Err(e) => panic!("no answer from the host: {e}"),
                },
            }
        }
    }

    /// The token of the next welcome; `None` if the host closes instead.
    pub fn welcome(&mut self) -> Option<u64> {
        loop {
            match self.decoder.message().ok()? {
                Some(Message::Welcome { token, .. }) => return Some(token),
                Some(_) => {}
                None if self.decoder.fill(&mut self.stream).ok()? == 0 => return None,
                None => {}
            }
        }
    }

    /// Says hello and waits for the welcome.
    #[track_caller]
    pub fn greet(&mut self, hello: Hello) {
        let session = hello.session;
        self.send(&Message::Hello(hello));
        match self.receive() {
            Some(Message::Welcome { session: s, token, .. }) if s == session => self.token = token,
            other => panic!("no welcome: {other:?}"),
        }
    }

    /// Reports and waits for the answer.
    #[track_caller]
    pub fn report(&mut self, batch: u64, mib: &[(u64, u64)]) -> Vec<Verdict> {
        self.send(&Message::Report { token: self.token, batch, ranges: ranges(mib) });
        match self.receive() {
            Some(Message::Ack { token, batch: b, verdicts, .. }) if (token, b) == (self.token, batch) => verdicts,
            other => panic!("no answer: {other:?}"),
        }
    }

    /// Waits until the host has handled all that was sent.
    #[track_caller]
    pub fn ping(&mut self) {
        self.send(&Message::Ping(42));
        assert_eq!(self.receive(), Some(Message::Pong(42)));
    }
}

/// A running `isotherm hint host`.
pub struct HostSide {
    pub running: Option<common::Running>,
    pub socket: PathBuf,
}

impl HostSide {
    /// Starts it with its control socket in `folder` and waits until it answers there.
    #[track_caller]
    pub fn start(folder: &Path, args: &[&str]) -> Self {
        let socket = folder.join("status.sock");
        let all = [&["hint", "host", "--socket", common::text(&socket)], args].concat();
        let running = common::start(&mut common::command(all));
        common::wait_until("the host side listens", || UnixStream::connect(&socket).is_ok());
        Self { running: Some(running), socket }
    }

    /// What `isotherm hint status --json` says.
    #[track_caller]
    pub fn status(&self) -> Value {
        let done = common::isotherm(["hint", "status", "--json", "--socket", common::text(&self.socket)]);
        done.expect(0, &[]);
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// The same of one guest.
    #[track_caller]
    pub fn guest(&self, number: usize) -> Value {
        self.status()["guests"][number].clone()
    }

    pub fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().pid()
    }

    /// Ends it by a signal and waits.
    #[track_caller]
    pub fn end(mut self, signal: &str) -> common::Done {
        let running = self.running.take().unwrap();
        running.signal(signal);
        running.finish()
    }
}

impl Drop for HostSide {
    fn drop(&mut self) {
        // After a failed check: nothing that was started stays.
        if let Some(running) = self.running.take() {
            running.signal("KILL");
            let _ = running.finish();
        }
    }
}
