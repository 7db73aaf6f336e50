//! Fuzzing's target on its corpus: traces of every format.
#![allow(missing_docs)]

#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn traces() {
    replay::corpus("traces", isotherm_sim::fuzz::traces);
}
