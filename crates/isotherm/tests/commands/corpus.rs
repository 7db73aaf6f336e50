//! Fuzzing's targets on their corpus: files that users write, and what comes over a control socket.

#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn scheme_files() {
    replay::corpus("schemes", isotherm::fuzz::schemes);
}

#[test]
fn files_of_rules() {
    replay::corpus("rules", isotherm::fuzz::rules);
}

#[test]
fn questions_and_answers_of_the_control_socket() {
    replay::corpus("control", isotherm::fuzz::control);
}
