//! What policies would have brought and cost.

use super::grid::{Answer, Grid, WARMUPS};
use crate::engine::clocks::AgentWindow;
use std::collections::{BTreeMap, HashMap};

/// Of one policy, in one part of time. Bytes are sums over hosts of each host's mean over the time that it was watched in that part.
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
    /// Windows in which it took something and that can be judged, and those of them in which more came back than allowed.
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

    /// Of windows in which it acted, those over the limit; `None`: there is none that can be judged.
    pub fn broken_share(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.broken as f64 / self.windows as f64)
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
    /// By job, with the first percentile and the first warm-up, over both parts of time.
    pub jobs: BTreeMap<String, Outcome>,
    /// Thresholds in use with these: time of groups, s, by entry; 16 is none.
    pub thresholds_s: [u64; 17],
    /// In which time no threshold was known, s.
    pub unknown_s: u64,
    pub hosts: u64,
    /// Rows left out because their machine's clock was set back, by host.
    pub set_back: BTreeMap<String, u64>,
    percentiles: Vec<f64>,
    split_s: u64,
}

/// For how long a host was watched in each part of time, s.
type Watched = [f64; 2];

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
            split_s: grid.split_s,
        }
    }

    /// Adds hosts: their windows, those that were left out, and what was answered about them.
    pub fn add(&mut self, windows: &[AgentWindow], left_out: &[AgentWindow], mut answers: Vec<Answer>) {
        let mut watched: HashMap<&str, Watched> = HashMap::new();
        for window in windows {
            let part = usize::from(window.start_s() >= self.split_s);
            watched.entry(&window.host).or_default()[part] += window.window_s as f64;
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
            // Windows of no length have no mean.
            if let Some(watched) = watched.get(&*answer.host).filter(|watched| watched[answer.part.min(1)] > 0.0) {
                self.add_answer(answer, watched);
            }
        }
        self.hosts += watched.len() as u64;
    }

    fn add_answer(&mut self, answer: &Answer, watched: &Watched) {
        let part = answer.part.min(1);
        let Some(k) = self.percentiles.iter().position(|k| *k == answer.k) else { return };
        let acts = |warmup: usize| answer.warmup > warmup && answer.threshold.is_some();
        for (warmup, parts) in self.grid[k].iter_mut().enumerate() {
            parts[part].add(answer, watched[part], acts(warmup));
        }
        if k == 0 {
            self.jobs.entry(answer.job.clone()).or_default().add(answer, watched.iter().sum(), acts(0));
            let time_s = answer.windows * answer.window_s;
            match answer.threshold.filter(|_| acts(0)) {
                Some(threshold) => self.thresholds_s[threshold.min(16)] += time_s,
                None => self.unknown_s += time_s,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start_s: u64, window_s: u64) -> AgentWindow {
        let text = String::new;
        AgentWindow {
            host: "h".to_owned(),
            cluster: None,
            boot_id: text(),
            kernel: text(),
            version: text(),
            source: text(),
            start_us: start_s * 1_000_000,
            window_s,
            rows: 1,
            monitor_cpu_us: None,
            target_cost_us: None,
        }
    }

    #[test]
    fn each_part_of_the_time_has_its_own_mean() {
        let grid = Grid { rate: 0.002, warmups_s: [0; WARMUPS], percentiles: vec![0.98], split_s: 900 };
        let mut outcomes = Outcomes::new(&grid);
        let windows = [window(0, 300), window(300, 300), window(600, 300), window(900, 300)];
        let answer = |part: usize, windows: u64| Answer {
            k: 0.98,
            host: "h".to_owned(),
            job: "j".to_owned(),
            part,
            window_s: 300,
            warmup: 1,
            threshold: Some(7),
            windows,
            resident: 1000 * windows,
            saved: 400 * windows,
            ..Answer::default()
        };
        outcomes.add(&windows, &[], vec![answer(0, 3), answer(1, 1)]);
        for part in outcomes.grid[0][0] {
            assert_eq!((part.resident, part.saved), (1000.0, 400.0));
        }
        assert_eq!((outcomes.jobs["j"].resident, outcomes.jobs["j"].saved), (1000.0, 400.0));
    }
}
