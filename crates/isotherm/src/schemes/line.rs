//! A scheme in one line: seven columns, as DAMON's first tools took them.
//!
//! ```text
//! min-size max-size min-rate max-rate min-age max-age action
//! 2M       null     5        null     null    null    hugepage      words: rates in %, ages with a unit, null: no bound
//! min      max      80       max      100ms   max     willneed      the same with min and max
//! 4096     8192     0        5        10      20      2             numbers alone: samples, aggregation intervals
//! ```

use super::value::{self, End, Scalar, end_of, share_bp, size, time_us};
use crate::args::refused::Refused;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::pattern::{AccessPattern, Bounds, FULL_RATE_BP};
use isotherm_core::scheme::{Scheme, SchemeError};

const COLUMNS: [&str; 7] = ["min-size", "max-size", "min-rate", "max-rate", "min-age", "max-age", "action"];
const EXAMPLE: &str = "4K max 0 5 5s max pageout";

/// Why a line is no scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Too few or too many columns.
    #[error("scheme '{line}' has {found} columns instead of 7 ({columns}); write for example '{EXAMPLE}'", columns = COLUMNS.join(", "))]
    Columns {
        line: String,
        /// How many.
        found: usize,
    },
    #[error("scheme '{line}', column {number} ({name}): {why}; write for example '{EXAMPLE}'", name = COLUMNS[number - 1])]
    Column {
        line: String,
        /// Which column, from 1.
        number: usize,
        /// What is wrong with it.
        why: String,
    },
    /// Each column is fine, but not all together.
    #[error("scheme '{line}': {why}")]
    Scheme { line: String, why: SchemeError },
}

/// Reads a line. Numbers alone are in samples and intervals of `attrs`.
pub fn parse(line: &str, attrs: &MonitorAttrs) -> Result<Scheme, LineError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Ok(words) = <[&str; 7]>::try_from(words.as_slice()) else {
        return Err(LineError::Columns { line: line.trim().to_owned(), found: words.len() });
    };
    let at = |(number, why)| LineError::Column { line: line.trim().to_owned(), number, why };
    let numeric = words.iter().all(|w| w.bytes().all(|b| b.is_ascii_digit()));
    let (pattern, action) = if numeric { by_numbers(&words, attrs) } else { by_words(&words) }.map_err(at)?;
    let scheme = Scheme::new(action, pattern);
    scheme.validate().map_err(|why| LineError::Scheme { line: line.trim().to_owned(), why })?;
    Ok(scheme)
}

/// Which column, and what is wrong with it.
type Fault = (usize, String);

fn by_words(words: &[&str; 7]) -> Result<(AccessPattern, Action), Fault> {
    let all = AccessPattern::default();
    let pattern = AccessPattern {
        size: range(words, 0, all.size, size)?,
        rate_bp: range(words, 2, all.rate_bp, share_bp)?,
        age_us: range(words, 4, all.age_us, time_us)?,
    };
    let action = words[6].parse::<Action>().map_err(|e| (7, e.to_string()))?;
    Ok((pattern, action))
}

fn range<T: Copy + PartialOrd>(
    words: &[&str; 7],
    first: usize,
    all: Bounds<T>,
    read: impl Fn(&Scalar) -> Result<T, Refused>,
) -> Result<Bounds<T>, Fault> {
    let end = |i: usize, end| end_of(&words[i].into(), end, all, &read).map_err(|why| (i + 1, why.to_string()));
    Ok(Bounds::new(end(first, End::Least)?, end(first + 1, End::Largest)?))
}

