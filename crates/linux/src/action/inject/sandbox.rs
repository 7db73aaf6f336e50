//! Whether a stopped thread has confined itself meanwhile, so that a call in its name could kill it.
//!
//! Programs confine themselves at any time, so this is looked at in every stop, in the status file that was opened
//! while the process was known to be the target: that file never shows another process, also if the number has a new
//! owner.

use super::refusal::Refusal;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// More than the file has, but for a process in thousands of groups.
pub(super) const STATUS_MOST: usize = 16 << 10;

/// Why calls must not be made now. Allocates nothing.
pub(super) fn look(status: &File, buffer: &mut [u8; STATUS_MOST]) -> Result<(), Refusal> {
    let mut len = 0;
    while len < buffer.len() {
        match status.read_at(&mut buffer[len..], len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            // The process has gone; whoever was stopped is another one.
            Err(_) => return Err(Refusal::Gone),
        }
    }
    judge(&buffer[..len])
}

fn judge(status: &[u8]) -> Result<(), Refusal> {
    let field = |name: &[u8]| {
        let mut lines = status.split(|&b| b == b'\n');
        lines.find_map(|line| line.strip_prefix(name)).map(<[u8]>::trim_ascii)
    };
    // Kernels without seccomp have no such line; a file that is cut off before it tells nothing.
    match field(b"Seccomp:") {
        Some(b"0") => {}
        None if status.len() < STATUS_MOST => {}
        _ => return Err(Refusal::Sandboxed),
    }
    let features = field(b"x86_Thread_features:").unwrap_or_default();
    if features.split(u8::is_ascii_whitespace).any(|f| f == b"shstk") {
        return Err(Refusal::ShadowStack);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_and_shadow_stacks_are_seen() {
        let of = |text: &str| judge(text.as_bytes());
        assert_eq!(of("Name:\tx\nSeccomp:\t0\nx86_Thread_features:\t\n"), Ok(()));
        assert_eq!(of("Name:\tx\n"), Ok(()), "a kernel without seccomp");
        assert_eq!(of("Seccomp:\t1\n"), Err(Refusal::Sandboxed));
        assert_eq!(of("Seccomp:\t2\n"), Err(Refusal::Sandboxed));
        assert_eq!(of("Seccomp:\t0\nx86_Thread_features:\tshstk wrss\n"), Err(Refusal::ShadowStack));
        assert_eq!(of(&"x".repeat(STATUS_MOST)), Err(Refusal::Sandboxed), "cut off: not known");
    }

    #[test]
    fn a_process_that_has_gone_is_not_taken_for_its_successor() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let status = File::open(format!("/proc/{}/status", child.id())).unwrap();
        let mut buffer = [0; STATUS_MOST];
        assert_eq!(look(&status, &mut buffer), Ok(()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(look(&status, &mut buffer), Err(Refusal::Gone));
    }
}
