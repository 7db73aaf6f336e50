//! Round values along a time axis.

/// Ticks of a time axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimeTicks {
    /// Seconds and label of each tick.
    pub ticks: Vec<(f64, String)>,
    /// What the labels are in: `s`, `min:s`, `h:min`, or `h:min:s` where minutes would not tell ticks apart.
    pub unit: &'static str,
}

/// Steps between ticks, seconds.
const STEPS: [f64; 30] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1200.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 432_000.0, 864_000.0,
];

/// At most `most` round ticks in `[from, to]` seconds.
pub(crate) fn time_ticks(from: f64, to: f64, most: usize) -> TimeTicks {
    let most = most.max(1) as f64;
    let span = (to - from).max(0.0);
    let step = STEPS.into_iter().find(|s| span / s <= most).unwrap_or(span / most).max(0.001);
    let unit = match to {
        t if t < 120.0 => "s",
        t if t < 7200.0 => "min:s",
        _ if step < 60.0 => "h:min:s",
        _ => "h:min",
    };
    let first = (from / step - 1e-6).ceil() as i64;
    let last = (to / step + 1e-6).floor() as i64;
    let ticks = (first..=last).map(|i| i as f64 * step).map(|t| (t, label(t, step, unit))).collect();
    TimeTicks { ticks, unit }
}

fn label(seconds: f64, step: f64, unit: &str) -> String {
    let decimals = (-step.log10()).ceil().clamp(0.0, 3.0) as usize;
    let ms = (seconds * 1000.0).round() as u64;
    let (hours, minutes) = (ms / 3_600_000, ms / 60_000);
    let of_minute = (ms % 60_000) as f64 / 1000.0;
    let width = if decimals > 0 { decimals + 3 } else { 2 };
    match unit {
        "s" => format!("{seconds:.decimals$}"),
        "min:s" => format!("{minutes}:{of_minute:0width$.decimals$}"),
        "h:min:s" => format!("{hours}:{:02}:{of_minute:0width$.decimals$}", minutes % 60),
        _ => format!("{hours}:{:02}", minutes % 60),
    }
}

/// Multiples of a power of two up to `max`, at most `most` above zero.
pub(crate) fn size_ticks(max: u64, most: u64) -> Vec<u64> {
    let mut step = 1u64;
    while max / step > most && step < 1 << 62 {
        step *= 2;
    }
    (0..=max / step).map(|i| i * step).collect()
}

/// Multiples of 1, 2 or 5 times a power of ten up to `max`, at most `most` above zero.
pub(crate) fn number_ticks(max: u64, most: u64) -> Vec<u64> {
    let powers = std::iter::successors(Some(1u64), |power| power.checked_mul(10));
    let mut steps = powers.flat_map(|power| [1, 2, 5].map(|n| power.saturating_mul(n)));
    let step = steps.find(|step| max / step <= most).unwrap_or(u64::MAX);
    (0..=max / step).map(|i| i * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from: f64, to: f64, most: usize) -> String {
        let t = time_ticks(from, to, most);
        let labels: Vec<_> = t.ticks.into_iter().map(|t| t.1).collect();
        format!("{} {}", labels.join(" "), t.unit)
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(0.0, 20.0, 5), "0 5 10 15 20 s");
        assert_eq!(labels(0.0, 1.9, 5), "0.0 0.5 1.0 1.5 s");
        assert_eq!(labels(3.0, 3.07, 4), "3.00 3.02 3.04 3.06 s");
        assert_eq!(labels(0.0, 300.0, 6), "0:00 1:00 2:00 3:00 4:00 5:00 min:s");
        assert_eq!(labels(0.0, 36_000.0, 5), "0:00 2:00 4:00 6:00 8:00 10:00 h:min");
        assert_eq!(labels(5.0, 5.0, 5), "5.000 s");
    }

    #[test]
    fn no_two_ticks_read_alike() {
        assert_eq!(labels(8000.0, 8100.0, 6), "2:13:20 2:13:40 2:14:00 2:14:20 2:14:40 2:15:00 h:min:s");
        assert_eq!(labels(8000.0, 8001.0, 2), "2:13:20.0 2:13:20.5 2:13:21.0 h:min:s");
        assert_eq!(labels(179.0, 180.0, 2), "2:59.0 2:59.5 3:00.0 min:s");
        for begin in [0.0, 100.0, 5000.0, 7190.0, 86_390.0, 1e7] {
            for span in [0.01, 0.7, 3.0, 15.0, 100.0, 3000.0, 1e5] {
                let mut all: Vec<String> = time_ticks(begin, begin + span, 6).ticks.into_iter().map(|t| t.1).collect();
                let count = all.len();
                all.dedup();
                assert_eq!(all.len(), count, "{begin} + {span}: {all:?}");
            }
        }
    }

    #[test]
    fn sizes_are_powers_of_two_apart() {
        assert_eq!(size_ticks(100 << 20, 4), [0, 32 << 20, 64 << 20, 96 << 20]);
        assert_eq!(size_ticks(3, 4), [0, 1, 2, 3]);
        assert_eq!(size_ticks(0, 4), [0]);
    }

    #[test]
    fn numbers_are_decimal() {
        assert_eq!(number_ticks(60_000, 4), [0, 20_000, 40_000, 60_000]);
        assert_eq!(number_ticks(65_000, 2), [0, 50_000]);
        assert_eq!(number_ticks(3, 4), [0, 1, 2, 3]);
        assert_eq!(number_ticks(0, 4), [0]);
        assert_eq!(number_ticks(u64::MAX, 1), [0, 10_000_000_000_000_000_000]);
    }
}
