use super::*;
use crate::fake::Fake;
use isotherm_core::event::Event;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::pattern::Bounds;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::snapshot::{RegionInfo, Snapshot};
use proptest::prelude::*;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::sync::atomic::Ordering;

struct Bed {
    files: Debugfs,
    fake: Fake,
}

impl Bed {
    fn new() -> Self {
        let fake = Fake::default();
        Self { files: Debugfs::new(Box::new(fake.clone())), fake }
    }

    /// With a target, and without a record.
    fn ready() -> Self {
        let bed = Self::new();
        bed.write("record", "0 none\n").unwrap();
        bed.write("target_ids", "42\n").unwrap();
        bed
    }

    fn write(&self, name: &str, text: &str) -> Result<usize, Errno> {
        self.files.write(self.files.lookup(ROOT, name)?, text.as_bytes())
    }

    fn show(&self, name: &str) -> Result<String, Errno> {
        let text = self.files.read(self.files.lookup(ROOT, name)?)?;
        Ok(String::from_utf8(text).unwrap())
    }

    fn read(&self, name: &str) -> String {
        self.show(name).unwrap()
    }
}

#[test]
fn at_first_they_hold_what_they_held_after_boot() {
    let bed = Bed::new();
    for (name, text) in [
        ("attrs", "5000 100000 1000000 10 1000\n"),
        ("target_ids", "\n"),
        ("init_regions", ""),
        ("record", "1048576 /damon.data\n"),
        ("schemes", ""),
        ("monitor_on", "off\n"),
    ] {
        assert_eq!(bed.read(name), text, "{name}");
        let attr = bed.files.attr(bed.files.lookup(ROOT, name).unwrap()).unwrap();
        assert_eq!((attr.mode, attr.folders, attr.size), (0o600, None, 0), "{name}");
    }
    assert_eq!(bed.files.list(ROOT).unwrap().len(), 6);
}

#[test]
fn attributes_are_five_numbers() {
    let bed = Bed::ready();
    assert_eq!(bed.write("attrs", " 1000 20000  3000000 4 50 and more\n"), Ok(35));
    assert_eq!(bed.read("attrs"), "1000 20000 3000000 4 50\n");
    for bad in ["1 2 3 4", "", "\n", "abc", "1 2 3 2 10", "1 2 3 11 10", "-1 2 3 4 5", "1 2 3 4 99999999999999999999"] {
        let expected = if bad.is_empty() { Ok(0) } else { Err(Errno::Invalid) };
        assert_eq!(bed.write("attrs", bad), expected, "{bad:?}");
    }
    assert_eq!(bed.read("attrs"), "1000 20000 3000000 4 50\n");
    bed.write("monitor_on", "on").unwrap();
    let attrs = bed.fake.last().attrs;
    assert_eq!((attrs.sample_us, attrs.aggr_us, attrs.update_us), (1000, 20_000, 3_000_000));
    assert_eq!((attrs.min_regions, attrs.max_regions), (4, 50));
    assert_eq!(bed.fake.last().algorithm, Algorithm::Damon(DamonRules::Mainline));
}

#[test]
fn targets_are_read_up_to_the_first_that_is_none() {
    let bed = Bed::ready();
    for (written, shown) in [("1 2 3 4\n", "1 2 3 4\n"), ("1 2 abc 4", "1 2\n"), ("abc 2", "\n"), (" \n", "\n")] {
        bed.write("target_ids", written).unwrap();
        assert_eq!(bed.read("target_ids"), shown, "{written:?}");
    }
    let many: Vec<String> = (1..100).map(|n: u32| n.to_string()).collect();
    bed.write("target_ids", &many.join(" ")).unwrap();
    assert_eq!(bed.read("target_ids").split(' ').count(), 32);
    for later in ["paddr\n", "pidfd 5\n"] {
        assert_eq!(bed.write("target_ids", later), Err(Errno::Invalid), "{later:?}");
    }
}

