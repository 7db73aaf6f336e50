//! Windows of time, at whose end each control group is a row of a Parquet file.

use super::promotions::Promotions;
use super::rules::Rules;
use super::rules::status::RuleStatus;
use crate::groups::Groups;
use anyhow::bail;
use isotherm_core::event::MonitorStats;
use isotherm_core::history::reaccessed::Reaccessed;
use isotherm_core::units::NS_PER_S;
use isotherm_linux::clock::{monotonic_ns, unix_us};
use isotherm_linux::folder_lock::FolderLock;
use isotherm_record::parquet::files::{FileError, HourFiles};
use isotherm_record::parquet::window::{GroupWindow, Origin};
use isotherm_view::machine::{Machine, Row};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// How long another node may hold the folder: one that is just ending.
const PATIENCE: Duration = Duration::from_secs(2);
/// For how long the counters of a group without processes are kept, ns: longer than its rule goes on with its own.
const AWAY_NS: u64 = 120_000_000_000;
/// What is shorter goes on into the next window, since it would be none in whole seconds, ns. At the end of a run nothing is left to
/// go on into.
const SHORTEST_NS: u64 = 500_000_000;

/// A moment by both clocks: the time of day says which window it is in, and may be set; how long a window is the monotonic clock
/// tells, which stands still while the machine is suspended, as all that is watched does.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Microseconds since 1970.
    pub unix_us: i64,
    /// Of the monotonic clock.
    pub ns: u64,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        Self { unix_us: unix_us(), ns: monotonic_ns() }
    }
}

/// The rows under way.
#[derive(Debug)]
pub struct Windows {
    files: HourFiles,
    length_us: i64,
    begin: Moment,
    /// Counters at the begin of the window; of a group that was without processes then, when it had some last.
    stats: Option<MonitorStats>,
    groups: HashMap<String, Counters>,
    _lock: FolderLock,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    /// When they were read.
    time_ns: u64,
    reaccessed: Option<Reaccessed>,
    stall_us: Option<u64>,
    /// Bytes paged out, and of these back within 10 and 60 s.
    reclaimed: Option<[u64; 3]>,
}

/// What a window's rows are drawn from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    pub machine: &'a Machine,
    pub promotions: &'a Promotions,
    pub groups: &'a Groups,
    pub rules: Option<&'a Rules>,
    pub stats: Option<&'a MonitorStats>,
    pub now: Moment,
}

