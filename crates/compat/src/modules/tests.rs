use super::*;
use crate::fake::Fake;
use crate::settings::KdamondTargets;
use isotherm_core::monitor::config::Algorithm;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::filter::FilterType;
use isotherm_core::scheme::pattern::Bounds;
use isotherm_core::scheme::stats::SchemeStats;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

struct Bed {
    module: Module,
    fake: Fake,
}

impl Bed {
    fn new(which: Which) -> Self {
        let fake = Fake::default();
        Self { module: Module::new(which, Box::new(fake.clone())), fake }
    }

    fn find(&self, name: &str) -> Inode {
        self.module.lookup(self.module.lookup(ROOT, "parameters").unwrap(), name).unwrap()
    }

    fn write(&self, name: &str, text: &str) -> Result<usize, Errno> {
        self.module.write(self.find(name), text.as_bytes())
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8(self.module.read(self.find(name)).unwrap()).unwrap()
    }

    fn running(&self) -> bool {
        self.fake.0.running.load(Ordering::Relaxed)
    }
}

#[test]
fn names_modes_and_defaults_are_the_kernels() {
    for (which, expected) in [
        (
            Which::Reclaim,
            "addr_unit 600 1,aggr_interval 600 100000,bytes_reclaim_tried_regions 400 0,bytes_reclaimed_regions 400 0,\
             commit_inputs 600 N,enabled 600 N,kdamond_pid 400 -1,max_nr_regions 600 1000,min_age 600 120000000,\
             min_nr_regions 600 10,monitor_region_end 600 0,monitor_region_start 600 0,nr_quota_exceeds 400 0,\
             nr_reclaim_tried_regions 400 0,nr_reclaimed_regions 400 0,quota_autotune_feedback 600 0,\
             quota_mem_pressure_us 600 0,quota_ms 600 10,quota_reset_interval_ms 600 1000,quota_sz 600 134217728,\
             sample_interval 600 5000,skip_anon 600 N,wmarks_high 600 500,wmarks_interval 600 5000000,\
             wmarks_low 600 200,wmarks_mid 600 400",
        ),
        (
            Which::LruSort,
            "addr_unit 600 1,aggr_interval 600 100000,bytes_lru_sort_tried_cold_regions 400 0,\
             bytes_lru_sort_tried_hot_regions 400 0,bytes_lru_sorted_cold_regions 400 0,\
             bytes_lru_sorted_hot_regions 400 0,cold_min_age 600 120000000,commit_inputs 600 N,enabled 600 N,\
             hot_thres_access_freq 600 500,kdamond_pid 400 -1,max_nr_regions 600 1000,min_nr_regions 600 10,\
             monitor_region_end 600 0,monitor_region_start 600 0,nr_cold_quota_exceeds 400 0,\
             nr_hot_quota_exceeds 400 0,nr_lru_sort_tried_cold_regions 400 0,nr_lru_sort_tried_hot_regions 400 0,\
             nr_lru_sorted_cold_regions 400 0,nr_lru_sorted_hot_regions 400 0,quota_ms 600 10,\
             quota_reset_interval_ms 600 1000,sample_interval 600 5000,wmarks_high 600 200,\
             wmarks_interval 600 5000000,wmarks_low 600 50,wmarks_mid 600 150",
        ),
        (
            Which::Stat,
            "aggr_interval_us 400 0,enabled 600 N,estimated_memory_bandwidth 400 0,kdamond_pid 400 -1,\
             memory_idle_ms_percentiles 400 ZEROS",
        ),
    ] {
        let bed = Bed::new(which);
        let parameters = bed.module.lookup(ROOT, "parameters").unwrap();
        let zeros = ["0"; 101].join(",");
        let listed: Vec<String> = bed
            .module
            .list(parameters)
            .unwrap()
            .iter()
            .map(|entry| {
                let mode = bed.module.attr(entry.inode).unwrap().mode;
                format!("{} {mode:o} {}", entry.name, bed.read(&entry.name).trim_end().replace(&zeros, "ZEROS"))
            })
            .collect();
        assert_eq!(listed.join(","), expected);
    }
}

