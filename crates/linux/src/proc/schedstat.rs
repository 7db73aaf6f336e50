//! `/proc/PID/schedstat`: how long a thread ran, and waited to run. Only with CONFIG_SCHED_INFO.

use super::dir::ProcessDir;
use super::error::ProcessError;

/// Times of one thread since it began, ns; of a process's folder those of its leading thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// On a processor.
    pub run_ns: u64,
    /// Ready to run, while others did.
    pub wait_ns: u64,
}

impl Schedstat {
    /// Reads the file.
    pub fn read(dir: &ProcessDir) -> Result<Self, ProcessError> {
        let mut text = Vec::with_capacity(64);
        dir.read("schedstat", &mut text)?;
        Self::parse(&text).ok_or_else(|| dir.malformed("schedstat", String::from_utf8_lossy(&text)))
    }

    /// Parses the file's content; `None` if it does not have the documented form.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse);
        Some(Self { run_ns: fields.next()?.ok()?, wait_ns: fields.next()?.ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_fields_count() {
        let times = Schedstat { run_ns: 5000, wait_ns: 70 };
        assert_eq!(Schedstat::parse(b"5000 70 2\n"), Some(times));
        assert_eq!(
            (Schedstat::parse(b""), Schedstat::parse(b"5000\n"), Schedstat::parse(b"5 x 2")),
            (None, None, None)
        );
    }

    #[test]
    fn a_thread_that_works_runs() {
        let me = ProcessDir::live(std::process::id());
        let Ok(before) = Schedstat::read(&me) else {
            eprintln!("skipped: this kernel has no schedstat");
            return;
        };
        assert!(before.run_ns > 0);
    }
}
