//! What a command that is watched says never stands among what programs read on standard output. Needs root and eBPF.

use crate::common::{Done, isotherm};

/// Runs `isotherm ARGS` over a command that says something on its standard output.
#[track_caller]
fn over_one_that_talks(args: &str) -> Done {
    let command = ["--", "sh", "-c", "echo HELLO; exec sleep 100"];
    let done = isotherm(args.split(' ').chain(command));
    done.expect(0, &["HELLO"]);
    assert!(!done.stdout.contains("HELLO"), "{args}: {done:#?}");
    done
}

#[test]
fn root_standard_output_holds_nothing_of_a_command() {
    for args in [
        "reclaim --dry-run --json --duration 1s",
        "thp --dry-run --stats - --duration 1s",
        "lru report --json --engine user --interval 200ms --duration 1s",
    ] {
        let done = over_one_that_talks(args);
        assert!(!done.json_lines().is_empty(), "{args}: {done:#?}");
    }
    let text = over_one_that_talks("trace --duration 1s").stdout;
    assert!(!text.is_empty() && text.lines().all(|line| line.contains(": damon:")), "{text}");
    // Where nothing else is said there, it is the command's.
    let done = isotherm("reclaim --dry-run --duration 1s -- sh -c".split(' ').chain(["echo HELLO; exec sleep 100"]));
    assert_eq!(done.expect(0, &[]).stdout, "HELLO\n");
}