impl Windows {
    /// Files in `folder`; windows of `length` from full ones of them since 1970 on.
    pub fn new(folder: &Path, length: Duration, origin: Origin, now: Moment) -> anyhow::Result<Self> {
        let error = |error| FileError::Folder { path: folder.to_owned(), error };
        std::fs::create_dir_all(folder).map_err(error)?;
        let lock = match FolderLock::take(folder, PATIENCE) {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                let folder = folder.display();
                bail!("another isotherm node writes into {folder} already; give this one another folder (--parquet)");
            }
            lock => lock.map_err(error)?,
        };
        let length_us = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        let files = HourFiles::new(folder, origin)?;
        Ok(Self { files, length_us, begin: now, stats: None, groups: HashMap::new(), _lock: lock })
    }

    /// How accesses are seen.
    pub fn set_source(&mut self, source: &str) {
        self.files.set_source(source);
    }

    /// Whether the window has ended; also where the clock was set back. One that begins just before a full length goes on to the next.
    pub const fn is_due(&self, now: Moment) -> bool {
        let begin_us = self.begin.unix_us;
        let mut end_us = (begin_us.div_euclid(self.length_us) + 1).saturating_mul(self.length_us);
        if end_us - begin_us < (SHORTEST_NS / 1000) as i64 {
            end_us = end_us.saturating_add(self.length_us);
        }
        (now.unix_us >= end_us || now.unix_us < begin_us) && self.lasts_ns(now) >= SHORTEST_NS
    }

    const fn lasts_ns(&self, now: Moment) -> u64 {
        now.ns.saturating_sub(self.begin.ns)
    }

    /// Ends the window. What cannot be written is reported and lost.
    pub fn end(&mut self, sources: Sources<'_>) {
        let length_ns = self.lasts_ns(sources.now);
        if length_ns < SHORTEST_NS {
            return;
        }
        let begin_us = std::mem::replace(&mut self.begin, sources.now).unix_us;
        let rows = self.rows(begin_us, length_ns, sources);
        if rows.is_empty() {
            return;
        }
        match self.files.write(begin_us, rows) {
            Ok(Some(path)) => tracing::info!("wrote {}", path.display()),
            Ok(None) => {}
            Err(e) => tracing::warn!("{e}"),
        }
    }

    /// Gives the last file its name.
    pub fn finish(mut self) {
        match self.files.finish() {
            Ok(Some(path)) => tracing::info!("wrote {}", path.display()),
            Ok(None) => {}
            Err(e) => tracing::warn!("{e}"),
        }
    }

    fn rows(&mut self, begin_us: i64, length_ns: u64, sources: Sources<'_>) -> Vec<GroupWindow> {
        let mut before = std::mem::take(&mut self.groups);
        let stats = (self.stats, sources.stats.copied());
        self.stats = sources.stats.copied();
        let us = |field: fn(&MonitorStats) -> u64| {
            let (first, last) = stats;
            Some(field(&last?).saturating_sub(first.as_ref().map_or(0, field)) / 1000)
        };
        let window = GroupWindow {
            window_start_us: begin_us,
            window_s: u32::try_from((length_ns + NS_PER_S / 2) / NS_PER_S).unwrap_or(u32::MAX),
            monitor_cpu_us: us(|stats| stats.monitor_ns),
            target_cost_us: us(|stats| stats.target_ns),
            ..GroupWindow::default()
        };
        let mut rows = Vec::new();
        for row in &sources.machine.groups {
            let Some(path) = &row.cgroup else { continue };
            let memcg = sources.groups.memcg(path);
            let now = Counters {
                time_ns: sources.now.ns,
                reaccessed: sources.promotions.of(path),
                stall_us: memcg.as_ref().and_then(|memcg| memcg.stall_us().ok()),
                reclaimed: sources
                    .rules
                    .and_then(|rules| reclaimed(&rules.status(row, sources.promotions, sources.now.ns)?)),
            };
            let before = before.remove(path);
            self.groups.insert(path.clone(), now);
            let mut window = of_group(window.clone(), row, path, sources.groups);
            window.inode = memcg.as_ref().and_then(|memcg| memcg.inode().ok());
            window.limit_bytes = memcg.and_then(|memcg| memcg.limit().ok().flatten()).map(|limit| limit.bytes);
            if let Some(reaccessed) = now.reaccessed {
                window.set_promoted(&reaccessed.since(&before.and_then(|b| b.reaccessed).unwrap_or_default()));
            }
            window.stall_us = now.stall_us.zip(before.and_then(|b| b.stall_us)).and_then(|(now, b)| now.checked_sub(b));
            if let Some(now) = now.reclaimed {
                // A group that the rules begin with, or begin with anew, had nothing before.
                let before = before.and_then(|b| b.reclaimed).filter(|before| before[0] <= now[0]).unwrap_or_default();
                let since = std::array::from_fn(|i| Some(now[i].saturating_sub(before[i])));
                [window.reclaimed_bytes, window.refault_10s_bytes, window.refault_60s_bytes] = since;
            }
            rows.push(window);
        }
        // A service that starts anew finds the counters of its group where they were.
        let away = before.into_iter().filter_map(|(path, counters)| {
            let reaccessed = counters.reaccessed.filter(|_| sources.promotions.of(&path).is_some());
            let is_kept = reaccessed.is_some() || sources.now.ns.saturating_sub(counters.time_ns) < AWAY_NS;
            is_kept.then_some((path, Counters { reaccessed, stall_us: None, ..counters }))
        });
        self.groups.extend(away);
        rows
    }
}

