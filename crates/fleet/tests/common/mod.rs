//! Made-up fleets, the command, and rows read with another reader than the command's.
#![allow(dead_code)] // Each test uses a part of it.

use isotherm_record::parquet::files::HourFiles;
use isotherm_record::parquet::window::{GroupWindow, Origin};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs `isotherm-fleet`.
pub fn fleet(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isotherm-fleet")).args(args).output().unwrap()
}

/// Its lines of JSON.
pub fn json(args: &[&str]) -> Vec<Value> {
    let done = fleet(args);
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Makes a fleet in `folder`/fleet.
pub fn simulate(folder: &Path, args: &str) -> PathBuf {
    let out = folder.join("fleet");
    let mut all = vec!["simulate", "--out", out.to_str().unwrap()];
    all.extend(args.split(' '));
    let done = fleet(&all);
    assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
    out
}

/// 2026-01-05 01:00 UTC, microseconds since 1970.
pub const BEGIN_US: i64 = 1_767_574_800_000_000;

/// A window of 5 min that begins at minute `minute` after [`BEGIN_US`], in which 1,000,000 bytes were resident, half of them idle
/// for an hour.
pub fn window(minute: i64) -> GroupWindow {
    let mut row = GroupWindow {
        window_start_us: BEGIN_US + minute * 60_000_000,
        window_s: 300,
        cgroup: "/x".to_owned(),
        resident_bytes: Some(1_000_000),
        unobservable_bytes: Some(0),
        accessed_bytes: Some(500_000),
        ..GroupWindow::default()
    };
    row.cold_bytes[..13].fill(Some(500_000));
    row.promoted_bytes[..13].fill(Some(0));
    row
}

/// Writes windows of the host `a`, in the order in which they are given, as the node does.
pub fn write(folder: &Path, rows: Vec<GroupWindow>) {
    write_of(folder, None, rows);
}

/// The same of the host `a` of a cluster.
pub fn write_of(folder: &Path, cluster: Option<&str>, rows: Vec<GroupWindow>) {
    let cluster = cluster.map(str::to_owned);
    let origin = Origin { host: "a".into(), cluster, boot_id: "b".into(), source: "refs".into(), ..Origin::default() };
    let mut files = HourFiles::new(folder, origin).unwrap();
    for row in rows {
        files.write(row.window_start_us, vec![row]).unwrap();
    }
    files.finish().unwrap();
}

/// All Parquet files below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.extension().is_some_and(|ending| ending == "parquet") {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// What a replay needs of a row.
#[derive(Debug, Clone)]
pub struct Row {
    /// Host, boot, group and inode.
    pub group: (String, String, String, i64),
    pub start_s: u64,
    pub window_s: u64,
    pub resident: u64,
    pub accessed: Option<u64>,
    pub cold: [Option<u64>; 16],
    pub promoted: [Option<u64>; 16],
}

/// All rows of a fleet, by group and time.
pub fn rows(folder: &Path) -> Vec<Row> {
    let mut all = Vec::new();
    for path in files(folder) {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap().map(Result::unwrap) {
            let field = |name: &str| row.get_column_iter().find(|(column, _)| *column == name).unwrap().1.clone();
            let text = |name| match field(name) {
                Field::Str(text) => text,
                other => panic!("{other:?}"),
            };
            all.push(Row {
                group: (text("host"), text("boot_id"), text("cgroup"), number(&field("inode")).unwrap() as i64),
                start_s: match field("window_start") {
                    Field::TimestampMicros(us) => us as u64 / 1_000_000,
                    other => panic!("{other:?}"),
                },
                window_s: number(&field("window_s")).unwrap(),
                resident: number(&field("resident_bytes")).unwrap(),
                accessed: number(&field("accessed_bytes")),
                cold: list(&field("cold_bytes")),
                promoted: list(&field("promoted_bytes")),
            });
        }
    }
    all.sort_by(|a, b| a.group.cmp(&b.group).then(a.start_s.cmp(&b.start_s)));
    all
}

fn number(field: &Field) -> Option<u64> {
    match field {
        Field::Null => None,
        Field::Long(n) => Some(*n as u64),
        Field::Int(n) => Some(*n as u64),
        other => panic!("{other:?} is no number"),
    }
}

fn list(field: &Field) -> [Option<u64>; 16] {
    let Field::ListInternal(list) = field else { panic!("{field:?} is no list") };
    let entries: Vec<_> = list.elements().iter().map(number).collect();
    entries.try_into().unwrap()
}