#[test]
fn it_is_switched_on_and_off() {
    let bed = Bed::ready();
    for bad in ["onn", "of", "1", "\n"] {
        assert_eq!(bed.write("monitor_on", bad), Err(Errno::Invalid), "{bad:?}");
    }
    assert_eq!(bed.write("monitor_on", "off\n"), Err(Errno::NotPermitted));
    assert_eq!(bed.write("monitor_on", " on\n"), Ok(4));
    assert_eq!(bed.read("monitor_on"), "on\n");
    assert_eq!(bed.write("monitor_on", "on\n"), Err(Errno::Busy));
    for (name, text, why) in [
        ("attrs", "1000 20000 3000000 4 50", Errno::Busy),
        ("init_regions", "42 1 2", Errno::Busy),
        ("record", "0 none", Errno::Busy),
        ("schemes", "", Errno::Busy),
        ("target_ids", "43", Errno::Invalid),
    ] {
        let text = if text.is_empty() { "\n" } else { text };
        assert_eq!(bed.write(name, text), Err(why), "{name}");
    }
    assert_eq!(bed.show("init_regions"), Err(Errno::Busy));
    assert_eq!(bed.read("target_ids"), "42\n");
    bed.write("monitor_on", "off").unwrap();
    assert_eq!(bed.read("monitor_on"), "off\n");
    bed.write("monitor_on", "on").unwrap();
    bed.fake.0.running.store(false, Ordering::Relaxed);
    assert_eq!(bed.read("monitor_on"), "off\n", "all targets have ended");
    bed.write("monitor_on", "on").unwrap();
    bed.files.stop();
    assert!(!bed.fake.0.running.load(Ordering::Relaxed));
}

#[test]
fn what_cannot_be_done_is_refused_when_it_is_switched_on() {
    let bed = Bed::new();
    assert_eq!(bed.write("record", "0 none"), Ok(6));
    assert_eq!(bed.write("monitor_on", "on"), Err(Errno::Invalid), "no target");
    bed.write("target_ids", "99999999999").unwrap();
    assert_eq!(bed.write("monitor_on", "on"), Err(Errno::Invalid), "no process");
    bed.write("target_ids", "42").unwrap();
    bed.fake.0.refuse.store(true, Ordering::Relaxed);
    assert_eq!(bed.write("monitor_on", "on"), Err(Errno::Invalid));
    assert_eq!(bed.read("monitor_on"), "off\n");
    bed.fake.0.refuse.store(false, Ordering::Relaxed);
    assert_eq!(bed.write("monitor_on", "on"), Ok(2));
}

#[test]
fn schemes_of_seven_numbers_show_two_counts() {
    let bed = Bed::ready();
    let text = "4096 8192 0 5 10 20 2\n0 18446744073709551615 1 4294967295 0 4294967295 5\n";
    assert_eq!(bed.write("schemes", text), Ok(text.len()));
    assert_eq!(bed.read("schemes"), text.replace('\n', " 0 0\n"));
    bed.write("monitor_on", "on").unwrap();
    let settings = bed.fake.last();
    let (first, second) = (&settings.schemes[0], &settings.schemes[1]);
    assert_eq!((first.action, second.action), (Action::PageOut, Action::Stat));
    assert_eq!(first.pattern.size, Bounds::new(4096, 8192));
    assert_eq!(first.pattern.rate_bp, Bounds::new(0, 2500));
    assert_eq!(first.pattern.age_us, Bounds::new(1_000_000, 2_000_000));
    assert!(first.brake.is_none() && first.watermarks.is_none() && !first.quota.is_limited());
    let done = SchemeStats { nr_tried: 3, sz_tried: 12_288, ..SchemeStats::default() };
    *bed.fake.0.stats.lock().unwrap() = vec![done, SchemeStats::default()];
    let counted = "4096 8192 0 5 10 20 2 3 12288\n0 18446744073709551615 1 4294967295 0 4294967295 5 0 0\n";
    assert_eq!(bed.read("schemes"), counted);
    bed.write("monitor_on", "off").unwrap();
    assert_eq!(bed.read("schemes"), counted, "it stays when it is off");
    bed.write("schemes", "\n").unwrap();
    assert_eq!(bed.read("schemes"), "");
}

