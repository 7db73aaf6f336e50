//! The tree as a mounted file system. Needs root and FUSE.

use isotherm_compat::admin::Admin;
use isotherm_compat::debugfs::Debugfs;
use isotherm_compat::files::Combined;
use isotherm_compat::kdamond::{Kdamond, Observer, Starter, Stopper};
use isotherm_compat::modules::{Module, Which};
use isotherm_compat::mount::Mounted;
use isotherm_compat::refused::Refused;
use isotherm_compat::scheme::Goals;
use isotherm_compat::settings::Settings;
use isotherm_compat::tree::{ROOT, Tree};
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_core::snapshot::RegionInfo;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Starts nothing.
struct Never;

impl Starter for Never {
    fn start(&self, _: &str, _: Settings, _: Option<Observer>) -> Result<Box<dyn Kdamond>, Refused> {
        Err(Refused::new("this is a test"))
    }
}

/// Starts kdamonds that tell what is tried only when they end.
#[derive(Clone, Default)]
struct Slow(Arc<SlowState>);

#[derive(Default)]
struct SlowState {
    running: AtomicBool,
    waits: AtomicBool,
}

impl SlowState {
    /// Waits for a while until `what` is so.
    fn wait(&self, what: impl Fn(&Self) -> bool) -> bool {
        (0..20_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            what(self)
        })
    }
}

impl Starter for Slow {
    fn start(&self, _: &str, _: Settings, _: Option<Observer>) -> Result<Box<dyn Kdamond>, Refused> {
        self.0.running.store(true, Ordering::Relaxed);
        Ok(Box::new(self.clone()))
    }
}

impl Kdamond for Slow {
    fn is_running(&self) -> bool {
        self.0.running.load(Ordering::Relaxed)
    }

    fn tid(&self) -> i32 {
        77
    }

    fn stopper(&self) -> Stopper {
        let state = Arc::clone(&self.0);
        Arc::new(move || state.running.store(false, Ordering::Relaxed))
    }

    fn stop(&mut self) {
        self.stopper()();
    }

    fn commit(&mut self, _: Settings) -> Result<(), Refused> {
        Ok(())
    }

    fn commit_goals(&mut self, _: Vec<Goals>) -> Result<(), Refused> {
        Ok(())
    }

    fn stats(&mut self) -> Result<Vec<SchemeStats>, Refused> {
        Ok(Vec::new())
    }

    fn tried(&mut self) -> Result<Vec<Vec<RegionInfo>>, Refused> {
        self.0.waits.store(true, Ordering::Relaxed);
        self.0.wait(|state| !state.running.load(Ordering::Relaxed));
        Err(Refused::new("it has ended"))
    }

    fn attrs(&mut self) -> Result<MonitorAttrs, Refused> {
        Ok(MonitorAttrs::default())
    }
}

struct Bed {
    folder: tempfile::TempDir,
    mounted: Option<Mounted>,
}

impl Bed {
    fn new() -> Self {
        Self::with(Box::new(Never))
    }

    fn with(starter: Box<dyn Starter>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Some(mount(folder.path(), starter));
        Self { folder, mounted }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("sys/kernel/mm/damon/admin/kdamonds").join(name)
    }
}

fn mount(at: &Path, starter: Box<dyn Starter>) -> Mounted {
    let mut files = Combined::new();
    let admin = files.add(Arc::new(Admin::new(Tree::damon(), starter)));
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
    bed.mounted = Some(mount(bed.folder.path(), Box::new(Never)));
    assert!(bed.path("nr_kdamonds").exists());
}

#[test]
fn root_a_command_that_takes_long_holds_up_nobody() {
    let slow = Slow::default();
    let mut bed = Bed::with(Box::new(slow.clone()));
    for (file, text) in [
        ("nr_kdamonds", "1"),
        ("0/contexts/nr_contexts", "1"),
        ("0/contexts/0/targets/nr_targets", "1"),
        ("0/contexts/0/targets/0/pid_target", "1"),
    ] {
        fs::write(bed.path(file), text).unwrap();
    }
    let state = bed.path("0/state");
    let update = || {
        fs::write(&state, "on").unwrap();
        slow.0.waits.store(false, Ordering::Relaxed);
        let file = state.clone();
        let writer = std::thread::spawn(move || error_of(fs::write(file, "update_schemes_tried_regions")));
        assert!(slow.0.wait(|state| state.waits.load(Ordering::Relaxed)));
        writer
    };
    let writer = update();
    // With O_TRUNC, as a shell's `>` opens it.
    assert_eq!(error_of(fs::write(&state, "commit")), Some(16), "EBUSY");
    assert_eq!(fs::read_to_string(&state).unwrap(), "on\n");
    fs::write(&state, "off").unwrap();
    assert_eq!(writer.join().unwrap(), Some(22), "EINVAL: it ended first");
    assert_eq!(fs::read_to_string(&state).unwrap(), "off\n");

    let writer = update();
    bed.mounted = None;
    assert!(writer.join().unwrap().is_some(), "the mount ended first");
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
    let stat = fs::metadata(path("attrs")).unwrap();
    assert_eq!((stat.mode() & 0o7777, stat.len()), (0o600, 0), "as in debugfs: its end is where reading ends");
    let shown = fs::read(path("schemes")).unwrap();
    let tail = std::process::Command::new("tail").args(["-c", "100"]).arg(path("schemes")).output().unwrap();
    assert!(shown.len() > 4096 && shown.ends_with(&tail.stdout), "{}", String::from_utf8_lossy(&tail.stdout));
    assert_eq!(tail.stdout.len(), 100);
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
