//! Tasks, one after the other in time.

use super::pressure::Pressure;
use super::reclaimer::Reclaimer;
use super::spec::{Machine, Room};
use crate::policy::Work;
use crate::trace::Manner;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// ps in a ns.
const NS: u64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    /// Pages that the policy had; the others are kept free or hold what was packed.
    pub resident: u32,
    /// How long it all took, s.
    pub run_seconds: f64,
    pub requests_per_second: f64,
    /// Share of the time in which at least one task waited for memory.
    pub some: f64,
    /// Share of the time in which all did.
    pub full: f64,
    /// All waits for memory together, s.
    pub stall_seconds: f64,
    /// Pages that had to be brought back, or read from a file.
    pub major_faults: u64,
    /// How long a task waited for one of them on average, reclaim for it included, us.
    pub major_fault_us: f64,
    /// Pages reclaimed ahead of need.
    pub background_reclaims: u64,
    /// Pages that tasks had to reclaim themselves before they could go on.
    pub direct_reclaims: u64,
    /// Time spent on reclaim, by tasks and in the background, s.
    pub reclaim_seconds: f64,
}

/// A machine that runs.
#[derive(Debug, Clone)]
pub struct Model {
    machine: Machine,
    room: Room,
    /// When each task can take its next request.
    tasks: BinaryHeap<Reverse<(u64, u32)>>,
    /// When each channel of the device is free.
    channels: BinaryHeap<Reverse<u64>>,
    reclaimer: Reclaimer,
    pressure: Pressure,
    requests: u64,
    misses: u64,
    /// What it takes to put away the pages that came, all together; each that comes has to go.
    putting_away: u64,
    /// What it took to look for them.
    looking: u64,
    work: Work,
    major: u64,
    major_waited: u64,
    direct_busy: u64,
    end: u64,
}

/// What a request was to the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// How it was made.
    pub manner: Manner,
    /// The page was there.
    pub hit: bool,
    /// It had been there before.
    pub again: bool,
}

impl Model {
    pub fn new(machine: &Machine, room: Room) -> Self {
        let headroom = u64::from(room.headroom);
        Self {
            machine: machine.clone(),
            room,
            tasks: (0..machine.tasks).map(|task| Reverse((0, task))).collect(),
            channels: (0..machine.channels.unwrap_or(0)).map(|_| Reverse(0)).collect(),
            reclaimer: Reclaimer::new(u64::from(room.resident) + headroom, headroom),
            pressure: Pressure::new(machine.tasks),
            requests: 0,
            misses: 0,
            putting_away: 0,
            looking: 0,
            work: Work::default(),
            major: 0,
            major_waited: 0,
            direct_busy: 0,
            end: 0,
        }
    }

    /// The next request. `work` tells what the policy has done up to now.
    pub fn request(&mut self, request: Request, work: impl FnOnce() -> Work) {
        // There always is a task.
        let Some(Reverse((now, task))) = self.tasks.pop() else { return };
        self.requests += 1;
        let mut at = now + self.machine.work * NS;
        if !request.hit {
            at = self.miss(task, at + self.machine.fault * NS, request, work());
        }
        self.end = self.end.max(at);
        self.tasks.push(Reverse((at, task)));
    }

    fn miss(&mut self, task: u32, start: u64, request: Request, work: Work) -> u64 {
        let of_file = request.manner.is_file();
        self.misses += 1;
        self.putting_away += (self.machine.reclaim + if of_file { 0 } else { self.machine.write }) * NS;
        self.look(work);
        let direct = self.reclaimer.take(start, self.cost());
        self.direct_busy += direct;
        let begin = start + direct;
        let end = match (of_file, request.again) {
            (false, false) => begin,
            (false, true) => self.read(begin, self.machine.read),
            (true, _) => self.read(begin, self.machine.file_read),
        };
        if of_file || request.again {
            self.major += 1;
            self.major_waited += end - start;
        }
        // The first read of a file is no lack of memory.
        let waited = if request.again { end } else { begin };
        if waited > start {
            self.pressure.wait(task, start, waited);
        }
        end
    }

    /// What the policy did since the last miss in search of pages.
    fn look(&mut self, work: Work) {
        let more = |now: Option<u64>, before: Option<u64>| now.unwrap_or(0).saturating_sub(before.unwrap_or(0));
        let pages = more(work.pages_scanned, self.work.pages_scanned);
        let entries = more(work.ptes_read, self.work.ptes_read);
        self.looking += pages * self.machine.scan * NS + entries * self.machine.pte_ps;
        self.work = work;
    }

    /// What reclaiming a page costs, on average up to now.
    fn cost(&self) -> u64 {
        let evicted = self.misses.saturating_sub(u64::from(self.room.resident));
        self.putting_away / self.misses.max(1) + self.looking / evicted.max(1)
    }

    fn read(&mut self, at: u64, takes: u64) -> u64 {
        let takes = takes * NS;
        let Some(Reverse(free)) = self.channels.pop() else { return at + takes };
        let end = at.max(free) + takes;
        self.channels.push(Reverse(end));
        end
    }

    /// What came of it.
    pub fn outcome(&self) -> Outcome {
        let seconds = |ps: u64| ps as f64 / 1e12;
        let share = |ps: u64| if self.end == 0 { 0.0 } else { ps as f64 / self.end as f64 };
        Outcome {
            resident: self.room.resident,
            run_seconds: seconds(self.end),
            requests_per_second: if self.end == 0 { 0.0 } else { self.requests as f64 / seconds(self.end) },
            some: share(self.pressure.some()),
            full: share(self.pressure.full()),
            stall_seconds: seconds(self.pressure.waited()),
            major_faults: self.major,
            major_fault_us: self.major_waited as f64 / 1e6 / self.major.max(1) as f64,
            background_reclaims: self.reclaimer.background(),
            direct_reclaims: self.reclaimer.direct(),
            reclaim_seconds: seconds(self.direct_busy + self.reclaimer.busy()),
        }
    }
}
