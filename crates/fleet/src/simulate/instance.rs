//! An instance of a job in a control group of a host: what a perfect agent would write of it.
//!
//! Each page of a [`Part`] is accessed as a Poisson process of rate `r(t) = (1 + a sin(wt + p)) / every_s`. Of `B` bytes,
//! those idle at `t` for at least `T` are `B exp(-(R(t) - R(t - T)))`, `R` the integral of `r`; and accesses of such pages
//! come at `r(t)` times as much a second. A scan at `s` touches a random share of all pages, which then cannot have been
//! idle for longer than since `s`.

use super::class::{Class, Part};
use isotherm_core::history::times::IDLE_NS;
use isotherm_record::parquet::window::GroupWindow;
use std::f64::consts::TAU;

const PAGE: f64 = 4096.0;
const DAY_S: f64 = 86_400.0;
/// The idle time of `accessed_bytes`, s.
const ACCESSED_S: f64 = 120.0;

/// Idle times of the lists, s.
pub fn idle_s() -> [f64; IDLE_NS.len()] {
    IDLE_NS.map(|ns| ns as f64 / 1e9)
}

/// An instance while it lives. Times are seconds since the begin of the simulation, which it may be older than.
#[derive(Debug, Clone)]
pub struct Instance {
    pub class: &'static Class,
    pub bytes: f64,
    pub born_s: f64,
    /// When it ends; no window reaches beyond.
    pub ends_s: f64,
    /// Of the daily wave, 0 to 1.
    pub phase: f64,
    /// Begins of the last scans.
    pub scans_s: Vec<f64>,
    /// What is the same in all its rows.
    pub names: GroupWindow,
}

impl Instance {
    /// The row of the window that begins at `start_s`, of an agent that watches since the simulation's begin. `scans`:
    /// whether a scan begins with it.
    pub fn window(&mut self, start_s: f64, window_s: f64, scans: bool) -> GroupWindow {
        let end_s = start_s + window_s;
        let watched_s = end_s - self.born_s.max(0.0);
        let observable = self.bytes * (1.0 - self.class.unobservable);
        let idle = idle_s();
        // Before this window's scan, if there is one: its pages are promoted, too.
        let before = scans.then(|| idle.map(|idle_s| self.cold_share(start_s, idle_s)));
        if scans {
            self.scans_s.push(start_s);
        }
        self.scans_s.retain(|scan_s| end_s - scan_s <= idle[idle.len() - 1] + window_s);
        let is_known = |i: usize| idle[i] <= watched_s;
        let cold: [f64; IDLE_NS.len()] = std::array::from_fn(|i| observable * self.cold_share(end_s, idle[i]));
        let promoted = |i: usize| {
            // The part of the window in which it had been watched for long enough to tell.
            let told_s = window_s.min(watched_s - idle[i]);
            let rate: f64 =
                self.class.parts.iter().map(|part| self.promotion_rate(part, end_s - told_s / 2.0, idle[i])).sum();
            let scanned =
                before.map_or(0.0, |before| if told_s >= window_s { before[i] * self.class.scan_share } else { 0.0 });
            observable * (rate * told_s + scanned)
        };
        let list = |value: &dyn Fn(usize) -> f64| std::array::from_fn(|i| is_known(i).then(|| pages(value(i))));
        let known = idle.iter().rev().find(|&&idle_s| idle_s <= watched_s).copied().unwrap_or(0.0);
        let accessed = (watched_s >= ACCESSED_S).then(|| observable * (1.0 - self.cold_share(end_s, ACCESSED_S)));
        GroupWindow {
            window_s: window_s as u32,
            resident_bytes: Some(pages(self.bytes)),
            swapped_bytes: Some(0),
            unobservable_bytes: Some(pages(self.bytes) - pages(observable)),
            accessed_bytes: accessed.map(pages),
            cold_bytes: list(&|i| if i == 0 { observable } else { cold[i] }),
            promoted_bytes: list(&promoted),
            watched_s: Some(known as u64),
            ..self.names.clone()
        }
    }

    /// Of its observable memory, what is idle for at least `idle_s` at `at_s`.
    fn cold_share(&self, at_s: f64, idle_s: f64) -> f64 {
        if at_s - idle_s < self.born_s {
            return 0.0; // All of it was accessed when it began.
        }
        let scans = self.scans_s.iter().filter(|&&scan_s| scan_s > at_s - idle_s && scan_s < at_s).count();
        let parts: f64 = self.class.parts.iter().map(|part| part.share * self.untouched(part, at_s, idle_s)).sum();
        parts * (1.0 - self.class.scan_share).powi(scans as i32)
    }

    /// What is promoted a second at `at_s`, as a share of its observable memory, without scans.
    fn promotion_rate(&self, part: &Part, at_s: f64, idle_s: f64) -> f64 {
        let rate = (1.0 + self.class.daily * self.angle(at_s).sin()) / part.every_s;
        let scans = self.scans_s.iter().filter(|&&scan_s| scan_s > at_s - idle_s && scan_s < at_s).count();
        part.share * rate * self.untouched(part, at_s, idle_s) * (1.0 - self.class.scan_share).powi(scans as i32)
    }

