//! `isotherm-fleet simulate` as a user calls it: its files, read with the library's own reader, add up to `truth.json`.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

fn simulate(out: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isotherm-fleet"));
    command.arg("simulate").args(args).arg("--out").arg(out).output().unwrap()
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            all.extend(files(&entry.path()));
        } else {
            all.insert(entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
        }
    }
    all
}

fn number(field: &Field) -> Option<i64> {
    match field {
        Field::Null => None,
        Field::Long(n) => Some(*n),
        other => panic!("{other:?} is no number"),
    }
}

#[test]
fn the_files_add_up_to_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("fleet");
    let done = simulate(&out, &["--hosts", "5", "--hours", "11", "--seed", "7", "--groups", "20"]);
    assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
    let truth: Value = serde_json::from_slice(&fs::read(out.join("truth.json")).unwrap()).unwrap();
    let (mut rows, mut hosts, mut paths, mut unknown) = (0, HashSet::new(), 0, 0);
    let (mut resident, mut cold, mut promoted) = (0, [0; 16], [0; 16]);
    for host in fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for path in fs::read_dir(host).unwrap().map(|entry| entry.unwrap().path()) {
            paths += 1;
            let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
            for row in reader.get_row_iter(None).unwrap().map(Result::unwrap) {
                rows += 1;
                for (column, field) in row.get_column_iter() {
                    let sums = match (column.as_str(), field) {
                        ("host", Field::Str(host)) => {
                            hosts.insert(host.clone());
                            continue;
                        }
                        ("resident_bytes", field) => {
                            resident += number(field).unwrap();
                            continue;
                        }
                        ("cold_bytes", _) => &mut cold,
                        ("promoted_bytes", _) => &mut promoted,
                        _ => continue,
                    };
                    let Field::ListInternal(list) = field else { panic!("{field:?} is no list") };
                    assert_eq!(list.len(), 16);
                    for (sum, entry) in sums.iter_mut().zip(list.elements()) {
                        *sum += number(entry).unwrap_or(0);
                        unknown += u64::from(number(entry).is_none());
                    }
                }
            }
        }
    }
    assert!(unknown > 0, "the first hours cannot know of 8 h");
    assert_eq!((truth["rows"].as_u64(), truth["files"].as_u64()), (Some(rows), Some(paths)));
    assert_eq!((paths, truth["hosts"].as_u64(), hosts.len()), (55, Some(5), 5));
    let sums = &truth["sums"];
    assert_eq!(sums["resident_bytes"].as_i64(), Some(resident));
    for (i, (cold, promoted)) in cold.into_iter().zip(promoted).enumerate() {
        assert_eq!(sums["cold_bytes"][i].as_i64(), Some(cold));
        assert_eq!(sums["promoted_bytes"][i].as_i64(), Some(promoted));
        assert!(cold > 0 && promoted > 0, "{i}");
    }
}

#[test]
fn the_same_seed_makes_the_same_files_and_another_makes_others() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, seed: &str| {
        let out = folder.path().join(name);
        let done = simulate(&out, &["--hosts", "3", "--hours", "2", "--seed", seed, "--groups", "9"]);
        assert!(done.status.success(), "{done:?}");
        files(&out)
    };
    let first = of("a", "1");
    assert!(first == of("b", "1"), "not the same");
    assert!(first != of("c", "2"), "the same");
}

#[test]
fn a_folder_in_use_and_windows_that_do_not_fill_an_hour_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("other"), "").unwrap();
    let done = simulate(folder.path(), &["--hosts", "1", "--hours", "1"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stderr).contains("is not empty; give a new folder"), "{done:?}");
    assert_eq!(files(folder.path()).len(), 1);
    let done = simulate(&folder.path().join("new"), &["--hosts", "1", "--hours", "1", "--window", "7m"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("whole number of windows"), "{done:?}");
    assert!(!folder.path().join("new").exists());
}
