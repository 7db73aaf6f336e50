use super::*;
use crate::guest::Wish;
use crate::protocol::{Decoder, Limits, Message, VERSION};
use isotherm_core::hinter::Way;
use std::fs;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

#[test]
fn who_only_watches_does_not_say_that_it_hints() {
    let text = |watching| introduction(watching, &["offline", "touch"], 16 << 20, &Address::NamedPort);
    assert!(text(false).starts_with("hinting by offline, then touch, keeping 16.0 MiB free, to "), "{}", text(false));
    assert!(text(true).starts_with("watching free memory, for ") && !text(true).contains("offline"), "{}", text(true));
}

const MEMORY: &str = "sys/devices/system/memory";

/// The files of a guest of 1 GiB, in a folder that goes with this.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let tree = Self(std::env::temp_dir().join(format!("isotherm-agent-{name}-{}", std::process::id())));
        tree.write("proc/iomem", "00000000-3fffffff : System RAM\n");
        tree.write("proc/meminfo", "MemTotal: 1048576 kB\nMemFree: 400000 kB\n");
        tree.write("proc/buddyinfo", "Node 0, zone DMA32 0 0 0 0 0 0 0 0 0 0 95\n");
        tree.write("proc/sys/vm/overcommit_memory", "0\n");
        tree.write(&format!("{MEMORY}/block_size_bytes"), "8000000\n");
        tree.write(&format!("{MEMORY}/memory1/state"), "online\n");
        // No page is free.
        fs::File::create(tree.0.join("proc/kpageflags")).unwrap().set_len((1 << 30) / 4096 * 8).unwrap();
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn settings(socket: &Path) -> Settings {
    Settings {
        address: Address::Unix(socket.to_owned()),
        key: None,
        wish: Wish::Only(Way::Offline),
        reserve: None,
        interval: Duration::from_secs(1),
        cpu_budget: None,
        compact: false,
        once: false,
        force: false,
    }
}

/// Has the agent say what it has to, and returns the number of the session that it has begun last.
fn session_of(agent: &mut Agent<'_>, host: &mut UnixStream, decoder: &mut Decoder) -> u64 {
    agent.flush();
    decoder.fill(host).unwrap();
    let hellos = std::iter::from_fn(|| decoder.message().unwrap());
    let sessions = hellos.map(|m| if let Message::Hello(hello) = m { hello.session } else { panic!("{m:?}") });
    sessions.last().unwrap()
}

#[test]
fn what_a_predecessor_left_is_tried_again_while_the_host_stays() {
    let tree = Tree::new("leftover");
    tree.write("run/isotherm/hint-guest/taken", "isotherm hint guest 1\noffline 6\n");
    // It cannot be read or written.
    let state = tree.0.join(format!("{MEMORY}/memory6/state"));
    fs::create_dir_all(&state).unwrap();
    let socket = tree.0.join("host");
    let listener = UnixListener::bind(&socket).unwrap();
    let signals = StopSignals::catch().unwrap();
    let mut agent = Agent::below(Roots::captured(&tree.0), &signals, settings(&socket)).unwrap();
    assert!(matches!(agent.put_back_if_safe(), Err(GuestError::Unanswered(_))), "a report may be on its way");

    let now = monotonic_ns();
    agent.keep_link(now).unwrap();
    let (mut host, _) = listener.accept().unwrap();
    let mut decoder = Decoder::new();
    session_of(&mut agent, &mut host, &mut decoder);
    host.write_all(&Message::Greet { version: VERSION, host: 3 }.encode().unwrap()).unwrap();
    agent.receive(now).unwrap();
    let session = session_of(&mut agent, &mut host, &mut decoder);
    let limits = Limits { ranges: 64, batches: 1, bytes_per_second: 0 };
    host.write_all(&Message::Welcome { session, token: 5, limits }.encode().unwrap()).unwrap();
    agent.receive(now).unwrap();
    assert!(agent.machine.session.is_welcome() && agent.leftover.is_there());
    assert_eq!(agent.machine.most_ranges, 1, "nothing is begun");
    assert!(matches!(agent.put_back_if_safe(), Err(GuestError::StillTaken(_))), "the host has answered for it");

    fs::remove_dir(&state).unwrap();
    fs::write(&state, "offline\n").unwrap();
    agent.look(now).unwrap();
    assert!(agent.leftover.is_there(), "not at once");
    agent.look(now + 1000 * MS).unwrap();
    assert_eq!(fs::read_to_string(&state).unwrap().trim(), "online");
    assert_eq!((agent.leftover.is_there(), agent.machine.most_ranges), (false, 64));
    agent.put_back_if_safe().unwrap();
}
