use super::*;
use isotherm_core::actuator::Destination;
use isotherm_core::meter::Metric;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::filter::FilterType;
use isotherm_core::scheme::goal::{GoalMetric, Tuner};
use isotherm_core::scheme::pattern::{AccessPattern, Bounds};
use isotherm_core::scheme::priority::Weights;
use proptest::prelude::*;

/// One scheme in the words that damo prints, with everything it prints.
const FULL: &str = r#"{
  "kdamonds": [{
    "state": null,
    "contexts": [{
      "ops": "vaddr", "targets": [{"pid": 42, "regions": []}],
      "intervals": {"sample_us": "10 ms", "aggr_us": "200 ms", "ops_update_us": "1 s"},
      "nr_regions": {"min": "10", "max": "1,000"},
      "schemes": [{
        "action": "pageout", "dests": [],
        "access_pattern": {
          "sz_bytes": {"min": "4.000 KiB", "max": "max"},
          "nr_accesses": {"min": "0 %", "max": "5 %"},
          "age": {"min": "1 m 35 s", "max": "max"}
        },
        "apply_interval_us": "10 ms",
        "quotas": {
          "time_ms": "10 ms", "sz_bytes": "128.000 MiB", "reset_interval_ms": "1 m 30 s",
          "fail_charge_num": "0", "fail_charge_denom": "0",
          "goals": [
            {"metric": "some_mem_psi_us", "complement": false, "nid": null, "memcg_path": null,
             "target_value": "10,000", "current_value": "0"},
            {"metric": "node_mem_used_bp", "nid": "1", "target_value": "9,000", "current_value": "0"}
          ],
          "goal_tuner": "temporal", "effective_sz_bytes": "0 B",
          "weights": {"sz_permil": "0 %", "nr_accesses_permil": "30 %", "age_permil": "70 %"}
        },
        "watermarks": {"metric": "free_mem_rate", "interval_us": "5 s", "high_permil": "50 %",
                       "mid_permil": "40 %", "low_permil": "20 %"},
        "filters": [
          {"filter_type": "anon", "matching": true, "allow": true, "memcg_path": "", "address_range": null},
          {"filter_type": "memcg", "matching": false, "allow": false, "memcg_path": "/foo"},
          {"filter_type": "addr", "matching": true, "address_range": {"start": "4,096", "end": "8,192"}},
          {"filter_type": "target", "matching": true, "damon_target_idx": "1"},
          {"filter_type": "hugepage_size", "matching": true, "hugepage_size": ["2.000 MiB", "max"]},
          {"type": "young", "matching": true, "filter_pass": true}
        ],
        "stats": {"nr_tried": 0}
      }]
    }]
  }]
}"#;

fn read(text: &str) -> Vec<Scheme> {
    parse("k.json", text, &MonitorAttrs::default()).unwrap()
}

fn fault(text: &str) -> String {
    parse("k.json", text, &MonitorAttrs::default()).unwrap_err().to_string()
}

#[test]
fn everything_that_damo_prints_is_read() {
    let schemes = read(FULL);
    let [s] = schemes.as_slice() else { panic!("{schemes:?}") };
    assert_eq!((s.action, s.apply_ns), (Action::PageOut, 10_000_000));
    assert_eq!(s.pattern.size, Bounds::new(4096, u64::MAX));
    assert_eq!(s.pattern.rate_bp, Bounds::new(0, 500));
    assert_eq!(s.pattern.age_us, Bounds::new(95_000_000, u64::MAX));
    let q = &s.quota;
    assert_eq!((q.time_ns, q.bytes, q.reset_ns), (Some(10_000_000), Some(128 << 20), 90_000_000_000));
    assert_eq!((q.tuner, q.weights), (Tuner::Temporal, Weights { size: 0, access_rate: 300, age: 700 }));
    let goals: Vec<_> = q.goals.iter().map(|g| (g.metric.clone(), g.target, g.window_ns, g.falls)).collect();
    assert_eq!(
        goals,
        [
            (GoalMetric::Read(Metric::SomeMemPsi(None)), 10_000, 0, false),
            (GoalMetric::Read(Metric::NodeMemUsed(1)), 9000, 0, true)
        ]
    );
    let w = s.watermarks.unwrap();
    assert_eq!((w.interval_us, w.high_bp, w.mid_bp, w.low_bp), (5_000_000, 5000, 4000, 2000));
    let filters: Vec<_> = s.filters.iter().map(|f| (f.what.name(), f.matching, f.allow)).collect();
    assert_eq!(
        filters,
        [
            ("addr", true, false),
            ("target", true, false),
            ("anon", true, true),
            ("memcg", false, false),
            ("hugepage_size", true, false),
            ("young", true, true)
        ],
        "those of the kernel's core come first"
    );
    assert!(matches!(s.filters[4].what, FilterType::HugepageSize { min: 0x20_0000, max: u64::MAX }));
}

