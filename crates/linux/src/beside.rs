//! Where a target runs, and moving the calling thread to its processor for a while.

use crate::proc::ProcessDir;
use crate::proc::stat::Stat;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::marker::PhantomData;
use std::time::Duration;

/// Ranges that are cleared in the time in which one thread's state is read.
const RANGES_PER_THREAD: usize = 3;

/// Which threads of a process run or want to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    /// None; where its leading thread ran last.
    None(Option<u32>),
    /// One, on this processor.
    One(u32),
    /// So many, or it was not worth finding out.
    Several(usize),
}

impl Running {
    /// Looks at a process; `ranges` are to be cleared, which limits how much looking is worth.
    pub fn of(dir: &ProcessDir, ranges: usize) -> Self {
        let Ok(leader) = Stat::read(dir) else { return Self::Several(1) };
        if leader.threads <= 1 {
            return Self::among(leader.processor, [leader]);
        }
        let unknown =
            Self::Several((leader.threads as usize).min(std::thread::available_parallelism().map_or(1, usize::from)));
        if leader.threads as usize * RANGES_PER_THREAD > ranges {
            return unknown;
        }
        let Ok(tasks) = std::fs::read_dir(dir.file("task")) else { return unknown };
        let read = |task: std::fs::DirEntry| Stat::parse(&std::fs::read(task.path().join("stat")).ok()?);
        Self::among(leader.processor, tasks.flatten().filter_map(read))
    }

    fn among(last: Option<u32>, threads: impl IntoIterator<Item = Stat>) -> Self {
        let mut running = threads.into_iter().filter(|t| t.state == 'R');
        match (running.next().map(|t| t.processor), running.count()) {
            (None, _) => Self::None(last),
            (Some(Some(processor)), 0) => Self::One(processor),
            (Some(_), more) => Self::Several(1 + more),
        }
    }
}

/// The processor that the calling thread is on.
pub fn here() -> u32 {
    sched_getcpu() as u32
}

/// While it lives, the calling thread runs on one processor only; then again wherever it might before.
#[derive(Debug)]
pub struct Beside {
    before: CpuSet,
    /// It belongs to the thread that made it.
    thread: PhantomData<*const ()>,
}

impl Beside {
    /// Moves the calling thread; `None` where that is not allowed.
    pub(crate) fn move_to(processor: u32) -> Option<Self> {
        if processor as usize >= CpuSet::MAX_CPU {
            return None;
        }
        let before = sched_getaffinity(None).ok()?;
        let mut one = CpuSet::new();
        one.set(processor as usize);
        sched_setaffinity(None, &one).ok()?;
        Some(Self { before, thread: PhantomData })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Refused only where its cpuset allows none of them any more.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// So often in a row the processor may be passed on without anybody taking it.
const NOT_TAKEN: u32 = 10;
/// Then a process that wants it has at least so long.
const PAUSE: Duration = Duration::from_micros(50);

/// Taking turns with a process on its processor.
///
/// The scheduler gives a thread that has waited for long what it has missed, whatever it yields: milliseconds, in which the
/// process would stand still.
#[derive(Debug)]
pub struct Turn {
    dir: ProcessDir,
    passes: Passes,
}

impl Turn {
    /// With process `pid`; the calling thread is on its processor.
    pub fn with(pid: u32) -> Self {
        Self { dir: ProcessDir::live(pid), passes: Passes { switches: switches(), not_taken: 0 } }
    }

    /// Lets whoever wants the processor have it.
    pub fn pass(&mut self) {
        std::thread::yield_now();
        if self.passes.are_in_vain(switches()) && !matches!(Running::of(&self.dir, usize::MAX), Running::None(_)) {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Whether anybody takes the processor that is passed on.
#[derive(Debug)]
struct Passes {
    /// How often the thread had lost its processor after the last pass.
    switches: i64,
    /// Passes in a row after which it had not.
    not_taken: u32,
}

impl Passes {
    /// After a pass, with `switches` so far: whether nobody has taken it [`NOT_TAKEN`] times in a row, which then begin anew.
    fn are_in_vain(&mut self, switches: i64) -> bool {
        self.not_taken = if switches == self.switches { self.not_taken + 1 } else { 0 };
        self.switches = switches;
        let in_vain = self.not_taken == NOT_TAKEN;
        if in_vain {
            self.not_taken = 0;
        }
        in_vain
    }
}

/// How often the calling thread has lost its processor.
fn switches() -> i64 {
    // SAFETY: a plain structure of numbers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it fills in the structure, and nothing else.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nvcsw + usage.ru_nivcsw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::Roots;

    fn allowed() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find(|l| l.starts_with("Cpus_allowed:")).unwrap().to_owned()
    }

    #[test]
    fn the_thread_moves_and_may_run_where_it_might_before() {
        let before = allowed();
        let target = here();
        let guard = Beside::move_to(target).unwrap();
        assert_eq!(here(), target);
        drop(guard);
        assert_eq!(allowed(), before);
        let panicked = std::panic::catch_unwind(|| {
            let _guard = Beside::move_to(target).unwrap();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(panicked.is_err());
        assert_eq!(allowed(), before);
        assert!(Beside::move_to(u32::MAX).is_none() && Beside::move_to(1023).is_none());
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_pause_comes_after_ten_passes_in_a_row_that_nobody_took() {
        let mut passes = Passes { switches: 5, not_taken: 0 };
        let paused: Vec<u32> = (1..=25).filter(|_| passes.are_in_vain(5)).collect();
        assert_eq!(paused, [10, 20]);
        // Five are left of those before; somebody takes it.
        assert!(!passes.are_in_vain(6));
        let paused: Vec<u32> = (1..=15).filter(|_| passes.are_in_vain(6)).collect();
        assert_eq!(paused, [10]);
    }

    #[test]
    fn threads_that_run_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, state: char, threads: u32, processor: u32| {
            let path = dir.path().join("proc").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let line = format!(
                "7 (a b) {state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0 0 1 1 1 1 0 0 0 0 0 0 0 0 0 17 {processor} 0 0\n"
            );
            std::fs::write(path, line).unwrap();
        };
        let of = |ranges| Running::of(&ProcessDir::of(&Roots::captured(dir.path()), 7), ranges);
        write("7/stat", 'S', 1, 3);
        assert_eq!(of(100), Running::None(Some(3)));
        write("7/stat", 'R', 1, 3);
        assert_eq!(of(100), Running::One(3));
        write("7/stat", 'S', 2, 3);
        write("7/task/7/stat", 'S', 2, 3);
        write("7/task/8/stat", 'R', 2, 1);
        assert_eq!(of(100), Running::One(1));
        write("7/task/7/stat", 'R', 2, 0);
        assert_eq!(of(100), Running::Several(2));
        assert!(matches!(of(5), Running::Several(_)), "not worth looking");
        std::fs::remove_file(dir.path().join("proc/7/stat")).unwrap();
        assert_eq!(of(100), Running::Several(1));
    }
}
