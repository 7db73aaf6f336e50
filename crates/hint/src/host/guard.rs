//! Lets a paused process go on if we die: a shell that waits for the end of our pipe to it, which the kernel closes
//! however we end.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Remembers what it was told last, and at the end lets the process go on if that was a pause.
const SCRIPT: &str = r#"while read -r word; do last=$word; done; if [ "$last" = paused ]; then kill -s CONT "$1"; fi"#;

/// A guard over one process.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Guards process `pid`.
    pub fn new(pid: u32) -> io::Result<Self> {
        Command::new("sh")
            .args(["-c", SCRIPT, "isotherm-guard", &pid.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for us, not for it.
            .process_group(0)
            .spawn()
            .map(Self)
    }

    /// The process is about to be paused.
    pub fn paused(&mut self) -> io::Result<()> {
        self.say("paused\n")
    }

    /// It goes on again.
    pub fn running(&mut self) -> io::Result<()> {
        self.say("running\n")
    }

    fn say(&mut self, word: &str) -> io::Result<()> {
        let pipe = self.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.write_all(word.as_bytes())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.stdin = None;
        // It ends by that.
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_linux::hostmem::paused::Paused;
    use isotherm_linux::proc::PidFd;
    use std::time::Duration;

    fn is_stopped(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    #[test]
    fn a_forgotten_pause_ends_with_the_pipe() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = PidFd::open(child.id()).unwrap();
        for told in [true, false] {
            let mut guard = Guard::new(child.id()).unwrap();
            guard.paused().unwrap();
            let paused = Paused::stop(&process, Duration::from_secs(60)).unwrap().unwrap();
            // As after kill -9: nobody lets it go on.
            std::mem::forget(paused);
            if told {
                guard.running().unwrap();
            }
            drop(guard);
            if told {
                assert!(is_stopped(child.id()), "what was stopped by somebody else after our pause stays so");
                Command::new("kill").args(["-s", "CONT", &child.id().to_string()]).status().unwrap();
            }
            while is_stopped(child.id()) {}
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