/// The form of DAMON's debugfs file. In its first version a largest value of 0 meant no limit; only for rates from 0 to
/// 0 the later reading is followed, no access at all: the earlier one would act on memory in use.
fn by_numbers(words: &[&str; 7], attrs: &MonitorAttrs) -> Result<(AccessPattern, Action), Fault> {
    let mut n = [0u64; 7];
    for (i, word) in words.iter().enumerate() {
        n[i] = word.parse().map_err(|_| (i + 1, format!("'{word}' is too large a number")))?;
    }
    let no_limit = |max: u64| if max == 0 { u64::MAX } else { max };
    let most = u64::from(attrs.max_nr_accesses());
    if n[2] > most {
        let why = format!(
            "{} samples with an access can never be: an aggregation interval has {most} (--aggr divided by --sample)",
            n[2]
        );
        return Err((3, why));
    }
    let rate = |samples: u64| {
        let bp = u128::from(samples.min(most)) * u128::from(FULL_RATE_BP) / u128::from(most);
        // Only what was never accessed has a rate of 0.
        (bp as u32).max(u32::from(samples > 0))
    };
    let age = |intervals| value::age_us(intervals, attrs);
    let pattern = AccessPattern {
        size: Bounds::new(n[0], no_limit(n[1])),
        rate_bp: Bounds::new(rate(n[2]), rate(if n[2] == 0 { n[3] } else { no_limit(n[3]) })),
        age_us: Bounds::new(age(n[4]), age(no_limit(n[5]))),
    };
    let action = Action::from_debugfs(n[6]).ok_or_else(|| {
        let names = "0 willneed, 1 cold, 2 pageout, 3 hugepage, 4 nohugepage, 5 stat";
        (7, format!("no action has the number {}; there are {names}", n[6]))
    })?;
    Ok((pattern, action))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ok(line: &str) -> (AccessPattern, Action) {
        let scheme = parse(line, &MonitorAttrs::default()).unwrap();
        (scheme.pattern, scheme.action)
    }

    fn fault(line: &str) -> String {
        parse(line, &MonitorAttrs::default()).unwrap_err().to_string()
    }

    fn pattern(size: (u64, u64), rate_bp: (u32, u32), age_us: (u64, u64)) -> AccessPattern {
        AccessPattern {
            size: Bounds::new(size.0, size.1),
            rate_bp: Bounds::new(rate_bp.0, rate_bp.1),
            age_us: Bounds::new(age_us.0, age_us.1),
        }
    }

    const MAX: u64 = u64::MAX;

    #[test]
    fn columns_are_pairs_of_least_and_largest() {
        assert_eq!(
            ok("2M null 5 null null null hugepage"),
            (pattern((2 << 20, MAX), (500, 10_000), (0, MAX)), Action::HugePage)
        );
        assert_eq!(
            ok(" 4K  null null 5 5s null\tpageout "),
            (pattern((4096, MAX), (0, 500), (5_000_000, MAX)), Action::PageOut)
        );
        assert_eq!(
            ok("min max 80 max 100ms max willneed"),
            (pattern((0, MAX), (8000, 10_000), (100_000, MAX)), Action::WillNeed)
        );
        assert_eq!(ok("2M max min min 7s max nohugepage").0.rate_bp, Bounds::new(0, 0));
        assert_eq!(ok("0 4K 0% 2.5% 0 1m STAT"), (pattern((0, 4096), (0, 250), (0, 60_000_000)), Action::Stat));
    }

    #[test]
    fn numbers_are_samples_and_intervals() {
        assert_eq!(
            ok("4096 8192 0 5 10 20 2"),
            (pattern((4096, 8192), (0, 2500), (1_000_000, 2_000_000)), Action::PageOut)
        );
        let attrs = MonitorAttrs { sample_us: 1_000, aggr_us: 10_000, ..Default::default() };
        let scheme = parse("4096 8192 0 5 10 20 5", &attrs).unwrap();
        assert_eq!(scheme.pattern, pattern((4096, 8192), (0, 5000), (100_000, 200_000)));
        assert_eq!(scheme.action, Action::Stat);
    }

    #[test]
    fn a_largest_number_of_zero_is_no_limit() {
        assert_eq!(ok("4096 0 5 0 10 0 3").0, pattern((4096, MAX), (2500, 10_000), (1_000_000, MAX)));
        assert_eq!(ok("4096 0 0 0 10 0 2").0.rate_bp, Bounds::new(0, 0), "hot memory is not paged out by a zero");
        assert_eq!(ok("0 18446744073709551615 0 100 0 18446744073709551615 2").0, AccessPattern::default());
        for longer_than_100_years in ["31536000001", "10000000000000", "18446744073709551614"] {
            let line = format!("8 657 0 8 397 {longer_than_100_years} 1");
            assert_eq!(ok(&line).0.age_us, Bounds::new(39_700_000, MAX));
        }
        assert_eq!(ok("8 657 0 8 0 31536000000 1").0.age_us, Bounds::new(0, 3_153_600_000_000_000));
    }

    #[test]
    fn the_column_at_fault_is_named() {
        for (line, parts) in [
            ("", &["0 columns", "7"][..]),
            ("4K null null 5 5s pageout", &["6 columns", "min-age"]),
            ("4K null null 5x 5s null pageout", &["column 4 (max-rate)", "5x"]),
            ("4Q null null 5 5s null pageout", &["column 1 (min-size)", "4Q"]),
            ("4K null null 5 5 null pageout", &["column 5 (min-age)", "'5'", "100ms"]),
            ("4K null null 500 5s null pageout", &["column 4", "100%"]),
            ("4K null null 5 5s null page_out", &["column 7 (action)", "pageout"]),
            ("4K null null 5 5s null 2", &["column 7 (action)", "'2'"]),
            ("4096 8192 0 5 10 20 6", &["column 7", "6", "2 pageout"]),
            ("4096 8192 21 30 10 20 2", &["column 3", "21", "20"]),
            ("4096 99999999999999999999 0 5 10 20 2", &["column 2", "too large"]),
            ("8K 4K 0 5 0 max stat", &["size", "above the largest"]),
            ("8192 4096 0 5 0 0 2", &["size", "above the largest"]),
            ("4K max 5 1 0 max stat", &["access rate", "above"]),
            ("4K max 0 5 5s 1s stat", &["age", "above"]),
            ("4K max 0 5 5s max migrate_cold", &["target_nid"]),
        ] {
            let text = fault(line);
            for part in parts {
                assert!(text.contains(part), "{line:?}: {text:?} lacks {part:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(line in "\\PC{0,60}", sample in 1u64..100_000, aggr in 1u64..10_000_000) {
            let attrs = MonitorAttrs { sample_us: sample, aggr_us: aggr, ..Default::default() };
            let _ = parse(&line, &attrs);
        }

        #[test]
        fn what_is_read_is_valid(
            words in prop::collection::vec(
                prop_oneof![
                    Just("null".to_owned()), Just("min".to_owned()), Just("max".to_owned()),
                    any::<u64>().prop_map(|n| n.to_string()), "[0-9]{1,4}(%|K|M|G|s|ms|m|h)?",
                ],
                6,
            ),
            action in prop_oneof![Just("pageout"), Just("stat"), Just("2"), Just("migrate_hot")],
        ) {
            let line = format!("{} {action}", words.join(" "));
            if let Ok(scheme) = parse(&line, &MonitorAttrs::default()) {
                prop_assert!(scheme.validate().is_ok());
                prop_assert!(scheme.pattern.rate_bp.max <= FULL_RATE_BP);
            }
        }
    }
}