#[test]
fn reclaim_pages_out_what_is_cold_under_quota_and_watermarks() {
    let bed = Bed::new(Which::Reclaim);
    assert_eq!(bed.write("enabled", "Y\n"), Ok(2));
    assert_eq!((bed.read("enabled"), bed.read("kdamond_pid")), ("Y\n".into(), "77\n".into()));
    let settings = bed.fake.last();
    assert_eq!((settings.watched, settings.algorithm), (KdamondTargets::All, Algorithm::Isotherm));
    let [scheme] = settings.schemes.as_slice() else { panic!("there is one") };
    assert_eq!((scheme.action, scheme.pattern.rate_bp), (Action::PageOut, Bounds::new(0, 0)));
    assert_eq!(scheme.pattern.age_us, Bounds::new(120_000_000, u64::MAX));
    assert_eq!((scheme.quota.bytes, scheme.quota.time_ns), (Some(128 << 20), Some(10_000_000)));
    assert_eq!((scheme.quota.reset_ns, scheme.quota.weights.age), (1_000_000_000, 1));
    assert_eq!((scheme.quota.weights.size, scheme.quota.weights.access_rate), (0, 0));
    let marks = scheme.watermarks.unwrap();
    assert_eq!((marks.interval_us, marks.high_bp, marks.mid_bp, marks.low_bp), (5_000_000, 5000, 4000, 2000));
    assert!(scheme.filters.is_empty() && scheme.quota.goals.is_empty());
}

#[test]
fn reclaim_reads_every_parameter() {
    let bed = Bed::new(Which::Reclaim);
    for (name, text) in [
        ("min_age", "7000000"),
        ("quota_ms", "0"),
        ("quota_sz", "4096"),
        ("quota_reset_interval_ms", "500"),
        ("quota_mem_pressure_us", "1000"),
        ("quota_autotune_feedback", "8000"),
        ("wmarks_interval", "1000000"),
        ("wmarks_high", "900"),
        ("wmarks_mid", "800"),
        ("wmarks_low", "1"),
        ("sample_interval", "10000"),
        ("aggr_interval", "200000"),
        ("min_nr_regions", "20"),
        ("max_nr_regions", "2000"),
        ("addr_unit", "4096"),
        ("skip_anon", "1"),
    ] {
        bed.write(name, text).unwrap();
    }
    bed.write("enabled", "on").unwrap();
    let settings = bed.fake.last();
    let scheme = &settings.schemes[0];
    assert_eq!(scheme.pattern.age_us.min, 7_000_000);
    assert_eq!((scheme.quota.time_ns, scheme.quota.bytes, scheme.quota.reset_ns), (None, Some(4096), 500_000_000));
    assert_eq!(scheme.quota.goals.iter().map(|g| g.target).collect::<Vec<_>>(), [1000, 10_000]);
    assert_eq!(settings.goals[0].pushed, Some(8000));
    let marks = scheme.watermarks.unwrap();
    assert_eq!((marks.interval_us, marks.high_bp, marks.mid_bp, marks.low_bp), (1_000_000, 9000, 8000, 10));
    let attrs = settings.attrs;
    assert_eq!((attrs.sample_us, attrs.aggr_us, attrs.min_regions, attrs.max_regions), (10_000, 200_000, 20, 2000));
    let filter = &scheme.filters[0];
    assert!(matches!(filter.what, FilterType::Anon) && filter.matching && !filter.allow);
    assert_eq!(bed.read("skip_anon"), "Y\n");
}

#[test]
fn what_it_has_done_is_shown_also_when_it_is_off() {
    let bed = Bed::new(Which::Reclaim);
    bed.write("enabled", "Y").unwrap();
    *bed.fake.0.stats.lock().unwrap() = vec![SchemeStats {
        nr_tried: 1,
        sz_tried: 2,
        nr_applied: 3,
        sz_applied: 4,
        qt_exceeds: 5,
        ..Default::default()
    }];
    bed.write("enabled", "N").unwrap();
    assert!(!bed.running());
    let names = Which::Reclaim.figures().unwrap();
    assert_eq!(names.map(|name| bed.read(name)), ["1\n", "2\n", "3\n", "4\n", "5\n"]);
    assert_eq!((bed.read("enabled"), bed.read("kdamond_pid")), ("N\n".into(), "-1\n".into()));
}

#[test]
fn inputs_are_read_again_when_that_is_asked_for() {
    let bed = Bed::new(Which::Reclaim);
    bed.write("commit_inputs", "Y").unwrap();
    assert_eq!(bed.read("commit_inputs"), "Y\n", "nobody reads them");
    bed.write("enabled", "Y").unwrap();
    assert_eq!(bed.read("commit_inputs"), "N\n");
    bed.write("min_age", "1000000").unwrap();
    assert!(bed.fake.0.committed.lock().unwrap().is_empty(), "not before it is asked for");
    bed.write("commit_inputs", "Y").unwrap();
    assert_eq!(bed.read("commit_inputs"), "N\n");
    assert_eq!(bed.fake.0.committed.lock().unwrap()[0].schemes[0].pattern.age_us.min, 1_000_000);
    bed.write("wmarks_mid", "1001").unwrap();
    assert_eq!(bed.write("commit_inputs", "Y"), Ok(1));
    assert_eq!((bed.running(), bed.read("enabled")), (false, "N\n".into()), "what cannot be switches it off");
}

