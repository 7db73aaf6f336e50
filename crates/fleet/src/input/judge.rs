//! Which of the files that were found are used, and why the others are not.

use super::footer::{Footer, FooterFault};
use object_store::path::Path;
use std::cmp::Reverse;

/// How far a window may lie ahead of this machine's clock, microseconds.
const AHEAD_US: i64 = 3_600_000_000;

/// A file that was found.
#[derive(Debug)]
pub struct Found {
    pub path: Path,
    pub bytes: u64,
    pub footer: Result<Footer, FooterFault>,
}

/// A file that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowFile {
    pub path: Path,
    pub bytes: u64,
    pub footer: Footer,
}

/// Why a file is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Footer(#[from] FooterFault),
    #[error("is not finished: it is being written, or its agent was killed")]
    Unfinished,
    #[error(
        "holds times of {host} that {other} has, too: a copy, two machines of one name, or a clock that was set back"
    )]
    SameTime { host: String, other: Path },
    #[error("holds times that lie ahead of this machine's clock")]
    Ahead,
    #[error("is damaged: {0}")]
    Damaged(String),
}

impl Fault {
    /// A word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Footer(FooterFault::Unreadable(_)) => "unreadable",
            Self::Footer(FooterFault::Foreign) => "foreign",
            Self::Footer(FooterFault::NewerSchema(_)) => "newer_schema",
            Self::Footer(FooterFault::Columns(_)) => "wrong_columns",
            Self::Footer(FooterFault::SeveralHosts) => "several_hosts",
            Self::Footer(FooterFault::Empty) => "empty",
            Self::Footer(FooterFault::NoStatistics) => "no_statistics",
            Self::Unfinished => "unfinished",
            Self::SameTime { .. } => "same_time",
            Self::Ahead => "ahead_of_clock",
            Self::Damaged(_) => "damaged",
        }
    }
}

/// A file that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub path: Path,
    pub fault: Fault,
    /// `None`: nobody knows.
    pub rows: Option<u64>,
}

/// All that was found.
#[derive(Debug, Default)]
pub struct Inventory {
    /// By host and time.
    pub files: Vec<WindowFile>,
    pub left_out: Vec<LeftOut>,
}

/// Sorts out what cannot be used. Of files of a host with the same times, the one with more rows counts.
pub fn judge(found: Vec<Found>, unfinished: Vec<Path>, now_us: i64) -> Inventory {
    let mut all = Inventory::default();
    all.left_out.extend(unfinished.into_iter().map(|path| LeftOut { path, fault: Fault::Unfinished, rows: None }));
    let mut good = Vec::new();
    for Found { path, bytes, footer } in found {
        match footer {
            Err(fault) => all.left_out.push(LeftOut { path, fault: fault.into(), rows: None }),
            Ok(footer) if footer.last_us > now_us.saturating_add(AHEAD_US) => {
                all.left_out.push(LeftOut { path, fault: Fault::Ahead, rows: Some(footer.rows) });
            }
            Ok(footer) => good.push(WindowFile { path, bytes, footer }),
        }
    }
    good.sort_by(|a, b| {
        let key = |file: &WindowFile| (file.footer.first_us, Reverse(file.footer.rows));
        a.footer.host.cmp(&b.footer.host).then_with(|| key(a).cmp(&key(b))).then_with(|| a.path.cmp(&b.path))
    });
    for file in good {
        match all
            .files
            .last()
            .filter(|last| last.footer.host == file.footer.host && last.footer.last_us >= file.footer.first_us)
        {
            // Files before that one end before it begins, so that they end before this one, too.
            Some(last) if last.footer.rows < file.footer.rows => {
                if let Some(last) = all.files.pop() {
                    all.left_out.push(same_time(last, &file));
                }
                all.files.push(file);
            }
            Some(last) => {
                let fault = same_time(file, last);
                all.left_out.push(fault);
            }
            None => all.files.push(file),
        }
    }
    all.left_out.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

fn same_time(file: WindowFile, other: &WindowFile) -> LeftOut {
    let fault = Fault::SameTime { host: file.footer.host, other: other.path.clone() };
    LeftOut { path: file.path, fault, rows: Some(file.footer.rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, host: &str, first_us: i64, last_us: i64, rows: u64) -> Found {
        let footer = Ok(Footer { host: host.to_owned(), first_us, last_us, rows });
        Found { path: path.into(), bytes: 1, footer }
    }

    fn names(all: &Inventory) -> (Vec<&str>, Vec<(&str, &str)>) {
        let out = all.left_out.iter().map(|out| (out.path.as_ref(), out.fault.code())).collect();
        (all.files.iter().map(|file| file.path.as_ref()).collect(), out)
    }

    #[test]
    fn the_same_hour_twice_counts_once_and_the_fuller_file_stays() {
        let found = || {
            vec![
                file("a-0", "a", 0, 5, 10),
                file("a-1", "a", 6, 9, 10),
                file("copy", "a", 6, 9, 10),
                file("b-0", "b", 0, 5, 3),
                file("b-full", "b", 0, 9, 30),
                file("c-0", "c", 0, 9, 30),
                file("c-part", "c", 8, 9, 3),
            ]
        };
        let want = (
            vec!["a-0", "a-1", "b-full", "c-0"],
            vec![("b-0", "same_time"), ("c-part", "same_time"), ("copy", "same_time")],
        );
        assert_eq!(names(&judge(found(), Vec::new(), 100)), want);
        // In whatever order they are found.
        let reversed = found().into_iter().rev().collect();
        assert_eq!(names(&judge(reversed, Vec::new(), 100)), want);
    }

    #[test]
    fn no_two_files_of_a_host_overlap_whatever_is_found() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..2000 {
            let found: Vec<Found> = (0..rng.usize(..8))
                .map(|i| {
                    let first = rng.i64(0..20);
                    file(&format!("f{i}"), ["a", "b"][rng.usize(..2)], first, first + rng.i64(0..6), rng.u64(1..5))
                })
                .collect();
            let (files, rows) = (found.len(), found.iter().map(|f| f.footer.as_ref().unwrap().rows).sum::<u64>());
            let all = judge(found, Vec::new(), 100);
            assert_eq!(all.files.len() + all.left_out.len(), files);
            let kept: u64 = all.files.iter().map(|file| file.footer.rows).sum();
            assert_eq!(kept + all.left_out.iter().filter_map(|out| out.rows).sum::<u64>(), rows, "nothing is lost");
            for pair in all.files.windows(2) {
                let (a, b) = (&pair[0].footer, &pair[1].footer);
                assert!(a.host < b.host || a.last_us < b.first_us, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn what_lies_ahead_of_the_clock_and_what_is_not_finished_is_named() {
        let found = vec![file("late", "a", 0, AHEAD_US + 101, 1), file("now", "a", 0, 101, 1)];
        let all = judge(found, vec!["x.parquet.part".into()], 100);
        assert_eq!(names(&all), (vec!["now"], vec![("late", "ahead_of_clock"), ("x.parquet.part", "unfinished")]));
    }
}
