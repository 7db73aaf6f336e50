//! Where the time that a policy is chosen on ends, and the rest, which it is tried on, begins.

use crate::input::judge::WindowFile;
use anyhow::bail;

const DAY_S: u64 = 86_400;

/// Where the rest begins, s since 1970: `test` of all rows are of windows from then on. It is the begin of a day if there are at
/// least two days, and if half of the rows that are before it are so at the day's begin, too.
///
/// By rows and not by time: a few files of long ago (a clock that stood at 1970, a host that was restored from a copy) would else
/// move it so far back that nearly all windows are of the rest. Fails where there is nothing to split.
pub fn split(files: &[WindowFile], test: f64) -> anyhow::Result<u64> {
    let first = files.iter().map(|file| second(file.footer.first_us)).min().unwrap_or(0);
    let last = files.iter().map(|file| second(file.footer.last_us)).max().unwrap_or(0);
    if last <= first {
        bail!("one window is not enough to choose a policy and to try it");
    }
    let rows = rows_from(files, first);
    let wanted = rows * test;
    // The latest second from which on there are as many. There are as many from `first` on, and none behind `last`.
    let (mut at, mut behind) = (first, last + 1);
    while behind - at > 1 {
        let middle = at + (behind - at) / 2;
        if rows_from(files, middle) >= wanted { at = middle } else { behind = middle }
    }
    // Something must be before it.
    let at = at.max(first + 1);
    let before = |second: u64| rows - rows_from(files, second);
    let day = at - at % DAY_S;
    let has_days = last - first >= 2 * DAY_S - 3600 && day > first && before(day) * 2.0 >= before(at);
    Ok(if has_days { day } else { at })
}

/// Rows of windows that begin at `at_s` or later. Footers tell only when a file's first and last windows begin: those of a file are
/// taken as spread evenly between.
fn rows_from(files: &[WindowFile], at_s: u64) -> f64 {
    let of_file = |file: &WindowFile| {
        let (first, last) = (second(file.footer.first_us), second(file.footer.last_us));
        let share = match at_s {
            at if at <= first => 1.0,
            at if at >= last => 0.0,
            at => (last - at) as f64 / (last - first) as f64,
        };
        share * file.footer.rows as f64
    };
    files.iter().map(of_file).sum()
}

fn second(us: i64) -> u64 {
    u64::try_from(us / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::footer::Footer;

    /// 2026-01-05 00:00 UTC.
    const BEGIN_S: u64 = 1_767_571_200;

    /// Windows of 5 min of one group.
    fn file(first_s: u64, last_s: u64, rows: u64) -> WindowFile {
        let us = |s: u64| i64::try_from(s * 1_000_000).unwrap();
        let footer = Footer { host: "h".to_owned(), first_us: us(first_s), last_us: us(last_s), rows };
        WindowFile { path: "x".into(), bytes: 1, footer }
    }

    /// Files of an hour, of `hosts` hosts each, from `from_h` on.
    fn hours(hosts: u64, from_h: u64, hours: u64) -> Vec<WindowFile> {
        let begin = |hour: u64| BEGIN_S + hour * 3600;
        let of_hour = |hour| (0..hosts).map(move |_| file(begin(hour), begin(hour) + 3300, 12));
        (from_h..from_h + hours).flat_map(of_hour).collect()
    }

    #[test]
    fn a_clock_that_stood_at_1970_does_not_move_the_border() {
        let stale = [file(0, 3300, 12), file(BEGIN_S - 400 * DAY_S, BEGIN_S - 400 * DAY_S + 3300, 12)];
        // It was put right while the file was written.
        let jumped = [file(0, BEGIN_S + 3300, 12)];
        for old in [&[][..], &stale, &jumped] {
            let days = [hours(2, 0, 7 * 24), old.to_vec()].concat();
            assert_eq!(split(&days, 0.33).unwrap(), BEGIN_S + 4 * DAY_S, "{old:?}");
            // Of a single day there is none to begin with.
            let day = [hours(2, 1, 20), old.to_vec()].concat();
            let hour = (split(&day, 0.33).unwrap() - BEGIN_S) / 3600;
            assert!((13..=14).contains(&hour), "{hour} {old:?}");
        }
    }

    #[test]
    fn a_day_that_leaves_little_to_choose_from_does_not_begin_the_rest() {
        // Three days from noon on, and two from the afternoon on, of which ten hours would be left.
        assert_eq!(split(&hours(1, 12, 72), 0.33).unwrap(), BEGIN_S + 2 * DAY_S);
        let late = split(&hours(1, 14, 48), 0.33).unwrap();
        assert!((45..=46).contains(&((late - BEGIN_S) / 3600)), "{late}");
    }

    #[test]
    fn one_file_is_split_by_its_time_and_one_window_is_not() {
        assert_eq!(split(&[file(BEGIN_S, BEGIN_S + 3000, 11)], 0.33).unwrap(), BEGIN_S + 2010);
        assert!(split(&[file(BEGIN_S, BEGIN_S, 11)], 0.33).unwrap_err().to_string().contains("one window"));
        // Nearly all is of the first moment, and a part must be before the border all the same.
        let at = split(&[file(BEGIN_S, BEGIN_S, 1000), file(BEGIN_S + 300, BEGIN_S + 300, 1)], 0.33).unwrap();
        assert!((BEGIN_S + 1..=BEGIN_S + 300).contains(&at), "{at}");
    }
}