#[test]
fn zeros_and_maxima_are_limits_not_set() {
    let text = r#"{"schemes": [{"action": "pageout",
        "access_pattern": {"nr_accesses": {"min": "0 %", "max": "18,446,744,073,709,551,615 %"},
                           "sz_bytes": {"min": "0 B", "max": "18446744073709551615"},
                           "age": {"min": 0, "max": "18446744073709551615000"}},
        "quotas": {"time_ms": "0 ns", "sz_bytes": "0 B", "reset_interval_ms": "max", "weights":
            {"sz_permil": "0.000000", "nr_accesses_permil": "300.000000", "age_permil": "0 %"}},
        "watermarks": {"metric": "none", "interval_us": "0 ns", "high_permil": "0 %"}, "filters": []}]}"#;
    let schemes = read(text);
    assert_eq!(schemes[0].pattern, AccessPattern::default());
    assert!(!schemes[0].quota.is_limited() && schemes[0].watermarks.is_none());
    assert_eq!(schemes[0].quota.weights, Weights { size: 0, access_rate: 300, age: 0 });
    assert_eq!(schemes[0].quota.reset_ns, 1_000_000_000);
    let endless = read(r#"[{"quotas": {"sz_bytes": "1 G", "reset_interval_ms": "max"}}]"#)[0].quota.reset_ns;
    assert!(endless > 1 << 61 && (1u64 << 62).checked_add(endless).is_some(), "can be added to a clock's time");
}

#[test]
fn samples_and_intervals_are_those_of_the_context() {
    let pattern = r#""access_pattern": {"nr_accesses": {"min": "5 samples", "max": "max samples"},
                                       "age": {"min": "30 aggr_intervals", "max": "80 aggr_intervals"}}"#;
    let s = &read(&format!("[{{{pattern}}}]"))[0];
    assert_eq!(s.action, Action::Stat, "the default of damo");
    assert_eq!((s.pattern.rate_bp, s.pattern.age_us), (Bounds::new(2500, 10_000), Bounds::new(3_000_000, 8_000_000)));
    let context = format!(
        r#"{{"kdamonds": [{{"contexts": [{{"ops": "vaddr", "targets": [],
             "intervals": {{"sample_us": 10000, "aggr_us": "1 s", "ops_update_us": 0}}, "schemes": [{{{pattern}}}]}}]}}]}}"#
    );
    let s = &read(&context)[0];
    assert_eq!((s.pattern.rate_bp, s.pattern.age_us), (Bounds::new(500, 10_000), Bounds::new(30_000_000, 80_000_000)));
}

#[test]
fn destinations_of_either_form() {
    let schemes = read(
        r#"[{"action": "migrate_cold", "dests": [{"id": 1, "weight": 2}, {"id": "2", "weight": "3"}], "target_nid": null},
            {"action": "migrate_hot", "dests": [], "target_nid": 1}]"#,
    );
    let to = |node, weight| Destination { node, weight };
    assert_eq!(schemes[0].destinations, [to(1, 2), to(2, 3)]);
    assert_eq!(schemes[1].destinations, [to(1, 1)]);
}

