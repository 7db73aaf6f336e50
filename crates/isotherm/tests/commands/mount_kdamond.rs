//! What a kdamond that runs does with its files: commits of other targets and goals, regions within quotas. Needs root, FUSE and
//! eBPF.

use crate::common::{Program, Running, command, start, text, wait_until};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A server with one kdamond, whose scheme counts everything.
struct Bed {
    server: Option<Running>,
    kdamond: PathBuf,
    _folder: TempDir,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = start(&mut command(["mount", text(folder.path())]));
        let kdamonds = folder.path().join("sys/kernel/mm/damon/admin/kdamonds");
        wait_until("it is mounted", || kdamonds.exists());
        fs::write(kdamonds.join("nr_kdamonds"), "1").unwrap();
        let bed = Self { server: Some(server), kdamond: kdamonds.join("0"), _folder: folder };
        for (file, text) in [
            ("contexts/nr_contexts", "1"),
            ("contexts/0/monitoring_attrs/intervals/aggr_us", "50000"),
            ("contexts/0/monitoring_attrs/intervals/update_us", "100000000"),
            ("contexts/0/schemes/nr_schemes", "1"),
            ("contexts/0/schemes/0/action", "stat"),
        ] {
            bed.write(file, text);
        }
        for range in ["sz", "nr_accesses", "age"] {
            bed.write(&format!("contexts/0/schemes/0/access_pattern/{range}/max"), "4294967295");
        }
        bed
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.kdamond.join(file), text).unwrap_or_else(|e| panic!("{text} to {file}: {e}"));
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.kdamond.join(file)).unwrap().trim_end().to_owned()
    }

    fn targets(&self, programs: &[&Program]) {
        self.write("contexts/0/targets/nr_targets", &programs.len().to_string());
        for (index, program) in programs.iter().enumerate() {
            self.write(&format!("contexts/0/targets/{index}/pid_target"), &program.pid().to_string());
        }
    }

    /// Lets the scheme see only the target of that index.
    fn only(&self, index: usize) {
        self.write("contexts/0/schemes/0/core_filters/nr_filters", "1");
        for (file, text) in
            [("type", "target"), ("damon_target_idx", &index.to_string()), ("matching", "Y"), ("allow", "Y")]
        {
            self.write(&format!("contexts/0/schemes/0/core_filters/0/{file}"), text);
        }
    }

    /// Start, end and age of the scheme's regions.
    fn regions(&self) -> Vec<(u64, u64, u64)> {
        self.write("state", "update_schemes_tried_regions");
        let folder = "contexts/0/schemes/0/tried_regions";
        let number = |index: usize, file: &str| self.read(&format!("{folder}/{index}/{file}")).parse().unwrap();
        let count = fs::read_dir(self.kdamond.join(folder)).unwrap().count() - 1;
        (0..count).map(|i| (number(i, "start"), number(i, "end"), number(i, "age"))).collect()
    }

    fn oldest(&self) -> u64 {
        self.regions().iter().map(|region| region.2).max().unwrap_or(0)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.signal("TERM");
            let done = server.finish();
            if !std::thread::panicking() {
                done.expect(0, &[]);
            }
        }
    }
}

#[test]
fn root_targets_come_and_go_and_who_stays_keeps_its_ages() {
    let (bed, first, second) = (Bed::new(), Program::sleeper(), Program::sleeper());
    bed.targets(&[&first]);
    bed.only(0);
    bed.write("state", "on");
    wait_until("ages", || bed.oldest() >= 20);
    let known = bed.oldest();

    // The one that is known comes second now.
    bed.targets(&[&second, &first]);
    bed.only(1);
    bed.write("state", "commit");
    assert!(bed.oldest() >= 20, "its regions go on");
    bed.only(0);
    bed.write("state", "commit");
    // Its mappings are read at the end of the interval, and its regions begin there.
    wait_until("the new one's regions", || !bed.regions().is_empty());
    let new = bed.oldest();
    bed.only(1);
    bed.write("state", "commit");
    let old = bed.oldest();
    assert!(new + known <= old, "it came when the other one, {old} now, had {known}: {new}");

    bed.targets(&[&second]);
    bed.only(0);
    bed.write("state", "commit");
    drop(first);
    wait_until("the new one's ages", || bed.oldest() >= 20);
    assert_eq!(bed.read("state"), "on", "whose target had left");

    // A commit that cannot be changes nothing.
    let ended = Program::gone();
    bed.write("contexts/0/targets/nr_targets", "2");
    bed.write("contexts/0/targets/1/pid_target", &ended.to_string());
    let refused = fs::write(bed.kdamond.join("state"), "commit").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(22), "EINVAL");
    assert!(bed.oldest() >= 20);
    drop(second);
    wait_until("it ends with its last target", || bed.read("state") == "off");
}