#[test]
fn schemes_of_eighteen_numbers_have_quotas_and_watermarks() {
    let bed = Bed::ready();
    bed.write("schemes", "1 2 3 4 5 6 4 10 4096 1000 1 2 3 1 5000000 500 400 200\n").unwrap();
    bed.write("monitor_on", "on").unwrap();
    let scheme = &bed.fake.last().schemes[0];
    assert_eq!(scheme.action, Action::NoHugePage);
    assert_eq!((scheme.quota.time_ns, scheme.quota.bytes), (Some(10_000_000), Some(4096)));
    let weights = scheme.quota.weights;
    assert_eq!((scheme.quota.reset_ns, weights.size, weights.access_rate, weights.age), (1_000_000_000, 1, 2, 3));
    let marks = scheme.watermarks.unwrap();
    assert_eq!((marks.interval_us, marks.high_bp, marks.mid_bp, marks.low_bp), (5_000_000, 5000, 4000, 2000));
    let done =
        SchemeStats { nr_tried: 1, sz_tried: 2, nr_applied: 3, sz_applied: 4, qt_exceeds: 5, ..SchemeStats::default() };
    *bed.fake.0.stats.lock().unwrap() = vec![done];
    assert_eq!(bed.read("schemes"), "1 2 3 4 5 6 4 10 4096 1000 1 2 3 1 5000000 500 400 200 1 2 3 4 5\n");
}

#[test]
fn other_lines_of_schemes_are_refused_whole() {
    let bed = Bed::ready();
    bed.write("schemes", "1 2 3 4 5 6 5").unwrap();
    for bad in [
        "1 2 3 4 5 6",
        "1 2 3 4 5 6 6",
        "1 2 3 4 5 6 5 7",
        "1 2\n3 4 5 6 3 0 0 0 1 2 3 1 100 3 2 1",
        "2 1 2 1 10 1 3 10 1 1 1 1 1 1 1 1 2 3",
        "1 2 3 4 5 6 4 0 0 0 1 2 3 2 100 3 2 1",
        "1 2 3 4294967296 5 6 5",
        "1 2 3 4 5 6 pageout",
        "1 2 3 4 5 6 5\nabc",
    ] {
        assert_eq!(bed.write("schemes", bad), Err(Errno::Invalid), "{bad:?}");
    }
    assert_eq!(bed.read("schemes"), "1 2 3 4 5 6 5 0 0\n");
    bed.write("schemes", &"1 2 3 4 5 6 5\n".repeat(300)).unwrap();
    assert_eq!(bed.read("schemes").lines().count(), 256);
}

#[test]
fn initial_regions_belong_to_targets_and_rise() {
    let bed = Bed::ready();
    bed.write("target_ids", "42 43").unwrap();
    let text = "42 100 200\n42 200 300\n43 100 200\n";
    bed.write("init_regions", text).unwrap();
    assert_eq!(bed.read("init_regions"), text);
    for bad in ["44 1 2", "42 2 2", "42 3 2", "42 10 20\n42 15 30"] {
        bed.write("init_regions", text).unwrap();
        assert_eq!(bed.write("init_regions", bad), Err(Errno::Invalid), "{bad:?}");
        assert_eq!(bed.read("init_regions"), "", "what was before is gone, too");
    }
    bed.write("init_regions", "42 1 2 and so on").unwrap();
    assert_eq!(bed.read("init_regions"), "42 1 2\n");
    bed.write("target_ids", "42").unwrap();
    assert_eq!(bed.read("init_regions"), "", "targets are new");
}

#[test]
fn a_write_does_not_go_on_with_another() {
    let bed = Bed::ready();
    let attrs = bed.files.lookup(ROOT, "attrs").unwrap();
    assert_eq!(bed.files.write_at(attrs, 3, b"1000 20000 3000000 4 50"), Err(Errno::Invalid));
    assert_eq!(bed.files.write_at(attrs, 0, b"1000 20000 3000000 4 50\0junk\xff"), Ok(29));
    assert_eq!(bed.files.write(attrs, b"\xff"), Err(Errno::Invalid));
}

#[test]
fn a_record_is_a_buffer_and_a_path() {
    let bed = Bed::ready();
    bed.write("record", "4096 /damon.data\n").unwrap();
    assert_eq!(bed.read("record"), "4096 /damon.data\n");
    let long = format!("4096 /{}", "a".repeat(255));
    for bad in ["4096", "foo", "1 /a", "1023 /a", "4194305 /a", "4294967296 /a", "-1 /a", &long] {
        assert_eq!(bed.write("record", bad), Err(Errno::Invalid), "{bad:?}");
    }
    bed.write("record", &long[..long.len() - 1]).unwrap();
    for good in ["0 none", "1024 /a", "4194304 /a b"] {
        bed.write("record", good).unwrap();
    }
    assert_eq!(bed.read("record"), "4194304 /a\n");
}

