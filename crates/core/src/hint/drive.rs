//! Carries out what a [`Hinter`] decides.

use super::block::Block;
use super::command::{Command, Event, Isolation};
use super::hinter::Hinter;

/// Takes blocks away from an allocator and gives them back. What it takes, nobody else may have, not even after its own death,
/// for as long as a report may be acted upon.
pub trait Isolator {
    /// Isolates blocks, as many of `wanted` as can be had within bounded time, and tells which.
    fn isolate(&mut self, wanted: &[Block]) -> Isolation;
    /// Returns blocks.
    fn release(&mut self, blocks: &[Block]);
    /// Free memory, bytes; isolated memory is not free.
    fn free_bytes(&mut self) -> u64;
}

/// Tells the other side.
pub trait Reporter {
    /// Sends a batch, or hands it over to be sent.
    fn report(&mut self, batch: u64, blocks: &[Block]);
    /// The next thing that happened, if there is one; does not wait.
    fn poll(&mut self) -> Option<Event>;
}

/// Commands carried out in one step, at most, so that its caller comes by now and then.
const MOST_COMMANDS: usize = 64;

/// Carries out commands until there is nothing to do; then when to come again, if something does not happen before (ns).
pub fn step(hinter: &mut Hinter, isolator: &mut dyn Isolator, reporter: &mut dyn Reporter, now_ns: u64) -> Option<u64> {
    for _ in 0..MOST_COMMANDS {
        while let Some(event) = reporter.poll() {
            hinter.event(event, now_ns);
        }
        match hinter.command(now_ns, isolator.free_bytes()) {
            Command::Isolate(wanted) => {
                let isolation = isolator.isolate(&wanted);
                hinter.event(Event::Isolated(isolation), now_ns);
            }
            Command::Report { batch, blocks } => reporter.report(batch, &blocks),
            Command::Release(blocks) => {
                isolator.release(&blocks);
                hinter.event(Event::Released, now_ns);
            }
            Command::Wait(until_ns) => return until_ns,
        }
    }
    Some(now_ns)
}
