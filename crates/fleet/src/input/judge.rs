//! Which of the files that were found are used, and why the others are not.

use super::footer::{Footer, FooterFault};
use object_store::path::Path;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

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
        "holds times of {} that {other} has, too: a copy, two machines of one name, or a clock that was set back",
        .file.footer.host
    )]
    SameTime {
        /// The file itself, which is used after all if the other one turns out to be damaged.
        file: Box<WindowFile>,
        /// The name of that one.
        other: String,
    },
    #[error("holds times that lie ahead of this machine's clock")]
    Ahead,
    #[error("is damaged: {0}")]
    Damaged(String),
    #[error("has a path with control characters or bytes that are no UTF-8; rename it")]
    Name,
    #[error("cannot be looked at: {0}")]
    Unreachable(String),
}

impl Fault {
    /// A word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Footer(FooterFault::Unreadable(_)) => "unreadable",
            Self::Footer(FooterFault::Foreign) => "foreign",
            Self::Footer(FooterFault::NewerSchema(_)) => "newer_schema",
            Self::Footer(FooterFault::Columns(_) | FooterFault::TimeUnit(_)) => "wrong_columns",
            Self::Footer(FooterFault::SeveralHosts) => "several_hosts",
            Self::Footer(FooterFault::Empty) => "empty",
            Self::Footer(FooterFault::NoStatistics) => "no_statistics",
            Self::Unfinished => "unfinished",
            Self::SameTime { .. } => "same_time",
            Self::Ahead => "ahead_of_clock",
            Self::Damaged(_) => "damaged",
            Self::Name => "bad_name",
            Self::Unreachable(_) => "unreachable",
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
    /// What names of files begin with, before their paths in the store: `/` in a folder of this machine.
    pub root: &'static str,
}

impl Inventory {
    /// A file's name, as people write it.
    pub fn name_of(&self, path: &Path) -> String {
        format!("{}{path}", self.root)
    }

    /// Judges files of `hosts` again, of which some have turned out to be damaged: `files`, the good ones, and those that were
    /// left out because of others. Returns those to use, by host and time.
    pub fn judge_again(&mut self, mut files: Vec<WindowFile>, hosts: &HashSet<String>) -> Vec<WindowFile> {
        let is_open =
            |out: &mut LeftOut| matches!(&out.fault, Fault::SameTime { file, .. } if hosts.contains(&file.footer.host));
        for out in self.left_out.extract_if(.., is_open) {
            if let Fault::SameTime { file, .. } = out.fault {
                files.push(*file);
            }
        }
        let (files, left_out) = once_each(files, self.root);
        self.left_out.extend(left_out);
        files
    }
}

