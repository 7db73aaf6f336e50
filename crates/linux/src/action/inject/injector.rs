//! From a request to helpers and back.

use super::call::Call;
use super::error::InjectError;
use super::gadgets::Gadgets;
use super::helper;
use super::plan::Plan;
use super::refusal::Refusal;
use super::shared::Shared;
use super::{eligible, thread::Hook};
use crate::action::tally::{Tally, refusal};
use crate::proc::maps::mapped_ranges;
use crate::proc::stat::Stat;
use crate::proc::{PidFd, ProcessDir};
use crate::roots::Roots;
use isotherm_core::addr::{AddrRange, TABLE_SPAN, normalize, parts_in};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ranges that one helper gets.
const AT_ONCE: usize = 1024;
/// How long a helper that was asked to stop is waited for.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// Mappings that a process may have, where the kernel does not tell.
const MAX_MAP_COUNT: usize = 65530;

/// A target, which program it ran, and what was found in it.
#[derive(Debug, Clone, Copy)]
struct Known {
    pid: u32,
    image: (u64, u64),
    gadgets: Gadgets,
}

/// Injects calls; remembers what it found out about the last target.
#[derive(Debug, Default)]
pub(in crate::action) struct Injector {
    known: Option<Known>,
    /// Stops of the last request, and the longest, ns.
    pub stops: (u32, u64),
}

impl Injector {
    /// Makes `process` do `call` on `ranges` (sorted, disjoint, page aligned).
    pub fn run(&mut self, process: &PidFd, call: Call, ranges: &[AddrRange], stop: &AtomicBool) -> Tally {
        self.run_with(process, call, ranges, stop, &|| ())
    }

    pub(super) fn run_with(
        &mut self,
        process: &PidFd,
        call: Call,
        ranges: &[AddrRange],
        stop: &AtomicBool,
        hook: Hook<'_>,
    ) -> Tally {
        let mut tally = Tally::default();
        self.stops = (0, 0);
        if let Err(why) = self.try_run(process, call, ranges, stop, hook, &mut tally) {
            tally.refuse(|| why.to_string());
        }
        tally
    }

    fn try_run(
        &mut self,
        process: &PidFd,
        call: Call,
        ranges: &[AddrRange],
        stop: &AtomicBool,
        hook: Hook<'_>,
        tally: &mut Tally,
    ) -> Result<(), InjectError> {
        let pid = process.pid();
        if let Some(why) = eligible::ineligible(&Roots::system(), pid) {
            return Err(InjectError::Ineligible(why));
        }
        let mappings = mapped_ranges(&ProcessDir::live(pid))?;
        // Every range may cut two mappings in two.
        if mappings.len() + 2 * ranges.len() > max_map_count() / 2 {
            return Err(InjectError::TooManyMappings { action: call.action, ranges: ranges.len(), pid });
        }
        let pieces = pieces(ranges, &mappings, call.most);
        if pieces.is_empty() {
            return Err(InjectError::NothingMapped(pid));
        }
        for batch in pieces.chunks(AT_ONCE) {
            if stop.load(Ordering::Relaxed) {
                return Err(InjectError::Stopped);
            }
            let gadgets = self.gadgets(pid)?;
            let status = ProcessDir::live(pid).open("status")?;
            // What was read through the pid so far was the target's, as it is still there.
            if process.has_exited() {
                return Err(InjectError::Gone(pid));
            }
            let plan = Plan { pid: pid as libc::pid_t, status, gadgets, call, ranges: batch };
            let shared = Shared::new(batch.len()).map_err(InjectError::Memory)?;
            let helper = helper::start(&plan, &shared, hook).map_err(InjectError::Fork)?;
            supervise(helper, &shared, stop);
            let (stops, longest) = shared.stops();
            self.stops = (self.stops.0 + stops, self.stops.1.max(longest));
            let mut all = true;
            for (i, range) in batch.iter().enumerate() {
                match shared.result(i) {
                    Some(0..) => tally.add(*range),
                    Some(error) => {
                        let error = io::Error::from_raw_os_error(i32::try_from(-error).unwrap_or(libc::EIO));
                        tally.refuse(|| refusal(call.action, pid, *range, &error));
                    }
                    None => all = false,
                }
            }
            if shared.refusal() == Refusal::OtherCode {
                self.known = None;
            }
            if !all {
                return Err(InjectError::LeftAlone(pid, shared.refusal()));
            }
        }
        Ok(())
    }

    fn gadgets(&mut self, pid: u32) -> Result<Gadgets, InjectError> {
        let image = Stat::read(&ProcessDir::live(pid))?.image;
        if let Some(known) = self.known
            && (known.pid, known.image) == (pid, image)
        {
            return Ok(known.gadgets);
        }
        let gadgets = Gadgets::find(pid)?;
        self.known = Some(Known { pid, image, gadgets });
        Ok(gadgets)
    }
}

/// Waits for the helper's end; passes an order to stop on. A helper that does not leave soon then (its call waits for
/// the target's locks) is left to itself: it needs nobody to finish.
fn supervise(helper: Pid, shared: &Shared, stop: &AtomicBool) {
    if let Ok(handle) = PidFd::open(helper.as_raw_pid() as u32) {
        while !handle.wait_exit(Duration::from_millis(5)) {
            if stop.load(Ordering::Relaxed) {
                shared.stop();
                if !handle.wait_exit(LEAVE_WITHIN) {
                    return;
                }
            }
        }
    }
    let _ = retry_on_intr(|| waitpid(Some(helper), WaitOptions::empty()));
}

/// The parts of the ranges that lie in mappings, one piece for each, cut to at most `most` bytes.
fn pieces(ranges: &[AddrRange], mappings: &[AddrRange], most: u64) -> Vec<AddrRange> {
    let mut joined = ranges.to_vec();
    normalize(&mut joined);
    let mut out = Vec::new();
    for range in joined {
        for part in parts_in(mappings, range) {
            let mut start = part.start;
            while start < part.end {
                let cut = (start + most) / TABLE_SPAN * TABLE_SPAN;
                let end = if cut > start { cut.min(part.end) } else { part.end.min(start + most) };
                out.push(AddrRange::new(start, end));
                start = end;
            }
        }
    }
    out
}

fn max_map_count() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    text.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(MAX_MAP_COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_mapped_and_not_too_long() {
        let mib = |a: u64, b: u64| AddrRange::new(a << 20, b << 20);
        let mappings = [mib(0, 4), mib(4, 40), mib(60, 61)];
        assert_eq!(
            pieces(&[mib(1, 3), mib(3, 20), mib(50, 70)], &mappings, 8 << 20),
            [mib(1, 4), mib(4, 12), mib(12, 20), mib(60, 61)]
        );
        assert_eq!(pieces(&[mib(0, 40)], &mappings, 1 << 40), [mib(0, 4), mib(4, 40)]);
        assert_eq!(pieces(&[mib(41, 50)], &mappings, 1 << 40), []);
    }
}