#[test]
fn errors_name_file_and_key() {
    let context = |schemes: &str| format!(r#"{{"ops": "paddr", "targets": [], "schemes": [{schemes}]}}"#);
    let contexts = |list: &str| format!(r#"{{"kdamonds": [{{"contexts": [{list}]}}]}}"#);
    let addr = r#"{"filters": [{"filter_type": "addr", "address_range": {"start": 0, "end": 9}}]}"#;
    for (text, parts) in [
        ("{\n\"schemes\": [}".to_owned(), &["k.json, line 2", "JSON"][..]),
        ("{}".into(), &["kdamonds"]),
        (r#"{"schemes": 5}"#.into(), &["schemes", "list"]),
        ("[5]".into(), &["[0]", "object"]),
        (r#"[{"action": "fly"}]"#.into(), &["k.json, [0].action", "fly", "pageout"]),
        (r#"[{"acton": "pageout"}]"#.into(), &["[0].acton", "know"]),
        (r#"[{"access_pattern": {"age": {"min": "5 parsec"}}}]"#.into(), &["[0].access_pattern.age.min", "parsec"]),
        (r#"[{"access_pattern": {"sz_bytes": {"min": 2, "max": 1}}}]"#.into(), &["sz_bytes", "above"]),
        (r#"[{"access_pattern": {"nr_accesses": {"min": "x"}}}]"#.into(), &["nr_accesses.min", "samples"]),
        (r#"[{"quotas": {"fail_charge_num": "1"}}]"#.into(), &["[0].quotas.fail_charge_num"]),
        (
            r#"[{"quotas": {"goals": [{"metric": "user_input", "target_value": 0}]}}]"#.into(),
            &["goals[0]", "goal of 0"],
        ),
        (r#"[{"quotas": {"goals": [{"metric": "luck", "target_value": 1}]}}]"#.into(), &["goals[0]", "luck"]),
        (
            r#"[{"quotas": {"goals": [{"metric": "user_input", "target_value": 1, "complement": true}]}}]"#.into(),
            &["goals[0].complement"],
        ),
        (r#"[{"quotas": {"sz_bytes": 5}}]"#.into(), &["[0].quotas", "below one page"]),
        (r#"[{"filters": [{"filter_type": "active", "matching": true}]}]"#.into(), &["filters[0]", "active"]),
        (r#"[{"watermarks": {"metric": "free_mem_rate", "interval_us": 0}}]"#.into(), &["[0].watermarks", "interval"]),
        (r#"[{"action": "migrate_hot"}]"#.into(), &["[0]", "target_nid"]),
        (contexts(&[context("{}"), context("{}")].join(",")), &["contexts[1]", "contexts[0]", "file of its own"]),
        (contexts(&context(addr)), &["filters[0]", "physical"]),
    ] {
        let reported = fault(&text);
        parts.iter().for_each(|part| assert!(reported.contains(part), "{text}: {reported:?} lacks {part:?}"));
    }
    assert_eq!(
        read(&contexts(&[context("{}"), context("")].join(","))).len(),
        1,
        "a context without schemes is no other"
    );
    assert!(read(r#"{"kdamonds": []}"#).is_empty());
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(\\PC|\n){0,200}") {
        let _ = parse("x", &text, &MonitorAttrs::default());
    }

    #[test]
    fn a_file_with_one_odd_value_is_read_or_refused(
        nth in 0usize..200,
        new in prop_oneof![
            Just("null".to_owned()), Just("[]".into()), Just("{}".into()), Just("\"max\"".into()), Just("1e300".into()),
            Just("-1".into()), "\"[0-9]{1,25} ?(%|s|ms|samples|aggr_intervals|KiB|)\"", "\"\\PC{0,6}\"".prop_filter(
                "would end the text", |t: &String| !t[1..t.len() - 1].contains(['"', '\\'])),
        ],
    ) {
        // The values after the colons, one of them replaced.
        let places: Vec<usize> = FULL.match_indices(": ").map(|(i, _)| i + 2).collect();
        let at = places[nth % places.len()];
        let rest = &FULL[at..];
        let len = serde_json::Deserializer::from_str(rest).into_iter::<serde_json::Value>().next().map_or(0, |_| {
            let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<serde_json::Value>();
            stream.next();
            stream.byte_offset()
        });
        let text = format!("{}{new}{}", &FULL[..at], &FULL[at + len..]);
        match parse("x", &text, &MonitorAttrs::default()) {
            Ok(schemes) => schemes.iter().for_each(|s| assert!(s.validate().is_ok())),
            Err(e) => prop_assert!(!e.to_string().contains("not JSON"), "{e}\n{text}"),
        }
    }
}