/// Sorts out what cannot be used, besides what is left out already; names of files begin with `root`. Of files of a host with the same times, the one with more rows counts.
pub fn judge(found: Vec<Found>, left_out: Vec<LeftOut>, now_us: i64, root: &'static str) -> Inventory {
    let mut all = Inventory { files: Vec::new(), left_out, root };
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
    let (files, left_out) = once_each(good, root);
    all.files = files;
    all.left_out.extend(left_out);
    all.left_out.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// Files of which no two hold the same time of a host, by host and time; and the rest. Those with most rows are taken first, so
/// that a file is left out only because of one that is used.
fn once_each(mut all: Vec<WindowFile>, root: &str) -> (Vec<WindowFile>, Vec<LeftOut>) {
    all.sort_by(|a, b| {
        let key = |file: &WindowFile| (Reverse(file.footer.rows), file.footer.first_us);
        a.footer.host.cmp(&b.footer.host).then_with(|| key(a).cmp(&key(b))).then_with(|| a.path.cmp(&b.path))
    });
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    // Those of the host at hand, by their begin.
    let mut used: BTreeMap<i64, WindowFile> = BTreeMap::new();
    for file in all {
        if used.first_key_value().is_some_and(|(_, first)| first.footer.host != file.footer.host) {
            files.extend(std::mem::take(&mut used).into_values());
        }
        // None of them overlaps another, so that the last one to begin is the last one to end.
        let before = used.range(..=file.footer.last_us).next_back().map(|(_, before)| before);
        match before.filter(|before| before.footer.last_us >= file.footer.first_us) {
            Some(other) => {
                let (path, rows, other) = (file.path.clone(), Some(file.footer.rows), format!("{root}{}", other.path));
                left_out.push(LeftOut { path, fault: Fault::SameTime { file: Box::new(file), other }, rows });
            }
            None => drop(used.insert(file.footer.first_us, file)),
        }
    }
    files.extend(used.into_values());
    (files, left_out)
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
        assert_eq!(names(&judge(found(), Vec::new(), 100, "")), want);
        // In whatever order they are found.
        let reversed = found().into_iter().rev().collect();
        assert_eq!(names(&judge(reversed, Vec::new(), 100, "")), want);
    }

    /// A overlaps B, B overlaps C, and each has more rows than the one before.
    #[test]
    fn a_file_is_left_out_only_because_of_one_that_is_used() {
        let chain = vec![file("a", "h", 0, 5, 1), file("b", "h", 5, 10, 2), file("c", "h", 10, 15, 3)];
        assert_eq!(names(&judge(chain, Vec::new(), 100, "")), (vec!["a", "c"], vec![("b", "same_time")]));
    }

    #[test]
    fn what_a_damaged_file_displaced_is_judged_again() {
        let found = vec![
            file("bad", "h", 0, 9, 30),
            file("copy", "h", 0, 9, 30),
            file("part", "h", 5, 9, 3),
            file("other-0", "i", 0, 9, 2),
            file("other-1", "i", 0, 9, 1),
        ];
        let mut all = judge(found, Vec::new(), 100, "");
        assert_eq!(names(&all).0, ["bad", "other-0"]);
        let again = all.judge_again(Vec::new(), &HashSet::from(["h".to_owned()]));
        assert_eq!(again.iter().map(|file| file.path.as_ref()).collect::<Vec<_>>(), ["copy"]);
        let mut out = names(&all).1;
        out.sort_unstable();
        assert_eq!(out, [("other-1", "same_time"), ("part", "same_time")]);
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
            let all = judge(found, Vec::new(), 100, "");
            assert_eq!(all.files.len() + all.left_out.len(), files);
            let kept: u64 = all.files.iter().map(|file| file.footer.rows).sum();
            assert_eq!(kept + all.left_out.iter().filter_map(|out| out.rows).sum::<u64>(), rows, "nothing is lost");
            for pair in all.files.windows(2) {
                let (a, b) = (&pair[0].footer, &pair[1].footer);
                assert!(a.host < b.host || a.last_us < b.first_us, "{a:?} {b:?}");
            }
            for out in &all.left_out {
                let Fault::SameTime { file, other } = &out.fault else { panic!("{out:?}") };
                let (file, other) = (&file.footer, all.files.iter().find(|used| used.path.as_ref() == other).unwrap());
                assert!(file.host == other.footer.host && file.rows <= other.footer.rows, "{file:?} {other:?}");
                assert!(file.first_us <= other.footer.last_us && other.footer.first_us <= file.last_us);
            }
        }
    }

    #[test]
    fn names_are_those_that_people_write() {
        let found = vec![file("a/x", "h", 0, 10, 2), file("a/y", "h", 0, 10, 1)];
        let all = judge(found, Vec::new(), 100, "/");
        let out = &all.left_out[0];
        assert_eq!(all.name_of(&out.path), "/a/y");
        assert!(out.fault.to_string().contains("that /a/x has, too"), "{}", out.fault);
    }

    #[test]
    fn what_lies_ahead_of_the_clock_and_what_is_not_finished_is_named() {
        let found = vec![file("late", "a", 0, AHEAD_US + 101, 1), file("now", "a", 0, 101, 1)];
        let part = LeftOut { path: "x.parquet.part".into(), fault: Fault::Unfinished, rows: None };
        let all = judge(found, vec![part], 100, "");
        assert_eq!(names(&all), (vec!["now"], vec![("late", "ahead_of_clock"), ("x.parquet.part", "unfinished")]));
    }
}
