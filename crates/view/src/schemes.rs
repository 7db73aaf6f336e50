//! What schemes did over time, from the lines that `isotherm schemes --stats` writes.

use crate::error::ViewError;
use crate::series::Point;
use isotherm_core::printable::make_printable;
use isotherm_core::scheme::stats::{StatsLine, applied_to};
use isotherm_core::units::{format_size, format_time};
use std::io::{BufRead, Write};

/// A goal's course.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalHistory {
    /// Values by time, in the unit of the goal. Those of a goal that had this place before are left out.
    pub values: Vec<Point>,
    /// What it aims at, at the end.
    pub target: u64,
}

/// A reason to be idle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// Its code.
    pub code: String,
    /// The last sentence with it.
    pub last: String,
    /// In how many lines it was given.
    pub lines: usize,
}

/// A scheme's course.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemeHistory {
    pub scheme: usize,
    /// How many schemes of other actions had its number before.
    pub before: usize,
    pub action: String,
    /// Whether nothing was done: what follows is what would have been.
    pub dry_run: bool,
    /// First and last time, ns.
    pub span_ns: (u64, u64),
    /// Resident memory of the targets.
    pub rss: Vec<Point>,
    /// Memory that is out at present.
    pub saved: Vec<Point>,
    /// The effective quota, bytes per reset interval; no point where there is no limit.
    pub quota: Vec<Point>,
    /// Bytes that the action succeeded for, per second.
    pub applied_rate: Vec<Point>,
    /// Time that some task waited for memory, microseconds per second.
    pub waiting: Vec<Point>,
    pub goals: Vec<GoalHistory>,
    /// Bytes tried, applied, paged out and come back within 10 s, at the end.
    pub totals: (u64, u64, u64, u64),
    /// Why it was idle; the most frequent reason first.
    pub idle: Vec<Idle>,
    pub lines: usize,
}

impl SchemeHistory {
    /// `scheme 0 (pageout)`, `scheme 0 (pageout), dry run`.
    pub fn title(&self) -> String {
        let dry_run = if self.dry_run { ", dry run" } else { "" };
        format!("scheme {} ({}){dry_run}", self.scheme, self.action)
    }

    /// What no other course of a file is called: its number, and, where others had that before, how many: `0`, `0.1`.
    pub fn name(&self) -> String {
        match self.before {
            0 => self.scheme.to_string(),
            before => format!("{}.{before}", self.scheme),
        }
    }
}

