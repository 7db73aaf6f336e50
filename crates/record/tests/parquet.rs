//! Windows in Parquet files, read back with the library's own reader.

use isotherm_record::parquet::files::HourFiles;
use isotherm_record::parquet::window::{GroupWindow, Origin};
use isotherm_record::parquet::{SCHEMA_VERSION, VERSION_KEY};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use proptest::prelude::*;
use std::fs::{self, File};
use std::path::Path;

/// 2026-11-23 19:00 UTC.
const HOUR_US: i64 = 1_795_460_400_000_000;
/// The columns as other programs find them.
const COLUMNS: &str = "window_start window_s host cluster boot_id cgroup inode namespace pod container resident_bytes swapped_bytes \
    unobservable_bytes limit_bytes accessed_bytes cold_bytes promoted_bytes watched_s reclaimed_bytes refault_10s_bytes \
    refault_60s_bytes stall_us source monitor_cpu_us target_cost_us kernel isotherm_version";

fn origin() -> Origin {
    Origin {
        host: "node/1".into(),
        cluster: None,
        boot_id: "01234567-89ab".into(),
        source: "pagetable".into(),
        kernel: "6.12.0".into(),
        isotherm_version: "1.2.3".into(),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn rows(path: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata();
    let version = metadata.key_value_metadata().unwrap().iter().find(|entry| entry.key == VERSION_KEY).unwrap();
    assert_eq!(version.value.as_deref(), Some(&*SCHEMA_VERSION.to_string()));
    let columns: Vec<&str> = metadata.schema().get_fields().iter().map(|field| field.name()).collect();
    assert_eq!(columns, COLUMNS.split_whitespace().collect::<Vec<_>>());
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn field<'a>(row: &'a Row, name: &str) -> &'a Field {
    row.get_column_iter().find(|(column, _)| *column == name).unwrap().1
}

fn number(field: &Field) -> Option<u64> {
    match field {
        Field::Null => None,
        Field::Long(n) => Some(u64::try_from(*n).unwrap()),
        other => panic!("{other:?} is no number"),
    }
}

fn text(field: &Field) -> Option<String> {
    match field {
        Field::Null => None,
        Field::Str(text) => Some(text.clone()),
        other => panic!("{other:?} is no text"),
    }
}

fn list(field: &Field) -> Vec<Option<u64>> {
    let Field::ListInternal(list) = field else { panic!("{field:?} is no list") };
    list.elements().iter().map(number).collect()
}

fn window() -> impl Strategy<Value = GroupWindow> {
    let size = || prop::option::of(0u64..1 << 50);
    let text = || prop::option::of("[a-zA-Z0-9/._\u{e9}-]{0,20}");
    let by_idle = || prop::array::uniform16(size());
    let numbers = prop::array::uniform14(size());
    ("/[a-z0-9/]{0,30}", text(), text(), text(), numbers, by_idle(), by_idle()).prop_map(
        |(cgroup, namespace, pod, container, n, cold_bytes, promoted_bytes)| GroupWindow {
            window_start_us: HOUR_US,
            window_s: 300,
            cgroup,
            inode: n[0],
            namespace,
            pod,
            container,
            resident_bytes: n[1],
            swapped_bytes: n[2],
            unobservable_bytes: n[3],
            limit_bytes: n[4],
            accessed_bytes: n[5],
            cold_bytes,
            promoted_bytes,
            watched_s: n[6],
            reclaimed_bytes: n[7],
            refault_10s_bytes: n[8],
            refault_60s_bytes: n[9],
            stall_us: n[10],
            monitor_cpu_us: n[11],
            target_cost_us: n[12],
        },
    )
}

fn check(row: &Row, window: &GroupWindow) {
    assert!(matches!(field(row, "window_start"), Field::TimestampMicros(us) if *us == window.window_start_us));
    assert!(matches!(field(row, "window_s"), Field::Int(300)));
    for (name, value) in [
        ("host", Some("node/1".to_owned())),
        ("cluster", None),
        ("cgroup", Some(window.cgroup.clone())),
        ("namespace", window.namespace.clone()),
        ("pod", window.pod.clone()),
        ("container", window.container.clone()),
        ("source", Some("pagetable".to_owned())),
        ("isotherm_version", Some("1.2.3".to_owned())),
    ] {
        assert_eq!(text(field(row, name)), value, "{name}");
    }
    for (name, value) in [
        ("inode", window.inode),
        ("resident_bytes", window.resident_bytes),
        ("swapped_bytes", window.swapped_bytes),
        ("unobservable_bytes", window.unobservable_bytes),
        ("limit_bytes", window.limit_bytes),
        ("accessed_bytes", window.accessed_bytes),
        ("watched_s", window.watched_s),
        ("reclaimed_bytes", window.reclaimed_bytes),
        ("refault_10s_bytes", window.refault_10s_bytes),
        ("refault_60s_bytes", window.refault_60s_bytes),
        ("stall_us", window.stall_us),
        ("monitor_cpu_us", window.monitor_cpu_us),
        ("target_cost_us", window.target_cost_us),
    ] {
        assert_eq!(number(field(row, name)), value, "{name}");
    }
    assert_eq!(list(field(row, "cold_bytes")), window.cold_bytes);
    assert_eq!(list(field(row, "promoted_bytes")), window.promoted_bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn what_is_written_is_read_back(windows in prop::collection::vec(prop::collection::vec(window(), 0..12), 1..5)) {
        let folder = tempfile::tempdir().unwrap();
        let mut files = HourFiles::new(folder.path(), origin()).unwrap();
        for rows in &windows {
            prop_assert_eq!(files.write(HOUR_US, rows.clone()).unwrap(), None);
        }
        let path = files.finish().unwrap().unwrap();
        let rows = rows(&path);
        prop_assert_eq!(rows.len(), windows.iter().map(Vec::len).sum::<usize>());
        rows.iter().zip(windows.iter().flatten()).for_each(|(row, window)| check(row, window));
    }
}

#[test]
fn many_rows_keep_their_order_over_groups_of_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = HourFiles::new(folder.path(), origin()).unwrap();
    for window in 0..7 {
        let rows = (0..1000).map(|row| GroupWindow { inode: Some(window * 1000 + row), ..GroupWindow::default() });
        files.write(HOUR_US, rows.collect()).unwrap();
    }
    let path = files.finish().unwrap().unwrap();
    let inodes: Vec<u64> = rows(&path).iter().filter_map(|row| number(field(row, "inode"))).collect();
    assert_eq!(inodes, (0..7000).collect::<Vec<u64>>());
    let groups = SerializedFileReader::new(File::open(&path).unwrap()).unwrap().metadata().num_row_groups();
    assert_eq!(groups, 2, "5000 rows and the rest");
}

#[test]
fn each_hour_has_a_file_of_its_own_that_is_whole_once_it_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = HourFiles::new(folder.path(), origin()).unwrap();
    let row = |start_us| vec![GroupWindow { window_start_us: start_us, window_s: 300, ..GroupWindow::default() }];
    assert_eq!(files.write(HOUR_US, row(HOUR_US)).unwrap(), None);
    let grows = names(folder.path());
    assert_eq!(grows.len(), 1);
    assert!(!grows[0].ends_with(".parquet"), "{grows:?}");
    let next = HOUR_US + 3_600_000_000;
    let first = files.write(next, row(next)).unwrap().unwrap();
    assert_eq!(first.file_name().unwrap(), "isotherm-node_1-01234567-20261123T19Z-0.parquet");
    assert_eq!(rows(&first).len(), 1);
    let second = files.finish().unwrap().unwrap();
    assert!(second.ends_with("isotherm-node_1-01234567-20261123T20Z-0.parquet"), "{second:?}");
    assert_eq!(files.finish().unwrap(), None);
    // A clock that jumps back: the same hour again.
    files.write(HOUR_US, row(HOUR_US)).unwrap();
    let again = files.finish().unwrap().unwrap();
    assert!(again.ends_with("isotherm-node_1-01234567-20261123T19Z-1.parquet"), "{again:?}");
    assert_eq!((rows(&first).len(), names(folder.path()).len()), (1, 3));
}

