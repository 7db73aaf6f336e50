//! Runs the `isotherm` command as a user does, and small programs for it to watch.
// `hint_calls` uses a part of it.
#![allow(dead_code)]

pub mod confined;
pub mod grouped;
pub mod metrics;
pub mod nodes;
pub mod vmm;

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that any command here may take; far above what it needs, so that slow machines pass.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command that has ended.
#[derive(Debug)]
pub struct Done {
    /// Exit status; `None`: ended by a signal.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// Checks the exit status, that stderr holds every one of `words` (case does not matter), and that nothing
    /// panicked.
    #[track_caller]
    pub fn expect(&self, status: i32, words: &[&str]) -> &Self {
        self.expect_no_panic();
        assert_eq!(self.status, Some(status), "{self:#?}");
        let stderr = self.stderr.to_lowercase();
        for word in words {
            assert!(stderr.contains(&word.to_lowercase()), "stderr does not say {word:?}: {self:#?}");
        }
        self
    }

    #[track_caller]
    pub fn expect_no_panic(&self) {
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        assert!(matches!(self.status, Some(0..=3)), "no exit status of ours: {self:#?}");
    }

    /// The lines of stdout as JSON.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<serde_json::Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line:?}: {self:#?}"));
        self.stdout.lines().map(parse).collect()
    }
}

/// `isotherm ARGS`, not started yet.
pub fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isotherm"));
    command.args(args);
    command
}

/// `isotherm workload ARGUMENTS` for ten minutes, a million accesses a second: more than any interval here asks for (all pages of 16 MiB every
/// 4 ms), while the processors are left to others. Without a rate each program keeps one of them busy.
pub fn workload(arguments: &str) -> Command {
    command(["workload"].into_iter().chain(arguments.split(' ')).chain(["--rate", "1000000", "--duration", "600s"]))
}

/// Runs `isotherm ARGS` to its end.
#[track_caller]
pub fn isotherm<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Done {
    run(&mut command(args))
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Done {
    start(command).finish()
}

/// A started command whose output is collected; ended if a test fails before it has.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Both outputs, until they are asked for.
    outputs: Option<[std::thread::JoinHandle<String>; 2]>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither does anything to a child that was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub fn start(command: &mut Command) -> Running {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    Running { child, outputs: Some([collect(stdout), collect(stderr)]) }
}

fn collect(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name ("INT").
    pub fn signal(&self, name: &str) {
        send(self.pid(), name);
    }

    /// Waits for its end.
    #[track_caller]
    pub fn finish(mut self) -> Done {
        let begin = Instant::now();
        let [stdout, stderr] = self.outputs.take().unwrap();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                panic!("still running after {PATIENCE:?}: {}", stderr.join().unwrap());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Done { status: status.code(), stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }
}

/// Sends a signal by name to a process that this test started.
pub fn send(pid: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -s {name} {pid}");
}

/// A program to watch; ended when dropped.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Runs a shell script.
    pub fn shell(script: &str) -> Self {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Self(child)
    }

    /// A process that sleeps for long.
    pub fn sleeper() -> Self {
        Self::shell("exec sleep 600")
    }

    /// A process that has ended and that nobody has waited for.
    pub fn zombie() -> Self {
        let program = Self::shell("exit 0");
        wait_until("the process is a zombie", || state(program.pid()) == Some('Z'));
        program
    }

    /// A process number that no process has: of one that has ended and was waited for.
    pub fn gone() -> u32 {
        let mut program = Self::shell("exit 0");
        program.0.wait().unwrap();
        program.pid()
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process's state letter of /proc/PID/stat; `None`: no such process.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Waits for a condition, at most as long as a command may take.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What /proc/PID/status says in this field, in bytes. The process must be there, and have memory.
#[track_caller]
pub fn status_bytes(pid: u32, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_else(|e| panic!("pid {pid}: {e}"));
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("pid {pid}: no {field} in {text}")) << 10
}

/// Resident memory of a process, in bytes.
#[track_caller]
pub fn resident(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS")
}

/// The snapshots of a record as `report raw --json` prints them; the record must be readable.
#[track_caller]
pub fn snapshots(record: &Path) -> Vec<serde_json::Value> {
    let done = isotherm([OsStr::new("report"), OsStr::new("raw"), record.as_os_str(), OsStr::new("--json")]);
    done.expect(0, &[]);
    done.json_lines()
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
