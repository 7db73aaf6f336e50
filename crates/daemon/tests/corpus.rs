//! Fuzzing's target on its corpus: requests and answers, the first byte before each being how long the pieces are.
#![allow(missing_docs)]

#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn requests_and_answers() {
    replay::corpus("http", isotherm_daemon::fuzz::http);
}
