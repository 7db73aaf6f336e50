//! The tree as a mounted file system. Needs root and FUSE.

use isotherm_compat::admin::Admin;
use isotherm_compat::debugfs::Debugfs;
use isotherm_compat::files::Combined;
use isotherm_compat::kdamond::{Kdamond, Observer, Starter};
use isotherm_compat::modules::{Module, Which};
use isotherm_compat::mount::Mounted;
use isotherm_compat::refused::Refused;
use isotherm_compat::settings::Settings;
use isotherm_compat::tree::{ROOT, Tree};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Starts nothing.
struct Never;

impl Starter for Never {
    fn start(&self, _: &str, _: Settings, _: Option<Observer>) -> Result<Box<dyn Kdamond>, Refused> {
        Err(Refused::new("this is a test"))
    }
}

struct Bed {
    folder: tempfile::TempDir,
    mounted: Option<Mounted>,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Some(mount(folder.path()));
        Self { folder, mounted }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("sys/kernel/mm/damon/admin/kdamonds").join(name)
    }
}

fn mount(at: &Path) -> Mounted {
    let mut files = Combined::new();
    let admin = files.add(Arc::new(Admin::new(Tree::damon(), Box::new(Never))));
    files.place("sys/kernel/mm/damon", admin, ROOT);
    let debugfs = files.add(Arc::new(Debugfs::new(Box::new(Never))));
    files.place("sys/kernel/debug/damon", debugfs, ROOT);
    let module = files.add(Arc::new(Module::new(Which::Reclaim, Box::new(Never))));
    files.place("sys/module/damon_reclaim", module, ROOT);
    Mounted::new(Arc::new(files), at).unwrap()
}

fn error_of(result: io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

#[test]
fn root_files_behave_as_in_sysfs() {
    let bed = Bed::new();
    let nr = bed.path("nr_kdamonds");
    fs::write(&nr, "2\n").unwrap();
    assert_eq!(fs::read_to_string(&nr).unwrap(), "2\n");
    let names = || -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(bed.path("")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["0", "1", "nr_kdamonds"]);
    let stat = fs::metadata(&nr).unwrap();
    assert_eq!((stat.mode() & 0o7777, stat.len(), stat.uid()), (0o600, 4096, 0));
    assert_eq!(error_of(fs::write(&nr, "x")), Some(22), "EINVAL");
    assert_eq!(error_of(fs::write(bed.path("0/state"), "on")), Some(22), "EINVAL: no context");
    assert_eq!(error_of(OpenOptions::new().write(true).open(bed.path("0/pid"))), Some(13), "EACCES, for root too");
    assert_eq!(error_of(File::create(bed.path("new"))), Some(13), "EACCES");
    assert_eq!(error_of(fs::create_dir(bed.path("2"))), Some(1), "EPERM");
    assert_eq!(error_of(fs::remove_file(&nr)), Some(1), "EPERM");
    assert_eq!(error_of(fs::remove_dir(bed.path("0"))), Some(1), "EPERM");

    let mut file = OpenOptions::new().read(true).write(true).open(bed.path("0/refresh_ms")).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "0\n");
    // Where the file stands means nothing to a write; from its beginning it is read anew.
    file.write_all(b"5").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    text.clear();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "5\n");
    fs::write(&nr, "0").unwrap();
    assert_eq!(error_of(file.write_all(b"6")), Some(19), "ENODEV");
    assert_eq!(names(), ["nr_kdamonds"]);
}

#[test]
fn root_it_is_unmounted_while_it_is_used() {
    let mut bed = Bed::new();
    let used = File::open(bed.path("nr_kdamonds")).unwrap();
    bed.mounted = None;
    assert_eq!(fs::read_dir(bed.folder.path()).unwrap().count(), 0);
    drop(used);
    bed.mounted = Some(mount(bed.folder.path()));
    assert!(bed.path("nr_kdamonds").exists());
}

#[test]
fn root_threads_at_random_do_no_harm() {
    let bed = Bed::new();
    std::thread::scope(|scope| {
        for seed in 0..100_usize {
            let bed = &bed;
            scope.spawn(move || {
                for turn in 0..20 {
                    let nr = ((seed + turn) % 4).to_string();
                    // Anything may be gone or busy; what counts is that everybody gets an answer.
                    let _ = fs::write(bed.path("nr_kdamonds"), &nr);
                    let _ = fs::write(bed.path("0/contexts/nr_contexts"), "1");
                    let _ = fs::write(bed.path("0/contexts/0/schemes/nr_schemes"), &nr);
                    let _ = fs::write(bed.path("0/state"), "on");
                    let _ = fs::read_to_string(bed.path("0/contexts/0/schemes/0/action"));
                    let _ = fs::read_dir(bed.path("0/contexts/0/schemes")).map(Iterator::count);
                }
            });
        }
    });
    fs::write(bed.path("nr_kdamonds"), "1").unwrap();
    assert_eq!(fs::read_to_string(bed.path("nr_kdamonds")).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(bed.path("0/state")).unwrap(), "off\n");
}

#[test]
fn root_debugfs_files_take_one_write_at_a_time() {
    let bed = Bed::new();
    let path = |name: &str| bed.folder.path().join("sys/kernel/debug/damon").join(name);
    let lines = "1 2 3 4 5 6 5\n".repeat(256);
    let longer_than_in_sysfs = lines.len() + 4096;
    let text = format!("{lines}{}", "\n".repeat(4096));
    let mut file = OpenOptions::new().write(true).open(path("schemes")).unwrap();
    assert_eq!(file.write(text.as_bytes()).unwrap(), longer_than_in_sysfs);
    assert_eq!(error_of(file.write(b"1 2 3 4 5 6 5\n")), Some(22), "EINVAL: it goes on with another");
    assert_eq!(fs::read_to_string(path("schemes")).unwrap().lines().count(), 256);
    let mut file = OpenOptions::new().append(true).open(path("attrs")).unwrap();
    file.write_all(b"1000 20000 3000000 4 50\n").unwrap();
    assert_eq!(fs::read_to_string(path("attrs")).unwrap(), "1000 20000 3000000 4 50\n");
    assert_eq!(fs::metadata(path("attrs")).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(error_of(fs::write(path("monitor_on"), "off")), Some(1), "EPERM: it is off");
    assert_eq!(error_of(fs::write(path("monitor_on"), "on")), Some(22), "EINVAL: no target");
}

#[test]
fn root_parameters_of_modules_behave_as_in_sysfs() {
    let bed = Bed::new();
    let path = |name: &str| bed.folder.path().join("sys/module/damon_reclaim/parameters").join(name);
    fs::write(path("min_age"), "5000000\n").unwrap();
    assert_eq!(fs::read_to_string(path("min_age")).unwrap(), "5000000\n");
    assert_eq!(error_of(fs::write(path("min_age"), "99999999999999999999")), Some(34), "ERANGE");
    assert_eq!(error_of(fs::write(path("nr_quota_exceeds"), "0")), Some(13), "EACCES, for root too");
    assert_eq!(fs::metadata(path("kdamond_pid")).unwrap().mode() & 0o7777, 0o400);
    assert_eq!(error_of(fs::write(path("enabled"), "Y")), Some(22), "EINVAL: nothing can be started");
    assert_eq!(fs::read_to_string(path("enabled")).unwrap(), "N\n");
}
