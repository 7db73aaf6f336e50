//! Makes the kernel put free memory together, and tells whether it has the time for that.

use crate::roots::Roots;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// What is written to for it.
pub const COMPACT_FILE: &str = "/proc/sys/vm/compact_memory";

/// Moves used pages of all zones out of the way, so that free memory comes together. Returns once that is done.
pub fn compact(roots: &Roots) -> io::Result<()> {
    // Never created: where it is missing the kernel cannot compact.
    OpenOptions::new().write(true).open(roots.path(COMPACT_FILE))?.write_all(b"1")
}

/// Idle time of all CPUs together since boot, to a hundredth of a second, ns.
pub fn idle_ns(roots: &Roots) -> Option<u64> {
    let text = roots.line("/proc/uptime")?;
    let (seconds, hundredths) = text.split_ascii_whitespace().nth(1)?.split_once('.')?;
    let hundredths = hundredths.parse::<u64>().ok().filter(|_| hundredths.len() == 2)?;
    seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths)?.checked_mul(10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    #[test]
    fn one_is_written() {
        let t = tree(&[("proc/sys/vm/compact_memory", "")]);
        compact(&t.roots).unwrap();
        assert_eq!(t.roots.line(COMPACT_FILE).as_deref(), Some("1"));
        let t = tree(&[]);
        assert_eq!(compact(&t.roots).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!t.roots.exists(COMPACT_FILE));
    }

    #[test]
    fn idle_time_is_the_second_number() {
        let idle = |text: &str| idle_ns(&tree(&[("proc/uptime", text)]).roots);
        assert_eq!(idle("7.10 12.05\n"), Some(12_050_000_000));
        for text in ["", "7.10\n", "7.10 12\n", "7.10 12.5\n", "7.10 -1.00\n", "7.10 99999999999999999999.00\n"] {
            assert_eq!(idle(text), None, "{text}");
        }
    }
}
