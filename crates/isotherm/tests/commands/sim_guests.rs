//! `isotherm sim guests`.

use crate::common::isotherm;

const SMALL: [&str; 14] = [
    "--host-memory",
    "4G",
    "--host-own",
    "256M",
    "--guest-own",
    "100M",
    "--guest-memory",
    "1G",
    "--program",
    "700M",
    "--memhog-guest-memory",
    "2G",
    "--memhog",
    "1200M",
];

#[test]
fn hints_let_more_guests_fit_and_spare_the_swap() {
    let done = isotherm([&["sim", "guests", "--json"], &SMALL[..]].concat());
    done.expect(0, &[]);
    let figures = &done.json_lines()[0];
    let way = |test: &str, way: &str| {
        let rows = figures[test].as_array().unwrap();
        rows.iter().find(|row| row["way"] == way).unwrap().clone()
    };
    let fit = |name| way("fit", name)["guests"].as_u64().unwrap();
    assert!(fit("isotherm") > fit("none") && fit("reporting") > fit("none"), "{figures}");
    let third = |name| way("memhog", name)["runs"][2].clone();
    assert!(third("none")["swap_out"].as_u64() > Some(0) && third("isotherm")["swap_out"].as_u64() == Some(0));
    assert!(third("isotherm")["seconds"].as_f64() < third("none")["seconds"].as_f64());
    let back = way("comes_back", "isotherm");
    assert!(back["seconds_to_90"].as_f64().is_some_and(|s| s < 10.0), "{back}");
    assert!(way("comes_back", "none")["seconds_to_90"].is_null());

    let table = isotherm([&["sim", "guests"], &SMALL[..]].concat());
    table.expect(0, &[]);
    assert!(table.stdout.contains("without hints") && table.stdout.contains("never"), "{}", table.stdout);
}

#[test]
fn sizes_that_make_no_sense() {
    let refused = |args: &[&str], word: &str| {
        isotherm([&["sim", "guests"], args].concat()).expect(2, &[word]);
    };
    refused(&["--guest-memory", "1G"], "--guest-memory");
    refused(&["--memhog", "100G"], "--memhog-guest-memory");
    refused(&["--guest-memory", "100T"], "--guest-memory");
    refused(&["--host-memory", "1G"], "--host-memory");
    refused(&["--most-guests", "0"], "0");
    refused(&["--program", "many"], "many");
    let most = u64::MAX.to_string();
    refused(&["--guest-own", &most], "--guest-memory");
    refused(&["--program", &most], "--guest-memory");
    refused(&["--memhog", &most], "--memhog-guest-memory");
    refused(&["--host-own", &most], "--host-memory");
}
