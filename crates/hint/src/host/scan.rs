//! Zeros in a guest without an agent: a kernel that clears pages when they are freed (`init_on_free=1`) leaves whole
//! blocks of them, which a hole stands for as well.
//!
//! The guest runs while blocks are looked at; those that seem to be zero are looked at again, and dropped, while it is
//! paused. A pause is ended when its time is up, and the next one begins after the guest has run for a while.
//!
//! What else writes to the memory is not paused: the kernel's vhost threads, devices that were passed through, other
//! processes that share it (vhost-user), requests of the VMM's own that the kernel serves while it is stopped (Linux AIO,
//! io_uring). Guests with any of these are refused.

use super::allowance::Allowance;
use super::guest::Guest;
use super::layout::LayoutPart;
use super::memory::Memory;
use super::status::ScanStatus;
use isotherm_core::addr::AddrRange;
use isotherm_core::units::nanos;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::guard::{Guard, Paused};
use isotherm_linux::hostmem::async_io::{self, AsyncIo};
use isotherm_linux::hostmem::ram_file::RamFile;
use isotherm_linux::hostmem::{hole, others};
use isotherm_linux::proc::ProcessError;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is dropped at once.
const BLOCK: u64 = 2 << 20;
/// Pauses in a scan that may come to nothing because the VMM's threads do not all stop in time.
const MOST_FAILED_PAUSES: u32 = 20;
/// Of the time, how much the guest runs between pauses: this many times a pause.
const RUN_PER_PAUSE: u32 = 9;
/// Blocks that are collected before the guest is paused.
const MOST_CANDIDATES: usize = 64;
/// How often a scan that waits looks whether to go on waiting.
const TICK: Duration = Duration::from_millis(50);

/// How to scan.
#[derive(Debug)]
pub struct ScanConfig {
    /// From the end of a round to the beginning of the next, and how long one guest's limit is waited for in a round.
    pub every: Duration,
    /// How long a guest is paused at a time, beyond the block that is being looked at when the time is up.
    pub pause: Duration,
    /// Who pauses them: they go on if we or it ends within a pause.
    pub guard: Mutex<Guard>,
}

/// Why a guest is not scanned.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Something else writes to its memory.
    #[error("not scanned for zeros: {0} writes to the memory of process {1} as well and cannot be paused")]
    Writer(String, u32),
    /// Its requests for input go on while it stands still.
    #[error(
        "not scanned for zeros: process {pid} uses {how}, and what it has asked for is written to its memory also while it is paused; start QEMU with aio=threads for each drive, and where it waits by io_uring itself (iothreads), forbid that (sysctl kernel.io_uring_disabled=2)"
    )]
    AsyncIo { pid: u32, how: AsyncIo },
    /// It cannot be looked at.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It does not stand still in time.
    #[error(
        "process {pid} was not scanned to the end for zeros: again and again its threads did not all stop within {pause:?}; is the machine very busy, or --pause too short?"
    )]
    Restless {
        pid: u32,
        /// What was waited for it.
        pause: Duration,
    },
    /// Reading, dropping or pausing failed.
    #[error("cannot scan process {pid} for zeros: {source}")]
    Io {
        pid: u32,
        /// How it failed.
        source: io::Error,
    },
}

/// Scans a guest once; how many bytes were dropped.
pub fn scan(guest: &Guest, config: &ScanConfig, stop: &AtomicBool) -> Result<u64, ScanError> {
    let pid = guest.memory().pid();
    let begin = Instant::now();
    let files = guest.memory().files();
    refuse_async_io(pid)?;
    if let Some(writer) = others::other_writer(pid, &guest.memory().identities()) {
        return Err(ScanError::Writer(writer, pid));
    }
    let mut dropped = 0;
    let mut patience = config.every;
    for (number, file) in files.iter().map(|(number, held)| (*number, &held.file)) {
        let mut scan = Scan {
            failed_pauses: 0,
            guest,
            config,
            file,
            number,
            buffer: vec![0; BLOCK as usize],
            done: ScanStatus::default(),
            dropped: 0,
            patience,
        };
        let result = scan.run(stop);
        dropped += scan.dropped;
        patience = scan.patience;
        result?;
    }
    guest.scanned(|s| {
        s.scans += 1;
        s.took_ns = nanos(begin.elapsed());
    });
    Ok(dropped)
}

fn refuse_async_io(pid: u32) -> Result<(), ScanError> {
    async_io::used_by(pid)?.map_or(Ok(()), |how| Err(ScanError::AsyncIo { pid, how }))
}

struct Scan<'a> {
    guest: &'a Guest,
    config: &'a ScanConfig,
    file: &'a RamFile,
    number: usize,
    buffer: Vec<u8>,
    failed_pauses: u32,
    /// What was done, not reported yet.
    done: ScanStatus,
    dropped: u64,
    /// How much longer other guests may be kept waiting for this one's limit.
    patience: Duration,
}

