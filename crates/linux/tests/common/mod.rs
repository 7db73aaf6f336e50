//! Processes for the tests to look at.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child process that is killed and collected when the test ends, however it ends.
#[derive(Debug)]
pub struct Guard(pub Child);

impl Guard {
    pub fn shell(script: &str) -> Self {
        Self::spawn(Command::new("sh").args(["-c", script]))
    }

    pub fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the test's child starts"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `condition` holds; a generous limit only turns a hang into a failure.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
