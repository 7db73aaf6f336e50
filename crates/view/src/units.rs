//! Units that reports share, above what the core already writes: rates in percent and in Hz, ages, short times.

use isotherm_core::snapshot::{RegionInfo, Snapshot};
use isotherm_core::units::format_time;

/// A region's access rate: the share of sampling intervals in which a page of it was found accessed, 0 to 1.
/// `None` where the region could not be observed, or nobody has looked at it yet.
pub fn rate(region: &RegionInfo, snapshot: &Snapshot) -> Option<f64> {
    (!region.is_unseen()).then(|| region.access_rate(snapshot.max_nr_accesses))
}

/// A rate as accesses seen per second: at most one in each sampling interval.
pub fn hz(rate: f64, sample_us: u64) -> f64 {
    rate * 1e6 / sample_us.max(1) as f64
}

/// How long a region's rate has stayed about the same, ns.
pub fn age_ns(region: &RegionInfo, snapshot: &Snapshot) -> u64 {
    u64::from(region.age).saturating_mul(snapshot.aggr_us).saturating_mul(1000)
}

/// A time in microseconds, as records have intervals: `5.00 ms`.
pub(crate) fn format_us(us: u64) -> String {
    format_time(us.saturating_mul(1000))
}

/// A fraction of one as a percentage with about two significant digits: `0 %`, `0.05 %`, `2.5 %`, `35 %`.
pub(crate) fn format_percent(fraction: f64) -> String {
    let p = fraction * 100.0;
    if p == 0.0 { "0 %".to_owned() } else { format!("{} %", two_digits(p)) }
}

/// The same with three significant digits: `1.07 %`. Below a hundredth of a percent nothing is left to compare: then it is
/// `less than 0.01 %`.
pub(crate) fn format_percent_exactly(fraction: f64) -> String {
    let p = fraction * 100.0;
    if p == 0.0 {
        "0 %".to_owned()
    } else if p < 0.00995 {
        "less than 0.01 %".to_owned()
    } else {
        let decimals = if p >= 9.995 { 1 } else { 2 };
        format!("{} %", trimmed(&format!("{p:.decimals$}")))
    }
}

fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// A frequency: `0 Hz`, `0.05 Hz`, `2.5 Hz`, `180 Hz`, `12 kHz`.
pub(crate) fn format_hz(hz: f64) -> String {
    if hz == 0.0 {
        "0 Hz".to_owned()
    } else if hz >= 9_999.5 {
        format!("{} kHz", two_digits(hz / 1000.0))
    } else {
        format!("{} Hz", two_digits(hz))
    }
}

/// A number with about two significant digits and no needless zeros.
fn two_digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 9.95 => 0,
        v if v >= 0.995 => 1,
        v if v >= 0.0995 => 2,
        v if v >= 0.00995 => 3,
        _ => return format!("{value:.0e}"),
    };
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_keeps_small_rates_visible() {
        let cases =
            [(0.0, "0 %"), (1.0, "100 %"), (0.05, "5 %"), (0.025, "2.5 %"), (0.0005, "0.05 %"), (1e-6, "1e-4 %")];
        for (fraction, text) in cases {
            assert_eq!(format_percent(fraction), text);
        }
    }

    #[test]
    fn costs_are_told_without_exponents() {
        let cases = [(0.0, "0 %"), (5e-7, "less than 0.01 %"), (9e-5, "less than 0.01 %"), (1e-4, "0.01 %")];
        for (fraction, text) in cases {
            assert_eq!(format_percent_exactly(fraction), text);
        }
    }

    #[test]
    fn hz_scales() {
        assert_eq!(format_hz(hz(0.9, 5000)), "180 Hz");
        assert_eq!(format_hz(0.0), "0 Hz");
        assert_eq!(format_hz(12_000.0), "12 kHz");
    }
}
