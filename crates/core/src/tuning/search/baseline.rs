//! Runs as shares of the command alone, where the machine's speed may change meanwhile.

use crate::tuning::figures::{Figures, median};

/// What a share's noise is taken for before anything is known: runtime and memory, and how many runs that weighs.
const GUESS: Figures = Figures { seconds: 0.02, memory: 0.01 };
const GUESS_RUNS: f64 = 3.0;
/// Shares are never taken for more exact than this: no curve fits a program that well.
const LEAST: Figures = Figures { seconds: 0.006, memory: 0.01 };

/// How far a run alone may differ from the median of them without being taken for disturbed, where the others agree.
const AGREEING: f64 = 0.03;

/// Runs of the command alone, those that something disturbed drawn to the others: no further from their median than twice
/// the median of the distances. What changes steadily stays as it is.
pub fn steadied(alone: &[(usize, Figures)]) -> Vec<(usize, Figures)> {
    let bounds = |figure: fn(&Figures) -> f64| {
        let middle = median(alone.iter().map(|(_, f)| figure(f)))?;
        let far = median(alone.iter().map(|(_, f)| (figure(f) - middle).abs()))?;
        let far = (2.0 * far).max(AGREEING * middle);
        Some((middle - far, middle + far))
    };
    let (Some(seconds), Some(memory)) = (bounds(|f| f.seconds), bounds(|f| f.memory)) else { return Vec::new() };
    let within = |f: &Figures| Figures {
        seconds: f.seconds.clamp(seconds.0, seconds.1),
        memory: f.memory.clamp(memory.0, memory.1),
    };
    alone.iter().map(|(turn, f)| (*turn, within(f))).collect()
}

/// What the command alone takes at each turn: of its runs before and after, the nearer the more, half drawn to the mean
/// of all, because each of them has noise of its own. `None` without any.
pub fn alone_at(alone: &[(usize, Figures)], turn: usize) -> Option<Figures> {
    let (first, last) = (alone.first()?, alone.last()?);
    let before = alone.iter().rev().find(|(at, _)| *at <= turn).unwrap_or(first);
    let after = alone.iter().find(|(at, _)| *at >= turn).unwrap_or(last);
    let way = if after.0 > before.0 { (turn - before.0) as f64 / (after.0 - before.0) as f64 } else { 0.0 };
    let of = |figure: fn(&Figures) -> f64| {
        let between = figure(&before.1) * (1.0 - way) + figure(&after.1) * way;
        let mean = alone.iter().map(|(_, f)| figure(f)).sum::<f64>() / alone.len() as f64;
        f64::midpoint(between, mean)
    };
    Some(Figures { seconds: of(|f| f.seconds), memory: of(|f| f.memory) })
}

/// The standard error of a share, from how the command's runs alone differ.
pub fn noise(sessions: &[Vec<Figures>]) -> Figures {
    let of = |figure: fn(&Figures) -> f64| {
        let mut sum = GUESS_RUNS * figure(&GUESS).powi(2);
        let mut runs = GUESS_RUNS;
        for alone in sessions.iter().filter(|a| a.len() > 1) {
            let mean = alone.iter().map(figure).sum::<f64>() / alone.len() as f64;
            sum += alone.iter().map(|f| (figure(f) / mean - 1.0).powi(2)).sum::<f64>();
            runs += (alone.len() - 1) as f64;
        }
        // Of the run itself, and of those that it is compared with.
        (1.5 * sum / runs).sqrt().max(figure(&LEAST))
    };
    Figures { seconds: of(|f| f.seconds), memory: of(|f| f.memory) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(seconds: f64) -> Figures {
        Figures { seconds, memory: 100.0 }
    }

    #[test]
    fn a_machine_that_becomes_slower_is_followed() {
        let alone = [(0, took(10.0)), (4, took(12.0)), (8, took(14.0))];
        let at = |turn| alone_at(&alone, turn).unwrap().seconds;
        assert!((at(0) - 11.0).abs() < 1e-9 && (at(2) - 11.5).abs() < 1e-9, "half of the way from the mean");
        assert!((at(4) - 12.0).abs() < 1e-9 && (at(20) - 13.0).abs() < 1e-9);
        assert_eq!(alone_at(&alone[..1], 5), Some(took(10.0)));
        assert_eq!(alone_at(&[], 5), None);
    }

    #[test]
    fn a_disturbed_run_alone_counts_like_the_others_and_a_steady_change_stays() {
        let steady = [(0, took(10.0)), (4, took(12.0)), (8, took(14.0))];
        assert_eq!(steadied(&steady), steady);
        let disturbed = [(0, took(20.5)), (4, took(14.2)), (9, took(14.2))];
        let seconds: Vec<f64> = steadied(&disturbed).iter().map(|(_, f)| f.seconds).collect();
        assert!(seconds[0] < 14.7 && seconds[1..] == [14.2, 14.2], "{seconds:?}");
        assert_eq!(steadied(&steady[..2]), steady[..2]);
        assert_eq!(steadied(&[]), []);
    }

    #[test]
    fn noise_comes_from_runs_of_the_command_alone() {
        let quiet = noise(&[vec![took(10.0); 3]]);
        let loud = noise(&[vec![took(10.0), took(12.0), took(8.0)]]);
        assert!(quiet.seconds < 0.03 && loud.seconds > 0.1, "{quiet:?} {loud:?}");
        assert!(noise(&[]).seconds > 0.0 && quiet.memory >= LEAST.memory);
    }
}