#[test]
fn what_cannot_be_is_refused_when_it_is_enabled() {
    for (name, text) in [
        ("wmarks_low", "401"),
        ("wmarks_high", "1001"),
        ("sample_interval", "0"),
        ("max_nr_regions", "2"),
        ("monitor_region_start", "4096"),
        ("monitor_region_end", "1"),
        ("quota_sz", "1"),
    ] {
        let bed = Bed::new(Which::Reclaim);
        bed.write(name, text).unwrap();
        assert_eq!(bed.write("enabled", "Y"), Err(Errno::Invalid), "{name}");
        assert_eq!(bed.read("enabled"), "N\n");
    }
    let bed = Bed::new(Which::Stat);
    bed.fake.0.refuse.store(true, Ordering::Relaxed);
    assert_eq!(bed.write("enabled", "Y"), Err(Errno::Invalid));
}

#[test]
fn texts_are_refused_as_the_kernel_refuses_them() {
    let bed = Bed::new(Which::Reclaim);
    for (name, text, why) in [
        ("enabled", "maybe", Errno::Invalid),
        ("min_age", "-1", Errno::Invalid),
        ("min_age", "18446744073709551616", Errno::Range),
        ("min_age", "5s", Errno::Invalid),
        ("addr_unit", "0", Errno::Invalid),
        ("commit_inputs", "2", Errno::Invalid),
        ("nr_quota_exceeds", "1", Errno::Invalid),
        ("kdamond_pid", "1", Errno::Invalid),
    ] {
        assert_eq!(bed.write(name, text), Err(why), "{name} {text}");
    }
    assert_eq!(bed.write("min_age", "0x10\n"), Ok(5));
    assert_eq!(bed.read("min_age"), "16\n");
    assert_eq!(bed.module.write(bed.module.lookup(ROOT, "parameters").unwrap(), b"1"), Err(Errno::Invalid));
}

#[test]
fn lru_sort_sorts_what_is_cold_where_nothing_hot_is_asked_for() {
    let bed = Bed::new(Which::LruSort);
    assert_eq!(bed.write("enabled", "Y"), Err(Errno::Invalid), "hot memory cannot be prioritised");
    bed.write("hot_thres_access_freq", "1001").unwrap();
    bed.write("enabled", "Y").unwrap();
    let settings = bed.fake.last();
    let [scheme] = settings.schemes.as_slice() else { panic!("there is one") };
    assert_eq!((scheme.action, scheme.pattern.rate_bp), (Action::LruDeprio, Bounds::new(0, 0)));
    assert_eq!(scheme.pattern.age_us.min, 120_000_000);
    assert_eq!((scheme.quota.time_ns, scheme.quota.bytes), (Some(5_000_000), None), "half of the time");
    assert_eq!((scheme.quota.weights.access_rate, scheme.quota.weights.age), (1, 1));
    assert_eq!(scheme.watermarks.unwrap().mid_bp, 1500);
}

#[test]
fn stat_only_watches() {
    let bed = Bed::new(Which::Stat);
    bed.write("enabled", "y\n").unwrap();
    let settings = bed.fake.last();
    assert!(settings.schemes.is_empty() && settings.watched == KdamondTargets::All);
    bed.module.stop();
    assert_eq!((bed.running(), bed.read("enabled")), (false, "N\n".into()));
}

proptest! {
    #[test]
    fn no_write_upsets_them(which in 0_usize..3, writes in prop::collection::vec((0_usize..30, "[0-9YNx \n-]{0,9}|.*"), 0..30)) {
        let bed = Bed::new(Which::ALL[which]);
        let entries = bed.module.list(bed.module.lookup(ROOT, "parameters").unwrap()).unwrap();
        for (index, text) in writes {
            let entry = &entries[index % entries.len()];
            if let Ok(taken) = bed.module.write(entry.inode, text.as_bytes()) {
                prop_assert_eq!(taken, text.len());
            }
            let shown = bed.read(&entry.name);
            prop_assert!(shown.ends_with('\n'));
            prop_assert_eq!(bed.read("enabled") == "Y\n", bed.running());
        }
    }
}