#[test]
fn root_a_goal_for_the_intervals_is_taken_up_and_given_up() {
    let (bed, idle) = (Bed::new(), Program::sleeper());
    bed.targets(&[&idle]);
    bed.write("state", "on");
    let intervals = "contexts/0/monitoring_attrs/intervals";
    for (file, number) in [("access_bp", "400"), ("aggrs", "1"), ("min_sample_us", "5000"), ("max_sample_us", "80000")]
    {
        bed.write(&format!("{intervals}/intervals_goal/{file}"), number);
    }
    bed.write("state", "commit");
    // Nothing is accessed, so they become longer until they may no more.
    wait_until("longer intervals", || {
        bed.write("state", "update_tuned_intervals");
        bed.read(&format!("{intervals}/sample_us")) == "80000"
    });
    bed.write(&format!("{intervals}/intervals_goal/aggrs"), "0");
    bed.write(&format!("{intervals}/sample_us"), "5000");
    bed.write(&format!("{intervals}/aggr_us"), "50000");
    bed.write("state", "commit");
    bed.regions();
    bed.regions();
    bed.write("state", "update_tuned_intervals");
    assert_eq!(bed.read(&format!("{intervals}/sample_us")), "5000");
}

#[test]
fn root_no_more_is_tried_than_the_quota_allows() {
    const QUOTA: u64 = 64 << 10;
    let (bed, idle) = (Bed::new(), Program::sleeper());
    bed.targets(&[&idle]);
    bed.write("state", "on");
    let sum = || bed.regions().iter().map(|region| region.1 - region.0).sum::<u64>();
    wait_until("all memory is tried", || sum() > 4 * QUOTA);
    let quotas = "contexts/0/schemes/0/quotas";
    bed.write(&format!("{quotas}/bytes"), &QUOTA.to_string());
    bed.write(&format!("{quotas}/reset_interval_ms"), "50");
    bed.write("state", "commit");
    for _ in 0..10 {
        let tried = sum();
        assert!(tried <= QUOTA, "{tried} bytes in one turn");
        bed.write("state", "update_schemes_tried_bytes");
        let total: u64 = bed.read("contexts/0/schemes/0/tried_regions/total_bytes").parse().unwrap();
        assert!((1..=QUOTA).contains(&total), "{total} bytes in one turn");
    }
    bed.write("state", "update_schemes_stats");
    assert_ne!(bed.read("contexts/0/schemes/0/stats/qt_exceeds"), "0");
}

#[test]
fn root_who_waits_for_a_long_apply_interval_holds_up_neither_off_nor_the_end() {
    let (bed, program) = (Bed::new(), Program::sleeper());
    bed.targets(&[&program]);
    bed.write("contexts/0/schemes/0/apply_interval_us", "3600000000");
    let state = bed.kdamond.join("state");
    let update = || {
        bed.write("state", "on");
        let state = state.clone();
        let writer = std::thread::spawn(move || fs::write(state, "update_schemes_tried_regions"));
        let busy = || fs::write(bed.kdamond.join("contexts/0/targets/0/regions/nr_regions"), "0").is_err();
        wait_until("it waits", busy);
        writer
    };
    let writer = update();
    bed.write("state", "off");
    wait_until("the other's command has ended", || writer.is_finished());
    writer.join().unwrap().unwrap_err();
    assert_eq!(bed.read("state"), "off");
    let writer = update();
    bed.server.as_ref().unwrap().signal("TERM");
    wait_until("the command has ended", || writer.is_finished());
    writer.join().unwrap().unwrap_err();
}