fn reclaimed(rule: &RuleStatus) -> Option<[u64; 3]> {
    let [soon, later] = rule.refaulted?;
    Some([rule.figures.reclaimed?, soon, later])
}

fn of_group(mut window: GroupWindow, row: &Row, path: &str, groups: &Groups) -> GroupWindow {
    let names = groups.names(path);
    (window.namespace, window.pod, window.container) = (names.namespace, names.pod, names.container);
    window.cgroup = path.to_owned();
    window.swapped_bytes = row.swap;
    if let Some(ages) = &row.ages {
        window.set_ages(ages);
    }
    window
}

#[cfg(test)]
mod tests {
    use super::super::promotions::tests::counted;
    use super::*;
    use isotherm_core::event::Mode;
    use isotherm_core::history::frame::{IdlePages, PageAges};
    use isotherm_view::summary::total::Shared;

    const S: i64 = 1_000_000;

    /// So many seconds since 1970, and of the monotonic clock.
    fn at(unix_s: i64, s: u64) -> Moment {
        Moment { unix_us: unix_s * S, ns: s * NS_PER_S }
    }

    fn machine() -> Machine {
        let idle = IdlePages { pages: 60, least: 60, most: 60, unresolved: 0 };
        let row = |cgroup: Option<&str>| Row {
            pid: None,
            name: "x".into(),
            cgroup: cgroup.map(str::to_owned),
            processes: 1,
            not_watched: 0,
            rss: None,
            swap: Some(7),
            ages: Some(PageAges { resident: 100, unobservable: 0, idle: vec![idle; 4], ..PageAges::default() }),
        };
        let groups = vec![row(Some("/isotherm-test-no-such-group"))];
        Machine {
            processes: Vec::new(),
            groups,
            total: row(None),
            shared: Shared::CountedOnce,
            cost: None,
            most_age_ns: None,
        }
    }

    fn stats(monitor_ns: u64) -> MonitorStats {
        MonitorStats {
            time_ns: 0,
            monitor_ns,
            target_ns: 2 * monitor_ns,
            checks: 0,
            clears: 0,
            nr_regions: 0,
            mode: Mode::Scan,
            sample_us: 0,
            aggr_us: 0,
            late_samples: 0,
        }
    }

