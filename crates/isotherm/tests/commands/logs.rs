//! Messages on stderr: their form for the journal, and that losing them changes nothing.

use crate::common::command;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

#[test]
fn the_exit_status_survives_the_loss_of_stderr() {
    for (args, status) in [
        (&["report", "summary", "/nonexistent"][..], 1),
        (&["sim", "monitor", "idle", "--size", "4M", "--duration", "0s"], 2),
        (&["workload", "idle", "--size", "1M", "--duration", "10ms"], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = command(args).stderr(writer).stdout(Stdio::null()).status().unwrap();
        assert_eq!(done.code(), Some(status), "{args:?}");
    }
}

#[test]
fn the_journal_is_told_the_level() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stderr");
    let reported = |journal: Option<String>, args: &[&str]| {
        let file = File::create(&path).unwrap();
        let mut command = command(args);
        command.env_remove("JOURNAL_STREAM").envs(journal.map(|j| ("JOURNAL_STREAM", j)));
        assert_eq!(command.stderr(file).status().unwrap().code(), Some(1));
        std::fs::read_to_string(&path).unwrap()
    };
    let failing = ["report", "summary", "/nonexistent"];
    let plain = reported(None, &failing);
    assert!(plain.starts_with("isotherm: "), "{plain}");
    let meta = path.metadata().unwrap();
    let journal = reported(Some(format!("{}:{}", meta.dev(), meta.ino())), &failing);
    assert!(journal.starts_with("<3>") && journal.contains("/nonexistent"), "{journal}");
    assert_eq!(reported(Some("1:1".to_owned()), &failing), plain, "somebody else's stderr");
    let verbose = reported(None, &[&["-v"], &failing[..]].concat());
    assert!(verbose.starts_with("isotherm: version ") && verbose.ends_with(&plain), "{verbose}");
    assert_eq!(reported(None, &[&failing[..], &["-q"]].concat()), plain, "errors are reported all the same");
}