/// Reads the courses of all schemes, and whether the last line is cut off: what writes it runs still, or was killed. Such a line is
/// left out.
pub fn read(mut input: impl BufRead) -> Result<(Vec<SchemeHistory>, bool), ViewError> {
    let mut all: Vec<(SchemeHistory, StatsLine)> = Vec::new();
    let mut is_cut_off = false;
    let mut text = Vec::new();
    for number in 1.. {
        let bad = |why: String| ViewError::BadStatistics { line: number, why };
        text.clear();
        if input.read_until(b'\n', &mut text).map_err(|e| bad(e.to_string()))? == 0 {
            break;
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let mut line: StatsLine = match serde_json::from_slice(&text) {
            Ok(line) => line,
            Err(e) if e.is_eof() && !text.ends_with(b"\n") && !all.is_empty() => {
                is_cut_off = true;
                break;
            }
            Err(e) => return Err(bad(e.to_string())),
        };
        make_printable(&mut line.action);
        line.idle_code.iter_mut().chain(&mut line.idle_reason).for_each(make_printable);
        match all.iter_mut().rev().find(|(h, _)| h.scheme == line.scheme) {
            // With another action it is another scheme, which was put in its place.
            Some((history, last)) if last.action == line.action => {
                history.add(&line, Some(last));
                *last = line;
            }
            earlier => {
                let mut history = SchemeHistory {
                    scheme: line.scheme,
                    before: earlier.map_or(0, |(h, _)| h.before + 1),
                    action: line.action.clone(),
                    dry_run: line.dry_run,
                    span_ns: (line.time_ns, line.time_ns),
                    rss: Vec::new(),
                    saved: Vec::new(),
                    quota: Vec::new(),
                    applied_rate: Vec::new(),
                    waiting: Vec::new(),
                    goals: Vec::new(),
                    totals: (0, 0, 0, 0),
                    idle: Vec::new(),
                    lines: 0,
                };
                history.add(&line, None);
                all.push((history, line));
            }
        }
    }
    if all.is_empty() {
        return Err(ViewError::NoStatistics);
    }
    let mut all: Vec<SchemeHistory> = all.into_iter().map(|(h, _)| h).collect();
    all.sort_by_key(|h| h.scheme);
    all.iter_mut().for_each(|h| h.idle.sort_by_key(|x| std::cmp::Reverse(x.lines)));
    Ok((all, is_cut_off))
}

impl SchemeHistory {
    fn add(&mut self, line: &StatsLine, last: Option<&StatsLine>) {
        let at = |value| Point { time_ns: line.time_ns, value };
        let stats = &line.stats;
        self.lines += 1;
        self.span_ns = (self.span_ns.0.min(line.time_ns), self.span_ns.1.max(line.time_ns));
        self.rss.extend(line.rss.map(at));
        self.saved.push(at(stats.effect.saved_now));
        self.quota.extend(stats.effective_quota.map(at));
        if let Some(last) = last.filter(|l| l.time_ns < line.time_ns) {
            let seconds = (line.time_ns - last.time_ns) as f64 / 1e9;
            let per_second = |now: u64, then: u64| at((now.saturating_sub(then) as f64 / seconds) as u64);
            self.applied_rate.push(per_second(stats.sz_applied, last.stats.sz_applied));
            self.waiting.extend(stats.stall_us.zip(last.stats.stall_us).map(|(now, then)| per_second(now, then)));
        }
        self.goals.truncate(line.goal_targets.len());
        for (i, &target) in line.goal_targets.iter().enumerate() {
            // What another goal had counts in another unit, maybe.
            if self.goals.get(i).is_none_or(|goal| goal.target != target) {
                self.goals.truncate(i);
                self.goals.push(GoalHistory { values: Vec::new(), target });
            }
            self.goals[i].values.extend(line.goals.get(i).copied().flatten().map(at));
        }
        self.totals = (stats.sz_tried, stats.sz_applied, stats.effect.out, stats.effect.back_10s);
        if let Some(reason) = &line.idle_reason {
            let code = line.idle_code.as_deref().unwrap_or("not known");
            match self.idle.iter_mut().find(|known| known.code == code) {
                Some(known) => (known.lines, known.last) = (known.lines + 1, reason.clone()),
                None => self.idle.push(Idle { code: code.to_owned(), last: reason.clone(), lines: 1 }),
            }
        }
    }
}

/// Writes a few lines for each scheme.
pub fn write_text(all: &[SchemeHistory], out: &mut dyn Write) -> Result<(), ViewError> {
    for h in all {
        let (tried, applied, gone, back) = h.totals;
        let length = format_time(h.span_ns.1 - h.span_ns.0);
        let (tried, applied) = (format_size(tried), format_size(applied));
        writeln!(out, "{}, {length}: tried {tried}, {} {applied}", h.title(), applied_to(h.dry_run))?;
        if gone > 0 {
            let share = back as f64 * 100.0 / gone as f64;
            writeln!(out, "  paged out {}, of which {share:.1} % came back within 10 s", format_size(gone))?;
        }
        if let (Some(first), Some(last)) = (h.rss.first(), h.rss.last()) {
            let mean = h.rss.iter().map(|p| p.value as u128).sum::<u128>() / h.rss.len() as u128;
            writeln!(
                out,
                "  resident {} at first, {} at last, {} on average",
                format_size(first.value),
                format_size(last.value),
                format_size(mean as u64)
            )?;
        }
        for (i, goal) in h.goals.iter().enumerate() {
            match goal.values.last() {
                Some(last) => writeln!(out, "  goal {i}: {} of {} at last", last.value, goal.target)?,
                None => writeln!(out, "  goal {i}: never known, aims at {}", goal.target)?,
            }
        }
        for idle in &h.idle {
            let share = idle.lines as f64 * 100.0 / h.lines as f64;
            writeln!(out, "  idle {share:.0} % of the time ({}), last because {}", idle.code, idle.last)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u64, applied: u64, idle: &str) -> String {
        format!(
            r#"{{"time_ns":{},"scheme":0,"action":"pageout","nr_tried":1,"sz_tried":{applied},"sz_applied":{applied},"effective_quota":null,{idle},"goals":[5,null],"goal_targets":[10,7],"rss":{},"out":{applied},"back_10s":1,"stall_us":{}}}"#,
            second * 1_000_000_000,
            1000 - applied,
            applied * 3
        )
    }

    #[test]
    fn lines_become_a_course() {
        let text = [
            line(1, 0, r#""idle_reason":null"#),
            line(2, 100, r#""idle_code":"watching","idle_reason":"watching 3 MiB page by page""#),
            line(3, 300, r#""idle_code":"watching","idle_reason":"watching 9 MiB page by page""#),
        ];
        let (all, is_cut_off) = read(text.join("\n").as_bytes()).unwrap();
        assert!(!is_cut_off);
        let h = &all[0];
        assert_eq!(h.applied_rate.iter().map(|p| p.value).collect::<Vec<_>>(), [100, 200]);
        assert_eq!(h.waiting.iter().map(|p| p.value).collect::<Vec<_>>(), [300, 600]);
        assert_eq!(h.rss.last().unwrap().value, 700);
        assert!(h.quota.is_empty(), "no limit is no quota of zero");
        assert_eq!((h.goals[0].values.len(), h.goals[1].values.len()), (3, 0));
        let idle = Idle { code: "watching".into(), last: "watching 9 MiB page by page".into(), lines: 2 };
        assert_eq!(h.idle, [idle]);
        let mut out = Vec::new();
        write_text(&all, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("goal 1: never known, aims at 7"), "{out}");
        assert!(out.contains("idle 67 % of the time (watching), last because watching 9 MiB"), "{out}");
    }

    #[test]
    fn a_scheme_with_another_action_is_another_one() {
        let first = line(1, 300, r#""idle_reason":null"#);
        let other = line(2, 100, r#""idle_reason":null"#).replace("pageout", "stat");
        let (all, _) = read(format!("{first}\n{other}").as_bytes()).unwrap();
        let totals: Vec<_> = all.iter().map(|h| (h.title(), h.name(), h.totals.1)).collect();
        let of = |action: &str, name: &str, applied| (format!("scheme 0 ({action})"), name.to_owned(), applied);
        assert_eq!(totals, [of("pageout", "0", 300), of("stat", "0.1", 100)]);
    }

    #[test]
    fn a_dry_run_is_not_told_as_done() {
        let text = line(1, 300, r#""idle_reason":null"#);
        let dry = text.replacen('{', r#"{"dry_run":true,"#, 1);
        let report = |text: &str| {
            let mut out = Vec::new();
            write_text(&read(text.as_bytes()).unwrap().0, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(report(&dry).starts_with("scheme 0 (pageout), dry run, 0 ns: tried 300 B, would apply to 300 B\n"));
        assert!(report(&text).starts_with("scheme 0 (pageout), 0 ns: tried 300 B, applied to 300 B\n"));
    }

    #[test]
    fn values_are_those_of_the_goals_at_the_end() {
        let first = line(1, 0, r#""idle_reason":null"#);
        let other = |second, text: &str| {
            line(second, 0, r#""idle_reason":null"#).replace(r#""goals":[5,null],"goal_targets":[10,7]"#, text)
        };
        let of = |second_line: String| {
            let text = format!("{first}\n{second_line}");
            let (mut all, _) = read(text.as_bytes()).unwrap();
            all.remove(0).goals.iter().map(|g| (g.values.iter().map(|p| p.value).collect(), g.target)).collect()
        };
        let known: Vec<(Vec<u64>, u64)> = of(other(2, r#""goals":[6,8],"goal_targets":[10,7]"#));
        assert_eq!(known, [(vec![5, 6], 10), (vec![8], 7)]);
        let another: Vec<(Vec<u64>, u64)> = of(other(2, r#""goals":[null],"goal_targets":[20]"#));
        assert_eq!(another, [(vec![], 20)], "nothing is known of the new goal, and the second is no more");
    }

    #[test]
    fn what_a_file_says_does_not_command_the_terminal() {
        let text = line(1, 0, r#""idle_reason":"a\u001b[2Jb","idle_code":"\u001b""#).replace("pageout", "\\u001b[31m");
        let mut out = Vec::new();
        write_text(&read(text.as_bytes()).unwrap().0, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(!out.contains('\x1b') && out.contains(r"a\u{1b}[2Jb"), "{out}");
    }

    #[test]
    fn what_is_no_statistics_is_refused_by_its_line() {
        let text = format!("{}\nnonsense\n", line(1, 0, r#""idle_reason":null"#));
        assert!(read(text.as_bytes()).unwrap_err().to_string().starts_with("line 2 is not"));
        assert!(matches!(read(&b"\n"[..]), Err(ViewError::NoStatistics)));
        assert!(read(&b"{\"scheme\":1}"[..]).is_err());
    }

    #[test]
    fn a_last_line_that_is_cut_off_is_left_out_and_no_other() {
        let whole = line(1, 0, r#""idle_reason":"é""#);
        let text = format!("{whole}\n{whole}");
        for end in whole.len() + 2..text.len() {
            let (all, is_cut_off) = read(&text.as_bytes()[..end]).unwrap();
            assert_eq!((all[0].lines, is_cut_off), (1, true), "{end}");
        }
        let cut = &whole[..20];
        assert!(read(cut.as_bytes()).is_err(), "nothing else is there");
        assert!(read(format!("{whole}\n{cut}\n{whole}").as_bytes()).is_err(), "not the last");
    }

    #[test]
    fn a_clock_that_went_back_is_no_negative_time() {
        let text = [5, 1, 3].map(|second| line(second, 0, r#""idle_reason":null"#)).join("\n");
        let (all, _) = read(text.as_bytes()).unwrap();
        assert_eq!(all[0].span_ns, (1_000_000_000, 5_000_000_000));
        write_text(&all, &mut Vec::new()).unwrap();
    }
}