impl Scan<'_> {
    fn failed(&self, source: io::Error) -> ScanError {
        let pid = self.guest.memory().pid();
        match source.kind() {
            io::ErrorKind::TimedOut => ScanError::Restless { pid, pause: self.config.pause },
            _ => ScanError::Io { pid, source },
        }
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<(), ScanError> {
        let mut candidates = Vec::new();
        let mut at = 0;
        while let Some(data) = hole::next_data(&self.file.file, at).map_err(|e| self.failed(e))? {
            let block = data / BLOCK * BLOCK;
            if block + BLOCK > self.file.size || stop.load(Ordering::Relaxed) {
                break;
            }
            if self.is_zero(block).map_err(|e| self.failed(e))? {
                candidates.push(block);
            }
            if candidates.len() == MOST_CANDIDATES {
                self.drop_all(&mut candidates, stop)?;
                if self.patience.is_zero() {
                    break;
                }
            }
            at = block + BLOCK;
        }
        self.drop_all(&mut candidates, stop)
    }

    /// Whether a block reads as zeros. Through the file, not a mapping, which would populate it.
    fn is_zero(&mut self, block: u64) -> io::Result<bool> {
        // Most that are not are recognized by their first page.
        for (from, to) in [(0, 4096), (4096, BLOCK as usize)] {
            let bytes = &mut self.buffer[from..to];
            self.file.file.read_exact_at(bytes, block + from as u64)?;
            self.done.read += (to - from) as u64;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn drop_all(&mut self, candidates: &mut Vec<u64>, stop: &AtomicBool) -> Result<(), ScanError> {
        let mut result = Ok(());
        while !candidates.is_empty() && result.is_ok() {
            // An agent that has come meanwhile knows better.
            if self.guest.is_connected() || stop.load(Ordering::Relaxed) {
                candidates.clear();
                break;
            }
            let wait = self.guest.exclusively(|allowance| allowance.wait_ns(BLOCK, 1, monotonic_ns()));
            if wait > 0 {
                if self.patience.is_zero() {
                    // They are found again in the next round.
                    candidates.clear();
                    break;
                }
                let wait = Duration::from_nanos(wait).min(self.patience).min(TICK);
                std::thread::sleep(wait);
                self.patience -= wait;
                continue;
            }
            let guest = self.guest;
            let pause = guest.exclusively(|allowance| self.drop_some(candidates, allowance));
            result = pause.map(|pause| std::thread::sleep(pause * RUN_PER_PAUSE));
            self.tell();
        }
        self.tell();
        result
    }

    /// Drops candidates for as long as a pause may last and the limit allows; how long it lasted.
    fn drop_some(&mut self, candidates: &mut Vec<u64>, allowance: &mut Allowance) -> Result<Duration, ScanError> {
        let begin = Instant::now();
        // Waiting for all threads is part of the pause, so it may not take longer than one.
        let paused = match Paused::new(&self.config.guard, self.guest.process(), self.config.pause) {
            Ok(Some(paused)) => paused,
            Ok(None) => {
                // Stopped by somebody else, who may let it go on at any moment.
                candidates.clear();
                return Ok(Duration::ZERO);
            }
            Err(error) => {
                self.count_pause(begin.elapsed());
                self.failed_pauses += 1;
                let again = error.kind() == io::ErrorKind::TimedOut && self.failed_pauses < MOST_FAILED_PAUSES;
                return if again { Ok(begin.elapsed()) } else { Err(self.failed(error)) };
            }
        };
        // Once more: a drive may have been plugged in. From here on it asks for nothing new.
        let mut result = refuse_async_io(self.guest.memory().pid());
        while let Some(block) = candidates.pop().filter(|_| result.is_ok()) {
            result = self.drop_one(block, allowance).map_err(|e| self.failed(e));
            let may_go_on = allowance.wait_ns(BLOCK, 1, monotonic_ns()) == 0;
            if result.is_err() || !may_go_on || paused.elapsed() >= self.config.pause {
                break;
            }
        }
        let pause = paused.elapsed();
        drop(paused);
        self.count_pause(pause);
        result.map(|()| pause)
    }

    fn count_pause(&mut self, pause: Duration) {
        self.done.pauses += 1;
        self.done.paused_ns += nanos(pause);
        self.done.longest_pause_ns = self.done.longest_pause_ns.max(nanos(pause));
    }

    /// Drops a block that is still zero, now that nobody writes, and that the limit allows.
    fn drop_one(&mut self, block: u64, allowance: &mut Allowance) -> io::Result<()> {
        if self.is_zero(block)? && allowance.drop(BLOCK, 1, monotonic_ns()).is_ok() {
            // Where the guest sees it does not matter: it reads as zeros before and after.
            let addr = AddrRange::new(0, BLOCK);
            self.guest.memory().punch(&LayoutPart { addr, file: self.number, offset: block })?;
            self.done.dropped += BLOCK;
            self.dropped += BLOCK;
        }
        Ok(())
    }

    fn tell(&mut self) {
        let done = std::mem::take(&mut self.done);
        self.guest.scanned(|all| {
            all.read += done.read;
            all.dropped += done.dropped;
            all.pauses += done.pauses;
            all.paused_ns += done.paused_ns;
            all.longest_pause_ns = all.longest_pause_ns.max(done.longest_pause_ns);
        });
    }
}

#[cfg(test)]
mod tests;