    #[test]
    fn windows_end_with_the_clock_and_tell_what_came_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let length = Duration::from_secs(300);
        let start = at(7300, 50);
        let mut windows = Windows::new(folder.path(), length, Origin::default(), start).unwrap();
        assert!(!windows.is_due(start) && !windows.is_due(at(7499, 249)) && windows.is_due(at(7500, 250)));
        assert!(windows.is_due(at(7299, 60)), "the clock was set back");
        let second = Windows::new(folder.path(), length, Origin::default(), start).unwrap_err();
        assert!(format!("{second:#}").contains("another isotherm node"), "{second:#}");
        let (machine, promotions, groups) = (machine(), Promotions::default(), Groups::read());
        let mut rows = |length_ns, stats: &MonitorStats| {
            let sources = Sources {
                machine: &machine,
                promotions: &promotions,
                groups: &groups,
                rules: None,
                stats: Some(stats),
                now: start,
            };
            windows.rows(start.unix_us, length_ns, sources)
        };
        let first = rows(199_600_000_000, &stats(3_000_000)).remove(0);
        assert_eq!((first.window_start_us, first.window_s, first.swapped_bytes), (start.unix_us, 200, Some(7)));
        assert_eq!((first.monitor_cpu_us, first.target_cost_us), (Some(3000), Some(6000)));
        assert_eq!((first.cold_bytes[4], first.cold_bytes[5]), (Some(60 * 4096), None));
        assert_eq!(first.promoted_bytes, [None; 16], "nobody counts there");
        assert_eq!((first.inode, first.limit_bytes, first.stall_us), (None, None, None), "there is no such group");
        let second = rows(300 * NS_PER_S, &stats(4_000_000)).remove(0);
        assert_eq!((second.monitor_cpu_us, second.target_cost_us), (Some(1000), Some(2000)));
    }

    /// A node without groups whose windows of `length_s` begin at `begin`; with it the begin of the window under way after each of
    /// these moments, at which it ends what is due.
    fn begins(length_s: u64, begin: Moment, moments: &[Moment]) -> Vec<i64> {
        let folder = tempfile::tempdir().unwrap();
        let length = Duration::from_secs(length_s);
        let mut windows = Windows::new(folder.path(), length, Origin::default(), begin).unwrap();
        let machine = Machine { groups: Vec::new(), ..machine() };
        let (promotions, groups) = (Promotions::default(), Groups::read());
        let turn = |&now: &Moment| {
            if windows.is_due(now) {
                let (machine, promotions, groups) = (&machine, &promotions, &groups);
                windows.end(Sources { machine, promotions, groups, rules: None, stats: None, now });
            }
            windows.begin.unix_us
        };
        moments.iter().map(turn).collect()
    }

    #[test]
    fn a_window_too_short_to_tell_goes_on_into_the_next() {
        let at = |ms: i64| Moment { unix_us: ms * 1000, ns: ms as u64 * 1_000_000 };
        // From 4.8 s on, and after turns that come late.
        let moments = [5000, 5300, 10_000, 14_700, 15_100, 19_990, 20_000].map(at);
        let begins = begins(5, at(4800), &moments).into_iter().map(|us| us / 1000);
        assert_eq!(begins.collect::<Vec<_>>(), [4800, 4800, 10_000, 10_000, 15_100, 15_100, 20_000]);
    }

    #[test]
    fn a_clock_that_is_set_changes_no_length() {
        // An hour forward after 100 s, an hour back after 100 s more: each ends a window.
        let moments = [at(1100, 100), at(4700, 100), at(4800, 200), at(1200, 200), at(1200, 201)];
        assert_eq!(begins(3000, at(1000, 0), &moments), [1000, 4700, 4700, 1200, 1200].map(|s| s * S));
        // Back within the first half second of one: the window goes on, since as one of its own it would be nothing.
        let moments = [at(2000, 0), at(2000, 1)];
        assert_eq!(begins(3000, at(2500, 0), &moments), [2500, 2000].map(|s| s * S));
    }

    #[test]
    fn a_group_that_was_without_processes_has_not_accessed_all_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut windows = Windows::new(folder.path(), Duration::from_secs(2), Origin::default(), at(0, 0)).unwrap();
        let (here, groups, mut promotions) = (machine(), Groups::read(), Promotions::default());
        let away = Machine { groups: Vec::new(), ..machine() };
        let path = here.groups[0].cgroup.clone().unwrap();
        let mut promoted = |machine: &Machine, promotions: &Promotions, now_s: u64| {
            let now = at(now_s as i64, now_s);
            let sources = Sources { machine, promotions, groups: &groups, rules: None, stats: None, now };
            windows.rows(0, 2 * NS_PER_S, sources).first().map(|row| row.promoted_bytes[1].unwrap() / 4096)
        };
        promotions.count(1, &path, counted(3));
        assert_eq!(promoted(&here, &promotions, 2), Some(3 * 512));
        promotions.end(1);
        for second in [4, 400] {
            assert_eq!(promoted(&away, &promotions, second), None);
        }
        promotions.count(2, &path, counted(1));
        assert_eq!(promoted(&here, &promotions, 402), Some(512));
        // Forgotten meanwhile, it begins anew.
        assert_eq!(promoted(&away, &promotions, 404), None);
        promotions.keep([].into_iter());
        assert_eq!(promoted(&away, &promotions, 406), None);
        promotions.count(3, &path, counted(5));
        assert_eq!(promoted(&here, &promotions, 408), Some(5 * 512));
    }
}
