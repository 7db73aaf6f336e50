//! What policies would have brought and cost.

use super::grid::{Answer, Grid, WARMUPS};
use crate::engine::clocks::AgentWindow;
use std::collections::{BTreeMap, HashMap};

/// Of one policy, in one part of time. Bytes are sums over hosts of each host's mean over the time that it was watched.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    pub resident: f64,
    /// What was idle for 2 min, whoever it was.
    pub possible: f64,
    pub saved: f64,
    /// Bytes a second that came back.
    pub promoted: f64,
    /// What was accessed within 120 s while the policy acted.
    pub accessed: f64,
    /// Windows in which it took something, and those of them in which more came back than allowed.
    pub windows: u64,
    pub broken: u64,
}

impl Outcome {
    fn add(&mut self, answer: &Answer, watched_s: f64, acts: bool) {
        let of_time = answer.window_s as f64 / watched_s;
        let mean = |sum: u64| sum as f64 * of_time;
        self.resident += mean(answer.resident);
        self.possible += mean(answer.possible);
        if acts {
            self.saved += mean(answer.saved);
            self.promoted += answer.promoted as f64 / watched_s;
            self.accessed += mean(answer.accessed);
            self.windows += answer.judged;
            self.broken += answer.broken;
        }
    }

    /// Of resident memory.
    pub fn saved_share(&self) -> f64 {
        if self.resident > 0.0 { self.saved / self.resident } else { 0.0 }
    }

    /// Of windows in which it acted, those over the limit.
    pub fn broken_share(&self) -> f64 {
        if self.windows > 0 { self.broken as f64 / self.windows as f64 } else { 0.0 }
    }

    /// Of what was accessed, what came back a minute; `None`: it never acted.
    pub fn promoted_share(&self) -> Option<f64> {
        (self.accessed > 0.0).then(|| self.promoted * 60.0 / self.accessed)
    }
}

/// Of all policies of a grid.
#[derive(Debug)]
pub struct Outcomes {
    /// By percentile, warm-up and part of time.
    pub grid: Vec<[[Outcome; 2]; WARMUPS]>,
    /// By job, with the first percentile and the first warm-up.
    pub jobs: BTreeMap<String, Outcome>,
    /// Thresholds in use with these: time of groups, s, by entry; 16 is none.
    pub thresholds_s: [u64; 17],
    /// In which time no threshold was known, s.
    pub unknown_s: u64,
    pub hosts: u64,
    /// Rows left out because their machine's clock was set back, by host.
    pub set_back: BTreeMap<String, u64>,
    percentiles: Vec<f64>,
}

impl Outcomes {
    /// None yet.
    pub fn new(grid: &Grid) -> Self {
        Self {
            grid: vec![Default::default(); grid.percentiles.len()],
            jobs: BTreeMap::new(),
            thresholds_s: [0; 17],
            unknown_s: 0,
            hosts: 0,
            set_back: BTreeMap::new(),
            percentiles: grid.percentiles.clone(),
        }
    }

    /// Adds hosts: their windows, those that were left out, and what was answered about them.
    pub fn add(&mut self, windows: &[AgentWindow], left_out: &[AgentWindow], mut answers: Vec<Answer>) {
        let mut watched: HashMap<&str, f64> = HashMap::new();
        for window in windows {
            *watched.entry(&window.host).or_default() += window.window_s as f64;
        }
        for window in left_out {
            *self.set_back.entry(window.host.clone()).or_default() += window.rows;
        }
        // In an order of their own, since sums of fractions depend on it.
        answers.sort_by(|a, b| {
            let key = |answer: &Answer| (answer.part, answer.window_s, answer.warmup, answer.threshold);
            a.host
                .cmp(&b.host)
                .then_with(|| a.job.cmp(&b.job))
                .then_with(|| a.k.total_cmp(&b.k))
                .then_with(|| key(a).cmp(&key(b)))
        });
        for answer in &answers {
            if let Some(&watched_s) = watched.get(&*answer.host).filter(|s| **s > 0.0) {
                self.add_answer(answer, watched_s);
            }
        }
        self.hosts += watched.len() as u64;
    }

    fn add_answer(&mut self, answer: &Answer, watched_s: f64) {
        let Some(k) = self.percentiles.iter().position(|k| *k == answer.k) else { return };
        let acts = |warmup: usize| answer.warmup > warmup && answer.threshold.is_some();
        for (warmup, parts) in self.grid[k].iter_mut().enumerate() {
            parts[answer.part.min(1)].add(answer, watched_s, acts(warmup));
        }
        if k == 0 {
            self.jobs.entry(answer.job.clone()).or_default().add(answer, watched_s, acts(0));
            let time_s = answer.windows * answer.window_s;
            match answer.threshold.filter(|_| acts(0)) {
                Some(threshold) => self.thresholds_s[threshold.min(16)] += time_s,
                None => self.unknown_s += time_s,
            }
        }
    }
}
