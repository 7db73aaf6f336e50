//! Sizes and times with three decimals, as damo prints them: for tables that programs read as well.

use isotherm_core::units::NS_PER_S;

const SIZE_UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Bytes with three decimals in the largest unit that leaves at least one: `12.000 MiB`, `512 B`.
pub fn size(bytes: u64) -> String {
    let mut unit = 0;
    while unit + 1 < SIZE_UNITS.len() && bytes >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{:.3} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, SIZE_UNITS[unit]),
    }
}

/// Nanoseconds: `0 ns`, `100 ms`, `1.500 s`, `1 h 2 m 3.500 s`. Decimals are cut, not rounded, so that no unit
/// overflows.
pub fn time(ns: u64) -> String {
    let cut = |unit_ns: u64, name: &str| match ns % unit_ns {
        0 => format!("{} {name}", ns / unit_ns),
        rest => format!("{}.{:03} {name}", ns / unit_ns, rest * 1000 / unit_ns),
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => cut(1_000, "us"),
        1_000_000..NS_PER_S => cut(1_000_000, "ms"),
        _ => {
            let (hours, minutes) = (ns / (3600 * NS_PER_S), ns / (60 * NS_PER_S) % 60);
            let seconds = ns % (60 * NS_PER_S);
            let mut parts = Vec::with_capacity(3);
            if hours > 0 {
                parts.push(format!("{hours} h"));
            }
            if minutes > 0 {
                parts.push(format!("{minutes} m"));
            }
            let millis = seconds % NS_PER_S / 1_000_000;
            match (seconds / NS_PER_S, millis) {
                (0, 0) if !parts.is_empty() => {}
                (s, 0) => parts.push(format!("{s} s")),
                (s, millis) => parts.push(format!("{s}.{millis:03} s")),
            }
            parts.join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.000 KiB"),
            (12 << 20, "12.000 MiB"),
            (1 << 30, "1.000 GiB"),
            (5 << 40, "5.000 TiB"),
            (u64::MAX, "16384.000 PiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn times() {
        let cases = [
            (0, "0 ns"),
            (1_500, "1.500 us"),
            (100_000_000, "100 ms"),
            (999_999_999, "999.999 ms"),
            (1_500_000_000, "1.500 s"),
            (60_000_000_000, "1 m"),
            (61_900_000_000, "1 m 1.900 s"),
            (3_723_500_000_000, "1 h 2 m 3.500 s"),
            (3_600_000_000_000, "1 h"),
        ];
        for (ns, text) in cases {
            assert_eq!(time(ns), text);
        }
    }
}
