//! Classes of jobs: how large they are, how they use their memory, how long they live. All numbers are made up.

/// A part of a job's memory whose pages are accessed at random moments, independently of each other.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Of the job's memory.
    pub share: f64,
    /// Mean time between two accesses of a page, s.
    pub every_s: f64,
}

/// How long an instance lives.
#[derive(Debug, Clone, Copy)]
pub enum Life {
    /// As long as its host.
    Host,
    /// Between so many and so many seconds, after which another one begins within `gap_s`.
    Runs { least_s: f64, most_s: f64, gap_s: f64 },
}

/// What jobs have in common.
#[derive(Debug)]
pub struct Class {
    pub name: &'static str,
    /// Of all groups.
    pub share: f64,
    /// Median of the sizes, which are log-normal with `spread` as sigma.
    pub median_bytes: f64,
    pub spread: f64,
    pub parts: &'static [Part],
    /// By how much the rate of accesses rises at the peak of the day, and falls at night; below 1.
    pub daily: f64,
    pub life: Life,
    /// The chance that a window begins with a scan that reads `scan_share` of all memory.
    pub scan_chance: f64,
    pub scan_share: f64,
    /// Whether it runs in a pod, or as a unit of systemd.
    pub in_pod: bool,
    /// Of its memory, what cannot be observed.
    pub unobservable: f64,
}

const MIB: f64 = 1024.0 * 1024.0;
const MIN: f64 = 60.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;

const fn part(share: f64, every_s: f64) -> Part {
    Part { share, every_s }
}

/// All of them.
pub const CLASSES: [Class; 4] = [
    Class {
        name: "web",
        share: 0.40,
        median_bytes: 400.0 * MIB,
        spread: 0.8,
        parts: &[part(0.35, 2.0), part(0.20, 30.0), part(0.15, 10.0 * MIN), part(0.30, 3.0 * DAY)],
        daily: 0.6,
        life: Life::Runs { least_s: 6.0 * HOUR, most_s: 72.0 * HOUR, gap_s: 10.0 * MIN },
        scan_chance: 0.0,
        scan_share: 0.0,
        in_pod: true,
        unobservable: 0.0,
    },
    Class {
        name: "batch",
        share: 0.25,
        median_bytes: 900.0 * MIB,
        spread: 1.0,
        parts: &[part(0.5, 5.0), part(0.2, 5.0 * MIN), part(0.3, 30.0 * DAY)],
        daily: 0.0,
        life: Life::Runs { least_s: 20.0 * MIN, most_s: 6.0 * HOUR, gap_s: HOUR },
        scan_chance: 0.0,
        scan_share: 0.0,
        in_pod: true,
        unobservable: 0.0,
    },
    Class {
        name: "cache",
        share: 0.20,
        median_bytes: 2048.0 * MIB,
        spread: 0.6,
        parts: &[part(0.2, 1.0), part(0.2, MIN), part(0.2, 30.0 * MIN), part(0.15, 6.0 * HOUR), part(0.25, 8.0 * DAY)],
        daily: 0.4,
        life: Life::Host,
        scan_chance: 0.01,
        scan_share: 0.10,
        in_pod: false,
        unobservable: 0.02,
    },
    Class {
        name: "idle",
        share: 0.15,
        median_bytes: 150.0 * MIB,
        spread: 1.0,
        parts: &[part(0.03, 10.0), part(0.97, 30.0 * DAY)],
        daily: 0.0,
        life: Life::Host,
        scan_chance: 0.0,
        scan_share: 0.0,
        in_pod: false,
        unobservable: 0.0,
    },
];
