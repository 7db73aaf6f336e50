//! Fuzzing's targets on their corpus: records of every format, as `isotherm record -- sleep 1` and `isotherm convert` wrote
//! them, and unpacked frames of our own.
#![allow(missing_docs)]

mod common;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use isotherm_record::fuzz;

#[test]
fn records() {
    replay::corpus("records", fuzz::every_format);
}

#[test]
fn frames() {
    replay::corpus("frames", fuzz::payload);
}

#[test]
#[ignore = "makes the corpus"]
fn write_frames() {
    std::fs::create_dir_all(replay::folder("frames")).unwrap();
    for seed in 0..4 {
        let payload = fuzz::raw_payload(&common::realistic(1 + seed, 4, seed));
        std::fs::write(replay::folder("frames").join(format!("realistic-{seed}")), payload).unwrap();
    }
}
