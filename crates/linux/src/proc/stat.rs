//! `/proc/PID/stat`: state, parent, flags, and what tells one program image from the next.

use super::dir::ProcessDir;
use super::error::ProcessError;
use super::lines::with_buffer;
use crate::clock::{boottime_ns, monotonic_ns};

/// Set in the flags of a kernel thread (PF_KTHREAD in the kernel's sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;
/// Set from a fork to the first exec (PF_FORKNOEXEC in the kernel's sched.h).
const PF_FORKNOEXEC: u64 = 0x40;

/// Processor times are told in these, ns: USER_HZ is 100 on x86-64.
const TICK_NS: u64 = 10_000_000;

/// The fields of `/proc/PID/stat` that Isotherm uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Command name, at most 15 bytes.
    pub comm: String,
    /// One letter: `R`, `S`, `D`, `Z` (zombie), `X` (dead), ...
    pub state: char,
    pub ppid: u32,
    /// Whether it is a kernel thread.
    pub kernel_thread: bool,
    /// Whether it has executed no program since it was forked.
    pub forked: bool,
    /// Page faults that need not wait for a device, of all its threads, those that have ended included.
    pub minor_faults: u64,
    /// The same of those that had to.
    pub major_faults: u64,
    /// Processor time in the program and in the kernel, ns, in steps of 10 ms, of all its threads, those that have ended
    /// included.
    pub user_ns: u64,
    pub system_ns: u64,
    pub threads: u32,
    /// Processor that the thread ran on last.
    pub processor: Option<u32>,
    /// Start time in clock ticks since boot; with the pid it names a process uniquely.
    pub start_ticks: u64,
    /// Address of the program's code and of its first stack frame: exec changes them (both are random unless address
    /// space randomisation is off). 0 where the reader may not see them.
    pub image: (u64, u64),
}

impl Stat {
    /// Parses the file's content; `None` if it does not have the documented form.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|&b| b == b'(')?;
        // The name may hold any byte, parentheses included: the last one ends it.
        let close = text.iter().rposition(|&b| b == b')')?;
        let comm = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        // proc(5) counts fields from 1; the state is number 3.
        let state = fields.next()?.chars().next()?;
        let ppid = fields.next()?.parse().ok()?;
        let flags: u64 = fields.nth(9 - 5)?.parse().ok()?;
        let minor_faults = fields.next()?.parse().ok()?;
        let major_faults = fields.nth(12 - 11)?.parse().ok()?;
        let user_ticks: u64 = fields.nth(14 - 13)?.parse().ok()?;
        let system_ticks: u64 = fields.next()?.parse().ok()?;
        let threads = fields.nth(20 - 16)?.parse().ok()?;
        let start_ticks = fields.nth(22 - 21)?.parse().ok()?;
        let start_code = fields.nth(26 - 23)?.parse().ok()?;
        let start_stack = fields.nth(28 - 27)?.parse().ok()?;
        let processor = fields.nth(39 - 29).and_then(|f| f.parse().ok());
        Some(Self {
            comm,
            state,
            ppid,
            kernel_thread: flags & PF_KTHREAD != 0,
            forked: flags & PF_FORKNOEXEC != 0,
            minor_faults,
            major_faults,
            user_ns: user_ticks.saturating_mul(TICK_NS),
            system_ns: system_ticks.saturating_mul(TICK_NS),
            threads,
            processor,
            start_ticks,
            image: (start_code, start_stack),
        })
    }

    /// Reads the file of one process.
    pub fn read(dir: &ProcessDir) -> Result<Self, ProcessError> {
        with_buffer(|buf| {
            dir.read("stat", buf)?;
            Self::parse(buf).ok_or_else(|| dir.malformed("stat", String::from_utf8_lossy(buf)))
        })
    }

    /// When the process began, ns of CLOCK_MONOTONIC, at most a tick too early.
    pub fn started_ns(&self) -> u64 {
        // It is told in time since boot, time in suspend included.
        let ago_ns = boottime_ns().saturating_sub(self.start_ticks.saturating_mul(TICK_NS));
        monotonic_ns().saturating_sub(ago_ns)
    }

    /// Whether the process has exited and only waits to be collected.
    pub(crate) const fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &[u8] = b"4242 (a ) b(c) S 17 4242 4242 0 -1 4194560 120 0 3 0 1 2 0 0 20 0 5 0 987654 \
        1234567 89 18446744073709551615 94000000000 94000000999 140720000000 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 \
        94000001000 94000001010 94000009000 140720000100 140720000200 140720000200 140720000300 0\n";

    #[test]
    fn fields_are_found_behind_a_name_with_parentheses() {
        let stat = Stat::parse(LINE).unwrap();
        assert_eq!(stat.comm, "a ) b(c");
        assert_eq!((stat.state, stat.ppid, stat.major_faults, stat.start_ticks), ('S', 17, 3, 987_654));
        assert_eq!(stat.image, (94_000_000_000, 140_720_000_000));
        assert_eq!((stat.threads, stat.processor), (5, Some(1)));
        assert_eq!((stat.minor_faults, stat.user_ns, stat.system_ns), (120, 10_000_000, 20_000_000));
        assert!(!stat.kernel_thread && !stat.is_zombie() && !stat.forked);
        let text = String::from_utf8_lossy(LINE).replace("4194560", "4194368");
        assert!(Stat::parse(text.as_bytes()).unwrap().forked);
    }

    #[test]
    fn kernel_threads_and_zombies_are_known() {
        let kthread = b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 1 0 0 0 0\n";
        assert!(Stat::parse(kthread).unwrap().kernel_thread);
        let zombie = b"9 (sh) Z 1 9 9 0 -1 4194316 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 1 0 0 0 0\n";
        assert!(Stat::parse(zombie).unwrap().is_zombie());
    }

    #[test]
    fn a_cut_off_line_is_refused() {
        assert_eq!(Stat::parse(b"1 (init"), None);
        assert_eq!(Stat::parse(b"1 (init) S 0 1 1"), None);
        assert_eq!(Stat::parse(b""), None);
        assert_eq!(Stat::parse(b")("), None);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Stat::parse(&text);
        }
    }
}
