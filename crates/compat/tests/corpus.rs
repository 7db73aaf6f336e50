//! Fuzzing's target on its corpus: lines of operations on the control files.
#![allow(missing_docs)]

#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn operations_on_files() {
    replay::corpus("files", isotherm_compat::fuzz::operations);
}
