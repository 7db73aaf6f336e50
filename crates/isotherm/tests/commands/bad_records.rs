//! Record files that are cut off, damaged, or no records at all: what is whole is shown, what is not is said.

use crate::common::{Done, Program, isotherm, text};
use std::path::Path;
use std::sync::OnceLock;

/// A real record of about two seconds, and its snapshots; made once, by the source that needs no privilege.
fn good() -> &'static (Vec<u8>, Vec<String>) {
    static GOOD: OnceLock<(Vec<u8>, Vec<String>)> = OnceLock::new();
    GOOD.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.iso");
        let program = Program::sleeper();
        let pid = program.pid().to_string();
        isotherm(["record", "--pid", &pid, "--source", "refs", "-o", text(&file), "--duration", "2s"]).expect(0, &[]);
        let lines: Vec<String> = raw(&file).expect(0, &[]).stdout.lines().map(str::to_owned).collect();
        assert!(lines.len() >= 2, "too short a record to damage: {lines:?}");
        (std::fs::read(&file).unwrap(), lines)
    })
}

fn raw(file: &Path) -> Done {
    isotherm(["report", "raw", text(file), "--json"])
}

/// Writes `bytes` as a file, reads it as a record; whatever is printed must be snapshots of the good record.
#[track_caller]
fn read_damaged(folder: &Path, bytes: &[u8], what: &str) -> usize {
    let file = folder.join("damaged.iso");
    std::fs::write(&file, bytes).unwrap();
    let done = raw(&file);
    done.expect_no_panic();
    assert!(matches!(done.status, Some(0 | 1)), "{what}: {done:#?}");
    let whole = &good().1;
    let printed: Vec<&str> = done.stdout.lines().collect();
    assert!(printed.len() <= whole.len(), "{what}: more snapshots than there were");
    for line in &printed {
        assert!(whole.iter().any(|w| w == line), "{what}: a snapshot that never was: {line}");
    }
    if printed.len() < whole.len() {
        assert!(!done.stderr.trim().is_empty(), "{what}: snapshots are missing and nobody says so");
    }
    printed.len()
}

#[test]
fn cut_off_anywhere_it_is_readable_up_to_the_last_whole_part() {
    let (bytes, lines) = good();
    let folder = tempfile::tempdir().unwrap();
    let mut before = 0;
    for step in 0..=40 {
        let length = bytes.len() * step / 40;
        let count = read_damaged(folder.path(), &bytes[..length], &format!("the first {length} bytes"));
        assert!(count >= before, "a longer piece shows less: {before}, then {count} at {length} bytes");
        before = count;
    }
    assert_eq!(before, lines.len());
    // All that the last byte can cost is what it belongs to.
    let count = read_damaged(folder.path(), &bytes[..bytes.len() - 1], "all but the last byte");
    assert!(count + 1 >= lines.len(), "one byte less costs {} snapshots", lines.len() - count);
}

#[test]
fn a_flipped_bit_is_noticed() {
    let (bytes, _) = good();
    let folder = tempfile::tempdir().unwrap();
    for step in 0..64 {
        let mut damaged = bytes.clone();
        let position = bytes.len() * step / 64;
        damaged[position] ^= 1 << (step % 8);
        read_damaged(folder.path(), &damaged, &format!("bit {} of byte {position} flipped", step % 8));
    }
}

#[test]
fn foreign_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let foreign: [(&str, &[u8]); 6] = [
        ("empty", b""),
        ("text", b"expensive diary, nothing happened today\n"),
        ("zeros", &[0; 5000]),
        ("elf", b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x3e\x00"),
        ("json", b"{\"hello\": [1, 2, 3]}"),
        ("gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
    ];
    for (name, bytes) in foreign {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        for view in ["raw", "access", "heatmap", "wss", "regions", "summary"] {
            isotherm(["report", view, text(&file)]).expect(1, &[text(&file)]);
        }
        let out = folder.path().join("out.iso");
        isotherm(["convert", text(&file), text(&out)]).expect(1, &[text(&file)]);
        assert!(!out.exists(), "{name}: a refused conversion left a file");
    }
    isotherm(["report", "raw", text(folder.path())]).expect(1, &[text(folder.path())]);
}
