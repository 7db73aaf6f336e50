//! From which age on a control group's memory is taken, as it follows from the group's own past.
//!
//! In each window the smallest idle time is found at which no more than a part of the working set came back a minute. The
//! threshold is a percentile of these over the past, or the last one where that was larger; a group is left alone for a while
//! when it begins. (Lagar-Cavilla et al., "Software-defined far memory in warehouse-scale computers", ASPLOS 2019, section 4.)
//! `isotherm-fleet` replays the same by its query `what_if.sql`, and a test compares the two.

use crate::history::times::IDLE_NS;
use crate::units::parse_percent;

/// The shortest threshold, as an entry of [`IDLE_NS`]: 2 min. Pages in constant use are not counted below.
pub const SHORTEST: usize = 7;
/// What stands for no threshold at all: more came back at each.
pub const NONE: usize = IDLE_NS.len();

/// The parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThresholdPolicy {
    /// Of what was accessed within 120 s, how much may come back a minute.
    pub rate: f64,
    /// Which of the past best thresholds is used, 0 to 1.
    pub percentile: f64,
    /// For how long a group is left alone, s.
    pub warmup_s: u64,
}

impl Default for ThresholdPolicy {
    /// The rate that was published for such policies, and a careful percentile.
    fn default() -> Self {
        Self { rate: 0.002, percentile: 0.98, warmup_s: 20 * 60 }
    }
}

/// A [rate](ThresholdPolicy::rate) as people write it: `0.2%/min`. `None`: it is none, or nothing.
pub fn parse_rate(text: &str) -> Option<f64> {
    let share = parse_percent(text.strip_suffix("/min")?).ok()?;
    (share > 0.0 && share.is_finite()).then_some(share)
}

/// A [percentile](ThresholdPolicy::percentile) as people write it: `98` or `98%`. `None`: it is none.
pub fn parse_percentile(text: &str) -> Option<f64> {
    parse_percent(text).ok().filter(|share| (0.0..=1.0).contains(share))
}

/// A group's past.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Threshold {
    /// In how many windows each entry was the best.
    best: [u64; NONE + 1],
    last: Option<usize>,
    /// Begin of the first window, s.
    first_s: Option<u64>,
}

/// What was seen in a window, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenWindow<'a> {
    /// Begin, s.
    pub start_s: u64,
    /// Its length, s.
    pub window_s: u64,
    /// Within 120 s before its end; `None`: not known.
    pub accessed: Option<u64>,
    /// Accessed again after each idle time; `None` from where it was not watched for so long.
    pub promoted: &'a [Option<u64>; IDLE_NS.len()],
}

impl SeenWindow<'_> {
    /// The smallest entry at which no more than allowed came back. Where none of those that are known is, it is the next
    /// one: at least that.
    pub fn best(&self, rate: f64) -> Option<usize> {
        let allowed = rate * self.accessed? as f64 * self.window_s as f64;
        self.promoted[SHORTEST]?;
        let keeps = |promoted: &Option<u64>| promoted.is_none_or(|bytes| bytes as f64 * 60.0 <= allowed);
        Some(self.promoted[SHORTEST..].iter().position(keeps).map_or(NONE, |i| SHORTEST + i))
    }
}

impl Threshold {
    /// Takes over a window.
    pub fn see(&mut self, window: &SeenWindow<'_>, policy: &ThresholdPolicy) {
        self.first_s.get_or_insert(window.start_s);
        self.last = window.best(policy.rate);
        if let Some(best) = self.last {
            self.best[best] += 1;
        }
    }

    /// The entry of [`IDLE_NS`] from which on memory is to be taken in a window that begins at `now_s`, [`NONE`] for none;
    /// `None`: not known yet, or the group is too young.
    pub fn entry(&self, policy: &ThresholdPolicy, now_s: u64) -> Option<usize> {
        if now_s.saturating_sub(self.first_s?) < policy.warmup_s {
            return None;
        }
        let past: u64 = self.best.iter().sum();
        let wanted = policy.percentile * past as f64;
        let mut within = 0;
        let usual = self.best[SHORTEST..].iter().position(|windows| {
            within += windows;
            within as f64 >= wanted
        });
        let usual = (past > 0).then_some(usual.map_or(NONE, |i| SHORTEST + i))?;
        Some(self.last.map_or(usual, |last| last.max(usual)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: ThresholdPolicy = ThresholdPolicy { rate: 0.002, percentile: 0.75, warmup_s: 600 };

    /// A window of 300 s in which 1000 bytes were in use, and `back` came back at each known entry from 2 min on: 10 may.
    fn see(threshold: &mut Threshold, number: u64, back: &[u64]) {
        let mut promoted = [None; IDLE_NS.len()];
        promoted[..SHORTEST].fill(Some(1000));
        promoted[SHORTEST..].iter_mut().zip(back).for_each(|(entry, bytes)| *entry = Some(*bytes));
        let window = SeenWindow { start_s: number * 300, window_s: 300, accessed: Some(1000), promoted: &promoted };
        threshold.see(&window, &POLICY);
    }

    #[test]
    fn the_threshold_follows_the_past_and_reacts_to_the_last_window() {
        let mut threshold = Threshold::default();
        assert_eq!(threshold.entry(&POLICY, 0), None);
        see(&mut threshold, 0, &[11, 10, 0]);
        assert_eq!(threshold.entry(&POLICY, 300), None, "too young");
        see(&mut threshold, 1, &[11, 10, 0]);
        assert_eq!(threshold.entry(&POLICY, 600), Some(8));
        see(&mut threshold, 2, &[11, 11, 11]);
        assert_eq!(
            threshold.entry(&POLICY, 900),
            Some(10),
            "all that is known is too much, so it is the next at least"
        );
        for number in 3..6 {
            see(&mut threshold, number, &[0, 0, 0]);
        }
        assert_eq!(threshold.entry(&POLICY, 1800), Some(8), "three of six windows at 7, five at 8");
        see(&mut threshold, 6, &[11; 9]);
        assert_eq!(threshold.entry(&POLICY, 2100), Some(NONE));
    }

    #[test]
    fn what_was_not_watched_is_no_window_to_learn_from() {
        let mut threshold = Threshold::default();
        for number in 0..5 {
            see(&mut threshold, number, &[]);
        }
        assert_eq!(threshold.entry(&POLICY, 1500), None);
        see(&mut threshold, 5, &[0]);
        assert_eq!(threshold.entry(&POLICY, 1800), Some(7));
    }
}
