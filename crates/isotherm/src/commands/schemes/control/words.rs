//! Patterns and goals in words.

use crate::schemes::{MetricName, Written};
use isotherm_core::printable::printable;
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use isotherm_core::scheme::pattern::{AccessPattern, FULL_RATE_BP};
use isotherm_core::units::{format_size, format_time};

/// `4.00 KiB or more, accessed at most 5%, for 5.00 s or longer`.
pub fn pattern(p: &AccessPattern) -> String {
    let size = match (p.size.min, p.size.max) {
        (0 | 1, u64::MAX) => "any size".to_owned(),
        (min, u64::MAX) => format!("{} or more", format_size(min)),
        (0 | 1, max) => format!("at most {}", format_size(max)),
        (min, max) if min == max => format_size(min),
        (min, max) => format!("{} to {}", format_size(min), format_size(max)),
    };
    let rate = match (p.rate_bp.min, p.rate_bp.max) {
        (0, FULL_RATE_BP..) => "accessed or not".to_owned(),
        (0, 0) => "not accessed".to_owned(),
        (0, max) => format!("accessed at most {}", percent(max)),
        (min, FULL_RATE_BP..) => format!("accessed {} or more", percent(min)),
        (min, max) => format!("accessed {} to {}", percent(min), percent(max)),
    };
    let time = |us: u64| format_time(us.saturating_mul(1000));
    let age = match (p.age_us.min, p.age_us.max) {
        (0, u64::MAX) => "of any age".to_owned(),
        (min, u64::MAX) => format!("for {} or longer", time(min)),
        (0, max) => format!("for at most {}", time(max)),
        (min, max) => format!("for {} to {}", time(min), time(max)),
    };
    format!("{size}, {rate}, {age}")
}

/// A process's name, which may hold anything, in one line of at most 80 characters.
pub fn one_line(name: &str) -> String {
    printable(name).chars().take(80).collect()
}

/// Basis points as a percentage without needless digits.
fn percent(bp: u32) -> String {
    share(f64::from(bp) / 100.0)
}

/// A percentage without needless digits; of small ones as many as say more than nothing.
fn share(percent: f64) -> String {
    let text = if percent < 0.1 { format!("{percent:.4}") } else { format!("{percent:.2}") };
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

pub fn metric(metric: &GoalMetric) -> String {
    match metric {
        GoalMetric::UserInput => "user_input".to_owned(),
        GoalMetric::Read(metric) => metric.to_string(),
    }
}

/// `some_mem_psi 0.31% of 0.5%`: values are written as in scheme files.
pub fn goal(goal: &Goal, current: Option<u64>) -> String {
    let now = current.map_or("not known yet".to_owned(), |v| value(goal, v));
    format!("{} {now} of {}", metric(&goal.metric), value(goal, goal.target))
}

fn value(goal: &Goal, value: u64) -> String {
    let name = MetricName::of(goal);
    let text = match name.written(value, goal.window_ns) {
        Written::Number(n) => n.to_string(),
        Written::Size(bytes) => format_size(bytes),
        Written::Percent(p) => share(p),
    };
    match name {
        MetricName::SwapIn | MetricName::Refault | MetricName::TargetMajorFaults => text + "/s",
        MetricName::SomeMemPsiUs | MetricName::FullMemPsiUs => text + " us",
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::meter::Metric;
    use isotherm_core::scheme::pattern::Bounds;

    #[test]
    fn patterns_read_well() {
        assert_eq!(pattern(&AccessPattern::default()), "any size, accessed or not, of any age");
        let p = AccessPattern {
            size: Bounds::new(4096, u64::MAX),
            rate_bp: Bounds::new(0, 550),
            age_us: Bounds::new(5_000_000, u64::MAX),
        };
        assert_eq!(pattern(&p), "4.00 KiB or more, accessed at most 5.5%, for 5.00 s or longer");
        let p = AccessPattern { rate_bp: Bounds::new(0, 0), size: Bounds::new(0, 8192), ..p };
        assert_eq!(pattern(&p), "at most 8.00 KiB, not accessed, for 5.00 s or longer");
        let p = AccessPattern { rate_bp: Bounds::new(8000, 10_000), age_us: Bounds::new(0, 2_000_000), ..p };
        assert_eq!(pattern(&p), "at most 8.00 KiB, accessed 80% or more, for at most 2.00 s");
    }

    #[test]
    fn goals_have_their_units() {
        let read = |m| GoalMetric::Read(m);
        let g = |metric, target| Goal { metric, target, window_ns: 10_000_000_000, falls: false };
        let psi = g(read(Metric::SomeMemPsi(None)), 50_000);
        assert_eq!(goal(&psi, Some(31_000)), "some_mem_psi 0.31% of 0.5%");
        assert_eq!(goal(&psi, None), "some_mem_psi not known yet of 0.5%");
        let small = g(read(Metric::SomeMemPsi(None)), 100);
        assert_eq!(goal(&small, Some(1500)), "some_mem_psi 0.015% of 0.001%");
        assert_eq!(goal(&small, Some(0)), "some_mem_psi 0% of 0.001%");
        assert_eq!(goal(&g(GoalMetric::UserInput, 7), Some(3)), "user_input 3 of 7");
        assert_eq!(goal(&g(read(Metric::FreeMemRate), 2000), Some(1)), "free_mem_rate 0.01% of 20%");
        let rss = g(read(Metric::TargetRss), 1 << 30);
        assert_eq!(goal(&rss, Some(1 << 29)), "target_rss 512 MiB of 1.00 GiB");
        let swap = g(read(Metric::SwapIn), 40960);
        assert_eq!(goal(&swap, Some(0)), "swap_in 0 B/s of 4.00 KiB/s");
    }
}
