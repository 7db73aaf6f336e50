//! `isotherm top` on a terminal: one that `script` makes, with a shell on it.

use crate::common::{Program, send, state, wait_until};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

/// What takes and gives back the whole screen.
const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";

struct Terminal {
    script: Child,
    keys: ChildStdin,
    /// All that was written to it so far.
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    /// A shell script that has `$TOP` to watch this process.
    fn of(script: &str, watched: &Program) -> Self {
        let top = format!("{} top --source refs --pid {}", env!("CARGO_BIN_EXE_isotherm"), watched.pid());
        let mut child = Command::new("script")
            .args(["-qec", &format!("stty rows 24 cols 80; {script}"), "/dev/null"])
            .envs([("SHELL", "/bin/sh"), ("TERM", "xterm"), ("LC_ALL", "C.UTF-8"), ("TOP", &top)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("script, of util-linux");
        let keys = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let to = shown.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Self { script: child, keys, shown }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until `text` was written after what had been written at `from`, a position; the position behind it.
    #[track_caller]
    fn wait_for(&self, from: usize, text: &str) -> usize {
        let find = || self.shown().get(from..).and_then(|rest| rest.find(text)).map(|at| from + at + text.len());
        wait_until(&format!("{text:?} is shown"), || find().is_some());
        find().unwrap()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// The process of which the script has said `PID:` and the number.
    fn pid(&self) -> u32 {
        let at = self.wait_for(0, "PID:");
        self.wait_for(at, "\n");
        self.shown()[at..].lines().next().unwrap().trim().parse().unwrap()
    }

    /// Takes the terminal away.
    fn close(&mut self) {
        self.script.kill().unwrap();
        self.script.wait().unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // What runs on it gets SIGHUP.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn has_ended(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z'))
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_until_fg() {
    let watched = Program::sleeper();
    let mut terminal = Terminal::of("set -m; $TOP; echo LENT; stty -a; fg; echo LEFT:$?", &watched);
    let drawn = terminal.wait_for(0, "MAPPING");
    terminal.press("\u{1a}");
    let given = terminal.wait_for(drawn, GIVEN_BACK);
    let lent = terminal.wait_for(given, "LENT");
    let taken = terminal.wait_for(lent, TAKEN);
    let modes = terminal.shown()[lent..taken].to_owned();
    assert!(modes.contains(" icanon") && modes.contains(" echo "), "{modes}");
    terminal.wait_for(taken, "MAPPING");
    terminal.press("q");
    let left = terminal.wait_for(taken, GIVEN_BACK);
    terminal.wait_for(left, "LEFT:0");
}

#[test]
fn it_ends_with_its_terminal() {
    let watched = Program::sleeper();
    for hangup in ["", "trap '' HUP; "] {
        let mut terminal = Terminal::of(&format!("{hangup}echo PID:$$; exec $TOP"), &watched);
        let pid = terminal.pid();
        terminal.wait_for(0, "MAPPING");
        terminal.close();
        wait_until("it has ended", || has_ended(pid));
    }
}

#[test]
fn a_signal_ends_it_when_only_the_last_picture_is_left() {
    let watched = Program::sleeper();
    let mut terminal = Terminal::of("echo PID:$$; exec $TOP --duration 1s", &watched);
    let pid = terminal.pid();
    let over = terminal.wait_for(0, "the time is over");
    assert!(!has_ended(pid), "it waits for a key");
    send(pid, "TERM");
    terminal.wait_for(over, GIVEN_BACK);
    wait_until("it has ended", || has_ended(pid));
    assert!(terminal.script.wait().unwrap().success());
}

#[test]
fn sigquit_leaves_a_usable_terminal() {
    let watched = Program::sleeper();
    // A shell without job control has what it starts in the background ignore SIGQUIT.
    let script = "ulimit -c 0; env --default-signal=QUIT sh -c 'echo PID:$$; exec $TOP'; stty -a; echo END";
    let terminal = Terminal::of(script, &watched);
    let pid = terminal.pid();
    let drawn = terminal.wait_for(0, "MAPPING");
    send(pid, "QUIT");
    let given = terminal.wait_for(drawn, GIVEN_BACK);
    terminal.wait_for(given, "END");
    let modes = terminal.shown()[given..].to_owned();
    assert!(modes.contains(" icanon") && modes.contains(" echo "), "{modes}");
}