#[test]
fn what_a_crash_left_goes_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = HourFiles::new(folder.path(), origin()).unwrap();
    files.write(HOUR_US, vec![GroupWindow::default()]).unwrap();
    drop(files);
    for other in
        ["isotherm-other-01234567-20261123T19Z-0.parquet.part", "notes.parquet.part", "isotherm-node_1-x.parquet"]
    {
        fs::write(folder.path().join(other), "").unwrap();
    }
    assert_eq!(names(folder.path()).len(), 4);
    HourFiles::new(folder.path(), origin()).unwrap();
    assert_eq!(
        names(folder.path()),
        ["isotherm-node_1-x.parquet", "isotherm-other-01234567-20261123T19Z-0.parquet.part", "notes.parquet.part"]
    );
}

#[test]
fn a_folder_that_cannot_be_is_named_and_one_that_goes_loses_an_hour_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for taken in [file.clone(), file.join("sub")] {
        let error = HourFiles::new(&taken, origin()).unwrap_err().to_string();
        assert!(error.contains(taken.to_str().unwrap()) && error.contains("make it writable"), "{error}");
    }
    // There, but nothing can be made in it.
    let error = HourFiles::new(Path::new("/proc/self"), origin()).unwrap_err().to_string();
    assert!(error.contains("/proc/self") && error.contains("make it writable"), "{error}");
    let inner = folder.path().join("inner");
    let mut files = HourFiles::new(&inner, origin()).unwrap();
    fs::remove_dir_all(&inner).unwrap();
    let error = files.write(HOUR_US, vec![GroupWindow::default()]).unwrap_err().to_string();
    assert!(error.contains("20261123T19Z") && error.contains("are lost"), "{error}");
    fs::create_dir(&inner).unwrap();
    files.write(HOUR_US, vec![GroupWindow::default()]).unwrap();
    assert_eq!(rows(&files.finish().unwrap().unwrap()).len(), 1);
}

