//! Large mappings, the moment that they are made: the kernel's tracepoint `mmap:vm_unmapped_area`, of which the kernel lets only large
//! ones through. A program fills 32 MiB in the time between two looks.

use crate::facts::cpus;
use crate::perf_ring::{EventAttr, PerfRing, Record, Who};
use crate::ready::{Interest, wait};
use crate::roots::Roots;
use crate::tracefs::{TYPE_TRACEPOINT, read_event};
use isotherm_core::filling::WORTH;
use rustix::event::{EventfdFlags, eventfd};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const EVENT: &str = "events/mmap/vm_unmapped_area";
/// A sample holds the process and its thread.
const SAMPLE_TID: u64 = 1 << 1;
/// Room for records: a thousand each.
const RING_BYTES: usize = 1 << 16;

/// Hears of large mappings of all processes.
#[derive(Debug)]
pub struct Arrivals {
    /// One for each CPU; empty where the kernel has no such tracepoint, or does not let us listen.
    rings: Vec<PerfRing>,
    /// Why there are none.
    refusal: Option<String>,
    /// Ends a wait.
    wake: OwnedFd,
}

impl Arrivals {
    /// Begins to listen, if that can be. Needs CAP_PERFMON, and what is dropped with a sandbox, so it is called before. Without it
    /// mappings are found at the next look.
    pub fn open() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (rings, refusal) = match rings(&Roots::system()) {
            Ok(rings) => (rings, None),
            Err(e) => (Vec::new(), Some(format!("the tracepoint {EVENT} cannot be followed: {e}"))),
        };
        Ok(Self { rings, refusal, wake })
    }

    /// Why large mappings are found only at the next look.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// What ends a wait once a number was written to it.
    pub(super) fn waker(&self) -> io::Result<OwnedFd> {
        self.wake.try_clone()
    }

    /// Waits until a large mapping comes, or for so long. Who made one, by pid; one that has made several comes several times.
    pub(super) fn wait(&mut self, rest: Duration, mut sink: impl FnMut(u32)) {
        let rings = self.rings.iter().map(|ring| (ring.as_fd(), Interest::Read));
        let files: Vec<_> = rings.chain([(self.wake.as_fd(), Interest::Read)]).collect();
        if wait(&files, Some(rest)).is_err() {
            std::thread::sleep(rest);
        }
        for ring in &mut self.rings {
            ring.drain(|record| {
                if let Record::Sample(body) = record
                    && let Some(pid) = body.first_chunk()
                {
                    sink(u32::from_ne_bytes(*pid));
                }
            });
        }
    }
}

fn rings(roots: &Roots) -> io::Result<Vec<PerfRing>> {
    let id = read_event(roots, EVENT, "id")?.trim().parse().map_err(io::Error::other)?;
    let large = CString::new(format!("length >= {WORTH}"))?;
    let attr = EventAttr::new(TYPE_TRACEPOINT, id, SAMPLE_TID).waking();
    cpus::online(roots)?
        .into_iter()
        .map(|cpu| {
            let ring = PerfRing::open(&attr, Who::Cpu(cpu), RING_BYTES)?;
            ring.filter(&large)?;
            Ok(ring)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// How often a program is heard of that copies with a buffer of this size.
    fn heard(arrivals: &mut Arrivals, buffer: &str) -> usize {
        let dd = ["if=/dev/zero", "of=/dev/null", "count=1", buffer];
        let mut program = Command::new("dd").args(dd).stderr(Stdio::null()).spawn().unwrap();
        program.wait().unwrap();
        let mut count = 0;
        arrivals.wait(Duration::from_millis(1), |pid| count += usize::from(pid == program.id()));
        count
    }

    #[test]
    fn root_large_mappings_are_heard_of_and_small_ones_are_not() {
        let mut arrivals = Arrivals::open().unwrap();
        if let Some(why) = arrivals.refusal() {
            eprintln!("skipped: {why}");
            return;
        }
        assert_eq!(heard(&mut arrivals, "bs=8M"), 0);
        assert!(heard(&mut arrivals, "bs=32M") >= 1);
    }

    #[test]
    fn a_wait_ends_when_that_is_asked_for() {
        let mut arrivals = Arrivals::open().unwrap();
        rustix::io::write(arrivals.waker().unwrap(), &1u64.to_ne_bytes()).unwrap();
        arrivals.wait(Duration::from_secs(600), |_| {});
    }
}