    /// The chance that a page has not been accessed in the `idle_s` before `at_s`.
    fn untouched(&self, part: &Part, at_s: f64, idle_s: f64) -> f64 {
        let wave = self.class.daily * DAY_S / TAU * (self.angle(at_s - idle_s).cos() - self.angle(at_s).cos());
        (-(idle_s + wave) / part.every_s).exp()
    }

    fn angle(&self, at_s: f64) -> f64 {
        TAU * (at_s / DAY_S + self.phase)
    }
}

/// Whole pages, in bytes.
fn pages(bytes: f64) -> u64 {
    ((bytes / PAGE).round() * PAGE) as u64
}

#[cfg(test)]
mod tests {
    use super::super::class::CLASSES;
    use super::*;

    fn instance(class: usize) -> Instance {
        Instance {
            class: &CLASSES[class],
            bytes: 1e9,
            born_s: -100_000.0,
            ends_s: f64::MAX,
            phase: 0.2,
            scans_s: Vec::new(),
            names: GroupWindow::default(),
        }
    }

    #[test]
    fn what_is_cold_and_promoted_falls_with_the_idle_time_and_is_known_as_far_as_it_was_watched() {
        for class in 0..CLASSES.len() {
            let row = instance(class).window(6900.0, 300.0, false);
            assert_eq!(row.watched_s, Some(7200));
            for list in [row.cold_bytes, row.promoted_bytes] {
                let known: Vec<u64> = list.iter().map_while(|bytes| *bytes).collect();
                assert_eq!(known.len(), 14, "up to two hours");
                assert!(known.is_sorted_by(|a, b| a >= b), "{known:?}");
                assert!(list[14..].iter().all(Option::is_none));
            }
            let observable = row.resident_bytes.unwrap() - row.unobservable_bytes.unwrap();
            assert_eq!(row.cold_bytes[0], Some(observable));
            assert!(observable.abs_diff(row.accessed_bytes.unwrap() + row.cold_bytes[7].unwrap()) <= 2 * 4096);
        }
    }

    /// The formulas against pages that are really accessed at random.
    #[test]
    fn the_formulas_agree_with_pages_accessed_at_random() {
        let mut instance = instance(0);
        let (start_s, window_s) = (40_000.0, 300.0);
        let row = instance.window(start_s, window_s, false);
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut cold, mut promoted) = ([0.0; 16], [0.0; 16]);
        for part in instance.class.parts {
            // Pages that are accessed often need fewer of them, and are the most work.
            let n = ((40.0 * part.every_s) as u32).clamp(2000, 40_000);
            for _ in 0..n {
                // Thinning: candidates at the highest rate, of which each counts with the chance of the present one.
                let most = (1.0 + instance.class.daily) / part.every_s;
                let (mut at, mut last) = (start_s - 30_000.0, start_s - 30_000.0);
                loop {
                    at -= (1.0 - rng.f64()).ln() / most;
                    if at >= start_s + window_s {
                        break;
                    }
                    if rng.f64() * (1.0 + instance.class.daily) > 1.0 + instance.class.daily * instance.angle(at).sin()
                    {
                        continue;
                    }
                    for (i, idle_s) in idle_s().into_iter().enumerate() {
                        if at >= start_s && at - last >= idle_s {
                            promoted[i] += part.share / f64::from(n);
                        }
                    }
                    last = at;
                }
                for (i, idle_s) in idle_s().into_iter().enumerate() {
                    if start_s + window_s - last >= idle_s {
                        cold[i] += part.share / f64::from(n);
                    }
                }
            }
        }
        for i in 5..16 {
            let is = |list: &[Option<u64>; 16]| list[i].unwrap() as f64 / 1e9;
            assert!((is(&row.cold_bytes) - cold[i]).abs() < 0.01, "cold {i}: {} {}", is(&row.cold_bytes), cold[i]);
            let (model, tried) = (is(&row.promoted_bytes), promoted[i]);
            assert!((model - tried).abs() < 0.003 + 0.05 * tried, "promoted {i}: {model} {tried}");
        }
    }

    #[test]
    fn a_scan_brings_back_its_share_and_makes_it_young() {
        let mut instance = instance(2);
        let quiet = instance.clone().window(40_000.0, 300.0, false);
        let scanned = instance.window(40_000.0, 300.0, true);
        let share = instance.class.scan_share;
        for i in 10..16 {
            let bytes = |row: &GroupWindow| (row.cold_bytes[i].unwrap() as f64, row.promoted_bytes[i].unwrap() as f64);
            let ((cold, promoted), (cold_after, promoted_after)) = (bytes(&quiet), bytes(&scanned));
            assert!((cold_after / cold - (1.0 - share)).abs() < 0.01, "{cold_after} of {cold}");
            let more = promoted_after - promoted;
            assert!((more / (share * cold) - 1.0).abs() < 0.25, "{more} of {cold}");
        }
    }
}
