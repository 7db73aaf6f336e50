use super::*;
use crate::proc::Signal;
use crate::test_process::{Sleeper, wait_for};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// A guard in a thread of this process.
struct Bed {
    to: Option<PipeWriter>,
    from: BufReader<PipeReader>,
    thread: Option<JoinHandle<()>>,
}

impl Bed {
    fn new() -> Self {
        let ((input, to), (from, output)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let thread = std::thread::spawn(move || serve(input, output).unwrap());
        let mut bed = Self { to: Some(to), from: BufReader::new(from), thread: Some(thread) };
        assert_eq!(bed.answer(), "");
        bed
    }

    fn say(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn pause(&mut self, pid: u32) -> String {
        self.say(&format!("pause {pid} {} 60000000", start_of(pid).unwrap()));
        self.answer()
    }

    fn end(&mut self) {
        self.to = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The state letters of all threads.
fn states(pid: u32) -> String {
    let mut states = String::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let Ok(stat) = std::fs::read_to_string(entry.unwrap().path().join("stat")) else { continue };
        states.push_str(&stat.rsplit_once(") ").unwrap().1[..1]);
    }
    states
}

fn send(pid: u32, signal: Signal) {
    PidFd::open(pid).unwrap().send_signal(signal).unwrap();
}

/// A process of this program whose threads come and go without end.
fn restless() -> Child {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "--ignored", "--nocapture", "guard::serve::tests::threads_come_and_go"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
#[ignore = "the program of another test"]
fn threads_come_and_go() {
    // Ends with who started it.
    std::thread::spawn(|| std::process::exit(io::stdin().read(&mut [0]).map_or(1, |_| 0)));
    loop {
        let threads: Vec<_> =
            (0..8).map(|n| std::thread::spawn(move || std::hint::black_box((0..n * 10_000u64).sum::<u64>()))).collect();
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok()));
    }
}

#[test]
fn root_all_threads_stand_still_until_they_are_let_go() {
    let (mut bed, mut child) = (Bed::new(), restless());
    wait_for("threads", || states(child.id()).len() > 3);
    let ran = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    for _ in 0..20 {
        assert_eq!(bed.pause(child.id()), "still 0");
        let before = ran();
        assert!(states(child.id()).chars().all(|state| state == 't'), "{}", states(child.id()));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(ran(), before, "neither time nor threads are used");
        bed.say(&format!("resume {}", child.id()));
        wait_for("it to go on", || ran() != before);
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "it has come to no harm");
}

#[test]
fn root_the_end_of_whoever_asked_lets_all_go_on() {
    let mut bed = Bed::new();
    let [first, second] = [Sleeper::new(), Sleeper::new()];
    assert_eq!(bed.pause(first.pid()), "still 0");
    assert_eq!(bed.pause(second.pid()), "still 0");
    bed.end();
    wait_for("both to sleep", || states(first.pid()) + &states(second.pid()) == "SS");
}

#[test]
fn root_who_was_stopped_before_stays_stopped() {
    let (mut bed, sleeper) = (Bed::new(), Sleeper::new());
    send(sleeper.pid(), Signal::STOP);
    wait_for("the stop", || states(sleeper.pid()) == "T");
    assert_eq!(bed.pause(sleeper.pid()), "before 0");
    bed.end();
    assert_eq!(states(sleeper.pid()), "T");
    send(sleeper.pid(), Signal::CONT);
}

#[test]
fn root_signals_wait_and_are_not_lost() {
    let (mut bed, sleeper) = (Bed::new(), Sleeper::new());
    let pid = sleeper.pid();
    assert_eq!(bed.pause(pid), "still 0");
    // It would go on for anybody's SIGCONT if SIGSTOP had stopped it.
    send(pid, Signal::STOP);
    send(pid, Signal::CONT);
    send(pid, Signal::STOP);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(states(pid), "t");
    bed.say(&format!("resume {pid}"));
    wait_for("the signal to be delivered", || states(pid) == "T");
    send(pid, Signal::KILL);
}

#[test]
fn root_who_is_killed_meanwhile_is_gone_for_its_parent() {
    // Its parent is not who traces it: otherwise it need not wait for that.
    let mut shell =
        Command::new("sh").args(["-c", "sleep 600 & echo $!; wait; echo gone"]).stdout(Stdio::piped()).spawn();
    let shell = shell.as_mut().unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pid = lines.next().unwrap().parse().unwrap();
    let mut bed = Bed::new();
    assert_eq!(bed.pause(pid), "still 0");
    send(pid, Signal::KILL);
    assert_eq!(lines.next().unwrap(), "gone");
    shell.wait().unwrap();
}

#[test]
fn root_a_job_survives_the_end_of_its_shell() {
    let mut bed = Bed::new();
    let mut job = |by_signal: bool| {
        let mut shell = Command::new("setsid");
        shell.args(["bash", "-c", "set -m; sleep 600 & echo $!; read x"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid: u32 = line.trim().parse().unwrap();
        if by_signal {
            send(pid, Signal::STOP);
            wait_for("the stop", || states(pid) == "T");
        } else {
            assert_eq!(bed.pause(pid), "still 0");
        }
        drop(shell.stdin.take());
        shell.wait().unwrap();
        pid
    };
    let (stopped, paused) = (job(true), job(false));
    wait_for("SIGHUP to end what SIGSTOP has stopped", || start_of(stopped).is_none_or(|_| states(stopped) == "Z"));
    assert_eq!(states(paused), "t");
    bed.say(&format!("resume {paused}"));
    wait_for("it to go on", || states(paused) == "S");
    send(paused, Signal::KILL);
}

#[test]
fn what_cannot_be_is_said() {
    let (mut bed, sleeper) = (Bed::new(), Sleeper::new());
    let (pid, start) = (sleeper.pid(), start_of(sleeper.pid()).unwrap());
    for (line, number) in [
        // Another process has the number by now.
        (format!("pause {pid} {} 1000", start + 1), libc::ESRCH),
        (format!("pause {pid}x {start} 1000"), libc::EINVAL),
        (format!("pause 4194305 {start} 1000"), libc::ESRCH),
    ] {
        bed.say(&line);
        let answer = bed.answer();
        assert_eq!(answer, format!("error {number}"), "{line}");
    }
    bed.say("nonsense");
    bed.say("resume 1 2 3");
    bed.end();
    wait_for("it to sleep", || states(pid) == "S");
}

#[test]
fn root_who_is_traced_by_somebody_else_is_left_alone() {
    let (mut first, mut second, sleeper) = (Bed::new(), Bed::new(), Sleeper::new());
    assert_eq!(first.pause(sleeper.pid()), "still 0");
    assert_eq!(second.pause(sleeper.pid()), format!("error {}", libc::EPERM));
    second.end();
    assert_eq!(states(sleeper.pid()), "t");
    first.end();
}
