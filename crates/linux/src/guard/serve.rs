//! The guard's work.

use super::changes::{Changes, write};
use super::start_of;
use super::still::Still;
use crate::proc::PidFd;
use crate::proc::ProcessDir;
use crate::proc::stat::Stat;
use crate::ready::{Interest, wait};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often to look whether all threads of a process have stopped.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// How often to look for threads that were killed while they stood still: whoever waits for the end of their process
/// waits for that, too.
const REAP_EVERY: Duration = Duration::from_millis(20);
/// How long to wait before a setting is written again that the kernel was too busy to take.
const RETRY_EVERY: Duration = Duration::from_millis(10);

/// Reads lines `pause PID START MICROSECONDS`, `resume PID`, `change FILE WORD` and `leave FILE` until the end of its
/// input, which comes when whoever wrote them ends. Then it lets those processes go on that it has stopped, and writes
/// back what files held, the last changed first. Says on `output` when it is ready, and how each `pause` went: `still 0`, `before 0`, `late 0`
/// or `error NUMBER`.
pub fn serve(mut input: impl Read + AsFd, mut output: impl Write) -> io::Result<()> {
    output.write_all(b"\n")?;
    output.flush()?;
    let mut guarded = Guarded::default();
    let (mut unread, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        if !wait(&[(input.as_fd(), Interest::Read)], guarded.reap().then_some(REAP_EVERY))?[0] {
            continue;
        }
        let n = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // Whoever would say more is out of reach.
            Err(_) => break,
        };
        unread.extend_from_slice(&chunk[..n]);
        while let Some(end) = unread.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            if let Some(answer) = guarded.line(String::from_utf8_lossy(&line[..end]).as_ref()) {
                // Who asked may have ended; the end of the input follows.
                let _ = output.write_all(answer.as_bytes()).and_then(|()| output.flush());
            }
        }
    }
    guarded.undo();
    Ok(())
}

/// What is to be undone.
#[derive(Default)]
struct Guarded {
    paused: BTreeMap<u32, Still>,
    /// Threads that were asked to stop, had not done so, and are not wanted any more: tracing ends at their next stop.
    leaving: Vec<Still>,
    /// What files held.
    changed: Changes,
}

impl Guarded {
    fn line(&mut self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["pause", pid, start, patience] => Some(match (pid.parse(), start.parse(), patience.parse()) {
                (Ok(pid), Ok(start), Ok(patience)) => self.pause(pid, start, Duration::from_micros(patience)),
                _ => answer("error", libc::EINVAL),
            }),
            ["resume", pid] => {
                let still = pid.parse().ok().and_then(|pid: u32| self.paused.remove(&pid));
                self.leaving.extend(still.and_then(Still::release));
                None
            }
            ["change", path, before] => {
                self.changed.add(path, before);
                None
            }
            ["leave", path] => {
                self.changed.forget(path);
                None
            }
            _ => None,
        }
    }

    fn pause(&mut self, pid: u32, start: u64, patience: Duration) -> String {
        if self.paused.contains_key(&pid) {
            return answer("still", 0);
        }
        if is_stopped(pid) {
            return answer("before", 0);
        }
        match self.still(pid, start, patience) {
            Ok(true) => answer("still", 0),
            Ok(false) => answer("late", 0),
            Err(e) => answer("error", e.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    /// Whether all threads came to stand still in time; those of that process and of no later one of its number.
    fn still(&mut self, pid: u32, start: u64, patience: Duration) -> io::Result<bool> {
        let process = PidFd::open(pid)?;
        if start_of(pid) != Some(start) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let begin = Instant::now();
        let mut still = Still::new(process);
        loop {
            match still.look() {
                Ok(true) => {
                    self.paused.insert(pid, still);
                    return Ok(true);
                }
                Ok(false) if begin.elapsed() < patience => std::thread::sleep(LOOK_EVERY),
                not_still => {
                    self.leaving.extend(still.release());
                    return not_still;
                }
            }
        }
    }

    /// Takes notice of threads that have ended. Whether there can be any.
    fn reap(&mut self) -> bool {
        for still in self.paused.values_mut() {
            // New threads of what was not wholly stopped are stopped, too; that they cannot be is known already.
            let _ = still.look();
        }
        self.paused.retain(|_, still| !still.is_empty());
        self.leaving = self.leaving.drain(..).filter_map(Still::release).collect();
        !self.paused.is_empty() || !self.leaving.is_empty()
    }

    fn undo(self) {
        self.changed.put_back(write, || std::thread::sleep(RETRY_EVERY));
        // Those that have not stopped yet go on when this process ends.
        self.paused.into_values().for_each(|still| drop(still.release()));
    }
}

fn answer(word: &str, number: i32) -> String {
    format!("{word} {number}\n")
}

/// Whether a process is stopped by job control.
fn is_stopped(pid: u32) -> bool {
    Stat::read(&ProcessDir::live(pid)).is_ok_and(|s| s.state == 'T')
}

#[cfg(test)]
mod tests;
