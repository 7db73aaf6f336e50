//! From which processor a target is paged out: its own, where that costs half, or another one. And whether it ever sleeps.

use crate::proc::ProcessDir;
use crate::proc::schedstat::Schedstat;

/// How long a target is watched before it is known whether it sleeps, ns.
const WATCHED_NS: u64 = 200_000_000;
/// One whose threads together run or wait to for all but one part in so many of the time, or longer, never sleeps.
const SLEEPS_PART: u64 = 20;
/// With more threads than this it is not looked: a look takes 2 us a thread.
const MOST_THREADS: usize = 256;
/// What was seen longer ago, ns, says nothing of now.
const OLD_NS: u64 = 5_000_000_000;
/// How long others have a processor that they need, ns.
const LEFT_TO_OTHERS_NS: u64 = 10_000_000_000;
/// Where less than one part in so many of the time on its processor was ours, ...
const CROWDED: u64 = 8;
/// ... over so long at least, ns, others need it.
const LONG_NS: u64 = 20_000_000;

/// What is known of a target. Times are of CLOCK_MONOTONIC.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// When it was paged out last, ns.
    used_ns: u64,
    /// When it was looked how long its threads had run or waited to run, ns, and how long that was.
    watched: Option<(u64, u64)>,
    never_sleeps: bool,
    /// Until when its processor is others'.
    not_beside_until_ns: u64,
}

impl Place {
    /// It is paged out now. `wanted_ns`: for how long its threads have run or waited to run so far, asked for now and then; `None` where that
    /// is not known.
    pub fn watch(&mut self, now_ns: u64, wanted_ns: impl FnOnce() -> Option<u64>) {
        self.used_ns = now_ns;
        if self.watched.is_some_and(|(when_ns, _)| now_ns < when_ns + WATCHED_NS) {
            return;
        }
        let wanted_ns = wanted_ns();
        self.never_sleeps = match (self.watched, wanted_ns) {
            // Threads that have ended are missing from the second figure.
            (Some((when_ns, before_ns)), Some(wanted_ns)) if wanted_ns >= before_ns => {
                let passed_ns = now_ns - when_ns;
                let asleep_ns = passed_ns.saturating_sub(wanted_ns - before_ns);
                asleep_ns * SLEEPS_PART < passed_ns
            }
            _ => false,
        };
        self.watched = wanted_ns.map(|wanted_ns| (now_ns, wanted_ns));
    }

    /// Whether it never sleeps; `None` where it was not paged out lately.
    pub const fn never_sleeps(&self, now_ns: u64) -> Option<bool> {
        if now_ns < self.used_ns + OLD_NS { Some(self.never_sleeps) } else { None }
    }

    /// Whether it may be paged out on its own processor.
    pub const fn may_be_beside(&self, now_ns: u64) -> bool {
        now_ns >= self.not_beside_until_ns
    }

    /// Of `passed_ns` of paging out on its processor `cpu_ns` was ours: whether others need it.
    pub const fn learn(&mut self, now_ns: u64, passed_ns: u64, cpu_ns: u64) -> bool {
        let is_crowded = passed_ns >= LONG_NS && cpu_ns * CROWDED < passed_ns;
        if is_crowded {
            self.not_beside_until_ns = now_ns + LEFT_TO_OTHERS_NS;
        }
        is_crowded
    }
}

/// For how long the threads of a process have run or waited to run so far, ns; `None` where the kernel does not say, or they are very many.
pub(super) fn wanted_ns(process: &ProcessDir) -> Option<u64> {
    let tasks: Vec<_> = std::fs::read_dir(process.file("task")).ok()?.flatten().take(MOST_THREADS + 1).collect();
    if tasks.len() > MOST_THREADS {
        return None;
    }
    // Threads that have ended meanwhile are left out.
    let times = tasks.iter().filter_map(|task| Schedstat::parse(&std::fs::read(task.path().join("schedstat")).ok()?));
    times.map(|times| times.run_ns + times.wait_ns).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::Roots;

    const MS: u64 = 1_000_000;

    #[test]
    fn whether_it_sleeps_is_told_by_what_it_wanted() {
        let mut place = Place::default();
        let mut at = |now_ms: u64, wanted_ms: Option<u64>| {
            place.watch(now_ms * MS, || wanted_ms.map(|ms| ms * MS));
            place.never_sleeps(now_ms * MS)
        };
        assert_eq!(at(6000, Some(50)), Some(false), "nothing is known");
        assert_eq!(at(6199, Some(249)), Some(false), "too soon");
        assert_eq!(at(6200, Some(239)), Some(false), "11 ms of 200 it slept");
        assert_eq!(at(6400, Some(430)), Some(true));
        assert_eq!(at(6600, Some(429)), Some(false), "a thread has ended: not known");
        assert_eq!(at(6800, Some(629)), Some(true));
        assert_eq!(at(7000, None), Some(false), "not known");
        assert_eq!((at(7200, Some(900)), at(7400, Some(1300))), (Some(false), Some(true)), "two threads");
        assert_eq!(place.never_sleeps(7400 * MS + OLD_NS), None);
        assert_eq!(Place::default().never_sleeps(6000 * MS), None);
    }

    #[test]
    fn a_processor_that_others_need_is_left_to_them() {
        let mut place = Place::default();
        assert!(!place.learn(0, 19 * MS, MS), "too short to tell");
        assert!(!place.learn(0, 24 * MS, 3 * MS) && place.may_be_beside(0));
        assert!(place.learn(5, 25 * MS, 3 * MS));
        assert!(!place.may_be_beside(4 + LEFT_TO_OTHERS_NS) && place.may_be_beside(5 + LEFT_TO_OTHERS_NS));
    }

    #[test]
    fn the_times_of_all_threads_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let process = ProcessDir::of(&Roots::captured(dir.path()), 7);
        assert_eq!(wanted_ns(&process), None);
        for (thread, text) in [(7, "100 20 3\n"), (8, "3000 400 3\n"), (9, "")] {
            let task = process.file("task").join(thread.to_string());
            std::fs::create_dir_all(&task).unwrap();
            std::fs::write(task.join("schedstat"), text).unwrap();
        }
        assert_eq!(wanted_ns(&process), Some(3520));
    }
}