#[test]
fn an_hour_that_is_lost_takes_none_of_the_next_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = HourFiles::new(folder.path(), origin()).unwrap();
    files.write(HOUR_US, vec![GroupWindow::default()]).unwrap();
    let part = folder.path().join(&names(folder.path())[0]);
    fs::remove_file(part).unwrap();
    let next = HOUR_US + 3_600_000_000;
    let error = files.write(next, vec![GroupWindow::default()]).unwrap_err().to_string();
    assert!(error.contains("20261123T19Z") && error.contains("No such file"), "{error}");
    assert_eq!(files.write(next, vec![GroupWindow::default()]).unwrap(), None);
    let path = files.finish().unwrap().unwrap();
    assert!(path.ends_with("isotherm-node_1-01234567-20261123T20Z-0.parquet"), "{path:?}");
    assert_eq!(rows(&path).len(), 2);
}

/// What the system says is not wrapped in the format's words.
#[test]
fn a_full_disk_is_called_that() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = HourFiles::new(folder.path(), origin()).unwrap();
    // The file begins in a place that is always full.
    let name = "isotherm-node_1-01234567-20261123T19Z-0.parquet.part";
    std::os::unix::fs::symlink("/dev/full", folder.path().join(name)).unwrap();
    let written = files.write(HOUR_US, vec![GroupWindow::default()]).and_then(|_| files.finish());
    let error = written.unwrap_err().to_string();
    assert!(error.contains("19Z-0.parquet.part: No space left on device (os error 28); the rows"), "{error}");
}
