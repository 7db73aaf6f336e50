//! What a node knows of pages after it was restarted. Needs root and eBPF.

use crate::common::grouped::{Ending, group, within};
use crate::common::metrics::metrics;
use crate::common::{Running, command, run, send, start, wait_until};
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Fills 96 MiB and leaves them alone. USR1: uses the first third once; USR2: executes itself anew. Says what it has done in
/// a file.
const PROGRAM: &str = r#"
import mmap, os, signal, sys
memory = mmap.mmap(-1, 96 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
def use(to):
    for at in range(0, to, 4096): memory[at] = memory[at] + 1 & 255
def say(what):
    with open(sys.argv[1] + ".new", "w") as out: out.write(what)
    os.rename(sys.argv[1] + ".new", sys.argv[1])
def touch(*_):
    use(32 << 20)
    say("used")
def again(*_):
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    os.execv(sys.executable, [sys.executable, "-c", os.environ["PROGRAM"], sys.argv[1], "again"])
signal.signal(signal.SIGUSR1, touch)
signal.signal(signal.SIGUSR2, again)
use(96 << 20)
say(sys.argv[2])
while True: signal.pause()
"#;

struct Scene {
    folder: tempfile::TempDir,
    groups: Vec<(Ending, String)>,
}

impl Scene {
    fn program(&self, i: usize) -> Running {
        let (group, name) = &self.groups[i];
        let mut python = Command::new("python3");
        python.args(["-c", PROGRAM, self.said(name).to_str().unwrap(), "begun"]);
        let mut command = within(&group.0, &python);
        let program = start(command.env("PROGRAM", PROGRAM));
        self.wait(i, "begun");
        program
    }

    fn said(&self, group: &str) -> std::path::PathBuf {
        self.folder.path().join(group.trim_start_matches('/'))
    }

    fn wait(&self, i: usize, what: &str) {
        let path = self.said(&self.groups[i].1);
        wait_until(what, || std::fs::read_to_string(&path).is_ok_and(|said| said == what));
    }

    fn isotherm(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("RUNTIME_DIRECTORY", self.folder.path());
        command
    }

    fn node(&self) -> (Running, u16) {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let groups: Vec<&str> = self.groups.iter().flat_map(|(_, path)| ["--cgroup", path]).collect();
        let port_text = port.to_string();
        let arguments = [&["node", "--cpu-budget", "10%", "--metrics", &port_text], &groups[..]].concat();
        (start(&mut self.isotherm(&arguments)), port)
    }

    /// Memory of a group's program that has not been accessed for 10 s at least; `None`: not known. Waits until anything is.
    fn cold(&self, port: u16, i: usize) -> Option<u64> {
        let path = &self.groups[i].1;
        let mut cold = None;
        wait_until("the node knows of the group", || {
            let samples = metrics(port).unwrap_or_default();
            let metric =
                |name: &str, more: &str| samples.get(&format!("isotherm_memory_{name}{{cgroup=\"{path}\"{more}}}"));
            cold = metric("idle_bytes", ",min_age_seconds=\"10\"").map(|bytes| *bytes as u64);
            metric("working_set_bytes", ",window_seconds=\"1\"").is_some()
        });
        cold
    }

    fn kept(&self) -> std::path::PathBuf {
        self.folder.path().join("node-history/pages.gz")
    }
}

fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o777 == 0o600)
}

#[test]
fn root_a_node_that_is_restarted_knows_what_it_knew_and_no_more() {
    let (Some(first), Some(second)) = (group("restart-a"), group("restart-b")) else { return };
    let groups = [first, second].into_iter().map(|(group, path)| (Ending(group), path)).collect();
    let scene = Scene { folder: tempfile::tempdir().unwrap(), groups };
    let programs = [scene.program(0), scene.program(1)];
    let (node, port) = scene.node();
    for i in 0..2 {
        wait_until("96 MiB rest", || scene.cold(port, i).is_some_and(|cold| cold > 95 * MIB));
    }
    assert!(!scene.kept().exists(), "while it runs, nothing is kept");
    node.signal("TERM");
    node.finish().expect(0, &["kept the page history of 2 processes"]);
    assert!(is_private(&scene.kept()));

    // While it is away, one uses a third of its memory, and the other becomes another program.
    send(programs[0].pid(), "USR1");
    send(programs[1].pid(), "USR2");
    scene.wait(0, "used");
    scene.wait(1, "again");
    let (node, port) = scene.node();
    let cold = scene.cold(port, 0).expect("an earlier node has watched for longer than 10 s");
    // Python's own pages rest, too.
    assert!((63 * MIB..80 * MIB).contains(&cold), "{} MiB", cold / MIB);
    assert_eq!(scene.cold(port, 1), None, "nobody has watched the new program for 10 s");
    // What was used comes to rest again, in both.
    for i in 0..2 {
        wait_until("96 MiB rest again", || scene.cold(port, i).is_some_and(|cold| cold > 95 * MIB));
    }

    // One that is killed has cleared bits that a later one would miss.
    node.signal("KILL");
    node.finish();
    assert!(!scene.kept().exists());
    let (node, port) = scene.node();
    assert_eq!(scene.cold(port, 0), None);

    // And so does whoever else looks at pages meanwhile.
    node.signal("TERM");
    node.finish().expect(0, &["kept the page history of 2 processes"]);
    assert!(scene.kept().exists());
    let pid = programs[0].pid().to_string();
    run(&mut scene.isotherm(&["ps", "--pid", &pid, "--duration", "1s"])).expect(0, &[]);
    assert!(!scene.kept().exists());

    // Nonsense is named and left.
    std::fs::write(scene.kept(), "nonsense").unwrap();
    let (node, port) = scene.node();
    assert_eq!(scene.cold(port, 0), None);
    node.signal("TERM");
    node.finish().expect(0, &["is not used", "kept the page history of 2 processes"]);
    programs.into_iter().for_each(|program| {
        program.signal("KILL");
        program.finish();
    });
}
