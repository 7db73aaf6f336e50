//! Value parsers for clap: ranges of times and addresses.

use super::refused::Refused;
use isotherm_core::addr::AddrRange;
use isotherm_core::units::parse_time_ns;

/// `FROM-TO` in times such as `5s-1m`, as nanoseconds. Either side may be left out.
pub fn times(text: &str) -> Result<(u64, u64), Refused> {
    let (from, to) =
        text.split_once('-').ok_or_else(|| Refused::new(text, "is no range; write FROM-TO, for example 5s-20s"))?;
    let parse = |t: &str, default| if t.is_empty() { Ok(default) } else { parse_time_ns(t) };
    let (from, to) = (parse(from, 0)?, parse(to, u64::MAX)?);
    if from < to { Ok((from, to)) } else { Err(Refused::new(text, "is an empty range: FROM must lie before TO")) }
}

/// `START-END` in hexadecimal, with or without `0x`, as in /proc/PID/maps.
pub fn addresses(text: &str) -> Result<AddrRange, Refused> {
    let (start, end) = text
        .split_once('-')
        .ok_or_else(|| Refused::new(text, "is no range; write START-END, for example 7f0000000000-7f0000400000"))?;
    let parse = |t: &str| {
        let digits = t.strip_prefix("0x").unwrap_or(t);
        u64::from_str_radix(digits, 16).map_err(|_| Refused::new(t, "is not a hexadecimal address"))
    };
    let (start, end) = (parse(start)?, parse(end)?);
    if start < end {
        Ok(AddrRange::new(start, end))
    } else {
        Err(Refused::new(text, "is an empty range: START must lie below END"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(times("5s-1m"), Ok((5_000_000_000, 60_000_000_000)));
        assert_eq!(times("5s-"), Ok((5_000_000_000, u64::MAX)));
        assert_eq!(addresses("1000-0x3000"), Ok(AddrRange::new(0x1000, 0x3000)));
        assert!(times("5s").is_err() && times("5s-1s").is_err() && times("a-b").is_err());
        assert!(addresses("10").is_err() && addresses("20-10").is_err() && addresses("x-y").is_err());
    }
}
