//! Windows of control groups in memory, and what each policy of a grid would have done in them, by the rule that agents
//! follow ([`isotherm_core::scheme::threshold`]). `sql/what_if.sql` says the same for engines of others; a test
//! compares both.

use super::grid::{Answer, Grid, WARMUPS};
use isotherm_core::history::times::IDLE_NS;
use isotherm_core::scheme::threshold::{NONE, SHORTEST, SeenWindow, Threshold, ThresholdPolicy};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Idle times that are thresholds.
pub const THRESHOLDS: usize = IDLE_NS.len() - SHORTEST;

/// A row of the files, as far as policies go. Bytes; `None`: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Of [`Groups::job`].
    pub job: u32,
    /// Microseconds since 1970: short windows may begin in the same second.
    pub start_us: u64,
    pub window_s: u64,
    pub resident: u64,
    pub accessed: Option<u64>,
    /// By threshold, from the shortest on.
    pub cold: [Option<u64>; THRESHOLDS],
    pub promoted: [Option<u64>; THRESHOLDS],
}

impl Window {
    /// s since 1970.
    fn start_s(&self) -> u64 {
        self.start_us / 1_000_000
    }
}

/// Windows by control group, in any order.
#[derive(Debug, Default)]
pub struct Groups {
    windows: Vec<Vec<Window>>,
    by_key: HashMap<String, usize>,
    /// Host and job.
    jobs: Vec<(String, String)>,
    by_job: HashMap<String, u32>,
}

/// What answers are summed up by.
type Key = (usize, u32, usize, u64, usize, Option<usize>);

impl Groups {
    /// The number of a job on a host.
    pub fn job(&mut self, host: &str, job: &str) -> u32 {
        let key = format!("{host}\0{job}");
        match self.by_job.entry(key) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.jobs.push((host.to_owned(), job.to_owned()));
                *entry.insert(self.jobs.len() as u32 - 1)
            }
        }
    }

    /// Adds a window of the group that is known by `key`.
    pub fn add(&mut self, key: &str, window: Window) {
        match self.by_key.get(key) {
            Some(&group) => self.windows[group].push(window),
            None => {
                self.by_key.insert(key.to_owned(), self.windows.len());
                self.windows.push(vec![window]);
            }
        }
    }

    /// What each policy would have done.
    pub fn replay(mut self, grid: &Grid) -> Vec<Answer> {
        let mut sums: HashMap<Key, Answer> = HashMap::new();
        for windows in &mut self.windows {
            windows.sort_unstable_by_key(|window| window.start_us);
            replay_group(windows, grid, &self.jobs, &mut sums);
        }
        sums.into_values().collect()
    }
}

fn replay_group(windows: &[Window], grid: &Grid, jobs: &[(String, String)], sums: &mut HashMap<Key, Answer>) {
    // Warm-ups are distinguished below.
    let policies = grid.percentiles.iter();
    let policies = policies.map(|percentile| ThresholdPolicy { rate: grid.rate, percentile: *percentile, warmup_s: 0 });
    let policies: Vec<_> = policies.collect();
    let mut past = Threshold::default();
    let first_s = windows.first().map_or(0, Window::start_s);
    for (number, window) in windows.iter().enumerate() {
        let part = usize::from(window.start_s() >= grid.split_s);
        let lived_s = window.start_s() - first_s;
        // Of the first window nobody knows how long the group has lived.
        let warmups = if number == 0 { &[][..] } else { &grid.warmups_s[..] };
        let warmup = (1..=warmups.len()).rev().find(|w| lived_s >= warmups[w - 1]).unwrap_or(0);
        debug_assert!(warmup <= WARMUPS);
        for (k, policy) in policies.iter().enumerate() {
            let threshold = past.entry(policy, window.start_s());
            let key = (k, window.job, part, window.window_s, warmup, threshold);
            let answer = sums.entry(key).or_insert_with(|| {
                let (host, job) = &jobs[window.job as usize];
                Answer {
                    k: policy.percentile,
                    host: host.clone(),
                    job: job.clone(),
                    part,
                    window_s: window.window_s,
                    warmup,
                    threshold,
                    ..Answer::default()
                }
            });
            sum_up(answer, window, grid.rate);
        }
        let mut promoted = [None; IDLE_NS.len()];
        promoted[SHORTEST..].copy_from_slice(&window.promoted);
        let seen = SeenWindow {
            start_s: window.start_s(),
            window_s: window.window_s,
            accessed: window.accessed,
            promoted: &promoted,
        };
        if let Some(policy) = policies.first() {
            past.see(&seen, policy);
        }
    }
}

/// Adds a window in which the threshold is that of `answer`.
fn sum_up(answer: &mut Answer, window: &Window, rate: f64) {
    answer.windows += 1;
    answer.resident += window.resident;
    answer.possible += window.cold[0].unwrap_or(0);
    let Some(entry) = answer.threshold.filter(|entry| *entry != NONE).map(|entry| entry - SHORTEST) else { return };
    answer.saved += window.cold[entry].unwrap_or(0);
    // Whether too much came back is told by both.
    let Some((promoted, accessed)) = window.promoted[entry].zip(window.accessed) else { return };
    answer.judged += 1;
    answer.promoted += promoted;
    answer.accessed += accessed;
    answer.broken += u64::from(promoted as f64 * 60.0 > rate * accessed as f64 * window.window_s as f64);
}
