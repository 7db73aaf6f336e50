//! Figures of `isotherm-fleet` of windows that are written one by one, where they can be told in advance.

mod common;

use common::{BEGIN_US, fleet, json, window, write};
use isotherm_record::parquet::window::GroupWindow;
use serde_json::{Value, json};
use std::path::Path;

fn report(folder: &Path) -> Value {
    json(&["report", folder.to_str().unwrap(), "--json"]).swap_remove(0)
}

/// A clock is set back by 12 min: the windows that follow begin in the same seconds as those before, some microseconds later.
#[test]
fn a_clock_that_was_set_back_counts_no_window_twice() {
    let folder = tempfile::tempdir().unwrap();
    let at = |minute: i64, us: i64| {
        let row = window(minute);
        GroupWindow { window_start_us: row.window_start_us + us, ..row }
    };
    let mut rows = vec![at(0, 1000), at(5, 2000), at(10, 1000)];
    rows.push(GroupWindow { window_s: 119, ..at(3, 5000) });
    rows.extend([at(5, 4000), at(10, 3000), at(15, 1000)]);
    write(folder.path(), rows);
    let total = report(folder.path());
    assert_eq!(
        (&total["resident_bytes"], &total["rows"], &total["rows_left_out"]),
        (&json!(1e6), &json!(4), &json!(3))
    );
    assert_eq!((&total["begin_s"], &total["watched_s"]), (&json!(BEGIN_US / 1_000_000), &json!(1200)));
    let what_if = json(&["what-if", folder.path().to_str().unwrap(), "--json"]).swap_remove(0);
    assert_eq!((&what_if["resident_bytes"], &what_if["rows_clock_set_back"]), (&json!(1e6), &json!(3)));
}

#[test]
fn each_figure_is_of_the_time_in_which_it_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |change: &dyn Fn(i64, &mut GroupWindow)| {
        let mut rows: Vec<GroupWindow> = (0..10).map(|i| window(i * 5)).collect();
        (0..).zip(&mut rows).for_each(|(i, row)| change(i, row));
        rows
    };
    let of = |name: &str, change: &dyn Fn(i64, &mut GroupWindow)| {
        write(&folder.path().join(name), rows(change));
        report(&folder.path().join(name))
    };
    // 2 min is entry 7: 10,000 bytes in 300 s, of 500,000 in use.
    let half = of("half", &|i, row| {
        row.promoted_bytes[..13].fill((i % 2 == 0).then_some(10_000));
        row.swapped_bytes = (i % 2 == 1).then_some(70_000);
    });
    let share = half["cold"][7]["promoted_share_per_min"].as_f64().unwrap();
    assert!((share - 10_000.0 / 5.0 / 500_000.0).abs() < 1e-9, "{share}");
    assert_eq!((&half["swapped_bytes"], &half["resident_bytes"]), (&json!(70_000.0), &json!(1e6)));
    assert_eq!((&half["cold"][7]["share"], &half["cold"][7]["known_share"]), (&json!(0.5), &json!(1.0)));
    let none = of("none", &|_, row| row.promoted_bytes = [None; 16]);
    assert_eq!((&none["cold"][7]["promoted_share_per_min"], &none["swapped_bytes"]), (&Value::Null, &Value::Null));
    assert_eq!(none["accessed_bytes"], json!(500_000.0));
    // A group of which only its swap is known.
    let unseen = of("unseen", &|_, row| {
        *row = GroupWindow {
            window_start_us: row.window_start_us,
            window_s: 300,
            cgroup: "/x".to_owned(),
            swapped_bytes: Some(5),
            ..GroupWindow::default()
        };
    });
    assert_eq!((&unseen["resident_bytes"], &unseen["unobservable_bytes"]), (&Value::Null, &Value::Null));
    assert_eq!((&unseen["swapped_bytes"], &unseen["rows"]), (&json!(5.0), &json!(10)));
    let text = String::from_utf8(fleet(&["report", folder.path().join("none").to_str().unwrap()]).stdout).unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with("2m ")).unwrap();
    assert!(line.ends_with("not known"), "{line}");
}

/// The same in all windows: what is said of the two parts of the time is what is said of the whole.
#[test]
fn the_parts_of_the_time_have_means_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), (0..60).map(|i| window(i * 5)).collect());
    let place = folder.path().to_str().unwrap();
    for test in ["33%", "5%"] {
        let args = ["tune", place, "--percentiles", "99.999", "--warmups", "0s", "--json", "--test", test];
        let choice = json(&args).swap_remove(0);
        for part in ["train", "test"] {
            assert_eq!(choice[part]["resident_bytes"], json!(1e6), "{part} of {test}");
        }
        // Nothing is known before the first window.
        assert_eq!(choice["test"]["saved_bytes"], json!(500_000.0), "{test}");
    }
    let text = fleet(&["tune", place, "--percentiles", "99.999", "--warmups", "0s"]);
    assert!(String::from_utf8(text.stdout).unwrap().contains("chosen: percentile 99.999, "));
}
