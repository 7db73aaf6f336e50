//! The rules of the OpenMetrics form, for tests.

use std::collections::{BTreeMap, BTreeSet};

/// Checks `text` against the format's rules, for tests; the samples by name and labels.
pub fn checked(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind, mut unit) = (String::new(), String::new(), String::new());
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
    for line in text.strip_suffix("# EOF\n").unwrap().lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let (keyword, rest) = rest.split_once(' ').unwrap();
            let (name, rest) = rest.split_once(' ').unwrap();
            match keyword {
                "TYPE" => {
                    assert!(families.insert(name.to_owned()), "{name} comes twice");
                    (family, kind, unit) = (name.to_owned(), rest.to_owned(), String::new());
                    assert!(["counter", "gauge", "info"].contains(&rest));
                }
                "UNIT" => {
                    assert_eq!(name, family);
                    assert!(family.ends_with(&format!("_{rest}")), "{family} does not end with its unit");
                    unit = rest.to_owned();
                }
                "HELP" => assert!(name == family && !rest.is_empty()),
                other => panic!("{other}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{name}");
        let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{name} is not of {family}"));
        match kind.as_str() {
            "counter" => assert_eq!(suffix, "_total"),
            "info" => assert!(suffix == "_info" && value == "1" && unit.is_empty()),
            _ => assert_eq!(suffix, ""),
        }
        if let Some(labels) = series.strip_prefix(name).filter(|l| !l.is_empty()) {
            let inner = labels.strip_prefix('{').and_then(|l| l.strip_suffix('}')).unwrap();
            // Quotes that are not escaped come in pairs.
            let quotes = inner.replace("\\\\", "").replace("\\\"", "").matches('"').count();
            assert!(quotes > 0 && quotes % 2 == 0, "{labels}");
        }
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite());
        assert!(samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
    }
    samples
}