fn snapshot(pid: u32, nr_accesses: u32) -> Event {
    let region = |start, end| RegionInfo { start, end, nr_accesses, age: 0, evidence: None, accessed: None };
    Event::Snapshot(Snapshot {
        target: 0,
        pid: Some(pid),
        start_ns: 1_000_000_000,
        end_ns: 1_100_000_000,
        sample_us: 5000,
        aggr_us: 100_000,
        max_nr_accesses: 20,
        regions: vec![region(4096, 8192), region(8192, 20_480)],
    })
}

#[test]
fn the_record_is_the_old_binary_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damon.data");
    let bed = Bed::ready();
    std::fs::write(&path, vec![1; 10_000]).unwrap();
    bed.write("record", &format!("4096 {}", path.display())).unwrap();
    bed.fake.0.events.lock().unwrap().extend([snapshot(42, 7), snapshot(42, 9)]);
    bed.write("monitor_on", "on").unwrap();
    let record = isotherm_record::Record::load(&path).unwrap();
    let regions: Vec<(Option<u32>, u64, u64, u32)> = record
        .snapshots
        .iter()
        .flat_map(|s| s.regions.iter().map(|r| (s.pid, r.start, r.end, r.nr_accesses)))
        .collect();
    assert_eq!(regions[..2], [(Some(42), 4096, 8192, 7), (Some(42), 8192, 20_480, 7)]);
    assert!(std::fs::read(&path).unwrap().starts_with(b"damon_recfmt_ver"));
}

#[test]
fn a_kdamond_that_is_refused_leaves_the_record_before_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damon.data");
    let bed = Bed::ready();
    std::fs::write(&path, "the record before").unwrap();
    bed.write("record", &format!("4096 {}", path.display())).unwrap();
    bed.fake.0.refuse.store(true, Ordering::Relaxed);
    assert_eq!(bed.write("monitor_on", "on"), Err(Errno::Invalid));
    assert_eq!(std::fs::read(&path).unwrap(), b"the record before");
}

#[test]
fn no_record_is_written_through_what_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let bed = Bed::ready();
    symlink("/dev/null", folder.path().join("null")).unwrap();
    for name in ["null", "missing/file", ""] {
        bed.write("record", &format!("4096 {}/{name}", folder.path().display())).unwrap();
        assert_eq!(bed.write("monitor_on", "on"), Err(Errno::Invalid), "{name}");
    }
    bed.write("record", &format!("4096 {}/new", folder.path().display())).unwrap();
    bed.write("monitor_on", "on").unwrap();
    let mode = std::fs::metadata(folder.path().join("new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn root_no_record_is_written_over_what_is_somebody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, sticky) = (folder.path().join("theirs"), folder.path().join("sticky"));
    std::fs::write(&theirs, "theirs").unwrap();
    std::fs::create_dir(&sticky).unwrap();
    std::fs::set_permissions(&sticky, PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::write(folder.path().join("ours"), "ours").unwrap();
    symlink("../ours", sticky.join("link")).unwrap();
    if chown(&theirs, Some(65_534), None).is_err()
        || std::os::unix::fs::lchown(sticky.join("link"), Some(65_534), None).is_err()
    {
        eprintln!("skipped: needs root");
        return;
    }
    let bed = Bed::ready();
    for name in ["theirs", "sticky/link"] {
        bed.write("record", &format!("4096 {}/{name}", folder.path().display())).unwrap();
        assert_eq!(bed.write("monitor_on", "on"), Err(Errno::Invalid), "{name}");
    }
    assert_eq!(std::fs::read(&theirs).unwrap(), b"theirs");
    assert_eq!(std::fs::read(folder.path().join("ours")).unwrap(), b"ours");
}

proptest! {
    #[test]
    fn no_write_upsets_it(writes in prop::collection::vec((0_usize..6, "[0-9a-f \n]{0,40}|on|off|.*"), 0..20)) {
        let bed = Bed::ready();
        for (file, text) in writes {
            let name = FILES[file].0;
            // Its files would be made.
            if name == "record" {
                continue;
            }
            if let Ok(taken) = bed.write(name, &text) {
                prop_assert_eq!(taken, text.len());
            }
            let shown = bed.show(name);
            // What is shown is taken again, but for counts of schemes.
            if bed.read("monitor_on") == "off\n" && !["monitor_on", "schemes"].contains(&name) {
                let shown = shown.unwrap();
                prop_assert!(bed.write(name, &shown).is_ok(), "{} {:?}", name, shown);
                prop_assert_eq!(bed.read(name), shown);
            }
        }
    }
}
